"""Rare events have the right frequency: eager decisions, categorical draws, compiled kernels.

Events of probability 10^-7 are too rare to count. These tests replace the random numbers by a grid
next to 0 and next to 1, where such events are decided, and count the points of the grid.
"""

import math

import numba
import numpy as np
import pytest
import torch
from everyone import PAIRS
from torch import Generator

import latticework as lw
from latticework.models import distributions
from latticework.models.distributions import (
    FUSING_ENTRIES,
    bernoulli,
    bernoulli_mask,
    draw_categorical,
)
from latticework.samplers.compiled.all_sites import binary, categorical
from latticework.samplers.compiled.rbm.langevin import flip_sites
from latticework.samplers.conditional import draw_bit

PROBABILITIES = [3e-8, 1e-7, 7e-7]
SIZES = [2**13, 2**16]  # on either side of FUSING_ENTRIES


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

    def bits(self, probability, generator):
        return self.copy_(torch.empty_like(probability).uniform_(generator=generator) < probability)

    monkeypatch.setattr(torch.Tensor, "random_", words)
    monkeypatch.setattr(torch.Tensor, "bernoulli_", bits)
    monkeypatch.setattr(torch.Tensor, "uniform_", uniform)


def decisions(p):
    rng, log_odds = Generator(), math.log(p) - math.log1p(-p)
    return {
        "happens": lambda x: bernoulli_mask(torch.full_like(x, p), rng),
        "a rare 1": lambda x: bernoulli(torch.full_like(x, log_odds), rng),
        "a rare 0": lambda x: 1 - bernoulli(torch.full_like(x, -log_odds), rng),
    }


@pytest.mark.usefixtures("grid")
@pytest.mark.parametrize("p", PROBABILITIES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["happens", "a rare 1", "a rare 0"])
def test_rare_decisions(kind, size, p):
    """On either side of FUSING_ENTRIES."""
    assert (size < FUSING_ENTRIES) == (size == SIZES[0])
    count = int(decisions(p)[kind](torch.empty(size)).sum())
    assert abs(count - p * 2**32) < 2.5


@pytest.mark.usefixtures("grid")
@pytest.mark.parametrize("log_odds", [-40.0, -20.0, 20.0, 40.0])
@pytest.mark.parametrize("size", SIZES)
def test_a_draw_is_0_or_1(size, log_odds):
    """Also where p - u is rounded to -1: p is almost 0, and u almost 1."""
    drawn = bernoulli(torch.full((size,), log_odds), Generator())
    assert set(drawn.tolist()) <= {0.0, 1.0}


@pytest.fixture
def extremes(monkeypatch):
    """Uniform numbers next to 0, next to 1 and between, for draws of any size."""
    near = 2.0 ** -torch.tensor([53, 33, 26, 25, 24, 1], dtype=torch.float64)
    numbers, rng = torch.cat((torch.zeros(1), near, 1 - near)), Generator().manual_seed(0)

    def uniform(self, generator):
        return self.copy_(numbers[torch.randint(len(numbers), self.shape, generator=rng)])

    monkeypatch.setattr(torch.Tensor, "uniform_", uniform)
    monkeypatch.setattr(distributions, "MAX_BERNOULLI_ENTRIES", 0)


@pytest.mark.usefixtures("extremes")
@pytest.mark.parametrize(
    ("sampler", "model", "name"), PAIRS, ids=[f"{pair[0]}-{pair[2]}" for pair in PAIRS]
)
def test_a_step_keeps_to_the_domain(sampler, model, name):
    """Also on a steep target, where most moves are all but impossible, and with extreme numbers."""
    x = model.domain.uniform(64, Generator().manual_seed(1))
    try:
        steep = lw.Function(lambda y: 40 * model(y), model.domain)
        state = sampler.init(x, steep)
    except lw.UnsupportedModelError:  # it needs the model's own methods
        steep = model
        state = sampler.init(x, steep)
    for _ in range(3):
        state, _ = sampler.step(state, steep, Generator())
        model.domain.check(state.x)


@pytest.mark.parametrize("size", SIZES)
def test_a_draw_leaves_its_log_odds(size):
    """They are those of the state: a sampler reads them again for the reverse move."""
    log_odds = torch.linspace(-3, 3, size)
    before = log_odds.clone()
    bernoulli(log_odds, Generator())
    assert torch.equal(log_odds, before)


@pytest.mark.parametrize("step", [-1e-9, 1e-9])
def test_a_bit_is_drawn_to_all_digits(step):
    """The `bernoulli_` of PyTorch compares float64 numbers, which the same seed gives here."""
    uniform = torch.empty(500, 1, dtype=torch.float64).uniform_(generator=Generator())
    near = (uniform * (1 + step)).logit()
    assert (draw_bit(near, torch.float32, Generator())[0] == (step > 0)).all()


def test_rare_entries_are_drawn():
    """Half a million entries that have 10^-7 of the weight each, beside one of the rest."""
    weights = torch.full((2**20,), 1e-7)
    weights[1::2] = 0
    weights[0] = 1 - 2**19 * 1e-7
    index = draw_categorical(weights, Generator().manual_seed(0), 20_000)
    assert not (index % 2).any()
    count, expected = int((index > 0).sum()), 20_000 * (2**19 - 1) * 1e-7
    assert abs(count - expected) < 4.5 * expected**0.5


# Compiled kernels.

KEY, WORD = 12_121_362, 58  # a step whose first word of chain 0 and stream 0 is nearly 0
EDGE = math.log(2**32 / (WORD + 0.5) - 1)  # this word decides as if 1 had these log-odds, or -


def langevin(z):
    x, gradient, price = np.zeros((1, 4), np.float32), np.full((1, 4), 2 * z, np.float32), 0
    sites, count = np.zeros((1, 4), np.int32), np.zeros(1, np.int64)
    rest = np.zeros(4, np.float32) + price, sites, count, np.zeros(1), np.zeros(1)
    flip_sites(0, KEY, x, gradient, *rest)
    return x[0, 0]


@numba.njit
def draw_sites(y, marks, ratio, words, x, low, high):
    """The part of a kernel, which Python cannot call."""
    binary.draw_sites(y, marks, ratio, words, x, low, high)


def flipped(z):
    one = np.ones(1, np.float32)
    ratio, y, marks = 0 * one, 0 * one, np.zeros(8, np.uint8)
    binary.weigh_steps(ratio, 0 * one, np.float32(z) * one, 0 * one, one[0], one[0])
    words = np.full(1, WORD, np.uint32)
    draw_sites(y, marks, ratio, words, 0 * one, np.float32(0), one[0])
    assert y[0] == marks[0]
    return y[0]


@pytest.mark.parametrize("draw", [langevin, flipped])
def test_rare_decisions_of_compiled_kernels(draw):
    """A word of 58 is among the 58.5 of 2^32 that make the rarer outcome happen."""
    assert [draw(z) for z in (-EDGE - 0.01, -EDGE + 0.01)] == [0, 1]
    assert [draw(z) for z in (EDGE - 0.01, EDGE + 0.01)] == [0, 1]


@pytest.mark.parametrize("rare", [0, 1, 2])
@pytest.mark.parametrize("p", PROBABILITIES)
def test_rare_values_of_compiled_potts_models(p, rare):
    """Site 0 has one value of probability p. The two others share the rest."""
    law = np.roll([p, (1 - p) / 2, (1 - p) / 2], rare)
    x, sites, q = np.zeros(4, np.int32), 4, 3
    fields = np.repeat(2 * np.log(law), sites).astype(np.float32)
    ladder, price = np.zeros(sites * q, np.int32), np.zeros(sites, np.float32)
    room, counts = np.empty((3, sites), np.float32), np.empty((2, sites), np.int32)
    categorical.weigh(ladder, fields, x, price, np.float32(0.5), room, counts)
    words = np.diff([0, *ladder[: 2 * sites : sites], 2**31 - 1])
    assert abs(words[rare] - p * 2**31) < 1.5


@pytest.mark.parametrize("sampler", ["gwg", "locally_balanced"])
def test_a_constant_added_to_the_fields_changes_no_compiled_draw(sampler):
    """Their exponentials alone would be denormal, or 0."""
    settings = {"chains": 3, "steps": 20, "engine": "compiled", "diagnose": False}
    fields = torch.tensor([[0.0, -1.0, -2.0], [0.5, 0.0, 0.25]])
    one, other = (
        lw.sample(lw.LatticePotts((2,), 3, 0.5, bias), sampler, **settings)
        for bias in (fields, fields - torch.tensor([[1484.0], [2000.0]]))
    )
    assert torch.equal(one.draws, other.draws)
