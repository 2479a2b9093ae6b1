"""Compiled kernels against the enumerated laws of THE TABLE, and against their eager samplers."""

import dataclasses

import numpy as np
import pytest
import torch
from exactness import TABLE, Row
from targets import TARGETS, Target
from test_kernels import check_steps, exact_law, invariance, run, start, stationary
from torch import Generator

from latticework.samplers.compiled.choose import twin_of
from latticework.samplers.compiled.jit import SHORT
from latticework.samplers.compiled.twin import NoTwinError


def compiled_pairs() -> list:
    """Parameters (eager row, compiled row, target) for all that have a compiled kernel."""
    found = []
    for row in TABLE:
        for name in row.targets:
            try:
                twin = twin_of(row.sampler, TARGETS[name].model)
            except NoTwinError:
                continue
            compiled = dataclasses.replace(row, sampler=twin)
            found.append(pytest.param(row, compiled, TARGETS[name], id=f"{row.sampler}-{name}"))
    return found


PAIRS = compiled_pairs()


@pytest.mark.parametrize(("row", "compiled", "target"), PAIRS)
def test_steps_follow_the_enumerated_law(row: Row, compiled: Row, target: Target):
    check_steps(row, target, compiled.sampler)


@pytest.mark.parametrize(("row", "compiled", "target"), PAIRS)
def test_invariance(row: Row, compiled: Row, target: Target):
    law = target.law if row.leaves == "target" else stationary(exact_law(row, target).after[0])
    assert invariance(compiled.sampler, target, law / law.sum()) > 1e-4


def leaves(state) -> list[torch.Tensor]:
    return [t for field in state for t in (leaves(field) if isinstance(field, tuple) else [field])]


@pytest.mark.parametrize(("row", "compiled", "target"), PAIRS)
def test_many_steps_are_single_steps(row: Row, compiled: Row, target: Target):
    """One call of 7 steps, 7 calls of `step`, and calls of 2 and 5: the same bits."""

    def trial(calls: list[int]):
        state, _ = start(compiled, target, chains=6)
        rng = Generator().manual_seed(5)
        for steps in calls:
            state, _ = compiled.sampler.advance(state, target.model, rng, steps)
        return leaves(state)

    state, _ = start(compiled, target, chains=6)
    single = leaves(run(compiled.sampler, state, target.model, Generator().manual_seed(5), 7))
    for other in (trial([7]), trial([2, 5])):
        assert all(map(torch.equal, single, other))


@pytest.mark.parametrize(("row", "compiled", "target"), PAIRS)
def test_sums_are_those_of_single_steps(row: Row, compiled: Row, target: Target):
    from latticework.samplers.sums import Wanted

    state, _ = start(compiled, target, chains=6)
    states, accept = [state.x.clone()], torch.zeros(6)
    rng = Generator().manual_seed(5)
    for _ in range(9):
        state, info = compiled.sampler.step(state, target.model, rng)
        states.append(state.x.clone())
        accept += info.accept_prob
    state, _ = start(compiled, target, chains=6)
    wanted = Wanted(total=True, draws=4, traced=3)
    rng = Generator().manual_seed(5)
    _, sums = compiled.sampler.advance(state, target.model, rng, 9, wanted)
    visited = torch.stack(states[1:]).flatten(2)
    np.testing.assert_allclose(sums.total, visited.sum(0), atol=1e-4)
    np.testing.assert_array_equal(sums.trace, visited[-4:, :3])
    np.testing.assert_allclose(sums.accept, accept, rtol=1e-5)
    before, after = torch.stack(states[:-1]), torch.stack(states[1:])
    moved = (before != after).reshape(9, 6, target.domain.dim, -1).any(-1)
    np.testing.assert_array_equal(sums.changed, moved.sum((0, 2)))


@pytest.mark.parametrize(("row", "compiled", "target"), PAIRS)
def test_threads_change_nothing(row: Row, compiled: Row, target: Target, monkeypatch):
    monkeypatch.setattr("latticework.samplers.compiled.jit.ALONE", 1.0)
    results = []
    for threads in (1, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        state, rng = start(compiled, target, chains=2 * SHORT + 3)
        state, _ = compiled.sampler.advance(state, target.model, rng, 20)
        results.append(leaves(state))
    assert all(map(torch.equal, *results))
