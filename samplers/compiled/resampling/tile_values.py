"""Values of chains side by side, by each form, for `gibbs_tiles`: a visit of a site.

A tile keeps the values of some chains at a site in a row: a byte each on lattices and Potts
models, a bit each of 32 on graphs. Operations are those of `gibbs_sites`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.models.forms import IMPOSSIBLE, GraphForm
from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.draws import draw_bit
from latticework.samplers.compiled.forms.pairwise import LatticeTable, PottsLists
from latticework.samplers.compiled.jit import inlined, kernel, lean, primitive
from latticework.samplers.compiled.philox import unit
from latticework.samplers.compiled.sweeps.packed_chains import (
    LANES,
    MAX_SINGLE_NEIGHBOURS,
    find_odds,
    pack_word,
)

MIN_VECTOR_CHAINS = 16  # chains, from which loops over them gain from vector registers
MAX_ROW_CHAINS = 1024  # bytes of a row
WORD_CHAINS = 8  # chains whose bytes fill a word
LINE_SITES = 16  # sites whose values are read and written together: float32 of a cache line


def widest(form, chains):
    """How many of so many chains a tile holds at most."""
    return MAX_ROW_CHAINS


def words_of(form, chains):
    """The length of a row of random words for so many chains."""
    return chains


def entries_of(form):
    """The entries of x for a site, uint64."""
    return np.uint64(1)


def load_tile(form, values, start, chains):
    """The values of chains from `start` on, and room for `visit_site`."""
    raise NotImplementedError


def entry(form, now, width, i, v, c):
    """Entry `v` of site `i` of chain `c`, float32."""
    raise NotImplementedError


def store_value(form, values, chain, now, width, i, c):
    """Write the value of site `i` of `chain`, the c-th of the tile, where x is one-hot."""


def visit_site(form, now, width, i, words, at, changed, room):
    """Draw the values of site `i`, by `words` from `at` on, and count those that differ."""
    raise NotImplementedError


def count_flips(form, width, changed, room):
    """Add to `changed` what `visit_site` has counted elsewhere, in at most 255 visits."""


# Lattices.


@kernel
def load_bytes(values, start, chains, stride):
    """The values of chains as bytes; a site has `stride` of them."""
    now = np.zeros(values.shape[1] * stride, np.uint8)
    for begin in range(0, values.shape[1], LINE_SITES):
        end = np.uint64(min(begin + LINE_SITES, values.shape[1]))
        for c in range(np.uint64(chains)):
            for i in range(np.uint64(begin), end):
                now[i * np.uint64(stride) + c] = np.uint8(values[start + c, i])
    return now


def lattice_widest(form, chains):
    return MAX_ROW_CHAINS if chains >= MIN_VECTOR_CHAINS else WORD_CHAINS


def lattice_load_tile(form, values, start, chains):
    room = np.empty(chains, np.uint8), np.zeros(1, np.uint64)
    return load_bytes(values, start, chains, max(chains, WORD_CHAINS)), room


def lattice_entry(form, now, width, i, v, c):
    return np.float32(now[i * max(width, np.uint64(WORD_CHAINS)) + c])


def lattice_visit_site(form, now, width, i, words, at, changed, room):
    near, count, table = form.neighbours, form.degree[i], form.threshold
    kind, (ones, flips) = np.uint64(form.kind[i]), room
    if width <= WORD_CHAINS:
        draw_few(now.view(np.uint64), width, near[i], count, i, table[kind], words, at, flips)
    elif count == 4:
        draw_by_four(now, width, near[i], i * width, table[kind], words, at, changed)
    else:
        for c in range(width):
            ones[c] = 0
        for k in range(np.uint64(count)):
            there = np.uint64(near[i, k]) * width
            for c in range(width):
                ones[c] += now[there + c]
        for c in range(width):
            below = words[at + c] < table[kind, np.uint64(ones[c])]
            put_bit(now, i * width + c, below, changed, c)


@lean
def draw_few(rows, width, near, count, i, table, words, at, flips):
    """A chain has a byte of a site's word, so one addition of words counts for all chains.

    `flips` counts in the same bytes.
    """
    if count == 4:  # a loop of unknown length takes longer
        ones = rows[np.uint64(near[0])] + rows[np.uint64(near[1])]
        ones += rows[np.uint64(near[2])] + rows[np.uint64(near[3])]
    else:
        ones = np.uint64(0)
        for k in range(np.uint64(count)):
            ones += rows[np.uint64(near[k])]
    new = np.uint64(0)
    for c in range(width):
        byte = np.uint64(8) * c
        below = words[at + c] < table[ones >> byte & np.uint64(255)]
        new |= np.uint64(below) << byte
    flips[0] += rows[i] ^ new
    rows[i] = new


def lattice_count_flips(form, width, changed, room):
    _, flips = room
    if width <= WORD_CHAINS:
        for c in range(width):
            changed[c] += np.uint32(flips[0] >> np.uint64(8) * c & np.uint64(255))
        flips[0] = 0


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
    at_0, at_1, at_2, at_3, at_4 = table[0], table[1], table[2], table[3], table[4]
    for c in range(width):
        ones = now[a + c] + now[b + c] + now[d + c] + now[e + c]
        threshold = at_1 if ones == 1 else at_0
        threshold = at_2 if ones == 2 else threshold
        threshold = at_3 if ones == 3 else threshold
        threshold = at_4 if ones == 4 else threshold
        put_bit(now, here + c, words[at + c] < threshold, changed, c)


# Graphs.


def graph_widest(form, chains):
    return LANES


def graph_words_of(form, chains):
    return LANES


def graph_load_tile(form, values, start, chains):
    now = np.zeros(values.shape[1], np.uint32)
    for begin in range(0, values.shape[1], LINE_SITES):
        end = np.uint64(min(begin + LINE_SITES, values.shape[1]))
        for c in range(chains):
            for i in range(np.uint64(begin), end):
                now[i] |= np.uint32(values[start + c, i]) << np.uint32(c)
    return now, (np.empty(LANES, np.float32), np.empty(LANES), np.zeros(LANES, np.uint8))


def graph_entry(form, now, width, i, v, c):
    return np.float32((now[i] >> np.uint32(c)) & np.uint32(1))


def graph_visit_site(form, now, width, i, words, at, changed, room):
    fields, total, new = room
    find_odds(fields, 0, total, form, now, i)
    for c in range(np.uint64(LANES)):
        new[c] = np.uint8(draw_bit(words[at + c], fields[c]))
    word = pack_word(new, 0)
    flips = now[i] ^ word
    for c in range(np.uint64(LANES)):
        changed[c] += (flips >> np.uint32(c)) & np.uint32(1)
    now[i] = word


# Potts models with listed neighbours. Operations are those of `gibbs_sites.potts_resample`.


def potts_entries_of(form):
    return np.uint64(form.bias.shape[0])


class PottsRoom(NamedTuple):
    """Room for a visit of a site by the chains of a tile. Fields of hubs are `double`."""

    single: NDArray[np.float32]  # [values + 1, chains], the fields, and the largest of them
    double: NDArray[np.float64]
    passed: NDArray[np.float64]  # [values + 1, chains], running sums of weights
    level: NDArray[np.float64]  # [chains]
    new: NDArray[np.uint8]  # [chains]


def potts_load_tile(form, values, start, chains):
    rows = form.bias.shape[0] + 1
    single, double = np.empty((rows, chains), np.float32), np.empty((rows, chains))
    passed, level = np.zeros((rows, chains)), np.empty(chains)
    room = PottsRoom(single, double, passed, level, np.empty(chains, np.uint8))
    return load_bytes(values, start, chains, chains), room


def potts_entry(form, now, width, i, v, c):
    return np.float32(now[i * width + c] == np.uint8(v))


def potts_store_value(form, values, chain, now, width, i, c):
    values[chain, i] = np.int32(now[i * width + c])


def potts_visit_site(form, now, width, i, words, at, changed, room):
    is_hub = add_couplings(form, now, width, i, room.single, room.double)
    if is_hub:
        weigh_values(room.double, room.passed, width, IMPOSSIBLE)
    else:
        weigh_values(room.single, room.passed, width, np.float32(IMPOSSIBLE))
    draw_by_passed(room.passed, room.level, room.new, now, width, i, words, at, changed)


@lean
def add_couplings(form, now, width, i, single, double):
    """Write the fields of site `i` `[values, chains]`, those of a hub to `double`; if it is one."""
    start, stop = np.uint64(form.starts[i]), np.uint64(form.starts[i + np.uint64(1)])
    is_hub = stop - start > np.uint64(MAX_SINGLE_NEIGHBOURS)
    for v in range(np.uint64(single.shape[0] - 1)):
        if is_hub:
            begin_row(double[v], form.bias[v, i], width)
        else:
            begin_row(single[v], form.bias[v, i], width)
        for k in range(start, stop):
            there = np.uint64(form.neighbours[k]) * width
            if is_hub:
                add_matches(double[v], now, there, np.uint8(v), form.coupling[k], width)
            else:
                add_matches(single[v], now, there, np.uint8(v), form.coupling[k], width)
    return is_hub


@lean
def begin_row(row, base, width):
    for c in range(width):
        row[c] = base


@lean
def add_matches(row, now, there, value, coupling, width):
    for c in range(width):
        row[c] += coupling * np.float32(now[there + c] == value)


@lean
def weigh_values(fields, passed, width, impossible):
    """Running sums of the weights of values."""
    q = np.uint64(fields.shape[0] - 1)
    top = fields[q]
    for c in range(width):
        top[c] = -np.inf
    for v in range(q):
        row = fields[v]
        for c in range(width):
            top[c] = row[c] if row[c] > top[c] else top[c]
    for v in range(q):
        row, before, after = fields[v], passed[v], passed[v + np.uint64(1)]
        for c in range(width):
            weight = exp32(np.float32(row[c] - top[c]))
            after[c] = before[c] + np.float64(weight if row[c] > impossible else np.float32(0))


@lean
def draw_by_passed(passed, level, new, now, width, i, words, at, changed):
    here, q = i * width, np.uint64(passed.shape[0] - 1)
    whole = passed[q]
    for c in range(width):
        level[c] = unit(words[at + c]) * whole[c]
        new[c] = 0
    for v in range(np.uint64(1), q):
        row = passed[v]
        for c in range(width):
            new[c] += np.uint8(row[c] <= level[c])
    for c in range(width):
        old = now[here + c]
        drawn = new[c] if whole[c] > 0 else old
        changed[c] += np.uint32(drawn != old)
        now[here + c] = drawn


primitive(widest, {LatticeTable: lattice_widest, GraphForm: graph_widest})
primitive(words_of, {GraphForm: graph_words_of})
primitive(entries_of, {PottsLists: potts_entries_of})
LOAD = {LatticeTable: lattice_load_tile, GraphForm: graph_load_tile, PottsLists: potts_load_tile}
primitive(load_tile, LOAD, makes_arrays=True)
primitive(entry, {LatticeTable: lattice_entry, GraphForm: graph_entry, PottsLists: potts_entry})
primitive(store_value, {PottsLists: potts_store_value})
primitive(count_flips, {LatticeTable: lattice_count_flips})
VISIT_SITE = {LatticeTable: lattice_visit_site, GraphForm: graph_visit_site}
primitive(visit_site, VISIT_SITE | {PottsLists: potts_visit_site})
