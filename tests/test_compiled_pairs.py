"""Compiled Langevin and GWG-X on dense pairs and lattices: what the enumerated laws do not show."""

from math import inf, nan

import numpy as np
import pytest
import torch
from torch import Generator

from latticework.models.domain import Binary
from latticework.models.ising import DenseIsing, Lattice, erdos_renyi
from latticework.models.quadratic import LogQuadratic
from latticework.samplers.compiled import langevin_pair
from latticework.samplers.compiled.choose import twin_of
from latticework.samplers.compiled.gwg_several import distinct, draw_site
from latticework.samplers.gwg import GWG
from latticework.samplers.langevin import DMALA, DULA
from latticework.samplers.path_auxiliary import PAFS
from latticework.samplers.sums import Wanted

LANGEVIN = [DULA(1.0), DMALA(1.0), DMALA(inf), DMALA(0.6, [0.5 + i / 30 for i in range(30)])]


def advance(sampler, model, x, steps, wanted=Wanted()):  # noqa: B008
    twin = twin_of(sampler, model)
    return twin.advance(twin.at(x, model), model, Generator().manual_seed(1), steps, wanted)


def spins():
    weight = torch.randn(30, 30, generator=Generator().manual_seed(0)) / 20
    return LogQuadratic(weight + weight.T, 0.1, domain=Binary(30, -1, 1))


@pytest.mark.parametrize("sampler", LANGEVIN, ids=str)
@pytest.mark.parametrize("model", [erdos_renyi(30, 4, 0.2), spins()], ids=["graph", "spins"])
def test_rows_and_matrix_product_agree(sampler, model, monkeypatch):
    """With equal random numbers, states are equal: only rounding could tell them apart."""
    x = model.domain.uniform(20, Generator().manual_seed(2))
    wanted = Wanted(total=True, draws=10, traced=7)
    one, sums = advance(sampler, model, x, 50, wanted)
    monkeypatch.setattr(langevin_pair, "SMALL", 0)
    other, other_sums = advance(sampler, model, x, 50, wanted)
    assert torch.equal(one.x, other.x)
    assert (sums.changed > 0).all()
    torch.testing.assert_close(one.flip, other.flip, rtol=1e-4, atol=1e-5)
    for a, b in zip(sums, other_sums, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


BIAS = [0.2, nan, -0.1, 0.3, 0.0, 0.1]
DENSE, ON_LATTICE = DenseIsing(torch.zeros(6, 6), torch.tensor(BIAS)), Lattice((6,), 0.1, BIAS)


@pytest.mark.parametrize("small", [0, 256])
@pytest.mark.parametrize(
    ("sampler", "model"),
    [
        (DMALA(0.5), DENSE),
        *[(kind, model) for kind in (GWG(3), PAFS(2)) for model in (DENSE, ON_LATTICE)],
    ],
    ids=["dmala", "gwg", "gwg on a lattice", "pafs", "pafs on a lattice"],
)
def test_a_site_without_energy_stops_its_chain(sampler, model, small, monkeypatch):
    """A NaN bias: the ratio is NaN, so every proposal is rejected and counted."""
    monkeypatch.setattr(langevin_pair, "SMALL", small)
    x = model.domain.uniform(20, Generator().manual_seed(2))
    state, sums = advance(sampler, model, x, 30)
    assert torch.equal(state.x, x)
    assert (sums.accept == 0).all()
    assert (sums.invalid == 30).all()


@pytest.mark.parametrize("small", [0, 256])
def test_dula_never_flips_a_site_without_energy(small, monkeypatch):
    monkeypatch.setattr(langevin_pair, "SMALL", small)
    model = DENSE
    x = model.domain.uniform(20, Generator().manual_seed(2))
    state, sums = advance(DULA(0.5), model, x, 30)
    moved = (state.x != x).any(0)
    assert not moved[1]
    assert moved.sum() == 5
    assert (sums.invalid == 30).all()


@pytest.mark.parametrize("model", [Lattice((5, 6), 0.2, 0.1), spins()], ids=["lattice", "spins"])
def test_weights_are_those_of_the_state(model):
    """After many accepted and rejected flips."""
    x = model.domain.uniform(20, Generator().manual_seed(2))
    state, sums = advance(GWG(4), model, x, 200)
    assert (sums.accept < 200).all()
    assert (state.x != x).any(0).all()
    fresh = twin_of(GWG(4), model).at(state.x, model)
    exact = isinstance(model, Lattice)  # nothing is incremented
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-4, "atol": 1e-5}
    for kept, computed in zip(state, fresh, strict=True):
        torch.testing.assert_close(kept, computed, **tolerance)


def test_a_preconditioner_of_another_length_is_refused():
    with pytest.raises(ValueError, match="must have 30 entries, got 2"):
        twin_of(DMALA(0.5, [1.0, 2.0]), spins()).at(torch.ones(2, 30), spins())


def test_sites_are_drawn_by_their_weights():
    weights = np.array([0.0, 2.0, 1.0, 0.0, 0.0, 0.0, 4.0, 0.0, 1.0])
    sums = weights.reshape(3, 3).sum(1)
    drawn = [draw_site(weights, sums, 8.0, (u + 0.5) / 800) for u in range(800)]
    np.testing.assert_array_equal(np.bincount(drawn, minlength=9), weights * 100)
    assert draw_site(weights, sums, 8.0001, 1.0) == 8  # a sum that was rounded up


def test_distinct_sites_come_first():
    drawn = np.array([3, 5, 3, 3, 1, 5])
    assert distinct(drawn) == 3
    assert list(drawn[:3]) == [3, 5, 1]
