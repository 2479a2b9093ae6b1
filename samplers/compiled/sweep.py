"""Gibbs sweeps over the colours of a lattice: the twin of `samplers.sweep.GibbsSweep`.

Sites are visited colour by colour. A site's probability is read from a table by the number of its
neighbours at 1, and compared with one random word.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import Form, LatticeForm
from latticework.samplers.compiled.jit import kernel, over_chains
from latticework.samplers.compiled.lattice import add_bytes, copy_bytes
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
        order = np.argsort(form.colours, kind="stable").astype(np.int32)
        firsts = (form.kind * np.int32(form.high.shape[1]))[order]
        lattice = order, form.neighbours[order], form.degree[order], firsts
        work = 3.0 * x.size * len(keys)
        over_chains(sweep, len(x), work, *lattice, thresholds(form.high).ravel(), x, keys, sums)
        sums.accept[:] += len(keys)
        return state


def twin(sampler: GibbsSweep, form: Form) -> Twin | str:
    return SweepTwin(sampler) if isinstance(form, LatticeForm) else "but on lattices"


@kernel
def sweep(first, last, order, neighbours, degree, firsts, table, x, keys, sums):
    """Sites are in the order of their colours: `order[k]` has the neighbours `neighbours[k]`.

    `table[firsts[k] + n]` is the threshold of that site with n neighbours at 1.
    """
    sites, steps = x.shape[1], keys.shape[0]
    words, now = np.empty((sites + 3) // 4 * 4, np.uint32), np.empty(sites, np.uint8)
    counted, kept = sums.total.shape[0] > 0, sums.trace.shape[0]
    for c in range(first, last):
        for i in range(sites):
            now[i] = np.uint8(x[c, i])
        changed = 0
        for t in range(steps):
            fill(words, keys[t], c, 0)
            changed += resample(now, words, order, neighbours, degree, firsts, table)
            if counted:
                add_bytes(sums.total[c], now)
            if t >= steps - kept and c < sums.trace.shape[1]:
                copy_bytes(sums.trace[t - (steps - kept), c], now)
        sums.changed[c] += changed
        for i in range(sites):
            x[c, i] = now[i]


@kernel
def resample(x, words, order, neighbours, degree, firsts, table):
    """Draw every site in turn; returns how many changed. Unsigned indices need no checks."""
    changed = 0
    for k in range(order.shape[0]):
        if degree[k] == 4:
            ones = (
                x[np.uint32(neighbours[k, 0])]
                + x[np.uint32(neighbours[k, 1])]
                + x[np.uint32(neighbours[k, 2])]
                + x[np.uint32(neighbours[k, 3])]
            )
        else:
            ones = np.uint64(0)
            for n in range(degree[k]):
                ones += x[np.uint32(neighbours[k, n])]
        i = np.uint32(order[k])
        new = np.uint8(words[k] < table[np.uint32(firsts[k]) + ones])
        changed += x[i] ^ new
        x[i] = new
    return changed
