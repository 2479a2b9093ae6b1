"""Compiled rates-FPCD, rates-herding and sample penalization, against the eager samplers."""

import exactness
import numpy as np
import pytest
import torch
from exactness import largest_z
from targets import TARGETS
from test_compiled import leaves
from test_kernels import counts
from test_rates import data, rng

from latticework.models.rated_rbm import RatedRBM
from latticework.models.rbm import RBM
from latticework.samplers.base import UnsupportedModelError
from latticework.samplers.block_gibbs import BlockGibbs
from latticework.samplers.compiled.choose import twin_of
from latticework.samplers.rates import (
    RatesFPCD,
    RatesHerding,
    SamplePenalization,
    _penalised_spins,
    hidden_inputs,
)
from latticework.samplers.sums import Wanted

DRAWING = [
    RatesFPCD(0.05),
    RatesFPCD(0.05, 0.9, steps=3),
    RatesFPCD(0.05, statistics="sampled"),
    RatesFPCD(0.05, emit="mean"),
    SamplePenalization(0.02, decay=0.7),
]
EVERY = [*DRAWING, RatesHerding(0.3), RatesHerding(0.3, sweeps=2)]


def rated(visible: int = 13, hidden: int = 7) -> RatedRBM:
    model = RatedRBM(visible, hidden)
    for parameter in model.parameters():
        parameter.normal_(generator=rng(1))
    model.set_rates([data(visible=visible)])
    return model


def started(sampler, model, chains=5):
    twin = twin_of(sampler, model)
    return twin, twin.init(model.domain.uniform(chains, rng(4)), model)


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("statistics", ["mean", "sampled"])
def test_without_a_step_size_it_has_the_law_of_block_gibbs(steps: int, statistics: str):
    """Step after step, because F stays 0."""
    target = TARGETS["rbm"]
    after = exactness.block_gibbs(BlockGibbs(steps), target).after[0]
    twin = twin_of(SamplePenalization(0.0, 0.9, steps, statistics), target.model)
    replicas = 100_000 // len(target.z)
    for found, law in zip(
        counts(twin, target, 2, replicas)[0],
        (after, after @ after),
        strict=True,
    ):
        assert largest_z(found, replicas, law) < 5


@pytest.mark.parametrize("sampler", DRAWING, ids=str)
def test_fast_weights_are_updated_from_the_sample(sampler):
    """F after each step, by the eager formula from F before it and the chain's new position."""
    model = rated()
    twin, state = started(sampler, model)
    rates = [model.weight_rates, model.visible_rates, model.hidden_rates]
    if isinstance(sampler, SamplePenalization):
        rates = list(map(torch.zeros_like, rates))
    generator, size, decay = rng(), sampler.fast_step_size, sampler.decay
    for _ in range(30):
        before = type(state)(*(t.clone() for t in state))
        state, info = twin.step(state, model, generator)
        x = state.position
        model.domain.check(x)
        h = hidden_inputs(model, before, x).sigmoid()
        if sampler.statistics == "sampled":  # h as the update of its bias shows it
            h = (decay * before.hidden_bias - state.hidden_bias) / size + rates[2]
            torch.testing.assert_close(h, h.round(), rtol=0, atol=1e-4)
            assert set(h.round().unique().tolist()) == {0.0, 1.0}
        expected = [
            decay * before.weight + size * (rates[0] - x[:, :, None] * h[:, None]),
            decay * before.visible_bias + size * (rates[1] - x),
            decay * before.hidden_bias + size * (rates[2] - h),
        ]
        for found, wanted in zip(state[2:], expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        if sampler.emit == "mean":
            assert ((state.x > 0) & (state.x < 1)).all()
        else:
            assert torch.equal(state.x, x)
        assert (info.accept_prob == 1).all()


def test_spins_are_penalised_by_the_eager_formula():
    model, sampler = rated(), SamplePenalization(0.02, decay=0.7, coding="spin")
    twin, state = started(sampler, model)
    for _ in range(10):
        before = type(state)(*(t.clone() for t in state))
        state, _ = twin.step(state, model, rng())
        h = hidden_inputs(model, before, state.position).sigmoid()
        expected, _ = _penalised_spins(sampler, before._replace(position=state.position), h)
        for found, wanted in zip(state[2:], expected[2:], strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_step_under_fast_weights_draws_from_the_moved_model():
    """Many chains with one and the same F: the law of block Gibbs of the RBM W + F."""
    model, replicas = RatedRBM(4, 3), 30_000
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.normal_(generator=rng(6))
    twin = twin_of(RatesFPCD(0.1), model)
    state = twin.at(torch.tensor([1.0, 0, 1, 1]).expand(replicas, -1).contiguous(), model)
    moved = RBM(4, 3)
    for target, own, fast in zip(moved.parameters(), model.parameters(), state[2:], strict=True):
        fast.copy_(torch.empty_like(own).normal_(generator=rng(7)))
        target.copy_(own + fast[0])
    law = exactness.block_gibbs(BlockGibbs(), exactness.Target(moved)).after[0][0b1011]
    state, _ = twin.step(state, model, rng())
    index = (state.x @ torch.tensor([8.0, 4, 2, 1])).long()
    assert largest_z(index.bincount(minlength=16).numpy(), replicas, law) < 5


@pytest.mark.parametrize("bound", [100, 2])
def test_herding_is_the_eager_chain(bound: int):
    model, sampler = rated(40, 30), RatesHerding(0.3, sweeps=bound)
    twin, state = started(sampler, model, chains=8)
    eager = sampler.init(state.x.clone(), model)
    unsettled = 0
    for _ in range(60):
        state, info = twin.step(state, model, rng())
        eager, other = sampler.step(eager, model, rng())
        assert torch.equal(state.x, eager.x)
        assert torch.equal(info.unsettled, other.unsettled)
        for ours, theirs in zip(state[2:], eager[2:], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-5)
        unsettled += info.unsettled.sum()
    assert (unsettled > 0) == (bound == 2)


@pytest.mark.parametrize("sampler", EVERY, ids=str)
def test_division_into_calls_and_threads_change_nothing(sampler, monkeypatch):
    monkeypatch.setattr("latticework.samplers.compiled.jit.ALONE", 1.0)
    model, results = rated(), []
    for calls, threads in (([9], 1), ([9], 2), ([1] * 9, 1), ([4, 5], 2)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        (twin, state), generator = started(sampler, model), rng()
        for steps in calls:
            state, _ = twin.advance(state, model, generator, steps)
        results.append(leaves(state))
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


@pytest.mark.parametrize("sampler", EVERY, ids=str)
def test_sums_are_those_of_single_steps(sampler):
    model = rated()
    (twin, state), generator = started(sampler, model), rng()
    states, unsettled = [state.x.clone()], 0
    for _ in range(9):
        state, info = twin.step(state, model, generator)
        states.append(state.x.clone())
        if info.unsettled is not None:
            unsettled = unsettled + info.unsettled
    twin, state = started(sampler, model)
    _, sums = twin.advance(state, model, rng(), 9, Wanted(total=True, draws=4, traced=3))
    visited = torch.stack(states)
    np.testing.assert_allclose(sums.total, visited[1:].sum(0), atol=1e-5)
    np.testing.assert_array_equal(sums.trace, visited[-4:, :3].char())
    np.testing.assert_array_equal(sums.changed, (visited[1:] != visited[:-1]).sum((0, 2)))
    np.testing.assert_array_equal(sums.accept, 9)
    if isinstance(sampler, RatesHerding):
        np.testing.assert_array_equal(sums.unsettled, unsettled)


def test_a_start_is_left_alone_and_fast_weights_are_kept():
    model, x = rated(), rated().domain.uniform(5, rng(4))
    before = x.clone()
    twin = twin_of(RatesFPCD(0.1), model)
    state, _ = twin.advance(twin.init(x, model), model, rng(), 5)
    assert torch.equal(x, before)
    assert twin.refresh(state, model).weight is state.weight
    assert state.weight.abs().max() > 0


def test_models_without_rates_are_refused():
    for sampler in (RatesFPCD(), RatesHerding()):
        for model in (RBM(4, 2), RatedRBM(4, 2)):
            with pytest.raises(UnsupportedModelError, match="rates of its training data"):
                twin_of(sampler, model).init(torch.zeros(1, 4), model)


def test_states_without_energies_stay_and_are_counted():
    model = rated()
    twin, state = started(RatesFPCD(0.1), model)
    x = state.x.clone()
    model.weight[0, 2] = torch.nan
    state.position[:, 0] = 1
    state, sums = twin.advance(state, model, rng(), 3)
    assert (sums.invalid == 3).all()
    assert torch.equal(state.position[:, 1:], x[:, 1:])
