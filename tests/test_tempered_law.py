"""Replicas of tempering keep their joint law, by every kernel and engine."""

import pytest
import torch
from replicas import SCALES, joint_p
from targets import TARGETS
from torch import Generator

import latticework as lw
from latticework.samplers.base import acceptance
from latticework.samplers.compiled.registry import find_compiled_kernel
from latticework.samplers.fused import Fused

pytestmark = pytest.mark.usefixtures("no_grad")


KERNELS = [
    (lw.DMALA(0.5), "binary"),
    (lw.DMALA(0.5), "categorical"),
    (lw.GWG(), "ordinal"),
    (lw.GWG(), "binary"),
    (lw.GWG(2), "rbm"),
    (lw.DMALA(0.5), "rbm"),
    (lw.Gibbs(), "rbm"),
    (lw.Gibbs(2), "rbm"),
    (lw.BlockGibbs(), "rbm"),
    (lw.LocallyBalanced(), "rbm"),
    (lw.Gibbs(), "binary"),
    (lw.Gibbs(2), "ordinal"),
    (lw.GibbsSweep(), "lattice"),
    (lw.GibbsSweep(), "lattice_potts"),
    (lw.MetropolisSweep(), "lattice_potts"),
    (lw.LocallyBalanced(), "spins"),
    (lw.RandomWalk(2), "categorical"),
    (lw.PAFS(2), "binary"),
    (lw.DLMC(0.5), "ordinal"),
    (lw.ACS(2.0, 0.2, 4), "binary"),
    (lw.AVG(0.8), "spins"),
    (lw.DHAMS(0.7, 0.8, 0.3), "spins"),
    (lw.EDLP(0.6, 0.7, 0.5), "spins"),
    (lw.HammingBall(3, 1, "systematic"), "binary"),
    (lw.SwendsenWang(), "lattice"),
    (lw.SwendsenWang(), "lattice_potts"),
    (lw.SwendsenWang(), "ferromagnet"),
]


RECORDED = [  # what a kernel asks of a path: each method, by both kinds of paths
    (lw.DMALA(0.5), "binary", None),
    (lw.DMALA(0.5), "rbm", SCALES),
    (lw.GWG(2), "rbm", None),
    (lw.Gibbs(), "binary", None),
    (lw.Gibbs(2), "rbm", None),
    (lw.BlockGibbs(), "rbm", None),
    (lw.LocallyBalanced(), "spins", None),
    (lw.GibbsSweep(), "lattice_potts", None),
    (lw.ACS(2.0, 0.2, 4), "binary", None),
    (lw.AVG(0.8), "categorical", SCALES),
    (lw.DHAMS(0.7, 0.8, 0.3), "spins", SCALES),
]


@pytest.mark.parametrize(("kernel", "name"), KERNELS)
def test_replicas_keep_the_product_of_the_laws_of_their_levels(kernel, name):
    assert joint_p(lw.Tempered(kernel, schedule=[0.0, 0.3, 1.0]), name) > 1e-4


@pytest.mark.parametrize(("kernel", "name"), KERNELS[::4])
def test_a_schedule_may_begin_above_0(kernel, name):
    assert joint_p(lw.Tempered(kernel, schedule=[0.4, 1.0]), name) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "name", "scales"), RECORDED)
def test_recorded_steps_keep_the_joint_law(kernel, name, scales, uncompiled):
    """Those of the fused engine, which PyTorch interprets here."""
    sampler = lw.Tempered(kernel, schedule=[0.0, 0.3, 1.0], scales=scales)
    assert joint_p(sampler, name, engine=Fused) > 1e-4


@pytest.mark.parametrize(
    ("kernel", "name"), [(lw.DMALA(0.5), "binary"), (lw.Gibbs(), "spins"), (lw.BlockGibbs(), "rbm")]
)
def test_log_odds_are_those_of_b_0(kernel, name):
    sites = TARGETS[name].domain.dim
    odds = [0.8 * (-1) ** i for i in range(sites)]
    assert joint_p(lw.Tempered(kernel, schedule=[0.0, 0.3, 1.0], log_odds=odds), name) > 1e-4


@pytest.mark.parametrize("wrong", [lambda r: acceptance(r / 2), lambda r: acceptance(-r)])
def test_other_swaps_keep_another_law(wrong, monkeypatch):
    monkeypatch.setattr("latticework.samplers.tempered.acceptance", wrong)
    assert joint_p(lw.Tempered(lw.DMALA(0.5), schedule=[0.0, 0.3, 1.0]), "binary") < 1e-4


def test_steps_between_swaps_keep_the_law():
    sampler = lw.Tempered(lw.GWG(), schedule=[0.0, 0.5, 1.0], steps=3)
    assert joint_p(sampler, "ordinal", steps=2) > 1e-4


def test_swaps_alternate_and_levels_change_not_states():
    """Four replicas at almost one temperature always swap: (0 1) (2 3), then (1 2)."""
    model, rng = TARGETS["rbm"].model, Generator().manual_seed(0)
    sampler = lw.Tempered(lw.DMALA(1e-4), schedule=[1 - 3e-6, 1 - 2e-6, 1 - 1e-6, 1.0])
    x = model.domain.enumerate()[:12].float().view(4, 3, -1)
    state = sampler._at(x, x[-1], torch.tensor(sampler.schedule), model)
    levels = []
    for _ in range(4):
        state, _ = sampler.step(state, model, rng)
        levels.append(state.level[:, 0].tolist())
        assert torch.equal(state.kernel.x.view(4, 3, -1), x)
        assert torch.equal(state.x, x[state.level.argmax(0), range(3)])
    assert levels == [[1, 0, 3, 2], [2, 0, 3, 1], [3, 1, 2, 0], [3, 2, 1, 0]]


# Compiled kernels.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (lw.GibbsSweep(), "lattice"),
        (lw.MetropolisSweep(), "ferromagnet"),
        (lw.GWG(), "dense_ising"),
        (lw.Gibbs(), "lattice_potts"),
        (lw.MetropolisSweep(), "lattice_potts"),
        (lw.DMALA(0.5), "lattice"),
        (lw.DMALA(0.5), "dense_ising"),
        (lw.SwendsenWang(), "lattice"),
        (lw.SwendsenWang(), "ferromagnet"),
    ],
)
@pytest.mark.parametrize(("steps", "hot"), [(1, 0.0), (3, 0.5)])
def test_compiled_kernels_keep_the_joint_law(kernel, name, steps, hot):
    scales = SCALES if kernel.scale else None
    sampler = lw.Tempered(kernel, schedule=[0.0, 0.4, 1.0], steps=steps, hot=hot, scales=scales)
    assert joint_p(find_compiled_kernel(sampler, TARGETS[name].model), name) > 1e-4


def test_hot_levels_make_one_step():
    """Without a field, a Metropolis sweep flips a site with probability 7/8, two with 7/32."""
    model, schedule = lw.Lattice((6,), 0.0), [0.25, 0.5, 0.75, 1.0]
    sampler = lw.Tempered(lw.MetropolisSweep(), schedule=schedule, steps=2, hot=0.5)
    x = torch.zeros(1000, 6)
    twin = find_compiled_kernel(sampler, model)
    state, _ = twin.step(twin.init(x, model), model, Generator())
    means = state.kernel.x.view(4, 1000, 6).mean((1, 2))
    expected = torch.tensor([7 / 8, 7 / 8, 7 / 32, 7 / 32])
    error = (expected * (1 - expected) / 6000).sqrt()
    assert ((means - expected).abs() < 6 * error).all()
