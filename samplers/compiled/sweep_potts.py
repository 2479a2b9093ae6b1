"""Sweeps of Potts lattices: the twin of both samplers of `samplers.sweep` on one-hot sites.

Chains advance side by side, as on graphs (`compiled.sweep_graph`): a tile has a row of bytes, the
values, for each site, one for each of its chains. Fields, weights and draws of a site are computed
for all chains of the tile at once.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import PottsLatticeForm
from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.jit import kernel, lean, over_chains
from latticework.samplers.compiled.philox import philox, unit
from latticework.samplers.compiled.twin import GroupTwin, Keys, Position, Sums
from latticework.samplers.sweep import MetropolisSweep

VECTOR, WIDE = 8, 32  # chains of a tile: a multiple, at most


@dataclass(frozen=True)
class PottsSweepTwin(GroupTwin):
    def start(self, x: Tensor, form: PottsLatticeForm) -> Position:
        return Position(x)

    def run(self, state: Position, form: PottsLatticeForm, keys: Keys, sums: Sums) -> Position:
        rows = np.arange(len(state.x))[None]
        self.run_groups(state.x.flatten(1).numpy(), rows, (form,), keys, sums)
        return state

    def run_groups(
        self,
        x: NDArray[np.float32],
        rows: NDArray[np.int64],
        forms: tuple[PottsLatticeForm, ...],
        keys: Keys,
        sums: Sums,
    ) -> None:
        lattice = forms[0]
        order = np.argsort(lattice.colours, kind="stable")
        bias = np.stack([form.bias for form in forms])
        coupling = np.array([form.coupling for form in forms], np.float32)
        metropolis = isinstance(self.sampler, MetropolisSweep)
        args = metropolis, lattice.neighbours, lattice.degree, order, bias, coupling
        work = 2.0 * rows.size * len(keys) * x.shape[1]
        over_chains(sweep, rows.size, work, *args, rows.shape[1], rows.ravel(), x, keys, sums)
        sums.accept[:] += len(keys)


class Work(NamedTuple):
    """What the update of a site needs, a column for each chain of the tile."""

    fields: NDArray[np.float32]  # [values, width], then the weights
    top: NDArray[np.float32]  # [width], the largest field
    passed: NDArray[np.float64]  # [values + 1, width], sums of the weights of the values before
    left: NDArray[np.float64]  # [width], the sum of the weights of all values but the proposed one
    words: NDArray[np.uint32]  # [4, width]
    new: NDArray[np.uint8]  # [width]
    changed: NDArray[np.int64]  # [width]


@kernel
def work_of(q, width):
    return Work(
        np.empty((q, width), np.float32),
        np.empty(width, np.float32),
        np.zeros((q + 1, width), np.float64),
        np.empty(width, np.float64),
        np.empty((4, width), np.uint32),
        np.empty(width, np.uint8),
        np.zeros(width, np.int64),
    )


@kernel
def sweep(
    first, last, metropolis, neighbours, degree, order, bias, coupling, group, rows, x, keys, sums
):
    """Advance the chains `first <= c < last`, as many together as a tile holds.

    Chain c is row `rows[c]` of `x`. `group` chains in turn have a target.
    """
    (sites, q), steps, draws = bias.shape[1:], keys.shape[0], sums.trace.shape[0]
    each = 2 if metropolis else 1  # words of a draw
    ahead = 4 // each
    start = first
    while start < last:
        target = start // group
        chains = min(WIDE, last - start, group - start % group)
        width = (chains + VECTOR - 1) // VECTOR * VECTOR
        now, work = np.zeros((sites, width), np.uint8), work_of(q, width)
        load(now, x, rows[start : start + chains], q)
        for t in range(steps):
            for n in range(sites):
                if n % ahead == 0:
                    draw_words(work.words, n // ahead, start, keys[t])
                i = order[n]
                near = neighbours[i, : degree[i]]
                add_fields(work.fields, now, bias[target, i], coupling[target], near)
                words = work.words[n % ahead * each :]
                weigh(work)
                if metropolis:
                    try_others(work, now[i], words)
                else:
                    draw_values(work, now[i], words[0])
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
        store(x, rows[start : start + chains], now, q)
        start += chains


@lean
def load(now, x, rows, q):
    for c in range(rows.shape[0]):
        row = x[rows[c]]
        for i in range(now.shape[0]):
            for v in range(1, q):
                now[i, c] += np.uint8(v) * np.uint8(row[i * q + v])


@lean
def store(x, rows, now, q):
    for c in range(rows.shape[0]):
        row = x[rows[c]]
        for i in range(now.shape[0]):
            for v in range(q):
                row[i * q + v] = np.float32(now[i, c] == v)


@lean
def draw_words(words, four, chain, key):
    """A word for each of four sites and each chain."""
    key, four = np.uint64(key), np.uint64(four)
    for c in range(np.uint64(words.shape[1])):
        a, b, e, d = philox(four, np.uint64(chain) + c, np.uint32(0), key)
        words[0, c], words[1, c], words[2, c], words[3, c] = a, b, e, d


@lean
def add_fields(fields, now, bias, coupling, near):
    """The log-probabilities of a site given the rest, up to a constant."""
    width = np.uint64(now.shape[1])
    for v in range(np.uint64(fields.shape[0])):
        own, value = fields[v], np.uint8(v)
        for c in range(width):
            own[c] = bias[v]
        for k in range(np.uint64(near.shape[0])):
            row = now[near[k]]
            for c in range(width):
                own[c] += coupling * np.float32(row[c] == value)


@lean
def weigh(work):
    """Replace the fields of a site by weights; the largest is 1."""
    fields, top = work.fields, work.top
    top[:] = -np.inf
    for v in range(fields.shape[0]):
        raise_to(top, fields[v])
    for v in range(fields.shape[0]):
        to_weights(fields[v], top)


@lean
def draw_values(work, values, words):
    """Overwrite the `values` `[width]` of a site by draws, by inversion in double precision."""
    weights, passed, new, q = work.fields, work.passed, work.new, work.fields.shape[0]
    for v in range(q):
        add_weights(passed[v + 1], passed[v], weights[v])
    new[:] = 0
    for v in range(1, q):
        count_passed(new, passed[v], words, passed[q])
    replace(values, new, work.changed)


@lean
def try_others(work, values, words):
    """Propose another value to each chain and accept it or not (`samplers.sweep`)."""
    weights, passed, new, q = work.fields, work.passed, work.new, work.fields.shape[0]
    for v in range(q):
        add_other_weights(passed[v + 1], passed[v], weights[v], values, np.uint8(v))
    new[:] = 0
    for v in range(1, q):
        count_passed(new, passed[v], words[0], passed[q])
    work.left[:] = 0
    for v in range(q):
        add_other_weights(work.left, work.left, weights[v], new, np.uint8(v))
    keep_rejected(new, values, words[1], passed[q], work.left)
    replace(values, new, work.changed)


@lean
def raise_to(top, fields):
    for c in range(np.uint64(top.shape[0])):
        top[c] = fields[c] if fields[c] > top[c] else top[c]


@lean
def to_weights(fields, top):
    for c in range(np.uint64(top.shape[0])):
        fields[c] = exp32(fields[c] - top[c]) * np.float32(fields[c] > -np.inf)


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
    """Where `total` is 0, no other value is possible."""
    for c in range(np.uint64(new.shape[0])):
        accepted = (unit(words[c]) * left[c] < total[c]) & (total[c] > 0)
        new[c] = new[c] if accepted else values[c]


@lean
def replace(values, new, changed):
    for c in range(np.uint64(new.shape[0])):
        changed[c] += np.int64(new[c] != values[c])
        values[c] = new[c]
