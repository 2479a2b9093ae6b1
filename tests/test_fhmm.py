"""The factorial hidden Markov model: its definition by hand, its recursion by enumeration."""

import math

import pytest
import torch
from torch import Generator
from torch.distributions import Bernoulli, Normal

from latticework.models.fhmm import FactorialHMM, synthetic_fhmm
from latticework.sampling.exact import enumerated


def small(length=4, factors=3):
    return synthetic_fhmm(length, factors, sigma=0.6, first=0.2, keep=0.85, seed=1)


def joint(model, x):
    """Log p(x, y) time by time, `[length * factors] -> []`."""
    hidden = x.view(model.length, model.factors)
    total = Bernoulli(model.first).log_prob(hidden[0]).sum()
    for before, after in zip(hidden[:-1], hidden[1:], strict=True):
        law = Bernoulli(torch.where(before == 1, model.keep, 1 - model.keep))
        total += law.log_prob(after).sum()
    for y, now in zip(model.observed, hidden, strict=True):
        total += Normal(model.offset + model.weight @ now, model.sigma).log_prob(y)
    return total


def test_it_is_the_posterior_of_its_definition():
    """Up to the normal densities' constant, which no sampler needs."""
    model = small()
    x = model.domain.uniform(20, Generator().manual_seed(0))
    constant = -model.length * math.log(model.sigma * math.sqrt(2 * math.pi))
    expected = torch.stack([joint(model, each) for each in x]) - constant
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize(("length", "factors"), [(4, 3), (1, 4), (6, 1), (2, 5)])
def test_the_recursion_is_enumeration(length, factors):
    model = small(length, factors).double()
    found, truth = model.log_z_and_mean(), enumerated(model)
    torch.testing.assert_close(found[0], truth.log_z)
    torch.testing.assert_close(found[1], truth.mean)


def test_too_many_factors_are_not_listed():
    assert small(1, 13).log_z_and_mean() is None


def test_the_observations_are_drawn_from_the_model():
    """Chains start at 1 with probability `first`, switch at rate 1 - keep; noise is `sigma`."""
    length, factors = 4000, 2
    model = synthetic_fhmm(length, factors, sigma=0.01, first=0.3, keep=0.9, seed=0)
    states = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * factors)
    means = model.offset + states @ model.weight
    nearest = (model.observed.unsqueeze(-1) - means).abs().argmin(-1)
    hidden = states[nearest]
    switched = (hidden[1:] != hidden[:-1]).float().mean()
    assert abs(float(switched) - 0.1) < 4.5 * math.sqrt(0.1 * 0.9 / (length * factors))
    noise = (model.observed - means[nearest]).std()
    assert abs(float(noise) / 0.01 - 1) < 4.5 / math.sqrt(2 * length)
    many = [synthetic_fhmm(1, 4, sigma=1e-6, first=0.3, keep=0.9, seed=seed) for seed in range(150)]
    began = torch.stack([start_of(each) for each in many]).mean()
    assert abs(float(began) - 0.3) < 4.5 * math.sqrt(0.3 * 0.7 / 600)


def start_of(model):
    """The hidden state at time 0, where the noise is negligible."""
    states = model.domain.enumerate()
    return states[(model.observed - model.offset - states @ model.weight).abs().argmin()]


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ({"sigma": 0.0}, "sigma must be positive, first and keep between 0 and 1, got 0.0"),
        ({"first": 1.0}, "first and keep between 0 and 1"),
        ({"keep": 0.0}, "first and keep between 0 and 1"),
        ({"length": 0}, "length and factors must be 1 or more, got 0 and 2"),
    ],
)
def test_bad_arguments_say_so(words, match):
    given = {"length": 3, "factors": 2, "sigma": 0.5, "first": 0.1, "keep": 0.9, **words}
    with pytest.raises(ValueError, match=match):
        synthetic_fhmm(**given)
    if "length" not in words:
        numbers = (given[name] for name in ("sigma", "first", "keep"))
        with pytest.raises(ValueError, match=match):
            FactorialHMM(torch.ones(2), 0.0, torch.ones(3), *numbers)
