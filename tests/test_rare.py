"""Rare events have the right frequency: eager decisions, categorical draws, compiled kernels.

Events of probability 10^-7 are too rare to count. These tests replace the random numbers by a grid
next to 0 and next to 1, where such events are decided, and count the points of the grid.
"""

import math

import pytest
import torch
from torch import Generator

from latticework.models import chance
from latticework.models.chance import LARGE, bernoulli, draw_categorical, draw_distinct, happens
from latticework.samplers.conditional import draw_bit

PROBABILITIES = [3e-8, 1e-7, 7e-7]
SIZES = [2**13, 2**16]  # on either side of LARGE


@pytest.fixture
def grid(monkeypatch):
    """Random 32-bit words -n/2 .. n/2, and uniform numbers n/2 steps of 2^-32 from 0 and from 1."""

    def words(self, *_, generator):
        count = 2 * self.numel()
        every = torch.arange(-(count // 2), count // 2).roll(7919).int()
        return self.copy_(every.view(torch.int64))

    def uniform(self, generator):
        steps = (torch.arange(self.numel() // 2, dtype=torch.float64) + 0.5) * 2.0**-32
        return self.copy_(torch.cat((steps, 1 - steps)).view_as(self))

    monkeypatch.setattr(torch.Tensor, "random_", words)
    monkeypatch.setattr(torch.Tensor, "uniform_", uniform)


def decisions(p):
    rng, log_odds = Generator(), math.log(p) - math.log1p(-p)
    return {
        "happens": lambda x: happens(torch.full_like(x, p), rng),
        "a rare 1": lambda x: bernoulli(torch.full_like(x, log_odds), rng),
        "a rare 0": lambda x: 1 - bernoulli(torch.full_like(x, -log_odds), rng),
    }


@pytest.mark.usefixtures("grid")
@pytest.mark.parametrize("p", PROBABILITIES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["happens", "a rare 1", "a rare 0"])
def test_rare_decisions(kind, size, p):
    assert (size < LARGE) == (size == SIZES[0])
    count = int(decisions(p)[kind](torch.empty(size)).sum())
    assert abs(count - p * 2**32) < 2.5


@pytest.mark.usefixtures("grid")
def test_numbers_with_24_bits_are_caught():
    """Control: they give 10^-7 as 2 steps of 2^-24."""
    uniform = torch.empty(SIZES[0], dtype=torch.float64).uniform_(generator=Generator())
    coarse = (uniform * 2**24).floor() / 2**24
    assert (coarse < 1e-7).sum() - 1e-7 * 2**32 > 50


@pytest.mark.parametrize("step", [-1e-9, 1e-9])
def test_a_bit_is_drawn_to_all_digits(step):
    """The `bernoulli_` of PyTorch compares float64 numbers, which the same seed gives here."""
    uniform = torch.empty(1000, 1, dtype=torch.float64).uniform_(generator=Generator())
    near = (uniform * (1 + step)).logit()
    assert (draw_bit(near, Generator())[0] == (step > 0)).all()


def share_of_odd(draws=16_384, n=256):
    """The share of the odd indices, with weights exp(-4), among first draws of `n`, z-score."""
    log_weights = torch.zeros(draws, n)
    log_weights[:, 1::2] = -4
    index = draw_distinct(log_weights, Generator().manual_seed(0), 2)[:, 0]
    expected = draws / (1 + math.exp(4))
    return (int((index % 2).sum()) - expected) / expected**0.5


def test_the_first_of_many_are_drawn_by_their_weights(monkeypatch):
    """With numbers below 2^-12 a race among 256 entries is the end of one among 2^20."""
    assert abs(share_of_odd()) < 4
    exact = chance.uniform_like
    monkeypatch.setattr(chance, "uniform_like", lambda x, rng: exact(x, rng) * 2**-12)
    assert abs(share_of_odd()) < 4
    monkeypatch.setattr(
        chance, "uniform_like", lambda x, rng: ((exact(x, rng) * 2**12).floor() + 1) * 2**-24
    )
    assert abs(share_of_odd()) > 5  # control: 24 random bits


def test_rare_entries_are_drawn():
    """Half a million entries that have 10^-7 of the weight each, beside one of the rest."""
    weights = torch.full((2**20,), 1e-7)
    weights[1::2] = 0
    weights[0] = 1 - 2**19 * 1e-7
    index = draw_categorical(weights, Generator().manual_seed(0), 20_000)
    assert not (index % 2).any()
    count, expected = int((index > 0).sum()), 20_000 * (2**19 - 1) * 1e-7
    assert abs(count - expected) < 4.5 * expected**0.5
