"""Gibbs sweeps over the colours of a lattice: the twin of `samplers.sweep.GibbsSweep`.

Each colour takes one pass over the lattice: neighbour counts, a table of probabilities, and a
comparison with random words. Every site has one word a step.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import Form, LatticeForm
from latticework.samplers.compiled.jit import kernel, over_chains
from latticework.samplers.compiled.lattice import add_bytes, copy_bytes, count_ones
from latticework.samplers.compiled.philox import fill, thresholds
from latticework.samplers.compiled.twin import Position, Sums, Twin
from latticework.samplers.sweep import GibbsSweep


@dataclass(frozen=True)
class SweepTwin(Twin):
    def start(self, x: Tensor, form: LatticeForm) -> Position:
        return Position(x)

    def run(
        self, state: Position, form: LatticeForm, keys: NDArray[np.int64], sums: Sums
    ) -> Position:
        x = state.x.numpy()
        counts = form.high.shape[1]
        model = (
            form.colours.astype(np.uint8),
            form.kind * np.int32(counts),
            thresholds(form.high).ravel(),
        )
        lattice = form.sides, form.periodic
        over_chains(sweep, len(x), 2.0 * x.size * len(keys), *lattice, *model, x, keys, sums)
        sums.accept[:] += len(keys)
        return state


def twin(sampler: GibbsSweep, form: Form) -> Twin | str:
    return SweepTwin(sampler) if isinstance(form, LatticeForm) else "but on lattices"


@kernel
def sweep(first, last, sides, periodic, colours, firsts, table, x, keys, sums):
    """`table[firsts[i] + n]` is the threshold of site i with n neighbours at 1."""
    sites, steps, kinds = x.shape[1], keys.shape[0], colours.max() + 1
    words = np.empty((sites + 3) // 4 * 4, np.uint32)
    now, ones = np.empty(sites, np.uint8), np.empty(sites, np.uint8)
    limit = np.empty(sites, np.uint32)
    for c in range(first, last):
        for i in range(sites):
            now[i] = np.uint8(x[c, i])
        for t in range(steps):
            fill(words, keys[t], c, 0)
            for colour in range(kinds):
                count_ones(now, ones, sides, periodic)
                look_up_sum(limit, table, firsts, ones)
                sums.changed[c] += resample(now, words, limit, colours, np.uint8(colour))
            if sums.total.shape[0]:
                add_bytes(sums.total[c], now)
            if c < sums.trace.shape[1] and t >= steps - sums.trace.shape[0]:
                copy_bytes(sums.trace[t - (steps - sums.trace.shape[0]), c], now)
        for i in range(sites):
            x[c, i] = now[i]


@kernel
def look_up_sum(out, table, firsts, ones):
    for i in range(out.shape[0]):
        out[i] = table[np.uint32(firsts[i]) + np.uint32(ones[i])]


@kernel
def resample(x, words, limit, colours, colour):
    """Draw the sites of one colour; returns how many changed."""
    changed = 0
    for i in range(x.shape[0]):
        new = np.uint8(words[i] < limit[i])
        flipped = (x[i] ^ new) & np.uint8(colours[i] == colour)
        x[i] ^= flipped
        changed += flipped
    return changed
