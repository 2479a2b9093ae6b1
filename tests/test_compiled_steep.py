"""Compiled GWG and LB-1 on Ising models where one flip changes the log-probability by many nats.

The weights of sites then differ by more than a sum of them resolves. Some weights, or products of
several, are beyond double precision.
"""

import itertools
from math import nan, prod

import pytest
import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.ising import DenseIsing, Lattice
from latticework.samplers.compiled.choose import twin_of
from latticework.samplers.gwg import GWG
from latticework.samplers.locally_balanced import LocallyBalanced

ONE_FLIP = [GWG(), LocallyBalanced()]
STEEP = {
    "ring": Lattice((5,), 5.0, 0.2),
    "steep ring": Lattice((5,), 120.0, 0.2),
    "bias": Lattice((2, 3), 0.3, 21.0),
    "square": Lattice((2, 2), 60.0, 0.2),
}
# Gains of 1600 nats and more: at all sites, or at two of them. The last model is dense.
STEEPEST = {
    "ring of 1600": Lattice((5,), 200.0, 0.2),
    "two sites": Lattice((5,), 0.2, [800.0, 0.3, -0.1, 0.0, -900.0]),
    "dense": DenseIsing(torch.zeros(4, 4), torch.tensor([800.0, 0.3, -0.1, -900.0])),
}
MODELS: dict[str, EnergyModel] = {**STEEP, **STEEPEST}
REPLICAS = 500


def near_the_mode(model: EnergyModel) -> Tensor:
    """All sites at 1 but the last: `[REPLICAS, sites]`."""
    x = torch.ones(REPLICAS, model.domain.dim)
    x[:, -1] = 0
    return x


@pytest.mark.parametrize("sampler", ONE_FLIP, ids=str)
@pytest.mark.parametrize("name", [*STEEP, "ring of 1600"])
def test_chains_reach_a_mode_one_flip_away_and_stay(sampler, name):
    """With the acceptance probabilities of the eager sampler: 1, then next to nothing."""
    model, rng = MODELS[name], Generator().manual_seed(0)
    twin = twin_of(sampler, model)
    state, eager = (kind.init(near_the_mode(model), model) for kind in (twin, sampler))
    for _ in range(3):
        state, info = twin.step(state, model, rng)
        eager, expected = sampler.step(eager, model, rng)
        assert (state.x == 1).all()
        assert torch.equal(state.x, eager.x)
        torch.testing.assert_close(info.accept_prob, expected.accept_prob, rtol=1e-3, atol=0)


@pytest.mark.parametrize(
    ("sampler", "name"),
    [
        *itertools.product([*ONE_FLIP, GWG(3), GWG(12)], STEEP),
        *itertools.product(ONE_FLIP, STEEPEST),
    ],
    ids=str,
)
def test_a_step_from_any_state_is_that_of_the_eager_sampler(sampler, name):
    """Which sites flip, and the mean acceptance probability, from each state of the lattice."""
    model = MODELS[name]
    sites = model.domain.dim
    states = torch.tensor(list(itertools.product([0.0, 1.0], repeat=sites)))
    x, found = states.repeat_interleave(REPLICAS, 0), []
    for kind, seed in ((twin_of(sampler, model), 1), (sampler, 2)):
        state = kind.init(x, model)
        state, info = kind.step(state, model, Generator().manual_seed(seed))
        assert ((info.accept_prob >= 0) & (info.accept_prob <= 1)).all()
        values = torch.cat((state.x != x, info.accept_prob.unsqueeze(1)), 1).double()
        found.append(values.view(len(states), REPLICAS, sites + 1))
    one, other = found
    error = ((one.var(1) + other.var(1)) / REPLICAS + REPLICAS**-2).sqrt()
    assert ((one.mean(1) - other.mean(1)) / error).abs().max() < 5


def test_products_of_many_weights_stay_in_range():
    """A hundred lone sites have equal weights; a step that draws one of them twice is rejected."""
    model, sampler = Lattice((20, 20), 6.0, 0.3), GWG(10)
    lone = torch.ones(2000, 20, 20)
    lone[:, ::2, ::2] = 0
    x, expected = lone.flatten(1), prod(1 - k / 100 for k in range(10))
    for kind in (sampler, twin_of(sampler, model)):
        state, info = kind.step(kind.init(x, model), model, Generator().manual_seed(1))
        error = (expected * (1 - expected) / 2000) ** 0.5
        assert abs(info.accept_prob.mean() - expected) < 4.5 * error
        assert (state.x != x).sum(1).unique().tolist() == [0, 10]


@pytest.mark.parametrize("sampler", ONE_FLIP, ids=str)
def test_a_site_without_energy_stops_its_chain(sampler):
    """A NaN bias: every proposal is rejected and counted."""
    model = Lattice((5,), 0.1, [0.2, nan, 0.0, 0.1, -0.3])
    x, twin = model.domain.uniform(20, Generator().manual_seed(2)), twin_of(sampler, model)
    state, sums = twin.advance(twin.at(x, model), model, Generator().manual_seed(1), 30)
    assert torch.equal(state.x, x)
    assert (sums.accept == 0).all()
    assert (sums.invalid == 30).all()
