"""Every sampler of the table, on every target it serves, against its enumerated law.

Seeds are fixed. |z| < 5 for each of some 10^5 counts is failed by chance once in some tens of
seeds; chi-square tests ask for p > 1e-4.
"""

from functools import cache

import kernels
import numpy as np
import pytest
import torch
from kernels import TABLE, Law, NoHostReads, Row
from scipy.stats import binom, chi2, norm
from targets import TARGETS, Asymmetric, Target
from torch import Generator

from models.base import Function
from models.domain import Binary, Categorical, Integer, Ordinal
from samplers.base import Info, Sampler, State, UnsupportedModelError, evaluate
from samplers.block_gibbs import BlockGibbs
from samplers.gibbs import Gibbs
from samplers.gwg import GWG
from samplers.hamming import HammingBall
from samplers.langevin import DMALA, DULA
from samplers.locally_balanced import LocallyBalanced
from samplers.relaxed import RMALA
from samplers.svgd import DiscreteSVGD


def pairs(keep=lambda row: True):
    """Parameters (row, target) for the rows that `keep` chooses."""
    chosen = [(row, name) for row in TABLE if keep(row) for name in row.targets]
    return pytest.mark.parametrize(
        ("row", "target"),
        [pytest.param(row, TARGETS[name], id=f"{row.sampler}-{name}") for row, name in chosen],
    )


@cache
def law_of(index: int, name: str) -> Law:
    return TABLE[index].law(TABLE[index].sampler, TARGETS[name])


def exact_law(row: Row, target: Target) -> Law:
    name = next(name for name, other in TARGETS.items() if other is target)
    return law_of(TABLE.index(row), name)


def stationary(matrix: np.ndarray) -> np.ndarray:
    """The law that a transition matrix leaves invariant."""
    size = len(matrix)
    equations = np.vstack([matrix.T - np.eye(size), np.ones(size)])
    return np.linalg.lstsq(equations, np.append(np.zeros(size), 1.0), rcond=None)[0].clip(0)


def largest_z(count: np.ndarray, trials: int, probability: np.ndarray) -> float:
    """The largest deviation of binomial counts, as the z-score of its exact tail probability."""
    probability = probability.clip(0, 1)
    below, above = (binom.cdf(count, trials, probability), binom.sf(count - 1, trials, probability))
    return float(norm.isf(np.minimum(below, above).min()))


def p_value(count: np.ndarray, law: np.ndarray) -> float:
    """Chi-square test; states expected fewer than 5 times are pooled."""
    expected = law * count.sum()
    few = expected < 5
    if few.any():
        count = np.append(count[~few], count[few].sum())
        expected = np.append(expected[~few], max(expected[few].sum(), 1e-9))
    return float(chi2.sf(((count - expected) ** 2 / expected).sum(), len(count) - 1))


def start(row: Row, target: Target, chains: int = 64, seed: int = 1):
    rng = Generator().manual_seed(seed)
    return row.sampler.init(target.draw(target.law, chains, rng), target.model), rng


def run(sampler: Sampler, state, model, rng, steps: int):
    for _ in range(steps):
        state, _ = sampler.step(state, model, rng)
    return state


# The enumerated matrices: what the papers prove.


@pairs(lambda row: row.law is not None and row.leaves == "target")
def test_the_enumerated_law_leaves_the_target_invariant(row, target):
    first = exact_law(row, target).after[0]
    np.testing.assert_allclose(first.sum(-1), 1, rtol=1e-12)
    for after in exact_law(row, target).after:
        np.testing.assert_allclose(target.law @ after, target.law, atol=1e-12)
    if row.reversible:
        flow = target.law[:, None] * first
        np.testing.assert_allclose(flow, flow.T, atol=1e-14)


def test_an_uncorrected_proposal_is_not_invariant():
    """Control of the test above."""
    target = TARGETS["binary"]
    proposal = kernels.langevin_proposal(DULA(4.0), target)
    assert np.abs(target.law @ proposal - target.law).max() > 1e-2


@pytest.mark.parametrize("name", kernels.EVERY)
@pytest.mark.parametrize("step_size", [0.1, 0.7, 4.0, np.inf])
def test_langevin_density_is_equation_1(name, step_size):
    """The density inside the Metropolis ratio, and not only the draws."""
    target, domain = TARGETS[name], TARGETS[name].domain
    if np.isinf(step_size) and isinstance(domain, Integer):
        pytest.skip(
            "the comparison with Equation (1) at an infinite step is made on finite domains"
        )
    preconditioner = [1.5, 0.4, 2.0, 1.0, 0.7, 3.0][: domain.dim]
    for sampler in (
        DULA(step_size),
        DULA(step_size, preconditioner),
        DULA(step_size, preconditioner, 2),
    ):
        proposal = kernels.langevin_proposal(sampler, target)
        for x in target.inner:
            reached = np.flatnonzero(proposal[x])
            here = target.states[[x] * len(reached)]
            state = sampler.init(here, target.model)
            log_q = domain.log_weight(here, target.states[reached], state.logits)
            density = (log_q - state.log_normaliser).exp().double().numpy()
            np.testing.assert_allclose(density, proposal[x, reached], rtol=2e-5, atol=1e-9)


# Real steps.


def counts(row: Row, target: Target, steps: int, replicas: int) -> tuple[list[np.ndarray], Info]:
    """Where `replicas` chains from every inner state are after 1, 2, ... steps, and the first Info."""
    rng, size = Generator().manual_seed(0), len(target.inner)
    calls, repeats = (replicas, 1) if row.shared else (1, replicas)
    x = target.states[target.inner].repeat_interleave(repeats, 0)
    found = [np.zeros((size, len(target.z)), dtype=int) for _ in range(steps)]
    source = np.arange(size).repeat(repeats)
    for _ in range(calls):
        state = row.sampler.init(x, target.model)
        for step in range(steps):
            state, info = row.sampler.step(state, target.model, rng)
            first = info if step == 0 else first
            np.add.at(found[step], (source, target.index(state.x)), 1)
    return found, first


@pairs(lambda row: row.law is not None)
def test_steps_follow_the_enumerated_law(row, target):
    law = exact_law(row, target)
    replicas = 1500 if row.shared else 400_000 // len(target.inner)
    found, info = counts(row, target, len(law.after), replicas)
    for count, after in zip(found, law.after, strict=True):
        assert largest_z(count, replicas, after[target.inner]) < 5
    if law.acceptance is None:
        assert (info.accept_prob == 1).all()
    else:
        accept = info.accept_prob.double()
        error = (accept.var() / len(accept)).sqrt() + 1e-6
        assert abs(accept.mean() - law.acceptance[target.inner].mean()) < 5 * error


@pytest.mark.parametrize("wrong", [DMALA(0.52), DULA(0.5)])
def test_the_step_test_can_fail(wrong):
    """Controls: a step size 4 % off, and the correction left out."""
    target = TARGETS["binary"]
    (after,) = kernels.dmala(DMALA(0.5), target).after
    (count,), _ = counts(Row(wrong, ("binary",), None), target, 1, 50_000)
    assert largest_z(count, 50_000, after) > 5


def invariance(sampler: Sampler, target: Target, law: np.ndarray, steps: int = 4) -> float:
    """P-value of the law after some steps of chains that start from it exactly."""
    rng = Generator().manual_seed(3)
    state = sampler.init(target.draw(law, 100_000, rng), target.model)
    state = run(sampler, state, target.model, rng, steps)
    return p_value(np.bincount(target.index(state.x), minlength=len(law)), law)


@pairs(lambda row: row.leaves != "none")
def test_invariance(row, target):
    law = target.law if row.leaves == "target" else stationary(exact_law(row, target).after[0])
    assert invariance(row.sampler, target, law / law.sum()) > 1e-4


class Identity(Sampler):
    def init(self, x, model):
        return State(x, x, x)

    def step(self, state, model, rng):
        return state, Info(torch.ones(len(state.x)))


def test_the_identity_is_invariant():
    assert invariance(Identity(), TARGETS["binary"], TARGETS["binary"].law) > 1e-4


@pytest.mark.parametrize("name", ["binary", "categorical", "ordinal", "naturals", "lattice", "rbm"])
def test_an_unadjusted_sampler_is_caught(name):
    assert invariance(DULA(4.0), TARGETS[name], TARGETS[name].law) < 1e-4


@pytest.mark.parametrize("sampler", [DMALA(4.0), GWG(), GWG(2), LocallyBalanced(), RMALA(0.3, 0.5)])
def test_a_sampler_that_accepts_always_is_caught(sampler, monkeypatch):
    monkeypatch.setattr("samplers.base.acceptance", torch.ones_like)
    assert invariance(sampler, TARGETS["binary"], TARGETS["binary"].law) < 1e-4


def test_relaxed_acceptance_is_biased():
    """RMALA says of accept="relaxation" that its law is not the target."""
    sampler = RMALA(0.3, 0.5, "relaxation")
    assert invariance(sampler, TARGETS["binary"], TARGETS["binary"].law, steps=20) < 1e-4


# What a state and a step owe to the loop.


@pairs()
def test_same_seed_same_bits(row, target):
    one, other, third = (
        run(row.sampler, *reversed_model(row, target, seed), steps=5) for seed in (11, 11, 12)
    )
    assert all(map(same_bits, one, other))
    assert not torch.equal(one.x, third.x)
