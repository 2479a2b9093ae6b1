"""Compiled steps that decide about every site of a lattice, against a plain NumPy loop.

The loop uses the same random numbers, compares all 40 bits of them at once, and knows of no tiles,
no classes and no ties.
"""

from math import inf, log

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Generator

from latticework.models.ising import Lattice
from latticework.models.lattice import joins, neighbour_table
from latticework.samplers.acs import ACS
from latticework.samplers.compiled.choose import twin_of
from latticework.samplers.compiled.decisions import BYTES, TIES, split
from latticework.samplers.compiled.lattice import BLOCK
from latticework.samplers.compiled.philox import fill, step_keys
from latticework.samplers.langevin import DMALA, DULA
from latticework.samplers.sums import Wanted
from latticework.samplers.sweep import GibbsSweep

# Rows of 16 bytes and of more, exactly full or not, one site, several blocks of one chain.
SHAPES = [(5, 5), (12,), (13,), (1,), (2,), (2, 1, 3), (4, 4), (3, 4, 5), (2, 2, 2, 2), (70, 71)]
SAMPLERS = [DULA(0.4), DMALA(0.3), DMALA(inf), ACS(2.0, 0.2, 3), GibbsSweep()]


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

    def __init__(self, sampler, model: Lattice) -> None:
        self.sampler, self.bias, self.coupling = (
            sampler,
            model.bias.double().numpy(),
            model.coupling,
        )
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
        if isinstance(self.sampler, ACS):
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
        if isinstance(self.sampler, GibbsSweep):
            for colour in range(self.colours.max() + 1):
                flips = drawn < 1 / (1 + np.exp(-self.gains(x)))
                x = x ^ (flips & (self.colours == colour))
            return x
        y = x ^ (drawn < 1 / (1 + np.exp(-self.logits(x, t))))
        if isinstance(self.sampler, DMALA | ACS):
            word = row_bytes(key, chain, len(x))[-4:].view(np.uint32)[0]
            ratio = self.log_prob(y) - self.log_prob(x)
            ratio += self.log_q(y, x != y, t) - self.log_q(x, x != y, t)
            return y if log((word + 0.5) / 2**32) < ratio else x
        return y

    def run(self, x: NDArray, keys: NDArray[np.int64]) -> NDArray:
        for t, key in enumerate(keys):
            x = np.stack([self.step(row, key, chain, t) for chain, row in enumerate(x)])
        return x


def check(sampler, model: Lattice, chains: int, calls: list[int]) -> None:
    start = model.domain.uniform(chains, Generator().manual_seed(1))
    twin, rng = twin_of(sampler, model), Generator().manual_seed(2)
    state = twin.init(start, model)
    for steps in calls:
        state, _ = twin.advance(state, model, rng, steps)
    keys = step_keys(sum(calls), Generator().manual_seed(2))
    expected = Loop(sampler, model).run(start.numpy().astype(bool), keys)
    np.testing.assert_array_equal(state.x.numpy(), expected)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_steps_are_those_of_a_plain_loop(sampler, shape, periodic):
    check(sampler, Lattice(shape, 0.15, 0.1, periodic), 3, [3])


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
@pytest.mark.parametrize("kinds", [2, 60])
def test_biases_that_differ_by_site(sampler, kinds):
    """With few classes, whose tables are read by comparisons, and with many."""
    bias = [0.3 * (i % kinds) / kinds for i in range(60)]
    check(sampler, Lattice((6, 10), 0.1, bias), 5, [3])


@pytest.mark.parametrize("kind", [DULA, DMALA])
def test_preconditioners(kind):
    check(kind(0.4, [0.5 + (i % 7) / 7 for i in range(60)], 2), Lattice((6, 10), 0.1), 5, [3])


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
@pytest.mark.parametrize("calls", [[1] * 7, [2, 5], [7]], ids=str)
def test_neither_threads_nor_calls_nor_tiles_change_the_numbers(sampler, calls, monkeypatch):
    """More chains than a tile holds, divided between two threads."""
    monkeypatch.setattr("latticework.samplers.compiled.jit.ALONE", 1.0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    check(sampler, Lattice((5, 5), 0.15, 0.1), 2 * BLOCK // 32 + 5, calls)


def test_a_cycle_goes_on_where_it_was():
    """After new parameters (`refresh`) and from new positions (`moved_to`)."""
    model, sampler = Lattice((4, 5), 0.15, 0.1), ACS(2.0, 0.2, 3)
    twin, x = twin_of(sampler, model), model.domain.uniform(5, Generator().manual_seed(1))
    state, _ = twin.advance(twin.init(x, model), model, Generator().manual_seed(2), 7)
    assert state.phase.item() == 7 % 3
    assert twin.refresh(state, model).phase.item() == 7 % 3
    moved = twin.moved_to(x, state, model)
    assert moved.phase.item() == 7 % 3
    assert torch.equal(moved.x, x)
    given = x.clone()
    twin.advance(moved, model, Generator().manual_seed(3), 5)
    assert torch.equal(x, given)


def mean_flips(probability: float, steps: int) -> float:
    """The share of sites that DULA flips on a model without interaction and bias."""
    model, sampler = Lattice((50, 50), 0.0), DULA(0.5 / log(1 / probability - 1))
    twin = twin_of(sampler, model)
    state = twin.init(torch.zeros(4, 2500), model)
    _, sums = twin.advance(state, model, Generator().manual_seed(0), steps)
    return sums.changed.sum() / (4 * 2500 * steps)


@pytest.mark.parametrize("probability", [1 / 512, 1 / 1000, 0.3, 100.75 / 256])
def test_ties_are_broken_with_the_probability_that_bytes_leave(probability):
    """Bytes alone would give multiples of 1/256: 0 for the first two."""
    error = (probability * (1 - probability) / (4 * 2500 * 300)) ** 0.5
    assert abs(mean_flips(probability, 300) - probability) < 4.5 * error


def test_certain_and_impossible_flips():
    model = Lattice((37,), 0.0, 1e4)
    twin = twin_of(DULA(inf), model)
    state, sums = twin.advance(
        twin.init(torch.zeros(200, 37), model), model, Generator().manual_seed(0), 300
    )
    assert (state.x == 1).all()
    assert (sums.changed == 37).all()  # by the first step


def test_probabilities_are_split_into_bytes_and_words():
    whole, fraction = split(np.array([0, 1 / 512, 0.5, 1 - 2**-20, 1, np.nan]))
    assert whole.tolist() == [0, 0, 128, 255, 255, 0]
    assert fraction.tolist() == [0, 2**31, 0, 2**32 - 2**20, 2**32, 0]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_sums_of_more_steps_than_a_byte_counts(sampler):
    model, chains, steps = Lattice((5, 4), 0.1, 0.3), 4, 600
    twin, rng = twin_of(sampler, model), Generator().manual_seed(0)
    start = model.domain.uniform(chains, rng)
    wanted = Wanted(total=True, draws=steps, traced=chains)
    _, sums = twin.advance(twin.init(start, model), model, rng, steps, wanted)
    visited = np.concatenate((start.numpy()[None], sums.trace))
    np.testing.assert_array_equal(sums.total, visited[1:].sum(0))
    np.testing.assert_array_equal(sums.changed, (visited[1:] != visited[:-1]).sum((0, 2)))


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_joins_are_the_neighbour_table(shape, periodic):
    shifts, bits = joins(shape, periodic)
    table, exists = neighbour_table(shape, periodic)
    for i in range(len(table)):
        found = []
        for (near, far), joined in zip(shifts.tolist(), bits[:, i].tolist(), strict=True):
            places = (i - near, i + near, i + far, i - far)
            found += [place for bit, place in enumerate(places) if joined >> bit & 1]
        assert sorted(found) == sorted(table[i][exists[i] > 0].tolist())
