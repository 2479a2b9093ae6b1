"""Compiled steps whose proposals flip all sites of a lattice, against a plain NumPy loop.

The loop uses the same random numbers, compares all 40 bits of them at once, and knows of no tiles,
no classes and no ties.
"""

from math import inf, log

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Generator

import latticework as lw
from latticework.models.lattice import neighbour_table
from latticework.samplers.compiled.byte_decisions import BYTES, TIES
from latticework.samplers.compiled.philox import fill, step_keys
from latticework.samplers.compiled.registry import find_compiled_kernel

pytestmark = pytest.mark.slow  # many kernels are compiled

# Rows of 16 bytes and of more, exactly full or not, one site, several blocks of one chain.
SHAPES = [(5, 5), (13,), (1,), (2, 1, 3), (4, 4), (2, 2, 2, 2), (70, 71)]
SAMPLERS = [lw.DULA(0.4), lw.DMALA(0.3), lw.DMALA(inf), lw.ACS(2.0, 0.2, 3)]


def row_bytes(key: int, chain: int, sites: int) -> NDArray[np.uint8]:
    """The bytes of a chain's row: four for the chain after those of the sites, in whole calls."""
    calls = -(-(sites + 4) // 16)
    words = np.empty(4 * calls, np.uint32)
    fill(words, key, chain, BYTES)
    return words.reshape(4, calls).T.copy().view(np.uint8).ravel()


def uniforms(key: int, chain: int, sites: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each site, of 40 bits."""
    words = np.empty(4 * sites, np.uint32)
    fill(words, key, chain, TIES)
    return (row_bytes(key, chain, sites)[:sites] + words[:sites] * 2.0**-32) / 256


class Loop:
    """`sampler` on `model`, one chain and one step after the other."""

    def __init__(self, sampler, model: lw.Lattice) -> None:
        self.sampler, self.coupling = sampler, model.coupling
        self.bias = model.bias.double().numpy()
        table, exists = neighbour_table(model.shape, model.periodic)
        self.neighbours, self.exists = table.numpy(), exists.double().numpy()
        self.colours = model.colours().numpy()
        self.scale = np.ones(len(self.bias))
        if getattr(sampler, "preconditioner", None) is not None:
            self.scale = np.array(sampler.preconditioner) ** sampler.preconditioner_power

    def gains(self, x: NDArray) -> NDArray:
        """The change of the log-probability by each site's flip."""
        spins = 2.0 * x - 1
        field = self.bias + 2 * self.coupling * (spins[self.neighbours] * self.exists).sum(1)
        return -2 * spins * field

    def log_prob(self, x: NDArray) -> float:
        spins = 2.0 * x - 1
        field = self.bias + self.coupling * (spins[self.neighbours] * self.exists).sum(1)
        return spins @ field

    def logits(self, x: NDArray, t: int) -> NDArray:
        if isinstance(self.sampler, lw.ACS):
            cycle, k = self.sampler, t % self.sampler.period
            price = 0.5 / cycle.cycle_of_steps()[k]
            return cycle.cycle_of_balances()[k] * self.gains(x) - price
        return self.gains(x) / 2 - 0.5 / self.sampler.step_size / self.scale

    def log_q(self, x: NDArray, flips: NDArray, t: int) -> float:
        """The log-probability that just these sites flip."""
        logits = self.logits(x, t)
        return logits[flips].sum() - np.logaddexp(0, logits).sum()

    def step(self, x: NDArray, key: int, chain: int, t: int) -> NDArray:
        drawn = uniforms(key, chain, len(x))
        y = x ^ (drawn < 1 / (1 + np.exp(-self.logits(x, t))))
        if isinstance(self.sampler, lw.DMALA | lw.ACS):
            word = row_bytes(key, chain, len(x))[-4:].view(np.uint32)[0]
            ratio = self.log_prob(y) - self.log_prob(x)
            ratio += self.log_q(y, x != y, t) - self.log_q(x, x != y, t)
            return y if log((word + 0.5) / 2**32) < ratio else x
        return y


def check(sampler, model: lw.Lattice, chains: int = 5, steps: int = 3) -> None:
    x = model.domain.uniform(chains, Generator().manual_seed(1))
    twin = find_compiled_kernel(sampler, model)
    state, _ = twin.advance(twin.init(x, model), model, Generator().manual_seed(2), steps)
    loop, expected = Loop(sampler, model), x.numpy().astype(bool)
    for t, key in enumerate(step_keys(steps, Generator().manual_seed(2))):
        rows = [loop.step(row, key, chain, t) for chain, row in enumerate(expected)]
        expected = np.stack(rows)
    np.testing.assert_array_equal(state.x.numpy(), expected)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_steps_are_those_of_a_plain_loop(sampler, shape, periodic):
    check(sampler, lw.Lattice(shape, 0.15, 0.1, periodic))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
@pytest.mark.parametrize("kinds", [2, 60])
def test_biases_that_differ_by_site(sampler, kinds):
    """With few classes, whose tables are read by comparisons, and with many."""
    bias = [0.3 * (i % kinds) / kinds for i in range(60)]
    check(sampler, lw.Lattice((6, 10), 0.1, bias))


@pytest.mark.parametrize("kind", [lw.DULA, lw.DMALA])
def test_preconditioners(kind):
    check(kind(0.4, [0.5 + (i % 7) / 7 for i in range(60)], 2), lw.Lattice((6, 10), 0.1))


@pytest.mark.parametrize("probability", [1 / 512, 1 / 1000, 0.3, 100.75 / 256])
def test_ties_are_broken_with_the_probability_that_bytes_leave(probability):
    """DULA without interaction and bias. Bytes alone would give multiples of 1/256."""
    model, sampler = lw.Lattice((50, 50), 0.0), lw.DULA(0.5 / log(1 / probability - 1))
    twin, steps = find_compiled_kernel(sampler, model), 300
    state = twin.init(torch.zeros(4, 2500), model)
    _, sums = twin.advance(state, model, Generator().manual_seed(0), steps)
    error = (probability * (1 - probability) / (4 * 2500 * steps)) ** 0.5
    assert abs(sums.changed.sum() / (4 * 2500 * steps) - probability) < 4.5 * error


def test_certain_and_impossible_flips():
    model = lw.Lattice((37,), 0.0, 1e4)
    twin = find_compiled_kernel(lw.DULA(inf), model)
    state, sums = twin.advance(
        twin.init(torch.zeros(200, 37), model), model, Generator().manual_seed(0), 300
    )
    assert (state.x == 1).all()
    assert (sums.changed == 37).all()  # by the first step
