"""Paths from a base to a target: mixtures at every beta, bases, what they refuse."""

import copy

import pytest
import torch
from annealing_cases import BINARY, OTHER, make_rng, path_of
from plain import agree
from targets import TARGETS

from latticework.models.annealed import GeometricPath
from latticework.models.base import Function
from latticework.models.domains import Integer
from latticework.models.scaled_rbm import ScaledRBM


def mixed(path, beta):
    """The target at `beta` written down anew, in float64, as a plain function of x."""
    model = copy.deepcopy(path.model).double()
    field, constant = path.field.double(), path.constant.double()
    return Function(
        lambda x: beta * model(x) + (1 - beta) * (x.flatten(1) @ field.flatten() + constant),
        path.domain,
    )


@pytest.mark.parametrize("name", [*BINARY, *OTHER])
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_a_geometric_path_is_a_mixture_in_every_method(name, beta):
    path, states = path_of(name).double(), TARGETS[name].states.double()
    plain = mixed(path, beta)
    path.move_to(torch.tensor(beta))
    if beta == 0:
        assert float(plain(states).logsumexp(0)) == pytest.approx(0, abs=1e-6)
        assert float(path.log_z_start()) == 0
    agree(path, plain, states)


def test_the_path_of_an_rbm_is_an_rbm_at_every_beta():
    path, states = path_of("rbm", ScaledRBM).double(), TARGETS["rbm"].states.double()
    known = path.know(states)
    path.move_to(torch.tensor(0.0))
    assert float(path(states).logsumexp(0)) == pytest.approx(float(path.log_z_start()), abs=1e-6)
    first = path(states)
    ratio = path.log_ratio(known, torch.tensor(0.7))
    path.move_to(torch.tensor(0.7))
    torch.testing.assert_close(path(states) - first, ratio, rtol=1e-6, atol=1e-6)
    path.move_to(torch.tensor(1.0))
    torch.testing.assert_close(path(states), path.model(states))
    torch.testing.assert_close(path.gradient(states), path.model.gradient(states))
    x = states.clone()
    inputs = path.hidden_inputs(x)
    path.move_to(torch.tensor(0.7), x, path.know(x))
    torch.testing.assert_close(path.hidden_inputs(x), 0.7 * inputs)


@pytest.mark.parametrize("kind", [GeometricPath, ScaledRBM])
@pytest.mark.parametrize("odds", [None, torch.tensor([-2.0, 0.0, 0.5, 1.0])])
def test_draws_have_the_frequencies_of_the_base(kind, odds):
    path = kind(TARGETS["rbm"].model, odds)
    mean = path.draw(40_000, make_rng()).mean(0)
    truth = (torch.zeros(4) if odds is None else odds).sigmoid()
    assert ((mean - truth) / (truth * (1 - truth) / 40_000).sqrt()).abs().max() < 4


@pytest.mark.parametrize(
    ("kind", "model", "odds", "message"),
    [
        (GeometricPath, TARGETS["rbm"].model, torch.zeros(3), "log_odds need a binary domain"),
        (GeometricPath, TARGETS["ordinal"].model, torch.zeros(2), "log_odds need a binary domain"),
        (ScaledRBM, TARGETS["dense_ising"].model, None, "anneals an RBM, got DenseIsing"),
        (GeometricPath, Function(lambda x: x.sum(-1), Integer(2)), None, "infinitely many"),
    ],
)
def test_a_path_says_what_it_cannot_do(kind, model, odds, message):
    with pytest.raises(ValueError, match=message):
        kind(model, odds)
