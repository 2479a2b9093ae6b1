"""The exact law of one step, a transition matrix over the listed states, from a paper's formulas.

NumPy in float64, which shares nothing with `samplers` and `models.domains`: tests compare the two.
"""

import itertools
from math import inf
from typing import NamedTuple

import numpy as np

from latticework.sampling.checking.targets import Target

Matrix = np.ndarray  # [states, states], rows sum to 1


class Law(NamedTuple):
    """The law of a sampler from `init`: its transition matrix after 1, 2, ... steps."""

    after: list[Matrix]
    acceptance: np.ndarray | None = None  # [states], the mean of accept_prob in the first step


def metropolis_law(proposal: Matrix, target: Target) -> Law:
    """Eq. (3) of Zhang et al.: accept y with probability min(1, pi(y) q(x|y) / pi(x) q(y|x)).

    From a state of probability 0, where no chain starts, every proposal is accepted.
    """
    law, size = target.law, len(proposal)
    matrix, acceptance = np.zeros((size, size)), np.zeros(size)
    for x in range(size):
        for y in np.flatnonzero(proposal[x]):
            flow, back = law[x] * proposal[x, y], law[y] * proposal[y, x]
            accepted = proposal[x, y] * (min(1.0, back / flow) if flow else 1.0)
            matrix[x, y] += accepted
            matrix[x, x] += proposal[x, y] - accepted
            acceptance[x] += accepted
    return Law([matrix], acceptance)


def normalise_rows(weights: Matrix) -> Matrix:
    return weights / weights.sum(-1, keepdims=True)


def one_site_weights(change: Matrix, target: Target) -> Matrix:
    """exp(change / 2) for the states that one move leads to, else 0."""
    weights = np.zeros_like(change)
    for x, y in itertools.permutations(range(len(change)), 2):
        near = np.abs(target.z[y] - target.z[x]).max() <= getattr(target.domain, "window", inf)
        if near and len(target.sites_changed(x, y)) == target.sites_per_move:
            weights[x, y] = np.exp(change[x, y] / 2)
    return weights


def one_site_proposal(change: Matrix, target: Target) -> Matrix:
    """Proportional to exp(change / 2) over the states that one move leads to."""
    return normalise_rows(one_site_weights(change, target))
