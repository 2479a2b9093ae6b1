"""Gibbs-1 with chains side by side: `gibbs` for calls of many steps, with the same numbers.

All chains visit the same site. A tile keeps the values of some chains at a site in a row: a byte
each on lattices, a bit each of 32 on graphs. Loading it costs a pass over the states. In a step
one site changes, so a trace is copied from that of the step before.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.models.forms import GraphForm
from latticework.samplers.compiled.draws import draw_bit
from latticework.samplers.compiled.jit import inlined, kernel, lean, primitive
from latticework.samplers.compiled.packed_chains import LANES, add_neighbours, pack
from latticework.samplers.compiled.run_words import BLOCK, fill_words

FEW = 16  # chains, below which loops over them gain nothing from vector registers
WIDE = 1024  # bytes of a row
LINE = 16  # sites whose values are read and written together: float32 of a cache line
MANY = 128  # neighbours of a site, which are added in single precision at most


class LatticeTable(NamedTuple):
    """A lattice with its probabilities of 1 as thresholds of random words."""

    neighbours: NDArray[np.int32]  # as in LatticeForm
    degree: NDArray[np.int32]
    kind: NDArray[np.int32]
    threshold: NDArray[np.uint32]  # [kinds, most neighbours + 1]


TILED = (LatticeTable, GraphForm)


@kernel
def resample_tiles(first, last, form, x, run, sites, sums):
    """Resample `sites[t]` of each chain in step t."""
    steps, size, draws = run.steps, x.shape[1], sums.trace.shape[0]
    seen, most = sums.total.shape[0] > 0, widest(form)
    changed = np.empty(min(most, max(LANES, last - first)), np.uint32)
    for start in range(first, last, most):
        chains = min(most, last - start)
        width = np.uint64(chains)
        words = np.zeros((BLOCK, room_of(form, chains)), np.uint32)
        flat, apart = words.reshape(words.size), np.uint64(words.shape[1])
        now, room = load_tile(form, x, start, chains)
        total = np.zeros((size, chains) if seen else (0, 0), np.float32)
        since = np.zeros(size if seen else 0, np.int64)
        changed[:] = 0
        for t in range(steps):
            step = run.first + t
            row = np.uint64(step % BLOCK)
            if t == 0 or row == 0:
                fill_words(words, run.key, step, run.first + steps, start, 0)
            i = np.uint64(sites[t])
            if seen:
                for c in range(width):
                    total[i, c] += np.float32(t - since[i]) * value(form, now, width, i, c)
                since[i] = t
            visit(form, now, width, i, flat, row * apart, changed, room)
            if t >= steps - draws:
                trace_tile(form, sums.trace, t - (steps - draws), now, width, i, start)
        for c in range(width):
            sums.changed[start + c] += np.int64(changed[c])
        for begin in range(0, size, LINE):
            end = np.uint64(min(begin + LINE, size))
            for c in range(width):
                for i in range(np.uint64(begin), end):
                    here = value(form, now, width, i, c)
                    x[start + c, i] = here
                    if seen:
                        held = np.float32(steps - since[i]) * here
                        sums.total[start + c, i] += total[i, c] + held


@inlined
def trace_tile(form, trace, row, now, width, i, start):
    """Store the states after a step, which set site `i`, as row `row` of the trace."""
    traced = np.uint64(max(0, min(np.int64(width), trace.shape[1] - start)))
    if row == 0:
        for c in range(traced):
            for j in range(np.uint64(trace.shape[2])):
                trace[0, start + c, j] = np.int8(value(form, now, width, j, c))
        return
    repeat_row(trace[row - 1, start : start + traced], trace[row, start : start + traced])
    for c in range(traced):
        trace[row, start + c, i] = np.int8(value(form, now, width, i, c))


@kernel
def repeat_row(before, after):
    for c in range(before.shape[0]):
        for j in range(before.shape[1]):
            after[c, j] = before[c, j]


def widest(form):
    """How many chains a tile holds at most."""
    raise NotImplementedError


def room_of(form, chains):
    """The length of a row of random words for so many chains."""
    raise NotImplementedError


def load_tile(form, x, start, chains):
    """The values of chains from `start` on, and room for `visit`."""
    raise NotImplementedError


def value(form, now, width, i, c):
    """The value of site `i` of chain `c`, float32."""
    raise NotImplementedError


def visit(form, now, width, i, words, at, changed, room):
    """Draw the values of site `i`, by `words` from `at` on, and count those that differ."""
    raise NotImplementedError


# Lattices.


def lattice_widest(form):
    return WIDE


def lattice_room_of(form, chains):
    return chains


def lattice_load_tile(form, x, start, chains):
    now = np.empty(x.shape[1] * chains, np.uint8)
    for begin in range(0, x.shape[1], LINE):
        end = np.uint64(min(begin + LINE, x.shape[1]))
        for c in range(np.uint64(chains)):
            for i in range(np.uint64(begin), end):
                now[i * np.uint64(chains) + c] = np.uint8(x[start + c, i])
    return now, np.empty(chains, np.uint8)


def lattice_value(form, now, width, i, c):
    return np.float32(now[i * width + c])


def lattice_visit(form, now, width, i, words, at, changed, room):
    near, count, table = form.neighbours, form.degree[i], form.threshold
    kind, here = np.uint64(form.kind[i]), i * width
    if count == 4 and width < FEW:
        a, b = np.uint64(near[i, 0]) * width, np.uint64(near[i, 1]) * width
        d, e = np.uint64(near[i, 2]) * width, np.uint64(near[i, 3]) * width
        for c in range(width):
            ones = np.uint64(now[a + c] + now[b + c] + now[d + c] + now[e + c])
            put_bit(now, here + c, words[at + c] < table[kind, ones], changed, c)
    elif width < FEW:
        for c in range(width):
            ones = np.uint64(0)
            for k in range(np.uint64(count)):
                ones += np.uint64(now[np.uint64(near[i, k]) * width + c])
            put_bit(now, here + c, words[at + c] < table[kind, ones], changed, c)
    elif count == 4:
        draw_by_four(now, width, near[i], here, table[kind], words, at, changed)
    else:
        for c in range(width):
            room[c] = 0
        for k in range(np.uint64(count)):
            there = np.uint64(near[i, k]) * width
            for c in range(width):
                room[c] += now[there + c]
        for c in range(width):
            below = words[at + c] < table[kind, np.uint64(room[c])]
            put_bit(now, here + c, below, changed, c)


@inlined
def put_bit(now, place, is_one, changed, c):
    new = np.uint8(is_one)
    changed[c] += np.uint32(new != now[place])
    now[place] = new


@lean
def draw_by_four(now, width, near, here, table, words, at, changed):
    """Thresholds are chosen by comparisons: loads by an index take longer."""
    a, b = np.uint64(near[0]) * width, np.uint64(near[1]) * width
    d, e = np.uint64(near[2]) * width, np.uint64(near[3]) * width
    none, one, two, three, all_four = table[0], table[1], table[2], table[3], table[4]
    for c in range(width):
        ones = now[a + c] + now[b + c] + now[d + c] + now[e + c]
        threshold = one if ones == 1 else none
        threshold = two if ones == 2 else threshold
        threshold = three if ones == 3 else threshold
        threshold = all_four if ones == 4 else threshold
        put_bit(now, here + c, words[at + c] < threshold, changed, c)


# Graphs.


def graph_widest(form):
    return LANES


def graph_room_of(form, chains):
    return LANES


def graph_load_tile(form, x, start, chains):
    now = np.zeros(x.shape[1], np.uint32)
    for begin in range(0, x.shape[1], LINE):
        end = np.uint64(min(begin + LINE, x.shape[1]))
        for c in range(chains):
            for i in range(np.uint64(begin), end):
                now[i] |= np.uint32(x[start + c, i]) << np.uint32(c)
    return now, (np.empty(LANES, np.float32), np.empty(LANES), np.zeros(LANES, np.uint8))


def graph_value(form, now, width, i, c):
    return np.float32((now[i] >> np.uint32(c)) & np.uint32(1))


def graph_visit(form, now, width, i, words, at, changed, room):
    fields, total, new = room
    find_odds(fields, total, form, now, i)
    for c in range(np.uint64(LANES)):
        new[c] = np.uint8(draw_bit(words[at + c], fields[c]))
    word = pack(new, 0)
    flips = now[i] ^ word
    for c in range(np.uint64(LANES)):
        changed[c] += (flips >> np.uint32(c)) & np.uint32(1)
    now[i] = word


@lean
def find_odds(fields, total, form, now, i):
    """The log-odds of site `i`, by the operations of `gibbs.graph_log_odds`."""
    near, slope, offset = form.neighbours, form.slope, form.offset
    start, stop = form.starts[i], form.starts[i + np.uint64(1)]
    if stop - start <= MANY:
        add_neighbours(fields, 0, now, near, slope, start, stop, np.float32(offset[i]))
        return
    total[:] = offset[i]
    for k in range(start, stop, MANY):
        end = min(k + MANY, stop)
        add_neighbours(fields, 0, now, near, slope, k, end, np.float32(0))
        for c in range(LANES):
            total[c] += fields[c]
    for c in range(LANES):
        fields[c] = total[c]


primitive(widest, dict(zip(TILED, (lattice_widest, graph_widest), strict=True)))
primitive(room_of, dict(zip(TILED, (lattice_room_of, graph_room_of), strict=True)))
LOAD = dict(zip(TILED, (lattice_load_tile, graph_load_tile), strict=True))
primitive(load_tile, LOAD, makes_arrays=True)
primitive(value, dict(zip(TILED, (lattice_value, graph_value), strict=True)))
primitive(visit, dict(zip(TILED, (lattice_visit, graph_visit), strict=True)))
