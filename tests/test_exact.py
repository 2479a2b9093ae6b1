"""Exact normalisers and means: every route against plain enumeration in float64."""

import copy
import itertools
import math

import pytest
import torch
from targets import scattered
from torch import Generator

import latticework as lw
from latticework.models.transfer_matrix import log_z_and_mean
from latticework.sampling.exact import CHUNK, _sum_states, distribution, exact, sum_all_states


def brute_force(model):
    """log Z and the mean of x from the definition: a Python loop over the states."""
    values = model.domain.values().double()
    states = torch.stack(
        [torch.stack(s) for s in itertools.product(values, repeat=model.domain.dim)]
    )
    log_prob = copy.deepcopy(model).double()(states)
    log_z = math.log(sum(math.exp(value) for value in log_prob.tolist()))
    return log_z, torch.einsum("s,s...->...", (log_prob - log_z).exp(), states)


def lattice(shape, periodic, coupling=0.23):
    bias = [0.3 * math.sin(2.0 * i + 0.5) for i in range(math.prod(shape))]  # no symmetry
    return lw.Lattice(shape, coupling, bias, periodic)


SHAPES = [(3, 3), (3, 4), (4, 3), (7,), (2, 3, 2), (1, 1), (2, 1, 4)]


@pytest.mark.parametrize("periodic", [True, False], ids=["periodic", "open"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_transfer_matrix_is_enumeration(shape, periodic):
    model = lattice(shape, periodic)
    result = exact(model)
    log_z, mean = brute_force(model)
    assert result.log_z.dtype == result.mean.dtype == torch.float64
    # The bias is kept in float32; everything after it is float64.
    torch.testing.assert_close(result.log_z.item(), log_z, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(result.mean, mean, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("length", "factors"), [(4, 3), (1, 4), (6, 1), (2, 5), (1, 13)])
def test_the_recursion_of_an_fhmm_is_enumeration(length, factors):
    model = lw.synthetic_fhmm(length, factors, sigma=0.6, first=0.2, keep=0.85, seed=1).double()
    found = model.log_z_and_mean()
    if factors > 12:  # not listed
        assert found is None
    else:
        torch.testing.assert_close(tuple(found), tuple(sum_all_states(model)))


@pytest.mark.parametrize("coupling", [-3.0, 3.0])
def test_strong_coupling_stays_finite(coupling):
    """Z of 64 sites at coupling 3 is beyond float64."""
    result = exact(lw.Lattice((8, 8), coupling, 1 / 64))
    assert result.log_z > 750
    assert result.mean.isfinite().all()
    if coupling > 0:  # two ground states: 128 bonds of 2 * 3 each, and a total field of +-1
        assert result.log_z == pytest.approx(768 + math.log(2 * math.cosh(1)), abs=1e-3)
        assert result.mean[0] == pytest.approx((1 + math.tanh(1)) / 2, abs=1e-3)


def dense(dim):
    upper = torch.randn(dim, dim, generator=torch.Generator().manual_seed(1)).triu(1) / 4
    return lw.DenseIsing(upper + upper.T, 0.1)


OTHERS = {
    "hidden layer": scattered(lw.RBM(9, 3), 9),
    "visible layer": scattered(lw.RBM(3, 9), 3),
    "dense": dense(6),
    "spins": lw.Function(lambda x: (x * x.roll(1, -1) + 0.3 * x).sum(-1), lw.Binary(5, -1, 1)),
    "categorical": lw.Function(
        lambda x: x.flatten(1).cumsum(-1).sin().sum(-1), lw.Categorical(3, 4)
    ),
    "ordinal": lw.Function(lambda x: (x * x.roll(1, -1)).sin().sum(-1) + x[:, 0], lw.Ordinal(3, 5)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_models(name):
    model = OTHERS[name]
    result = exact(model)  # in float32, then summed in float64
    log_z, mean = brute_force(model)
    torch.testing.assert_close(result.log_z.item(), log_z, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(result.mean, mean, rtol=1e-5, atol=1e-6)


def test_chunks_join():
    """More states than a chunk holds, the heaviest in the last chunk: against a product law."""
    dim = CHUNK.bit_length() + 1
    tilt = torch.linspace(2.5, -2, dim)  # the first site varies slowest
    result = sum_all_states(lw.Function(lambda x: x @ tilt.to(x), lw.Binary(dim)))
    torch.testing.assert_close(result.mean, tilt.double().sigmoid(), rtol=1e-5, atol=1e-6)
    expected = torch.nn.functional.softplus(tilt.double()).sum()
    torch.testing.assert_close(result.log_z, expected, rtol=1e-6, atol=1e-6)


def test_states_that_are_impossible_may_come_first(monkeypatch):
    """The first chunks have no state of positive probability."""
    monkeypatch.setattr("latticework.sampling.exact.CHUNK", 16)
    model = lw.Function(lambda x: x[:, -1].masked_fill(x.sum(-1) < 7, -torch.inf), lw.Binary(8))
    found = exact(model)
    states = model.domain.enumerate()
    law = model(states).double().softmax(0)
    torch.testing.assert_close(found.mean, law @ states.double())
    torch.testing.assert_close(found.log_z, model(states).double().logsumexp(0))
    nowhere = lw.Function(lambda x: x.sum(-1) * 0 - torch.inf, lw.Binary(8))
    with pytest.raises(ValueError, match="no state of .* has a positive probability"):
        exact(nowhere)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_states_without_a_number_are_refused(value):
    model = lw.Function(lambda x: torch.where(x.sum(-1) > 7, value, x.sum(-1)), lw.Binary(8))
    with pytest.raises(ValueError, match="NaN or .inf at some states"):
        exact(model)


def test_transfer_matrices_that_underflow_are_refused():
    bias = torch.tensor([513.0, -513.0])
    with pytest.raises(ValueError, match="the transfer matrices overflow or underflow"):
        log_z_and_mean((2,), 190.0, bias, True)
    with pytest.raises(ValueError, match="the transfer matrices overflow or underflow"):
        log_z_and_mean((4, 4), 180.0, torch.zeros(16), True)


def test_what_cannot_be_listed_is_refused():
    with pytest.raises(ValueError, match="infinitely many"):
        exact(lw.Function(lambda x: -x.square().sum(-1), lw.Integer(1)))
    with pytest.raises(ValueError, match="2\\^26"):
        exact(dense(27))
    with pytest.raises(ValueError, match="at most 10 sites"):
        exact(lw.Lattice((11, 12), 0.1, 0.5))


def test_enumeration_evaluates_in_double_precision():
    """A strong coupling: log Z and a mean would be off by 0.001 in single precision."""
    model = lw.Lattice((4, 3), 400, 0.01)
    for one, other in zip(sum_all_states(model), exact(model), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-9)
    assert model.bias.dtype == torch.float32
    _, law = distribution(model)
    assert float(law[-1] / law[0]) == pytest.approx(math.exp(0.24), 1e-6)


def test_a_function_that_needs_single_precision_is_enumerated_in_it():
    weight = torch.tensor([0.5, -1.0])
    result = sum_all_states(lw.Function(lambda x: x @ weight, lw.Binary(2)))
    assert float(result.log_z) == pytest.approx(float(weight.double().exp().log1p().sum()), 1e-6)


def hidden_sum(model):
    domain, size, evaluate = model.hidden_layer()
    return _sum_states(domain, evaluate, size)


@pytest.mark.parametrize("hidden", [17, 8])
def test_more_hidden_units_are_summed_over_in_chunks(hidden, monkeypatch):
    """An RBM of 400 visible units, whose states nobody can list."""
    monkeypatch.setattr("latticework.sampling.exact.CHUNK", 2**13)
    model, rng = lw.RBM(400, hidden), Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.normal_(std=0.2, generator=rng)
    if hidden > 16:  # a unit without weights doubles Z
        model.weight[:, 16:] = 0
        model.hidden_bias[16:] = 0
        smaller = lw.RBM(400, 16)
        smaller.weight.data, smaller.hidden_bias.data = model.weight[:, :16], model.hidden_bias[:16]
        smaller.visible_bias.data = model.visible_bias
        found, expected = exact(model), exact(smaller)
        assert float(found.log_z - expected.log_z) == pytest.approx(math.log(2), abs=1e-4)
    else:
        found, expected = hidden_sum(model), exact(model)
        assert float(found.log_z) == pytest.approx(float(expected.log_z), abs=1e-4)
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-4, atol=1e-5)


def test_an_rbm_with_more_units_is_refused_by_their_number():
    with pytest.raises(ValueError, match="at most 24 units; this one has 784 visible and 30"):
        exact(lw.RBM(784, 30))
