"""Coupling from the past on lattices, by the sweeps of `compiled.bits.sweep_lattice`.

As in `compiled.sweeps.coupling`, two states that begin at all 0 and at all 1 at time -T are swept
by the same random numbers, which at time -t are the same for every T. Here the probabilities are
numbers of 40 bits, which do not fall when a neighbour rises, so the states stay ordered.

A tile has few chains, because T doubles until all of its chains have met.
"""

import numpy as np

from latticework.samplers.compiled.bits.bit_rows import unpack_row
from latticework.samplers.compiled.bits.decisions import (
    PAST_CALLS,
    SEED_BYTES,
    decide_both,
    fill_past_seeds,
    select_bits,
    start_pass,
)
from latticework.samplers.compiled.bits.lattice_rows import count_all
from latticework.samplers.compiled.bits.row_tiles import find_line, find_tile, separate_pairs
from latticework.samplers.compiled.bits.vectors import (
    BYTES,
    EIGHT,
    load_vector,
    make_aligned,
    repeat_word,
    store_vector,
)
from latticework.samplers.compiled.jit import kernel, lean
from latticework.samplers.compiled.philox import STEPS_AHEAD

PAST_WORDS = 16  # in a tile's rows, unless one row is longer
MAX_SWEEPS = 2**27  # which the counter of Philox has room for


@kernel
def update_both_rows(f, low, high, target, source, words, turn, seeds, seed):
    """Pass `turn` over the half from byte `target` on of both states."""
    state, mask = start_pass(EIGHT, seeds, seed, turn), repeat_word(~np.uint64(0))
    first, plane = turn * 8 * f.masks.shape[1], f.planes.strides[2]
    for at in range(0, 8 * words, BYTES):
        below, above = count_all(f, low, source, at), count_all(f, high, source, at)
        place = at // BYTES * f.stride
        less, more, state = decide_both(f.planes, place, plane, f.terms, below, above, state)
        if not f.paired:
            mask = load_vector(f.masks, first + at)
        store_vector(low, target + at, select_bits(mask, less, load_vector(low, target + at)))
        store_vector(high, target + at, select_bits(mask, more, load_vector(high, target + at)))


@kernel
def couple_rows(first, last, f, key, shortest, longest, states, sweeps):
    """Write the states at time 0 `[draws, sites]` of some tiles, and how many `sweeps` they took.

    The first attempt has `shortest` sweeps, each further one twice as many, up to `longest`. A draw
    that has not met in `longest` sweeps has -1 sweeps.
    """
    size, here = f.masks.shape[1], 8 * f.margin
    half = 2 * f.margin + size
    low, high = make_aligned(2 * half), make_aligned(2 * half)
    bottom, top = np.empty((2, 2 * size), np.uint64)
    seeds = np.empty(SEED_BYTES // 8 * STEPS_AHEAD, np.uint64)
    lanes, counters = np.empty((2, PAST_CALLS * STEPS_AHEAD), np.uint64)
    for tile in range(first, last):
        _, start, chains, words = find_tile(f, tile, states.shape[0])
        sweeps[start : start + chains] = -1
        attempt, waiting = shortest, True
        while attempt <= longest and waiting:
            spread_bounds(low, high, f)
            for time in range(attempt, 0, -STEPS_AHEAD):
                count = min(STEPS_AHEAD, time)
                fill_past_seeds(seeds, key, time, count, tile, counters, lanes)
                for k in range(count):
                    for turn in range(f.masks.shape[0]):
                        target, source = here, here
                        if f.paired:
                            target, source = here + 8 * turn * half, here + 8 * (1 - turn) * half
                        seed = k * SEED_BYTES
                        update_both_rows(f, low, high, target, source, words, turn, seeds, seed)
            separate_pairs(bottom, low, f.margin, f)
            separate_pairs(top, high, f.margin, f)
            waiting = False
            for c in range(chains):
                met, line = True, find_line(f, c)
                for k in range(line, line + f.row):
                    met &= bottom[k] == top[k]
                if met and sweeps[start + c] < 0:
                    sweeps[start + c] = attempt
                waiting |= not met
            attempt *= 2
        for c in range(chains):
            unpack_row(states, start + c, bottom, find_line(f, c))


@lean
def spread_bounds(low, high, f):
    """The lowest state, all 0, and the highest, 1 at all sites."""
    size = f.masks.shape[1]
    low[:], high[:] = 0, 0
    for k in range(size):
        word = np.uint64(0)
        for turn in range(f.masks.shape[0]):
            word |= f.masks[turn, k]
        high[f.margin + k], high[3 * f.margin + size + k] = word, word
