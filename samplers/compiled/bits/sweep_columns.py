"""Sweeps by the columns of `compiled.bits.columns`: a block of 64 chains advances at once."""

from typing import NamedTuple

import numpy as np

from latticework.samplers.compiled.bits.bit_rows import (
    HIGH_PLANES,
    LOW_PLANES,
    STEPS_OF_HIGH,
    STEPS_OF_LOW,
    WORD_BITS,
    add_plane,
    add_row,
    carry_to_high,
    count_states,
    pack_row,
    unpack_row,
)
from latticework.samplers.compiled.bits.columns import BLOCK_CHAINS, Words
from latticework.samplers.compiled.bits.decisions import (
    SEED_BYTES,
    add_bit,
    start_pass,
    update_lanes,
)
from latticework.samplers.compiled.bits.row_tiles import seed_step
from latticework.samplers.compiled.bits.vectors import (
    BYTES,
    EIGHT,
    WORDS,
    gather_words,
    has_bits,
    load_vector,
    make_aligned,
    repeat_word,
    store_vector,
)
from latticework.samplers.compiled.jit import kernel, lean
from latticework.samplers.compiled.philox import STEPS_AHEAD

COUNT_PLANES = 32  # the bits of numbers of changed sites


@kernel
def update_columns(f, flips, planes_at, x, seeds, seed, moved):
    """A step of a block; `moved` are the chains that change, for each site."""
    state, zero = start_pass(EIGHT, seeds, seed, 0), repeat_word(np.uint64(0))
    valued, plane = f.planes.shape[3] > f.terms, f.planes.strides[2]
    signed, row = f.signs.shape[0] > 0, f.degree * WORDS
    for g in range(f.planes_at.shape[0]):
        n0, n1, n2, at = zero, zero, zero, g * BYTES
        for k in range(g * row, (g + 1) * row, WORDS):
            v = gather_words(x, f.near, k)
            if signed:
                v = v ^ load_vector(f.signs, 8 * k)
            n0, n1, n2 = add_bit(n0, n1, n2, v)
        old, place = load_vector(x, at), planes_at + f.planes_at[g]
        number, real = (n0, n1, n2, zero), load_vector(f.real, at)
        new, state = update_lanes(
            flips, f.planes, place, plane, f.terms, valued, old, number, real, state
        )
        differ = (new ^ old) & real
        store_vector(x, at, old ^ differ)
        store_vector(moved, at, differ)


@kernel
def count_moved(counts, moved):
    """Add the changed sites of each chain to planes of 32 bits, a vector each."""
    zero, vectors = repeat_word(np.uint64(0)), moved.shape[0] // WORDS
    for first in range(0, vectors, STEPS_OF_LOW):
        n0, n1, n2 = zero, zero, zero
        for g in range(first, min(first + STEPS_OF_LOW, vectors)):
            n0, n1, n2 = add_bit(n0, n1, n2, load_vector(moved, g * BYTES))
        carry = add_plane(counts, 0, n0, zero)
        carry = add_plane(counts, BYTES, n1, carry)
        carry, at = add_plane(counts, 2 * BYTES, n2, carry), 3 * BYTES
        while has_bits(carry):
            carry = add_plane(counts, at, zero, carry)
            at += BYTES


@kernel
def add_counts(changed, start, chains, counts):
    """Add the counts of all chains, whose eight parts are words apart, and set them to 0."""
    for k in range(COUNT_PLANES):
        for j in range(WORDS):
            word = counts[WORDS * k + j]
            counts[WORDS * k + j] = 0
            if word:
                for c in range(chains):
                    changed[start + c] += np.int64(word >> np.uint64(c) & np.uint64(1)) << k


# Blocks.


class ColumnsWork(NamedTuple):
    """Memory that a block's sweeps write."""

    x: Words  # [words], the states, and the word of a missing neighbour
    lines: Words  # [64, words of a row], the same chain by chain
    moved: Words  # [words]
    counts: Words  # [planes * 8], of changed sites
    low: Words  # [planes, words], sums over steps (`compiled.bits.bit_rows`), or empty
    high: Words
    seeds: Words
    lanes: Words
    counters: Words


@kernel
def make_columns_work(f, wanted):
    words = f.real.shape[0]
    summed = words if wanted else 0
    return ColumnsWork(
        make_aligned(words + WORDS),
        np.zeros((BLOCK_CHAINS, (f.place.shape[0] + WORD_BITS - 1) // WORD_BITS), np.uint64),
        make_aligned(words),
        np.zeros(COUNT_PLANES * WORDS, np.uint64),
        np.zeros((LOW_PLANES, summed), np.uint64),
        np.zeros((HIGH_PLANES, summed), np.uint64),
        np.empty(SEED_BYTES // 8 * STEPS_AHEAD, np.uint64),
        np.empty(STEPS_AHEAD, np.uint64),
        np.empty(STEPS_AHEAD, np.uint64),
    )


@kernel
def sweep_columns(first, last, f, flips, rows, x, keys, sums):
    """Advance the chains of the blocks `first <= block < last`; chain c is row `rows[c]` of `x`."""
    work, steps = make_columns_work(f, sums.total.shape[0] > 0), keys.shape[0]
    apart = f.planes.strides[0] if f.planes.shape[0] > 1 else 0
    rare = max(1, (2**32 - 1) // f.real.shape[0])  # steps whose changed sites are counted together
    for block in range(first, last):
        start = block * BLOCK_CHAINS
        chains = min(BLOCK_CHAINS, rows.shape[0] - start)
        for c in range(chains):
            pack_row(work.lines[c], 0, x, rows[start + c])
        turn_lines(work.lines, work.x, f.place)
        for t in range(steps):
            seed = seed_step(work, keys, t, block)
            update_columns(f, flips, block * apart, work.x, work.seeds, seed, work.moved)
            count_moved(work.counts, work.moved)
            if (t + 1) % rare == 0 or t == steps - 1:
                add_counts(sums.changed, start, chains, work.counts)
            if sums.total.shape[0]:
                add_columns_to_total(work, f, sums.total, start, chains, t, steps)
            draw = t - steps + sums.trace.shape[0]
            if draw >= 0 and start < sums.trace.shape[1]:
                turn_words(work.lines, work.x, f.place)
                for c in range(min(chains, sums.trace.shape[1] - start)):
                    unpack_row(sums.trace[draw], start + c, work.lines[c], 0)
        turn_words(work.lines, work.x, f.place)
        for c in range(chains):
            unpack_row(x, rows[start + c], work.lines[c], 0)


@kernel
def add_columns_to_total(work, f, total, start, chains, t, steps):
    """Count the states after step `t`. When planes are full, or at the end, add them to `total`."""
    size = 8 * f.real.shape[0]
    count_states(work.low, 0, work.x, 0, size)
    if (t + 1) % STEPS_OF_LOW == 0 or t == steps - 1:
        carry_to_high(work.high, work.low, 0, size)
    if (t + 1) % STEPS_OF_HIGH == 0 or t == steps - 1:
        for k in range(HIGH_PLANES):
            if t % STEPS_OF_HIGH + 1 >> k == 0:
                break
            turn_words(work.lines, work.high[k], f.place)
            for c in range(chains):
                add_row(total, start + c, work.lines[c], 0, np.float32(2.0**k))
            for j in range(f.real.shape[0]):
                work.high[k, j] = 0


@kernel
def turn_lines(lines, words, place):
    """The words of sites from the rows of 64 chains."""
    square = np.empty(BLOCK_CHAINS, np.uint64)
    for k in range(lines.shape[1]):
        for c in range(BLOCK_CHAINS):
            square[c] = lines[c, k]
        transpose_square(square)
        for i in range(WORD_BITS * k, min(WORD_BITS * (k + 1), place.shape[0])):
            words[place[i]] = square[i - WORD_BITS * k]


@kernel
def turn_words(lines, words, place):
    """The rows of 64 chains from the words of sites."""
    square = np.zeros(BLOCK_CHAINS, np.uint64)
    for k in range(lines.shape[1]):
        for i in range(WORD_BITS * k, min(WORD_BITS * (k + 1), place.shape[0])):
            square[i - WORD_BITS * k] = words[place[i]]
        transpose_square(square)
        for c in range(BLOCK_CHAINS):
            lines[c, k] = square[c]


@lean
def transpose_square(square):
    """64 words of 64 bits: bit j of word i becomes bit i of word j."""
    width, mask = 32, np.uint64(0xFFFFFFFF)
    while width:
        w = np.uint64(width)
        for half in range(0, BLOCK_CHAINS, 2 * width):
            for i in range(half, half + width):
                t = (square[i] >> w ^ square[i + width]) & mask
                square[i + width] ^= t
                square[i] ^= t << w
        width >>= 1
        mask ^= mask << np.uint64(width)
