"""Paths on the targets of the tests and the exact numbers that annealing has to meet."""

import copy
import math

import torch
from targets import TARGETS, scattered
from torch import Generator

from latticework.data.base import Dataset
from latticework.models.annealed import GeometricPath
from latticework.models.rbm import RBM

BINARY = ("binary", "spins", "dense_ising", "lattice", "ring", "rbm")
OTHER = ("categorical", "lattice_potts", "ordinal")


def make_rng(seed=11):  # not 0, whose numbers R-MALA lifts its starts by
    return Generator().manual_seed(seed)


def path_of(name, kind=GeometricPath):
    """A path to the target, from non-uniform independent sites if the path supports it."""
    model = copy.deepcopy(TARGETS[name].model)
    odds = torch.linspace(-1.5, 0.5, model.domain.dim) if name in BINARY else None
    return kind(model, odds)


def z_score(path, found, truth, sign=1):
    return (float(path.log_z_start()) + sign * found.value - truth) / found.error


def log_z(name):
    return float(TARGETS[name].log_prob.max()) + math.log(
        float(torch.tensor(TARGETS[name].log_prob - TARGETS[name].log_prob.max()).exp().sum())
    )


def rows(count, seed):
    """Draws of 12 sites of which neighbours are alike."""
    rng = make_rng(seed)
    kind = torch.rand(count, 4, 1, generator=rng) < 0.4
    return (kind ^ (torch.rand(count, 4, 3, generator=rng) < 0.15)).flatten(1).byte()


DATA = Dataset(rows(400, 0), rows(50, 1), rows(60, 2), (4, 3), "blocks")


def rbm():
    model = scattered(RBM(12, 5), 3, 0.7)
    model.untrained = False  # these weights are the target
    return model
