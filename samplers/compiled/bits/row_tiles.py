"""Tiles of lattices in bits: their memory, and how states and sums enter and leave it.

A tile has two halves. In pairs of chains, each half has some sites of both
(`compiled.bits.sweep_pairs`). Otherwise the first half has the states, and the second one is free.
"""

from typing import NamedTuple

import numpy as np

from latticework.samplers.compiled.bits.bit_rows import (
    HIGH_PLANES,
    LOW_PLANES,
    STEPS_OF_HIGH,
    STEPS_OF_LOW,
    add_row,
    carry_to_high,
    count_states,
    pack_row,
    unpack_row,
)
from latticework.samplers.compiled.bits.decisions import (
    FIRST_PLANES,
    SEED_BYTES,
    fill_seeds,
)
from latticework.samplers.compiled.bits.lattice_rows import Words
from latticework.samplers.compiled.bits.number_decisions import count_rows
from latticework.samplers.compiled.bits.vectors import (
    WORDS,
    count_bits,
    load_like,
    make_aligned,
    store_vector,
)
from latticework.samplers.compiled.jit import kernel, lean
from latticework.samplers.compiled.philox import STEPS_AHEAD


class TileMemory(NamedTuple):
    """Memory that the steps of a tile write. A half is `margin`, a tile's words, `margin`."""

    x: Words  # [2 * half], the states
    lines: Words  # [2 * words], the rows of first chains, and those of second chains
    changes: Words  # [2 * words], numbers of changed bits
    drawn: Words  # the first random bits of a vector
    decisions: Words  # [rows, words], by `number_decisions`; empty if passes share none
    low: Words  # [planes, 2 * words], sums over steps (`compiled.bits.bit_rows`), or empty
    high: Words
    seeds: Words
    lanes: Words
    counters: Words


@kernel
def make_tile(f, summed):
    size, planes = f.masks.shape[1], 2 * f.masks.shape[1] if summed else 0
    shared = f.masks.shape[0] > 1 and not f.paired
    rows = count_rows(f.planes.shape[3]) if shared else 0
    return TileMemory(
        make_aligned(2 * (2 * f.margin + size)),
        np.zeros(2 * size, np.uint64),
        make_aligned(2 * size),
        make_aligned(FIRST_PLANES * WORDS),
        make_aligned(rows * size),
        np.zeros((LOW_PLANES, planes), np.uint64),
        np.zeros((HIGH_PLANES, planes), np.uint64),
        np.empty(SEED_BYTES // 8 * STEPS_AHEAD, np.uint64),
        np.empty(STEPS_AHEAD, np.uint64),
        np.empty(STEPS_AHEAD, np.uint64),
    )


@lean
def find_tile(f, tile, group):
    """The tile's group of chains, its first chain, and its numbers of chains and of words.

    Tiles have the chains of one group of `group` chains in turn.
    """
    each = 2 if f.paired else 1
    most = f.rows * each
    tiles = (group + most - 1) // most  # in a group
    before = tile % tiles * most
    chains = min(most, group - before)
    words = (chains + each - 1) // each * f.row
    return tile // tiles, tile // tiles * group + before, chains, words


@lean
def find_line(f, c):
    """The first word of chain `c` of a tile in its `lines`."""
    each = 2 if f.paired else 1
    return c % each * f.masks.shape[1] + c // each * f.row


@lean
def seed_step(memory, keys, t, tile):
    """The byte of `memory.seeds` where the seed of step `t` begins. Fills it for steps ahead."""
    if t % STEPS_AHEAD == 0:
        ahead = keys[t : t + STEPS_AHEAD]
        fill_seeds(memory.seeds, ahead, tile, memory.counters, memory.lanes)
    return t % STEPS_AHEAD * SEED_BYTES


@lean
def load_tile(memory, f, rows, x):
    """The states of the chains that are these `rows` of `x`."""
    size = f.masks.shape[1]
    for k in range(2 * size):
        memory.lines[k], memory.changes[k] = 0, 0
    for c in range(rows.shape[0]):
        pack_row(memory.lines, find_line(f, c), x, rows[c])
    if not f.paired:
        for k in range(size):
            memory.x[f.margin + k] = memory.lines[k]
        return
    for k in range(size):
        p, q, m, n = memory.lines[k], memory.lines[size + k], f.masks[0, k], f.masks[1, k]
        memory.x[f.margin + k] = (p & m) | (q & n)
        memory.x[3 * f.margin + size + k] = (p & n) | (q & m)


@lean
def separate_pairs(lines, x, margin, f):
    """The rows of the first and of the second chains of pairs, from the halves in `x`."""
    size = f.masks.shape[1]
    if not f.paired:
        for k in range(size):
            lines[k] = x[margin + k]
        return
    for k in range(size):
        p, q, m, n = x[margin + k], x[3 * margin + size + k], f.masks[0, k], f.masks[1, k]
        lines[k] = (p & m) | (q & n)
        lines[size + k] = (p & n) | (q & m)


@lean
def record_step(memory, f, words, sums, start, chains, t, steps):
    """Add the states after step `t` to the sums that are wanted, and store those to be traced."""
    if sums.total.shape[0]:
        add_to_total(memory, f, words, sums.total, start, chains, t, steps)
    draw = t - steps + sums.trace.shape[0]
    if draw >= 0 and start < sums.trace.shape[1]:
        separate_pairs(memory.lines, memory.x, f.margin, f)
        for c in range(min(chains, sums.trace.shape[1] - start)):
            unpack_row(sums.trace[draw], start + c, memory.lines, find_line(f, c))


@lean
def store_tile(memory, f, rows, x):
    separate_pairs(memory.lines, memory.x, f.margin, f)
    for c in range(rows.shape[0]):
        unpack_row(x, rows[c], memory.lines, find_line(f, c))


@lean
def count_changes(changes, at, differ):
    """Add the number of bits of each word to the numbers from byte `at` on."""
    store_vector(changes, at, load_like(differ, changes, at) + count_bits(differ))


@lean
def add_changes(changed, memory, f, start, chains):
    """Add the numbers of changed bits of a tile to those of its chains."""
    for c in range(chains):
        line = find_line(f, c)
        for k in range(f.row):
            changed[start + c] += np.int64(memory.changes[line + k])


@lean
def add_to_total(memory, f, words, total, start, chains, t, steps):
    """Count the states after step `t`. When planes are full, or at the end, add them to `total`."""
    halves, size = 2 if f.paired else 1, f.masks.shape[1]
    for half in range(halves):
        here = 8 * (f.margin + half * (2 * f.margin + size))
        count_states(memory.low, 8 * half * size, memory.x, here, 8 * words)
    if (t + 1) % STEPS_OF_LOW == 0 or t == steps - 1:
        for half in range(halves):
            carry_to_high(memory.high, memory.low, 8 * half * size, 8 * words)
    if (t + 1) % STEPS_OF_HIGH == 0 or t == steps - 1:
        for k in range(HIGH_PLANES):
            if t % STEPS_OF_HIGH + 1 >> k == 0:
                break
            separate_pairs(memory.lines, memory.high[k], 0, f)
            for c in range(chains):
                line = find_line(f, c)
                add_row(total, start + c, memory.lines, line, np.float32(2.0**k))
            for j in range(2 * size):
                memory.high[k, j] = 0
