"""Compiled kernels on Potts models: what the enumerated laws do not show."""

from math import nan

import numpy as np
import pytest
import torch
from torch import Generator

from latticework.models.potts import LatticePotts, random_potts
from latticework.samplers.compiled import langevin_potts
from latticework.samplers.compiled.choose import twin_of
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.gwg import GWG
from latticework.samplers.langevin import DMALA, DULA
from latticework.samplers.locally_balanced import LocallyBalanced
from latticework.samplers.sums import NOTHING, Wanted

MODELS = [LatticePotts((3, 4), 3, 0.6, 0.1, periodic=False), random_potts(12, 3, 1.0)]
BLOCKS = [Gibbs(), Gibbs(2, "random")]
SAMPLERS = [*BLOCKS, GWG(), LocallyBalanced(), DULA(0.5), DMALA(0.5)]


def advance(sampler, model, x, steps, wanted=NOTHING):
    twin = twin_of(sampler, model)
    return twin.advance(twin.at(x, model), model, Generator().manual_seed(1), steps, wanted)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
@pytest.mark.parametrize("model", MODELS, ids=["lattice", "dense"])
def test_memory_is_that_of_the_state(sampler, model):
    """After many accepted and rejected moves. On lattices nothing is incremented."""
    x = model.domain.uniform(20, Generator().manual_seed(2))
    state, _ = advance(sampler, model, x, 200)
    model.domain.check(state.x)
    assert (state.x != x).any(0).all()
    fresh = twin_of(sampler, model).at(state.x, model)
    for name in set(state._fields) - {"scan"}:
        kept, computed = getattr(state, name), getattr(fresh, name)
        torch.testing.assert_close(kept, computed, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sampler", [DULA(0.5), DMALA(0.5), DMALA(0.3, [1.0, 2.0] * 6)], ids=str)
def test_rows_and_matrix_product_agree(sampler, monkeypatch):
    """With equal random numbers, states are equal: only rounding could tell them apart."""
    x = MODELS[1].domain.uniform(20, Generator().manual_seed(2))
    wanted = Wanted(total=True, draws=10, traced=7)
    one, sums = advance(sampler, MODELS[1], x, 50, wanted)
    monkeypatch.setattr(langevin_potts, "SMALL", 0)
    other, other_sums = advance(sampler, MODELS[1], x, 50, wanted)
    assert torch.equal(one.x, other.x)
    assert (sums.changed > 0).all()
    for a, b in zip(sums, other_sums, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_the_largest_random_number_draws_no_value_of_probability_zero():
    """Words of 31 bits end where the last value of positive probability ends."""
    ladder = np.array([2**30, 2**30, 2**31 - 1, 2**31 - 1, 1, 1], np.int32)  # two sites
    y, x, room = np.empty(2, np.int32), np.zeros(2, np.int32), np.empty(2, np.int32)
    for word, value in ((0, 0), (2**31, 1), (2**32 - 1, 1)):
        words = np.full(4, word, np.uint32)
        assert langevin_potts.propose(y, x, ladder, words, room) == 2 * (value > 0)
        assert list(y) == [value, value]


def biased(kind):
    """A model whose first site has an unknown log-probability at value 2."""
    bias = torch.zeros(12, 3)
    bias[0, 2] = nan
    if kind == "lattice":
        return LatticePotts((3, 4), 3, 0.6, bias.tolist())
    model = random_potts(12, 3, 1.0)
    model.bias.data.copy_(bias)
    return model


@pytest.mark.parametrize("kind", ["lattice", "dense"])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_unknown_values_are_never_drawn(sampler, kind):
    model = biased(kind)
    x = model.domain.uniform(30, Generator().manual_seed(2))
    x[:, 0] = torch.tensor([1.0, 0.0, 0.0])
    state, sums = advance(sampler, model, x, 60)
    assert (state.x[:, 0, 2] == 0).all()
    rejects = isinstance(sampler, (GWG, DMALA))  # as the eager samplers do
    assert torch.equal(state.x, x) == rejects
    if not isinstance(sampler, LocallyBalanced):  # which never proposes the value
        assert (sums.invalid > 0).all()
