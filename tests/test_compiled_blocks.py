"""Compiled Gibbs-X and Hamming ball: what the enumerated laws do not show."""

from math import comb, inf, nan

import numpy as np
import pytest
import torch
from torch import Generator

from latticework.models.domain import Binary
from latticework.models.ising import DenseIsing, Lattice, erdos_renyi
from latticework.models.quadratic import LogQuadratic
from latticework.models.rbm import RBM
from latticework.samplers.compiled import blocks
from latticework.samplers.compiled.choose import twin_of
from latticework.samplers.compiled.draws import draw
from latticework.samplers.compiled.philox import step_keys
from latticework.samplers.compiled.scans import next_blocks
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.hamming import HammingBall

SAMPLERS = [Gibbs(3), HammingBall(3, 1, "systematic"), HammingBall(5, 2)]


def advance(sampler, model, x, steps, seed=1):
    twin = twin_of(sampler, model)
    return twin.advance(twin.at(x, model), model, Generator().manual_seed(seed), steps)


@pytest.mark.parametrize(("sites", "radius"), [(1, 1), (4, 1), (5, 2), (4, 4)])
def test_the_ball_lists_every_set_once(sites, radius):
    ball = blocks.ball(sites, radius)
    sets = [frozenset()]
    for s in range(1, len(ball.site)):
        sets.append(sets[ball.parent[s]] | {ball.site[s]})
        assert len(sets[s]) == ball.size[s] <= radius
    assert len(set(sets)) == len(sets) == sum(comb(sites, r) for r in range(radius + 1))
    assert set(np.flatnonzero(ball.inner)) == set(ball.parent[1:])


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_memory_is_that_of_the_final_flips(sampler):
    """Bit for bit: walking through a block leaves no rounding errors behind."""
    model = erdos_renyi(12, 5, 0.37)
    x = model.domain.uniform(5, Generator().manual_seed(0))
    twin, rng = twin_of(sampler, model), Generator().manual_seed(1)
    state = twin.at(x, model)
    memory, matrix = state.memory.numpy().copy(), model.form().matrix
    for _ in range(50):
        before = state.x.numpy().copy()
        scan, keys = tuple(t.clone() for t in state.scan), step_keys(1, rng.clone_state())
        (block,) = next_blocks(sampler.scan, scan, sampler.sites, 12, keys)
        state, _ = twin.advance(state, model, rng, 1)
        for i in block:
            step = state.x.numpy()[:, i] - before[:, i]
            memory += step[:, None] * matrix[i]
        np.testing.assert_array_equal(state.memory.numpy(), memory)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_memory_of_an_rbm_follows_the_state(sampler):
    model, rng = RBM(12, 300), Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.normal_(generator=rng)
    state, _ = advance(sampler, model, model.domain.uniform(5, rng), 100)
    fresh = twin_of(sampler, model).at(state.x, model)
    torch.testing.assert_close(state.memory, fresh.memory, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sampler", [Gibbs(), *SAMPLERS], ids=str)
def test_states_keep_the_values_of_the_domain(sampler):
    """0.1 + 0.7 - 0.1 is not 0.7 in float32."""
    domain = Binary(6, 0.1, 0.7)
    model = LogQuadratic(0.1 * torch.ones(6, 6), domain=domain)
    state, sums = advance(sampler, model, domain.uniform(20, Generator().manual_seed(0)), 60)
    assert (sums.changed > 3).all()
    domain.check(state.x)


@pytest.mark.parametrize("sampler", [Gibbs, HammingBall], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(("weight", "sites"), [(100.0, 2), (40.0, 4), (30.0, 6)])
def test_large_weights_of_an_rbm_move_inputs_beyond_single_precision(sampler, weight, sites):
    """The one hidden input goes from -100 to 80 or more. All sites at 0 or at 1 weigh the same."""
    model, replicas = RBM(sites, 1), 400
    model.weight.data.fill_(weight)
    model.hidden_bias.data.fill_(-100.0)
    model.visible_bias.data.fill_(100.0 / sites - weight)
    kernel = sampler(sites) if sampler is Gibbs else sampler(sites, 1, "systematic")
    states, found = model.domain.enumerate(), []
    x = states.repeat_interleave(replicas, 0)
    for kind in (twin_of(kernel, model), kernel):
        state, _ = kind.step(kind.init(x, model), model, Generator().manual_seed(1))
        found.append(state.x.double().view(len(states), replicas, sites))
    one, other = found
    error = ((one.var(1) + other.var(1)) / replicas + replicas**-2).sqrt()
    assert ((one.mean(1) - other.mean(1)) / error).abs().max() < 5


def biased(kind, value):
    """A model of 6 sites whose bias at site 1 has this value, on each form."""
    bias = torch.tensor([0.2, value, -0.1, 0.3, 0.0, 0.1])
    if kind == "lattice":
        return Lattice((6,), 0.2, bias.tolist())
    if kind == "pair":
        return DenseIsing(torch.zeros(6, 6), bias)
    model = RBM(6, 4)
    for parameter in model.parameters():
        parameter.normal_(generator=Generator().manual_seed(3))
    model.visible_bias.data.copy_(bias)
    return model


@pytest.mark.parametrize("sampler", [Gibbs(2), HammingBall(2, 1, "systematic")], ids=str)
@pytest.mark.parametrize("kind", ["lattice", "pair", "rbm"])
def test_unknown_values_are_never_drawn(sampler, kind):
    """Blocks are (0, 1), (2, 3), (4, 5); the log-probability of a flip of site 1 is NaN."""
    model = biased(kind, nan)
    x = model.domain.uniform(50, Generator().manual_seed(0))
    state, sums = advance(sampler, model, x, 30)
    assert torch.equal(state.x[:, 1], x[:, 1])
    assert (sums.invalid == 10).all()
    assert (state.x[:, 2:] != x[:, 2:]).any(0).all()


@pytest.mark.parametrize("kind", ["lattice", "pair", "rbm"])
def test_a_chain_stays_if_a_value_is_infinite(kind):
    model = biased(kind, inf)
    x = model.domain.uniform(50, Generator().manual_seed(0))
    x[:25, 1], x[25:, 1] = 0, 1
    state, sums = advance(Gibbs(2), model, x, 30)
    assert torch.equal(state.x[:25, :2], x[:25, :2])
    assert (sums.invalid[:25] == 10).all()
    assert (state.x[25:, 1] == 1).all()  # the other value has probability 0
    assert (state.x[25:, 0] != x[25:, 0]).any()


@pytest.mark.parametrize(
    ("log_probs", "drawn", "unknown"),
    [
        ([0.0, nan, -1.0], {0, 2}, True),
        ([-inf, 3.0, -inf], {1}, False),
        ([0.0, inf, 1.0], {-1}, False),
        ([-inf, nan], {-1}, True),
        ([1e4, 1e4 + 1], {0, 1}, False),
    ],
)
def test_draws_from_values_that_are_not_finite(log_probs, drawn, unknown):
    weights = np.empty(len(log_probs), np.float32)
    results = [draw(np.array(log_probs), weights, (u + 0.5) / 100) for u in range(100)]
    assert {index for index, _ in results} == drawn
    assert {u for _, u in results} == {unknown}
