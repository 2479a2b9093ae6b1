"""Decisions that take one random byte each.

A site flips with probability p = (T + f) / 256, T a whole number and 0 <= f < 1. It flips if its
byte is below T. If the byte is T, which is a tie, it flips if a further word of 32 bits is below
f 2^32. So p is met to within 2^-40, and 255 of 256 decisions take 8 bits.

Bytes come from Philox: four words for each 16 bytes of a chain's row. The words of ties are of
another stream, with the site as the index. So the numbers of a site depend on the key of the step,
on its chain and on its place in the row.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.samplers.compiled.jit import kernel, lean
from latticework.samplers.compiled.lattice import ALONE, BLOCK
from latticework.samplers.compiled.philox import HALF, LOW, fill_lanes

LANE = 16  # bytes of one call of Philox
FEW = 40  # classes up to which a table is read by comparisons
GROUP = 10  # classes that are compared with at a time
BYTES, TIES = 0, 1  # streams
TIED = np.uint64(0x0202020202020202)  # the bit of a tie, in eight bytes


def split(probability: NDArray[np.float64]) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """T and f 2^32 of each probability. 1 is (255, 2^32), which is always below. NaN gives 0."""
    scaled = np.clip(np.nan_to_num(probability), 0, 1) * 256
    whole = np.minimum(np.floor(scaled), 255)
    return whole.astype(np.uint8), np.rint((scaled - whole) * 2.0**32).astype(np.uint64)


class Ties(NamedTuple):
    """Room for the ties of a block."""

    found: NDArray[np.uint64]  # words of eight flips with a tie
    places: NDArray[np.uint64]  # in the tile
    keys: NDArray[np.uint64]
    counters: NDArray[np.uint64]
    words: NDArray[np.uint64]  # two for each


@kernel
def ties_of(size):
    found, places, keys, counters = np.zeros((4, min(size, BLOCK)), np.uint64)
    return Ties(found, places, keys, counters, np.empty(2 * len(keys), np.uint64))


@lean
def number_lanes(counters, row, size, chain):
    """The counters of a tile of `size` bytes whose first chain is number `chain`, repeatedly."""
    lanes, each = size // LANE, row // LANE
    for j in range(counters.shape[0]):
        lane = j % lanes
        counters[j] = np.uint64(lane % each) | (np.uint64(chain + lane // each) << HALF)


@lean
def key_lanes(lane_keys, keys, t, ahead):
    """The keys of all lanes, for the steps from `t` on."""
    lanes = lane_keys.shape[0] // ahead
    for s in range(min(ahead, keys.shape[0] - t)):
        key = np.uint64(keys[t + s])
        for j in range(s * lanes, (s + 1) * lanes):
            lane_keys[np.uint64(j)] = key


@lean
def compare(flips, limit, drawn, start, stop, at):
    """1 where a byte is below the limit, 2 where it is a tie. Bytes are `drawn` from `at` on."""
    shift = np.uint64(at - start)  # perhaps below 0: unsigned numbers go round
    for i in range(np.uint64(start), np.uint64(stop)):
        byte = drawn[i + shift]
        flips[i] = np.uint8(byte < limit[i]) | (np.uint8(byte == limit[i]) << 1)


@lean
def look_up(limit, table, base, classes, row, start, stop):
    """The limits of any number of classes, site by site; 0 for padding."""
    for i in range(np.uint64(start), np.uint64(stop)):
        c = classes[i]
        limit[i] = table[base[i % np.uint64(row)] + np.uint64(c)] if c < ALONE else np.uint8(0)


@lean
def look_up_few(limit, table, classes, start, stop):
    """`look_up` by comparisons, ten classes at a time, if `base` is 0 everywhere."""
    for i in range(np.uint64(start), np.uint64(stop)):
        limit[i] = 0
    for k in range(0, table.shape[0], GROUP):
        c0, c1, c2, c3 = np.uint8(k), np.uint8(k + 1), np.uint8(k + 2), np.uint8(k + 3)
        c4, c5, c6, c7 = np.uint8(k + 4), np.uint8(k + 5), np.uint8(k + 6), np.uint8(k + 7)
        c8, c9 = np.uint8(k + 8), np.uint8(k + 9)
        t0, t1, t2, t3, t4 = table[k], table[k + 1], table[k + 2], table[k + 3], table[k + 4]
        t5, t6, t7, t8, t9 = table[k + 5], table[k + 6], table[k + 7], table[k + 8], table[k + 9]
        for i in range(np.uint64(start), np.uint64(stop)):
            c, v = classes[i], limit[i]
            v = t0 if c == c0 else v
            v = t1 if c == c1 else v
            v = t2 if c == c2 else v
            v = t3 if c == c3 else v
            v = t4 if c == c4 else v
            v = t5 if c == c5 else v
            v = t6 if c == c6 else v
            v = t7 if c == c7 else v
            v = t8 if c == c8 else v
            v = t9 if c == c9 else v
            limit[i] = v


@lean
def find_words(found, words, start, stop):
    """List the words of eight flips that hold a tie; returns how many. Nothing branches on them."""
    hits = np.uint64(0)
    for j in range(np.uint64(start // 8), np.uint64(stop // 8)):
        found[hits] = j
        hits += np.uint64((words[j] & TIED) != 0)
    return hits


@lean
def find_ties(ties, flips, hits, classes):
    """List the ties in the words that `find_words` found, and set them to 0; returns how many.

    Padding is not listed: it does not flip.
    """
    count = np.uint64(0)
    for k in range(np.uint64(8) * hits):
        i = np.uint64(8) * ties.found[k >> np.uint64(3)] + (k & np.uint64(7))
        ties.places[count] = i
        count += np.uint64(flips[i] >> 1) & np.uint64(classes[i] < ALONE)
        flips[i] &= 1
    return count


@lean
def break_ties(ties, count, flips, classes, tables, row, chain, key):
    """Decide about the sites that are listed, each by a word of its own."""
    row, chain = np.uint64(row), np.uint64(chain)
    for k in range(count):
        ties.counters[k] = ties.places[k] % row | (chain + ties.places[k] // row) << HALF
        ties.keys[k] = np.uint64(key)
    lanes = (count + np.uint64(7)) // np.uint64(8) * np.uint64(8)  # whole vectors
    fill_lanes(ties.words, ties.keys, ties.counters, lanes, TIES)
    for k in range(count):
        i = ties.places[k]
        word = ties.words[np.uint64(2) * k] & LOW
        flips[i] = word < tables.fraction[tables.base[i % row] + np.uint64(classes[i])]
