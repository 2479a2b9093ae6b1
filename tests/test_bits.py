"""Sweeps in bits: random bits, thresholds, and steps against a plain NumPy loop.

The loop uses the same random numbers, compares all 40 bits of them at once as integers, and knows
of no planes, no words and no pairs of half lattices.
"""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from lattice_loop import LANES, Loop, uniforms
from numpy.typing import NDArray
from torch import Generator

import latticework as lw
from latticework.models.forms import temper_form
from latticework.samplers.compiled.bits.decisions import (
    PLANES,
    STORED_PLANES,
    TERMS,
    Chances,
    bit_planes,
    count_terms,
)
from latticework.samplers.compiled.bits.lattice_rows import TILE_WORDS, fit_lanes
from latticework.samplers.compiled.bits.perfect_rows import PAST_WORDS
from latticework.samplers.compiled.bits.sweep_lattice import pack_sweeps
from latticework.samplers.compiled.compiled_sampler import NoCompiledKernelError
from latticework.samplers.compiled.philox import step_keys
from latticework.samplers.compiled.registry import find_compiled_kernel
from latticework.samplers.sums import SumRequest, empty_sums
from latticework.samplers.sweep import TIE_NATS, TIE_SHARE
from latticework.sampling.perfect import couple_from_the_past

SWEEPS = [lw.GibbsSweep(), lw.MetropolisSweep()]


# Thresholds.


def evaluate(terms: NDArray, number: int) -> NDArray:
    """A polynomial's bit: the sum of the coefficients of indices within the bits of `number`."""
    inside = [index for index in range(terms.shape[-1]) if index & ~number == 0]
    return terms[..., inside].sum(-1) % 2


@pytest.mark.parametrize("values", [1, 2])
@pytest.mark.parametrize("terms", TERMS)
def test_planes_hold_probabilities_to_forty_bits(terms, values):
    """Random numbers, 0, 1, numbers near to them, and NaN, which is taken as 0."""
    rng = np.random.default_rng(terms)
    p = rng.random((50, values, terms)) ** rng.integers(1, 40, (50, values, terms))
    p.flat[: 7 * values] = np.repeat([0, 1, 2.0**-40, 2.0**-42, 1 - 2.0**-41, 0.5, np.nan], values)
    certain = rng.random((50, 2, terms)) < 0.5
    planes = np.stack(list(bit_planes(Chances(p, certain)))).reshape(
        STORED_PLANES, 50, values, terms
    )
    for number in range(terms):
        bits = evaluate(planes, number)  # [planes, kinds, values]: the difference of both values
        bits[:, :, 1:] ^= bits[:, :, :1]
        powers = 2.0 ** -np.arange(1, PLANES + 1)
        probability = np.tensordot(powers, bits[:PLANES], 1)
        error = abs(probability - np.nan_to_num(p[..., number]))
        assert error.max() <= 2.0**-40
        assert np.quantile(error, 0.9) <= 2.0**-41
        assert (certain[..., number] == bits[PLANES:, :, 0].T).all()


def test_polynomials_have_as_many_terms_as_they_need():
    assert [count_terms(n) for n in (0, 4, 5, 7, 8, 15)] == [5, 5, 8, 8, 16, 16]


# A plain loop.


class Sweep(Loop):
    """Sweeps of one chain after the other, with the numbers of `compiled.bits.sweep_lattice`."""

    def probability(self, x: NDArray) -> NDArray:
        """That a site becomes 1 (Gibbs), or that it flips."""
        gains = self.gains(x)
        if not isinstance(self.sampler, lw.MetropolisSweep):
            return 1 / (1 + np.exp(np.where(x, gains, -gains)))
        return np.exp(np.minimum(gains, 0)) * np.where(abs(gains) <= TIE_NATS, TIE_SHARE, 1)

    def sweep(self, x: NDArray, key: int, chain: int, time: int = 0) -> NDArray:
        sites, colours = len(x), self.colours.max() + 1
        row = -(-sites // 64)
        rows, paired = max(1, (PAST_WORDS if time else TILE_WORDS) // row), colours <= 2
        each = 2 if paired else 1
        block, place = divmod(chain, rows * each)
        at = place // each * row * 64
        for turn in range(max(2, colours)):
            colour = 1 - turn if place % each else turn
            drawn = turn if paired or time else 0  # else all passes share one draw
            u = uniforms(key, block, drawn, -(-(at + sites) // LANES), time)[at : at + sites]
            p = self.probability(x)
            flips = u < np.minimum(np.rint(p * 2.0**40), 2**40 - 1)
            if isinstance(self.sampler, lw.MetropolisSweep):
                flips |= p == 1
                new = x ^ flips
            else:
                new = flips
            x = np.where(self.colours == colour, new, x)
        return x


SHAPES = [(5, 5), (13,), (1,), (2, 1, 3), (4, 4), (4, 3, 4), (8, 8), (2, 2, 2, 2), (3, 3, 3, 3)]
SHAPES += [(70, 71), (130, 64)]


def check(sampler, model, chains: int = 5, steps: int = 3) -> None:
    x = model.domain.uniform(chains, Generator().manual_seed(1))
    twin = find_compiled_kernel(sampler, model)
    state, _ = twin.advance(twin.init(x, model), model, Generator().manual_seed(2), steps)
    loop, rows = Sweep(sampler, model), list(x.numpy().astype(bool))
    for key in step_keys(steps, Generator().manual_seed(2)):
        rows = [loop.sweep(row, key, chain) for chain, row in enumerate(rows)]
    np.testing.assert_array_equal(state.x.numpy(), np.stack(rows))


@pytest.mark.parametrize("sampler", SWEEPS, ids=str)
@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sweeps_are_those_of_a_plain_loop(sampler, shape, periodic):
    check(
        sampler, lw.Lattice(shape, 0.15, 0.1, periodic), chains=3 if math.prod(shape) > 999 else 5
    )


@pytest.mark.parametrize("sampler", SWEEPS, ids=str)
@pytest.mark.parametrize(
    "model",
    [
        lw.Lattice((6, 10), 0.1, [0.3 * (i % 7) / 7 for i in range(60)]),
        lw.Lattice((6, 7), -0.3, torch.linspace(-1, 1, 42).tolist()),
        lw.Lattice((6, 10), 0.0),  # all values tie
        lw.Lattice((6, 10), 0.0005, 0.0005),  # nearly so
        lw.Lattice((4, 4, 4), 0.0004, torch.linspace(-0.02, 0.02, 64).tolist()),
        lw.Lattice((4, 6), 30.0, 0.2),
        lw.Lattice((4, 6), 300.0, 1e30),
    ],
    ids=["fields", "negative", "ties", "near ties", "some ties", "steep", "steepest"],
)
def test_fields_signs_ties_and_steep_weights(sampler, model):
    check(sampler, model, chains=4, steps=4)


ALL_SITES = [lw.DULA(), lw.DMALA(), lw.DLMC(), lw.ACS()]


@pytest.mark.parametrize("sampler", [*SWEEPS, *ALL_SITES], ids=str)
@pytest.mark.parametrize("side", [5, 10])
def test_a_chain_has_its_numbers_whatever_others_there_are(sampler, side):
    """Few chains have vectors of fewer words."""
    model = lw.Lattice((side, side), 0.2)
    x = model.domain.uniform(300, Generator().manual_seed(1))
    twin = find_compiled_kernel(sampler, model)

    def states(chains):
        state = twin.init(x[:chains], model)
        return twin.advance(state, model, Generator().manual_seed(2), 5)[0].x

    all_states = states(300)
    for chains in (1, 2, 7):
        assert states(chains).equal(all_states[:chains])


def test_a_vector_holds_the_words_of_a_small_tile():
    rows = pack_sweeps((lw.Lattice((5, 5), 0.2).form(),), metropolis=False)
    widths = {chains: len(fit_lanes(rows, chains).lanes) for chains in (1, 2, 3, 4, 5, 8, 9, 1000)}
    assert widths == {1: 1, 2: 4, 3: 4, 4: 4, 5: 8, 8: 8, 9: 8, 1000: 8}
    paired = pack_sweeps((lw.Lattice((10, 10), 0.2).form(),), metropolis=False)
    assert [len(fit_lanes(paired, chains).lanes) for chains in (2, 4, 5)] == [4, 4, 8]


@pytest.mark.parametrize("sampler", SWEEPS, ids=str)
def test_sites_of_unknown_log_odds_stay_and_are_counted(sampler):
    model = lw.Lattice((4, 4), 0.1, [0.1, math.nan] * 8)
    twin = find_compiled_kernel(sampler, model)
    x = model.domain.uniform(20, Generator().manual_seed(0))
    state, sums = twin.advance(twin.at(x, model), model, Generator(), 30)
    moved = (state.x != x).any(0)
    assert moved[::2].all()
    assert not moved[1::2].any()
    assert (sums.invalid == 30).all()


def test_more_neighbours_than_planes_count_are_refused():
    with pytest.raises(NoCompiledKernelError, match="16 neighbours of a site"):
        find_compiled_kernel(lw.GibbsSweep(), lw.Lattice((3,) * 8, 0.1))


@pytest.mark.parametrize(
    "model",
    [lw.Lattice((4, 4), 0.2, 0.1), lw.Lattice((5, 4), 0.15), lw.Lattice((5, 26), 0.1),
     lw.Lattice((2, 3, 2), 0.2, [0.1 * i for i in range(12)]), lw.Lattice((3,) * 4, 0.02)],
    ids=["even", "odd", "wide", "fields", "four dimensions"],
)  # fmt: skip
def test_perfect_draws_are_those_of_a_plain_loop(model):
    """From both bounds at a time -T that doubles until they meet, by the same numbers."""
    draws, sites = 3 if model.domain.dim > 100 else 12, model.domain.dim
    x, sweeps = couple_from_the_past(model, draws, 3, 2**10, 1)
    (key,), loop = step_keys(1, Generator().manual_seed(3)), Sweep(lw.GibbsSweep(), model)
    for draw in range(draws):
        low, high, attempt = np.zeros(sites, bool), np.ones(sites, bool), 1
        while (low != high).any():
            low, high = np.zeros(sites, bool), np.ones(sites, bool)
            for time in range(attempt, 0, -1):
                low = loop.sweep(low, key, draw, time)
                high = loop.sweep(high, key, draw, time)
                assert (low <= high).all()
            attempt *= 2
        assert sweeps[draw] == attempt // 2
        np.testing.assert_array_equal(x[draw], low)


# Graphs: a bit a chain.


def signed_torus(side: int, weight: float, bias=0.0, axes: int = 2) -> lw.Graph:
    site, rng = np.arange(side**axes).reshape((side,) * axes), np.random.default_rng(0)
    pairs = [np.stack((site, np.roll(site, -1, axis)), -1) for axis in range(axes)]
    edges = np.concatenate(pairs).reshape(-1, 2)
    return lw.Graph(edges, weight * rng.choice([-1, 1], len(edges)), bias)


SIGNED = {
    "torus": signed_torus(6, 0.3, 0.1),
    "odd torus": signed_torus(5, 0.3),
    "fields": signed_torus(4, 0.3, torch.linspace(-1, 1, 16).tolist()),
    "ties": signed_torus(4, 0.001),
    "three axes": signed_torus(3, 0.2, axes=3),
    "forest": lw.Graph([[0, 1], [1, 2], [1, 3]], [0.5, -0.5, 0.5], 0.2, 9),
    "no edges": lw.Graph(np.empty((0, 2), int), 0.5, 0.2, 3),
}


def follow_columns(sampler, model: lw.Graph, columns, b: float, x: NDArray, chain: int, keys):
    """The states of a chain at inverse temperature b after each step, by a plain loop."""
    size, colours = model.domain.dim, model.colours().numpy()
    weights = np.zeros((size, size))
    for (i, j), weight in zip(model.edges.numpy(), model.weights.detach().double(), strict=True):
        weights[i, j] = weights[j, i] = float(weight)
    bias, vectors = model.bias.double().numpy(), len(columns.real) // 8
    for key in keys:
        u = uniforms(key, chain // 64, 0, vectors).reshape(-1, 64)[columns.place, chain % 64]
        for colour in range(colours.max() + 1):
            odds = 2 * b * (bias + weights @ (2.0 * x - 1))
            gains = np.where(x, -odds, odds)
            if isinstance(sampler, lw.MetropolisSweep):
                share = np.where(abs(gains) <= TIE_NATS, TIE_SHARE, 1)
                p = np.exp(np.minimum(gains, 0)) * share
                new = x ^ ((u < np.rint(p * 2.0**40)) | (p == 1))
            else:
                new = u < np.rint(2.0**40 / (1 + np.exp(-odds)))
            x = np.where(colours == colour, new, x)
        yield x


@pytest.mark.parametrize("sampler", SWEEPS, ids=str)
@pytest.mark.parametrize("name", SIGNED)
def test_sweeps_of_signed_graphs_are_those_of_a_plain_loop(name, sampler):
    """Chains of two blocks, and sums over more steps than three planes count."""
    model, chains, steps = SIGNED[name], 70, 9
    x = model.domain.uniform(chains, Generator().manual_seed(1))
    twin, wanted = find_compiled_kernel(sampler, model), SumRequest(total=True, draws=2, traced=66)
    columns = twin.columns((model.form(),), chains)
    state, sums = twin.advance(
        twin.init(x, model), model, Generator().manual_seed(2), steps, wanted
    )
    keys = step_keys(steps, Generator().manual_seed(2))
    for chain in (0, 1, 63, 64, 69):
        before = x[chain].numpy().astype(bool)
        rows = np.stack(list(follow_columns(sampler, model, columns, 1.0, before, chain, keys)))
        np.testing.assert_array_equal(state.x[chain], rows[-1])
        np.testing.assert_array_equal(sums.total[chain], rows.sum(0))
        assert sums.changed[chain] == (np.vstack((before, rows[:-1])) != rows).sum()
        if chain < 66:
            np.testing.assert_array_equal(sums.trace[:, chain], rows[-2:])


@pytest.mark.parametrize("sampler", SWEEPS, ids=str)
@pytest.mark.parametrize("name", ["torus", "fields"])
def test_chains_at_several_temperatures_are_those_of_a_plain_loop(name, sampler):
    model, schedule = SIGNED[name], [0.0, 0.25, 0.5, 1.0]
    forms = tuple(temper_form(model.form(), b) for b in schedule)
    twin = find_compiled_kernel(sampler, model)
    rows = np.random.default_rng(0).permutation(80).reshape(4, 20)
    before = model.domain.uniform(80, Generator().manual_seed(1))
    after, keys = before.clone(), step_keys(4, Generator().manual_seed(2))
    sums = empty_sums(before, 4, SumRequest())
    twin.run_groups(after.numpy(), rows, forms, keys, sums)
    columns = twin.columns(forms, 20)
    for group, b in enumerate(schedule):
        for chain in range(group * 20, group * 20 + 20, 3):
            row = rows.ravel()[chain]
            x = before[row].numpy().astype(bool)
            *_, x = follow_columns(sampler, model, columns, b, x, chain, keys)
            np.testing.assert_array_equal(after[row], x)


def test_graphs_that_columns_do_not_serve():
    twin = find_compiled_kernel(lw.GibbsSweep(), SIGNED["torus"])
    unequal = lw.Graph([[0, 1], [1, 2]], [0.5, 0.4])
    hub = lw.Graph([[0, i] for i in range(1, 9)], 0.5)
    for model, chains in ((SIGNED["torus"], 7), (unequal, 64), (hub, 64)):
        assert not twin.prefers_columns((model.form(),), chains)
    assert twin.prefers_columns((SIGNED["torus"].form(),), 8)


def test_hot_levels_of_a_signed_graph_make_one_step():
    """The other levels alone are fewer chains than columns are made for."""
    sampler = lw.Tempered(lw.GibbsSweep(), schedule=[b / 8 for b in range(1, 9)], steps=2, hot=0.5)
    twin, model = find_compiled_kernel(sampler, SIGNED["torus"]), SIGNED["torus"]
    state, rng = twin.init(torch.zeros(1, 36), model), Generator()
    before = state.kernel.x.clone()
    state, _ = twin.step(state, model, rng)
    assert (state.kernel.x != before).any(1).all()


# Every processor.

HASHES = """
import hashlib, sys
import torch
from torch import Generator
import latticework as lw
from latticework.samplers.compiled.registry import find_compiled_kernel
models = [lw.Lattice((10, 12), 0.2), lw.Lattice((5, 7), 0.2, 0.1)]
ring = [[i, (i + 1) % 30] for i in range(30)]
models.append(lw.Graph(ring, [0.5, -0.5] * 15, 0.1))
parts = [lw.perfect(lw.Lattice((6, 6), 0.15), 20)]
for model in models:
    for sampler in (lw.GibbsSweep(), lw.MetropolisSweep(), lw.DULA(0.4), lw.ACS(2.0, 0.2, 3)):
        twin = find_compiled_kernel(sampler, model)
        state = twin.at(model.domain.uniform(70, Generator().manual_seed(0)), model)
        state, _ = twin.advance(state, model, Generator().manual_seed(1), 300)
        parts.append(state.x)
print(hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest())
"""
PROCESSORS = {
    "this one": {},
    "AVX2": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+popcnt,+bmi,+bmi2"},
    "SSE2": {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": "+sse2"},
}


@pytest.mark.slow
def test_states_are_the_same_on_every_processor():
    """Kernels are compiled for AVX2 and for SSE2, as numba would on processors without more."""
    hashes = set()
    for settings in PROCESSORS.values():
        done = subprocess.run(
            [sys.executable, "-c", HASHES],
            env=os.environ | settings,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        hashes.add(done.stdout)
    assert len(hashes) == 1


# Long runs.


@pytest.mark.parametrize("kind", ["lattice", "graph"])
def test_rare_ones_come_as_often_as_they_should(kind):
    """In 10^9 decisions without couplings, all of which the last 28 bits of p decide."""
    p, sites, chains, steps = 1e-5, 4096, 128, 2000
    bias = math.log(p / (1 - p)) / 2
    if kind == "lattice":
        model = lw.Lattice((64, 64), 0.0, bias)
    else:
        model = lw.Graph(np.empty((0, 2), int), 1.0, bias, sites)
    twin = find_compiled_kernel(lw.GibbsSweep(), model)
    state = twin.at(torch.zeros(chains, sites), model)
    _, sums = twin.advance(state, model, Generator().manual_seed(4), steps, SumRequest(total=True))
    expected = p * sites * chains * steps
    assert abs(sums.total.sum(dtype=float) - expected) < 4.5 * expected**0.5


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SWEEPS, ids=str)
@pytest.mark.parametrize("kind", ["lattice", "graph"])
def test_energies_are_those_of_kaufmans_formula(kind, sampler):
    """The torus, and a graph with couplings of both signs that a change of spins makes of it."""
    from workshop.references import tori

    strength, side, chains, steps = 0.4, 32, 256, 20_000
    truth = tori.kaufman(side, side, strength)
    model = lw.Lattice((side, side), strength / 2)
    if kind == "graph":
        graph, rng = signed_torus(side, strength), np.random.default_rng(1)
        spins = rng.choice([-1, 1], side**2)
        model = lw.Graph(graph.edges, strength * spins[graph.edges].prod(1))
    twin, rng = find_compiled_kernel(sampler, model), Generator().manual_seed(5)
    state = twin.at(model.domain.uniform(chains, rng), model)
    energies = []
    for _ in range(40):
        state, _ = twin.advance(state, model, rng, steps // 40)
        energies.append(model.log_prob(state.x).double())
    means = torch.stack(energies[8:]).mean(0)
    assert abs(means.mean() - truth.energy) < 4.5 * means.std() / chains**0.5
