"""Sweeps of Potts lattices and graphs: both samplers of `samplers.sweep` on one-hot sites.

Chains advance side by side, as on graphs (`compiled.sweeps.sweep_graph`): a tile has a row of
bytes, the values, for each site, one for each of its chains. Sites of a class are independent, so
the weights, words and draws of some of them are computed for all chains of the tile at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import IMPOSSIBLE, PottsGraphForm, PottsLatticeForm
from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.compiled_sampler import GroupTwin, Keys, Sums
from latticework.samplers.compiled.forms.pairwise import lists_of
from latticework.samplers.compiled.jit import kernel, lean, over_chains
from latticework.samplers.compiled.philox import fill_sites, unit
from latticework.samplers.compiled.sweeps.packed_chains import MAX_SINGLE_NEIGHBOURS
from latticework.samplers.sweep import TIE_NATS, TIE_SHARE, MetropolisSweep

SweepForm = PottsGraphForm | PottsLatticeForm
VECTOR_CHAINS, MAX_TILE_CHAINS = 8, 32  # chains of a tile: a multiple, at most
MAX_TIE_RATIO = math.exp(TIE_NATS)  # the ratio that a tie has at most
CHUNK_SITES = 16  # sites, a multiple of 4, that are handled together
MIN_FIELD = np.float32(IMPOSSIBLE)  # fields below it are those of forbidden values


class Pairs(NamedTuple):
    """The edges of a lattice or graph, in the rows of `PottsGraphForm`."""

    starts: NDArray[np.int64]
    neighbours: NDArray[np.int32]
    order: NDArray[np.int32]
    classes: NDArray[np.int64]


def pairs_of(form: SweepForm) -> Pairs:
    if isinstance(form, PottsGraphForm):
        return Pairs(form.starts, form.neighbours, form.order, form.classes)
    order = np.argsort(form.colours, kind="stable").astype(np.int32)
    classes = np.concatenate(([0], np.bincount(form.colours).cumsum()))
    return Pairs(*lists_of(form), order, classes)


def couplings_of(forms: Sequence[SweepForm]) -> NDArray[np.float32]:
    """The coupling at each place of the rows, or the one that all have: a row for each form."""
    couplings = np.array([np.atleast_1d(form.coupling) for form in forms], np.float32)
    return couplings[:, :1] if (couplings == couplings[:, :1]).all() else couplings


@dataclass(frozen=True)
class PottsSweepTwin(GroupTwin):
    def refuses(self, form: SweepForm) -> str:
        values = form.bias.shape[1]
        return f"{values} values, as it holds at most 256" if values > 256 else ""

    def run_groups(
        self,
        x: NDArray[np.float32],
        rows: NDArray[np.int64],
        forms: tuple[SweepForm, ...],
        keys: Keys,
        sums: Sums,
    ) -> None:
        pairs, bias = pairs_of(forms[0]), np.stack([form.bias for form in forms])
        coupling = couplings_of(forms)
        metropolis = isinstance(self.sampler, MetropolisSweep)
        args = metropolis, pairs, bias, coupling, rows.shape[1], rows.ravel(), x, keys, sums
        over_chains(sweep_potts, rows.size, 2.0 * rows.size * len(keys) * x.shape[1], *args)
        sums.accept[:] += len(keys)


class Chunk(NamedTuple):
    """Memory for a chunk of sites; `size` is CHUNK times the width of the tile."""

    weights: NDArray[np.float32]  # [values, size]
    top: NDArray[np.float32]  # [size], the largest field
    passed: NDArray[np.float64]  # [values + 1, size], sums of the weights of the values before
    left: NDArray[np.float64]  # [size], the sum of the weights of all values but the proposed one
    words: NDArray[np.uint32]  # [2, size]
    old: NDArray[np.uint8]  # [size]
    new: NDArray[np.uint8]  # [size]
    changed: NDArray[np.int64]  # [width]


@kernel
def make_chunk(q, width):
    size = CHUNK_SITES * width
    return Chunk(
        np.zeros((q, size), np.float32),
        np.empty(size, np.float32),
        np.zeros((q + 1, size), np.float64),
        np.empty(size, np.float64),
        np.empty((2, size), np.uint32),
        np.zeros(size, np.uint8),
        np.empty(size, np.uint8),
        np.zeros(width, np.int64),
    )


@kernel
def sweep_potts(first, last, metropolis, pairs, bias, coupling, group, rows, x, keys, sums):
    """Advance the chains `first <= c < last`, as many together as a tile holds.

    Chain c is row `rows[c]` of `x`. `group` chains in turn have a target.
    """
    (sites, q), steps, draws = bias.shape[1:], keys.shape[0], sums.trace.shape[0]
    starts, neighbours, order, classes = pairs
    start = first
    while start < last:
        target = start // group
        weights = coupling[target]
        chains = min(MAX_TILE_CHAINS, last - start, group - start % group)
        width = (chains + VECTOR_CHAINS - 1) // VECTOR_CHAINS * VECTOR_CHAINS
        alone = chains == 1 and weights.shape[0] > 1
        now, work = np.zeros((sites, width), np.uint8), make_chunk(q, width)
        load_values(now, x, rows[start : start + chains], q)
        for t in range(steps):
            chunk, begin = 0, 0
            for k in range(1, classes.shape[0]):
                while begin < classes[k]:
                    block = order[begin : min(begin + CHUNK_SITES, classes[k])]
                    size, at = block.shape[0], chunk * CHUNK_SITES // 4
                    for m in range(size):
                        i = block[m]
                        near = neighbours, starts[i], starts[i + 1]
                        add_fields(work, m, now, *near, bias[target, i], weights, alone)
                    fill_sites(work.words[0], width, width, size, at, start, keys[t])
                    weigh_values(work)
                    if metropolis:
                        at += CHUNK_SITES // 4
                        fill_sites(work.words[1], width, width, size, at, start, keys[t])
                        gather_values(work.old, now, block)
                        try_other_values(work)
                    else:
                        draw_values(work)
                    replace_values(now, work.new, work.changed, block)
                    begin += block.shape[0]
                    chunk += 2
            if sums.total.shape[0]:
                for c in range(chains):
                    for i in range(sites):
                        sums.total[start + c, i * q + now[i, c]] += np.float32(1)
            if t >= steps - draws:
                for c in range(min(chains, sums.trace.shape[1] - start)):
                    for i in range(sites):
                        sums.trace[t - steps + draws, start + c, i * q + now[i, c]] = np.int8(1)
        for c in range(chains):
            sums.changed[start + c] += work.changed[c]
        store_values(x, rows[start : start + chains], now, q)
        start += chains


@lean
def load_values(now, x, rows, q):
    for c in range(np.uint64(rows.shape[0])):
        row = x[rows[c]]
        for i in range(np.uint64(now.shape[0])):
            value, at = np.float32(0), i * np.uint64(q)
            for v in range(np.uint64(1), np.uint64(q)):
                value += np.float32(v) * row[at + v]
            now[i, c] = np.uint8(value)


@lean
def store_values(x, rows, now, q):
    for c in range(np.uint64(rows.shape[0])):
        row = x[rows[c]]
        row[:] = 0
        for i in range(np.uint64(now.shape[0])):
            row[i * np.uint64(q) + np.uint64(now[i, c])] = 1


@lean
def add_fields(work, m, now, neighbours, first, last, bias, coupling, alone):
    """The log-probabilities of the values of site `m` of a chunk, up to a constant.

    Its neighbours are `neighbours[first:last]`. Those that share one `coupling` are counted four at
    a time. A chain alone reads the values of others once.
    """
    width, weights, equal = now.shape[1], work.weights, coupling.shape[0] == 1
    if last - first > MAX_SINGLE_NEIGHBOURS:
        add_fields_of_hub(work, m, now, neighbours, first, last, bias, coupling)
        return
    fours = first + (last - first) // 4 * 4 if equal else first
    for v in range(weights.shape[0]):
        site_fields = weights[v, m * width : (m + 1) * width]
        site_fields[:] = bias[v]
        for k in range(first, fours, 4):
            near = neighbours[k], neighbours[k + 1], neighbours[k + 2], neighbours[k + 3]
            rows = now[near[0]], now[near[1]], now[near[2]], now[near[3]]
            count_four(site_fields, *rows, np.uint8(v), coupling[0])
        if not alone:
            for k in range(fours, last):
                count_one(site_fields, now[neighbours[k]], np.uint8(v), coupling[0 if equal else k])
    if alone:
        for k in range(first, last):
            weights[now[neighbours[k], 0], m * width] += coupling[k]


@lean
def add_fields_of_hub(work, m, now, neighbours, first, last, bias, coupling):
    """`add_fields` in double precision; `work.left` is free until values are tried."""
    width, equal = now.shape[1], coupling.shape[0] == 1
    total = work.left[m * width : (m + 1) * width]
    for v in range(work.weights.shape[0]):
        total[:] = bias[v]
        for k in range(first, last):
            count_one(total, now[neighbours[k]], np.uint8(v), coupling[0 if equal else k])
        site_fields = work.weights[v, m * width : (m + 1) * width]
        for c in range(width):
            site_fields[c] = total[c]


@lean
def count_four(fields, one, two, three, four, value, coupling):
    for c in range(np.uint64(fields.shape[0])):
        equal = np.uint8(one[c] == value) + np.uint8(two[c] == value)
        equal += np.uint8(three[c] == value) + np.uint8(four[c] == value)
        fields[c] += coupling * np.float32(equal)


@lean
def count_one(fields, one, value, coupling):
    for c in range(np.uint64(fields.shape[0])):
        fields[c] += coupling * np.float32(one[c] == value)


@lean
def weigh_values(work):
    """Replace the fields by weights; the largest of a site is 1."""
    top = work.top
    top[:] = -np.inf
    for v in range(work.weights.shape[0]):
        fields = work.weights[v]
        for c in range(np.uint64(top.shape[0])):
            top[c] = fields[c] if fields[c] > top[c] else top[c]
    for v in range(work.weights.shape[0]):
        fields = work.weights[v]
        for c in range(np.uint64(top.shape[0])):
            fields[c] = exp32(fields[c] - top[c]) * np.float32(fields[c] > MIN_FIELD)


@lean
def draw_values(work):
    """New values by inversion in double precision."""
    passed, q = work.passed, work.weights.shape[0]
    for v in range(q):
        add_weights(passed[v + 1], passed[v], work.weights[v])
    work.new[:] = 0
    for v in range(1, q):
        count_passed(work.new, passed[v], work.words[0], passed[q])


@lean
def try_other_values(work):
    """Propose a value other than `old` to each site, and accept it or not (`samplers.sweep`)."""
    passed, q = work.passed, work.weights.shape[0]
    for v in range(q):
        add_other_weights(passed[v + 1], passed[v], work.weights[v], work.old, np.uint8(v))
    work.new[:] = 0
    for v in range(1, q):
        count_passed(work.new, passed[v], work.words[0], passed[q])
    work.left[:] = 0
    for v in range(q):
        add_other_weights(work.left, work.left, work.weights[v], work.new, np.uint8(v))
    keep_rejected(work.new, work.old, work.words[1], passed[q], work.left)


@lean
def add_weights(passed, before, weights):
    for c in range(np.uint64(weights.shape[0])):
        passed[c] = before[c] + np.float64(weights[c])


@lean
def add_other_weights(passed, before, weights, values, value):
    for c in range(np.uint64(weights.shape[0])):
        passed[c] = before[c] + np.float64(weights[c]) * np.float64(values[c] != value)


@lean
def count_passed(new, passed, words, total):
    for c in range(np.uint64(new.shape[0])):
        new[c] += np.uint8(passed[c] <= unit(words[c]) * total[c])


@lean
def keep_rejected(new, values, words, total, left):
    """If `total` is 0, no other value is possible."""
    for c in range(np.uint64(new.shape[0])):
        tie = (total[c] <= MAX_TIE_RATIO * left[c]) & (left[c] <= MAX_TIE_RATIO * total[c])
        share = TIE_SHARE * total[c] if tie else total[c]
        accepted = (unit(words[c]) * max(total[c], left[c]) < share) & (total[c] > 0)
        new[c] = new[c] if accepted else values[c]


@lean
def gather_values(old, now, block):
    width = np.uint64(now.shape[1])
    for m in range(np.uint64(block.shape[0])):
        row = now[block[m]]
        for c in range(width):
            old[m * width + c] = row[c]


@lean
def replace_values(now, new, changed, block):
    width = np.uint64(now.shape[1])
    for m in range(np.uint64(block.shape[0])):
        row = now[block[m]]
        for c in range(width):
            changed[c] += np.int64(new[m * width + c] != row[c])
            row[c] = new[m * width + c]


def potts_values(form: SweepForm, x: Tensor) -> Tensor:
    """Log f, `[chains]`, at states `[chains, sites * q]`."""
    values, pairs, coupling = np.empty(len(x)), pairs_of(form), couplings_of([form])[0]
    sum_values(pairs.starts, pairs.neighbours, coupling, form.bias, x.numpy(), values)
    return torch.from_numpy(values)


@kernel
def sum_values(starts, neighbours, coupling, bias, x, values):
    """The sum of `bias` at the values of the sites, and of couplings over equal neighbours."""
    sites, q = bias.shape
    rows, now = np.arange(x.shape[0]), np.empty((sites, MAX_TILE_CHAINS), np.uint8)
    equal, biases = np.empty(MAX_TILE_CHAINS), np.empty(MAX_TILE_CHAINS)
    for start in range(0, x.shape[0], MAX_TILE_CHAINS):
        tile = rows[start : start + MAX_TILE_CHAINS]
        load_values(now, x, tile, q)
        equal[:] = 0
        biases[:] = 0
        for i in range(sites):
            for k in range(starts[i], starts[i + 1]):
                weight = coupling[0] if coupling.shape[0] == 1 else coupling[k]
                count_pairs(equal, now[i], now[neighbours[k]], weight)
            for v in range(q):
                add_bias(biases, now[i], np.uint8(v), bias[i, v])
        for c in range(tile.shape[0]):
            values[start + c] = biases[c] + equal[c] / 2


@lean
def count_pairs(equal, one, other, coupling):
    for c in range(np.uint64(equal.shape[0])):
        equal[c] += np.float64(coupling) * np.float64(one[c] == other[c])


@lean
def add_bias(total, values, value, bias):
    for c in range(np.uint64(total.shape[0])):
        total[c] += bias if values[c] == value else np.float32(0)
