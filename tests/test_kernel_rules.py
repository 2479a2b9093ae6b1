"""Rules that every step keeps, on each target by both engines; what samplers refuse."""

import copy
from itertools import chain

import pytest
import torch
from rows import MEMORY, distinct, engines, flat, of_rows, run
from targets import TARGETS
from torch import Generator

import latticework as lw
from latticework.samplers.sums import MultiStepSampler
from latticework.sampling.checking import variations
from latticework.sampling.checking.check_case import CheckCase
from latticework.sampling.checking.host_reads import NoHostReads
from latticework.sampling.checking.suite import CHECKS
from latticework.sampling.checking.targets import Target

RULES = ["valid states", "states not aliased", "chance from rng", "resumes exactly"]
EAGER = ["cached values", "no host reads"]


@pytest.mark.slow
@of_rows()
def test_rules(row):
    for sampler, name in engines(row, distinct(row)):
        case = CheckCase(sampler, TARGETS[name], 1e-6)
        for rule in RULES if isinstance(sampler, MultiStepSampler) else RULES + EAGER:
            with torch.no_grad():
                outcome = CHECKS[rule](case)
            assert outcome.status == "ok", f"{sampler} on {name}, {rule}: {outcome.detail}"


@pytest.mark.slow
@of_rows(lambda row: row.sampler.exact)
def test_states_without_probability_are_never_entered(row, monkeypatch):
    """Targets that are -inf, or NaN, in two states; of twins see test_same_law.py.

    4,000 chains of 8 steps enter a state that has a share of 10^-3 of the moves.
    """
    monkeypatch.setattr(variations, "MASKED_CHAINS_AND_STEPS", (4000, 8))
    case = CheckCase(row.sampler, TARGETS[row.targets[0]], 1e-9)
    for name in ("impossible states", "unknown states"):
        outcome = CHECKS[name](case)
        assert outcome.status in ("ok", "-"), (name, outcome.detail)


@pytest.mark.slow
@of_rows()
def test_refresh_reads_the_new_target(row):
    """The rest of the state is that of a new one; memory is kept."""
    for sampler, name in engines(row, distinct(row)):
        refreshes(sampler, TARGETS[name])


def refreshes(sampler: lw.Sampler, target: Target) -> None:
    rng = Generator().manual_seed(1)
    state = sampler.init(target.draw(target.law, 64, rng), target.model)
    state = run(sampler, state, target.model, rng, 3)
    names = MEMORY & set(state._fields)
    kept = {name: [t.clone() for t in flat([getattr(state, name)])] for name in names}
    other = copy.deepcopy(target.model)
    next(chain(other.parameters(), other.buffers())).neg_()
    fresh = sampler.init(state.x, other)
    state = sampler.refresh(state, other)
    for name in names - {"age"}:
        assert all(map(torch.equal, flat([getattr(state, name)]), kept[name]))
    if isinstance(
        sampler, MultiStepSampler
    ):  # whose state has room for values that are computed when due
        names |= set(sampler.memory)
        fresh = fresh._replace(**copy.deepcopy({name: getattr(state, name) for name in names}))
        states = (
            sampler.advance(s, other, Generator().manual_seed(9), 5)[0] for s in (state, fresh)
        )
        assert torch.equal(*(state.x for state in states))
        return
    for name in set(state._fields) - set(sampler.memory):
        found, expected = (flat([getattr(s, name)]) for s in (state, fresh))
        torch.testing.assert_close(found, expected)


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


UNSUPPORTED = [
    (lw.BlockGibbs(), "lattice categorical"),
    (lw.Gibbs(), "integers"),
    (lw.GWG(2), "categorical naturals"),
    (lw.HammingBall(2, 1), "ordinal categorical"),
    (lw.RandomWalk(), "integers"),
    (lw.RMALA(0.3, 0.5), "categorical naturals"),
    (lw.DiscreteSVGD(0.1, 0.5), "ordinal categorical"),
    (lw.SwendsenWang(), "ring dense_ising"),
    (lw.GibbsSweep(), "dense_ising"),
]


@pytest.mark.parametrize(("sampler", "names"), UNSUPPORTED, ids=str)
def test_unsupported_models_are_refused(sampler, names):
    for target in map(TARGETS.get, names.split()):
        with pytest.raises(lw.UnsupportedModelError, match=f"{type(sampler).__name__} needs .*got"):
            sampler.init(target.states[:2], target.model)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lw.RMALA(1, 0.0), "temperature must be positive"),
        (lambda: lw.RMALA(1, 0.5, "both"), "accept must be"),
        (lambda: lw.DiscreteSVGD(0.1, 1.0, -2.0), "bandwidth must be positive"),
        (lambda: lw.RatesFPCD(-1.0), "fast_step_size must be 0 or more, got -1"),
        (lambda: lw.RatesHerding(0.1, 1.5), r"decay must be in \[0, 1\], got 1.5"),
        (lambda: lw.RatesFPCD(statistics="both"), "statistics must be one of"),
        (lambda: lw.SamplePenalization(coding="sign"), "coding must be None or spin"),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
