"""Every sampler of the table, on every target it serves, against its enumerated law.

Seeds are fixed. With others, |z| < 5 for each of some 10^5 counts fails by chance once in some tens
of runs of the whole table, and p > 1e-4 for each of some 150 chi-square tests about as often.
"""

import copy
from functools import cache
from itertools import chain

import exactness
import numpy as np
import pytest
import torch
from exactness import TABLE, Row, largest_z, p_value
from targets import EVERY, INTEGER, TARGETS
from torch import Generator

from latticework.models.domain import Binary
from latticework.samplers.acs import ACS
from latticework.samplers.avg import AVG
from latticework.samplers.base import Info, Sampler, State, UnsupportedModelError
from latticework.samplers.block_gibbs import BlockGibbs
from latticework.samplers.dhams import DHAMS
from latticework.samplers.dlmc import DLMC, DLMCf
from latticework.samplers.edlp import EDLP
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.gwg import GWG
from latticework.samplers.hamming import HammingBall
from latticework.samplers.langevin import DMALA, DULA
from latticework.samplers.locally_balanced import LocallyBalanced
from latticework.samplers.path_auxiliary import PAFS, PAFSWithReplacement
from latticework.samplers.pavg import PAVG
from latticework.samplers.pt_dmala import PTDMALA
from latticework.samplers.random_walk import RandomWalk
from latticework.samplers.relaxed import RMALA
from latticework.samplers.svgd import DiscreteSVGD
from latticework.samplers.swendsen_wang import SwendsenWang
from latticework.sampling.checking.examination import counts
from latticework.sampling.checking.guard import NoHostReads
from latticework.sampling.checking.law import Law
from latticework.sampling.checking.targets import Asymmetric, Target


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


def start(row: Row, target: Target, chains: int = 256, seed: int = 1):
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
    proposal = exactness.langevin_proposal(DULA(4.0), target)
    assert np.abs(target.law @ proposal - target.law).max() > 1e-2


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("step_size", [0.1, 0.7, 4.0, np.inf])
def test_langevin_density_is_equation_1(name, step_size):
    """The density inside the Metropolis ratio, and not only the draws."""
    target, domain = TARGETS[name], TARGETS[name].domain
    preconditioner = [1.5, 0.4, 2.0, 1.0, 0.7, 3.0][: domain.dim]
    for sampler in (
        DULA(step_size),
        DULA(step_size, preconditioner),
        DULA(step_size, preconditioner, 2),
    ):
        proposal = exactness.langevin_proposal(sampler, target)
        for x in target.inner:
            reached = np.flatnonzero(proposal[x])
            here = target.states[[x] * len(reached)]
            state = sampler.init(here, target.model)
            log_q = domain.log_weight(here, target.states[reached], state.logits)
            density = (log_q - domain.log_normaliser(state.logits)).exp().double().numpy()
            np.testing.assert_allclose(density, proposal[x, reached], rtol=2e-5, atol=1e-9)


# Real steps.


def check_steps(row: Row, target: Target, sampler: Sampler):
    """Counts and acceptance of real steps of `sampler` against the law of `row`."""
    law = exact_law(row, target)
    replicas = 400 if row.shared else 100_000 // len(target.inner)
    found, info = counts(sampler, target, len(law.after), replicas, row.shared)
    for count, after in zip(found, law.after, strict=True):
        assert largest_z(count, replicas, after[target.inner]) < 5
    if law.acceptance is None:
        assert (info.accept_prob == 1).all()
    else:
        accept = info.accept_prob.double()
        error = (accept.var() / len(accept)).sqrt() + 1e-6
        assert abs(accept.mean() - law.acceptance[target.inner].mean()) < 5 * error


@pairs(lambda row: row.law is not None)
def test_steps_follow_the_enumerated_law(row, target):
    check_steps(row, target, row.sampler)


@pytest.mark.parametrize("wrong", [DMALA(0.52), DULA(0.5)])
def test_the_step_test_can_fail(wrong):
    """Controls: a step size 4 % off, and the correction left out."""
    target = TARGETS["binary"]
    (after,) = exactness.dmala(DMALA(0.5), target).after
    (count,), _ = counts(wrong, target, 1, 50_000)
    assert largest_z(count, 50_000, after) > 5


def invariance(
    sampler: Sampler,
    target: Target,
    law: np.ndarray,
    steps: int = 4,
    chains: int = 10_000,
    calls: int = 1,
) -> float:
    """P-value of the law after some steps of chains that start from it exactly.

    Chains of different `calls` are independent, whatever those of one call share. Where the rest of
    the state does not start from its law, the chains settle first. 10,000 chains see a relative
    error of 10 % (root mean square over up to 64 states) in 99 of 100 cases; those of the controls
    below are 36 % or more.
    """
    rng, count = Generator().manual_seed(3), np.zeros(len(law), dtype=int)
    if not sampler.stationary_start:
        steps = SETTLING
    for _ in range(calls):
        state = sampler.init(target.draw(law, chains, rng), target.model)
        state = run(sampler, state, target.model, rng, steps)
        count += np.bincount(target.index(state.x), minlength=len(law))
    return p_value(count, law)


@pairs(lambda row: row.leaves != "none")
def test_invariance(row, target):
    own = row.leaves == "own"
    law = stationary(exact_law(row, target).after[0]) if own else target.law
    # Chains that share a block leave the target invariant whatever the block is; chains that share
    # a minibatch keep their own law only in the mean over minibatches: one chain a call.
    alone = row.shared and row.leaves == "own"
    sizes = {"chains": 1, "calls": 2000} if alone else {}
    if row.law is None and row.sampler.stationary_start:  # no other test of its law
        sizes = {"chains": 50_000}
    assert invariance(row.sampler, target, law / law.sum(), **sizes) > 1e-4
    if alone:
        assert invariance(row.sampler, target, target.law, **sizes) < 1e-4


SETTLING = 40  # steps; the start is forgotten by then


class Identity(Sampler):
    def at(self, x, model):
        return State(x, x, x)

    def step(self, state, model, rng):
        return state, Info(torch.ones(len(state.x)))


def test_the_identity_is_invariant():
    assert invariance(Identity(), TARGETS["binary"], TARGETS["binary"].law) > 1e-4


@pytest.mark.parametrize("name", ["binary", "categorical", "ordinal", "naturals", "lattice", "rbm"])
def test_an_unadjusted_sampler_is_caught(name):
    assert invariance(DULA(4.0), TARGETS[name], TARGETS[name].law) < 1e-4


METROPOLIS = [
    DMALA(0.5),
    DMALA(4.0),
    GWG(),
    GWG(2),
    LocallyBalanced(),
    RMALA(0.3, 0.5),
    RandomWalk(2),
    PAFS(2),
    PAFSWithReplacement(2),
    DLMC(0.5),
    DLMCf(0.5, "barker"),
    ACS(2.0, 0.2, 4),
    *(AVG(2.0), PAVG(3.0, 0), DHAMS(1.5), EDLP(2.0, 0.7), EDLP(0.6, 0.7, 0.5)),
]


@pytest.mark.parametrize("sampler", METROPOLIS[1:], ids=str)
def test_a_sampler_that_accepts_always_is_caught(sampler, monkeypatch):
    monkeypatch.setattr("latticework.samplers.base.acceptance", torch.ones_like)
    assert invariance(sampler, TARGETS["binary"], TARGETS["binary"].law) < 1e-4


def test_relaxed_acceptance_is_biased():
    """RMALA with accept="relaxation" declares that it is not exact."""
    sampler = RMALA(0.3, 0.5, "relaxation")
    assert invariance(sampler, TARGETS["binary"], TARGETS["binary"].law, steps=20) < 1e-4


# What a state and a step owe to the loop.


def flat(state) -> list[torch.Tensor]:
    """The tensors of a state, in order."""
    return [t for field in state for t in (flat(field) if isinstance(field, tuple) else [field])]


def both(one, other, name: str):
    """The tensors of one field of two states, side by side."""
    return zip(flat([getattr(one, name)]), flat([getattr(other, name)]), strict=True)


@pairs()
def test_same_seed_same_bits(row, target):
    def trial(seed):
        state, _ = start(row, target)
        return run(row.sampler, state, target.model, Generator().manual_seed(seed), 5)

    one, same, other = trial(11), trial(11), trial(12)
    assert all(torch.equal(a, b) for a, b in zip(flat(one), flat(same), strict=True))
    if not isinstance(row.sampler, DiscreteSVGD):  # which draws nothing
        assert not torch.equal(one.x, other.x)


@pairs()
def test_cached_values_match_the_position(row, target):
    state, rng = start(row, target, chains=256)
    state = run(row.sampler, state, target.model, rng, 20)
    fresh = row.sampler.init(state.x, target.model)
    for name in set(state._fields) - set(row.sampler.memory):
        for cached, value in both(state, fresh, name):
            # Twenty increments of float32 numbers of order 10.
            torch.testing.assert_close(cached, value, rtol=1e-5, atol=1e-4)


@pairs()
def test_refresh_reads_the_new_target(row, target):
    state, rng = start(row, target)
    state = run(row.sampler, state, target.model, rng, 3)
    memory = {
        name: [t.clone() for t in flat([getattr(state, name)])] for name in row.sampler.memory
    }
    other = changed(target.model)
    fresh = row.sampler.init(state.x, other)
    state = row.sampler.refresh(state, other)
    for name in set(state._fields) - set(row.sampler.memory):
        for cached, value in both(state, fresh, name):
            torch.testing.assert_close(cached, value)
    for name in {"scan", "position", "phase", "root", "momentum", "guide", "turn"} & set(
        row.sampler.memory
    ):
        assert all(map(torch.equal, flat([getattr(state, name)]), memory[name]))


def changed(model):
    """A copy of the model with its first parameter or buffer negated."""
    model = copy.deepcopy(model)
    tensor = next(chain(model.parameters(), model.buffers()))
    tensor.neg_()
    return model


@pairs()
def test_a_step_reads_nothing_on_the_host(row, target):
    state, rng = start(row, target, chains=8)
    with NoHostReads():
        run(row.sampler, state, target.model, rng, 2)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x[0].item(),
        lambda x: bool(x.sum() > 0),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: torch.multinomial(x.abs(), 1),
        lambda x: torch.tensor([1.0, 2.0]),
        lambda x: x.masked_select(x > 0),
    ],
)
def test_the_guard_catches_host_reads(read):
    x = torch.randn(4, generator=Generator().manual_seed(0))
    with pytest.raises(AssertionError, match="on the host"), NoHostReads():
        read(x)


@pairs(lambda row: not isinstance(row.sampler, DiscreteSVGD))  # may well stay for some steps
def test_init_leaves_its_argument_untouched(row, target):
    rng = Generator().manual_seed(1)
    x = target.draw(target.law, 256, rng)
    given = x.clone()
    state = run(row.sampler, row.sampler.init(x, target.model), target.model, rng, 5)
    assert torch.equal(x, given)
    assert not torch.equal(state.x, given)


class Forbidding(Asymmetric):
    """States whose first two sites are both high have log-probability `value`."""

    def __init__(self, value: float) -> None:
        super().__init__(Binary(4))
        self.value = value

    def forward(self, x):
        return super().forward(x).masked_fill(x[:, 0] * x[:, 1] > 0.5, self.value)


EXACT = [row.sampler for row in TABLE if row.sampler.exact and "binary" in row.targets]


@pytest.mark.parametrize(
    ("sampler", "value"),
    [
        *[
            (sampler, -np.inf)
            for sampler in EXACT
            if not getattr(sampler, "preconditioner", None) and not getattr(sampler, "matrix", None)
        ],
        *[(sampler, np.nan) for sampler in [*METROPOLIS, PTDMALA(0.5, [1.0, 0.5], 20)]],
    ],
    ids=str,
)
def test_states_without_probability_are_never_entered(sampler, value):
    model = Forbidding(value)
    rng = Generator().manual_seed(0)
    x = model.domain.uniform(512, rng)
    x[:, 0] *= 1 - x[:, 1]
    state = sampler.init(x, model)
    for _ in range(20):
        state, info = sampler.step(state, model, rng)
        model.domain.check(state.x)
        assert (state.x[:, 0] * state.x[:, 1] == 0).all()
        assert info.accept_prob.isfinite().all()
    assert (state.x != x).any(0).all()


UNSERVED = [
    (BlockGibbs(), "lattice"),
    (BlockGibbs(), "categorical"),
    (Gibbs(), "integers"),
    (GWG(2), "categorical"),
    (GWG(2), "naturals"),
    (HammingBall(2, 1), "ordinal"),
    (HammingBall(2, 1), "categorical"),
    (RandomWalk(), "integers"),
    (RMALA(0.3, 0.5), "categorical"),
    (RMALA(0.3, 0.5), "naturals"),
    (DiscreteSVGD(0.1, 0.5), "ordinal"),
    (SwendsenWang(), "ring"),
    (SwendsenWang(), "dense_ising"),
]


@pytest.mark.parametrize(("sampler", "name"), UNSERVED, ids=str)
def test_a_model_that_cannot_be_served_is_refused(sampler, name):
    target = TARGETS[name]
    with pytest.raises(UnsupportedModelError, match=f"{type(sampler).__name__} needs .* got"):
        sampler.init(target.states[:2], target.model)


def test_unserved_pairs_are_not_in_the_table():
    """A sampler that supports a model must not be in the list above."""
    served = {(type(row.sampler), name) for row in TABLE for name in row.targets}
    assert not {(type(s), n) for s, n in UNSERVED if not isinstance(s, GWG)} & served


@pytest.mark.parametrize("name", INTEGER)
def test_the_listed_box_holds_the_law(name):
    """The mass outside an infinite domain's listed states is too small for any test to detect."""
    target = TARGETS[name]
    outside = np.setdiff1d(np.arange(len(target.law)), target.inner)
    assert target.law[outside].sum() < 1e-7
