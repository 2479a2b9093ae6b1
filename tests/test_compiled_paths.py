"""Compiled random walk and path auxiliary sampler: what the enumerated laws do not show."""

import copy
from math import nan

import numpy as np
import pytest
import torch
from exactness import largest_z
from torch import Generator

from latticework.models.domain import Binary
from latticework.models.ising import DenseIsing, Lattice
from latticework.models.quadratic import LogQuadratic
from latticework.models.rbm import RBM
from latticework.samplers.compiled import path_auxiliary, random_walk
from latticework.samplers.compiled.choose import twin_of
from latticework.samplers.compiled.sites import memory_of
from latticework.samplers.path_auxiliary import PAFS
from latticework.samplers.random_walk import RandomWalk


def _spins() -> LogQuadratic:
    weight = torch.randn(30, 30, generator=Generator().manual_seed(0)) / 10
    return LogQuadratic(weight + weight.T, 0.1, domain=Binary(30, -1, 1))


def _rbm(scale: float = 0.4) -> RBM:
    model, rng = RBM(30, 21), Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.normal_(0, scale, generator=rng)
    return model


LATTICE = Lattice((5, 6), 0.2, 0.1)
MODELS = {"lattice": LATTICE, "spins": _spins(), "rbm": _rbm(), "steep rbm": _rbm(12.0)}
named = pytest.mark.parametrize("name", MODELS)


def advance(sampler, model, x, steps):
    twin = twin_of(sampler, model)
    return twin.advance(twin.at(x, model), model, Generator().manual_seed(1), steps)


@named
def test_the_change_of_a_path_is_that_of_the_log_probability(name):
    """Weights of the steep RBM are beyond those of single precision."""
    model = MODELS[name]
    form, x = model.form(), model.domain.uniform(4, Generator().manual_seed(2))
    memory, room = memory_of(form, x).numpy(), np.empty((2, 21), np.float32)
    exact = copy.deepcopy(model).double()
    for c, size in enumerate((1, 2, 9, 30)):
        order = torch.randperm(30, generator=Generator().manual_seed(c))
        before, states = x[c : c + 1].double(), x.numpy()
        after = model.domain.move_one(before, order[None, :size])
        change = random_walk.CHANGE[type(form)]
        found = change(form, states, memory, c, order.numpy(), size, room)
        expected = (exact.log_prob(after) - exact.log_prob(before)).item()
        assert found == pytest.approx(expected, rel=1e-5, abs=2e-5)
        assert torch.equal(x[c : c + 1].double(), before)


@named
def test_the_memory_of_a_walk_is_that_of_its_state(name):
    """After many accepted and rejected paths."""
    model, sampler = MODELS[name], RandomWalk(3)
    x = model.domain.uniform(40, Generator().manual_seed(2))
    state, sums = advance(sampler, model, x, 500)
    expected = memory_of(model.form(), state.x)
    torch.testing.assert_close(state.memory, expected, rtol=1e-5, atol=2e-5)
    assert (sums.accept < 500).all()
    assert (sums.changed > 0).all()


@pytest.mark.parametrize(("length", "longest"), [(1, 1), (2, 3), (3, 5), (9, 6)])
def test_a_walk_changes_a_uniform_number_of_uniform_sites(length, longest):
    """Without energies every path is accepted. On 6 sites, no path has more."""
    model, chains = Lattice((6,), 0.0), 30_000
    x = torch.zeros(chains, 6)
    state, sums = advance(RandomWalk(length), model, x, 1)
    shares = np.full(longest, 1 / longest)
    assert largest_z(np.bincount(sums.changed)[1:], chains, shares) < 5
    number, moved = torch.from_numpy(sums.changed), state.x == 1
    assert torch.equal(moved.sum(1), number)
    for size in range(1, longest + 1):
        chosen = moved[number == size]
        shares = np.full(6, size / 6)
        assert size == 6 or largest_z(chosen.sum(0).numpy(), len(chosen), shares) < 5


BIAS = [0.2, nan, -0.1, 0.3, 0.0, 0.1]
UNKNOWN = {
    "lattice": Lattice((6,), 0.1, BIAS),
    "dense": DenseIsing(torch.zeros(6, 6), torch.tensor(BIAS)),
    "rbm": RBM(6, 3),
}
UNKNOWN["rbm"].visible_bias.data.copy_(torch.tensor(BIAS))


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("length", [1, 3])
def test_a_site_without_energy_stops_a_walk(name, length):
    """No state has an energy, so paths of other sites are rejected and counted too."""
    model, sampler = UNKNOWN[name], RandomWalk(length)
    x = model.domain.uniform(20, Generator().manual_seed(2))
    state, sums = advance(sampler, model, x, 30)
    assert torch.equal(state.x, x)
    assert (sums.accept == 0).all()
    assert (sums.invalid == 30).all()
    eager, info = sampler.step(sampler.at(x, model), model, Generator().manual_seed(1))
    assert torch.equal(eager.x, x)
    assert info.log_ratio.isnan().all()


# Paths in Plackett-Luce order.


@pytest.mark.parametrize("name", ["lattice", "spins"])
def test_weights_are_those_of_the_state(name):
    """After many accepted and rejected paths."""
    model = MODELS[name]
    x = model.domain.uniform(20, Generator().manual_seed(2))
    state, sums = advance(PAFS(5), model, x, 200)
    assert (sums.accept < 190).all()
    assert (state.x != x).any(0).all()
    fresh = twin_of(PAFS(5), model).at(state.x, model)
    exact = name == "lattice"  # nothing is incremented
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-4, "atol": 1e-5}
    for kept, computed in zip(state, fresh, strict=True):
        torch.testing.assert_close(kept, computed, **tolerance)


def test_totals_are_right_after_the_sites_that_carry_nearly_all_of_them():
    """Numbers that a difference of two totals would lose."""
    weights = np.exp(np.array([-300.0, 1, 0, 2, 250, -1, 0, 3, 600, 0, -600, 1]))
    sums, path = weights.reshape(4, 3).sum(1), np.empty(12, np.int64)
    before, taken, totals = weights.copy(), np.empty(12), np.empty(12)
    words = np.arange(12, dtype=np.uint32) << np.uint32(28)
    path_auxiliary.draw_path(weights, sums, words, path, taken, totals)
    assert sorted(path) == list(range(12))
    assert list(path[:2]) == [8, 4]
    assert list(path[-2:]) == [0, 10]
    left = [before[path[k:]].sum() for k in range(12)]
    np.testing.assert_allclose(totals, left, rtol=1e-12)
    np.testing.assert_array_equal(taken, before[path])
    assert not weights.any()

    path, kept = np.array([8, 10, 4, 0]), np.empty(4)
    back = [np.log(np.delete(before, path[k + 1 :]).sum()) for k in range(4)]
    weights, sums = before.copy(), before.reshape(4, 3).sum(1)
    found = path_auxiliary.log_ratio_of(weights, sums, path, np.ones(4), np.empty(4), kept)
    assert found == pytest.approx(-sum(back), rel=1e-12)
    np.testing.assert_array_equal(weights, before)


def test_weights_beyond_single_precision_order_the_path():
    """Gains up to 1200; the first flips are certain, the others have moderate weights."""
    bias = torch.tensor([600.0, 1.0, -400.0, 3.0, 0.0, -2.0, 2.0, -1.0])
    model, chains = DenseIsing(torch.zeros(8, 8), bias), 20_000
    x = (bias < 0).float().expand(chains, -1).contiguous()  # all sites would better flip
    state, _ = advance(PAFS(3), model, x, 1)
    eager, _ = PAFS(3).step(PAFS(3).at(x, model), model, Generator().manual_seed(3))
    ours, theirs = (s.x.double().mean(0) for s in (state, eager))
    error = ((ours * (1 - ours) + theirs * (1 - theirs)) / chains).sqrt() + 1e-6
    assert ((ours - theirs).abs() / error).max() < 5
