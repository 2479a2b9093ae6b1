"""What kernels on lattices share: tiles of chains as bytes, and classes of sites.

The class of a site is its kind (`LatticeForm.kind`), its value and the number of its neighbours at
1, in this order. All that a step needs to know of a site depends on its class only.

A tile is one array of bytes with a row for each of its chains. Rows are padded to a multiple of 16
bytes, with room for a word that decides about a whole chain. Neighbours are at fixed distances in
the tile, so all its sites are handled by the same few instructions on vectors of bytes. Bits of
`joins` say which of these neighbours a site has. Padding has none, and is left alone.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.samplers.compiled.jit import kernel, lean

BLOCK = 4096  # bytes that are handled together, so that they stay in the cache
VECTOR = 64  # tiles are multiples of it
FEW = 32  # classes up to which a table is read by comparisons
ALONE = np.uint8(128)  # a class that a step leaves alone, and those above it
GROUP = 10  # classes that are compared with at a time


class Tile(NamedTuple):
    """`x` has `margin` bytes on both sides, so that neighbours that do not exist can be read."""

    x: NDArray[np.uint8]  # [margin + size + margin]
    margin: int
    row: int  # bytes of a chain
    size: int
    first: NDArray[np.uint8]  # [passes, size], see `Tables`
    joins: NDArray[np.uint8]  # [axes, size], as in `LatticeForm`


@kernel
def tile_of(sites, chains, first, shifts, joins):
    """An empty tile for at most so many chains."""
    row, margin = (sites + 4 + 15) // 16 * 16, np.int64(0)
    rows = min(chains, max(1, BLOCK // row))
    for axis in range(shifts.shape[0]):
        margin = max(margin, shifts[axis, 0], shifts[axis, 1])
    margin = up_to_vectors(margin)
    size = up_to_vectors(rows * row)
    firsts = np.full((first.shape[0], size), ALONE, np.uint8)
    joined = np.zeros((joins.shape[0], size), np.uint8)
    for r in range(rows):
        for k in range(first.shape[0]):
            firsts[k, r * row : r * row + sites] = first[k]
        for axis in range(joins.shape[0]):
            joined[axis, r * row : r * row + sites] = joins[axis]
    return Tile(np.zeros(size + 2 * margin, np.uint8), margin, row, size, firsts, joined)


@kernel
def up_to_vectors(size):
    return (size + VECTOR - 1) // VECTOR * VECTOR


@lean
def classify(classes, x, margin, first, turn, joins, shifts, values, start, stop):
    """The classes of a part of the tile in pass `turn`, with `values` numbers of neighbours at 1."""
    here, values = np.uint64(margin), np.uint8(values)
    for i in range(np.uint64(start), np.uint64(stop)):
        classes[i] = first[turn, i] + x[here + i] * values
    for axis in range(shifts.shape[0]):
        near, far = np.uint64(shifts[axis, 0]), np.uint64(shifts[axis, 1])
        for i in range(np.uint64(start), np.uint64(stop)):
            at, joined = here + i, joins[axis, i]
            ones = (x[at - near] & joined) + (x[at + near] & (joined >> 1))
            ones += (x[at + far] & (joined >> 2)) + (x[at - far] & (joined >> 3))
            classes[i] += ones


@lean
def look_up(out, table, classes, start, stop):
    """`table[class]` by comparisons, ten classes at a time; 0 for sites that are left alone."""
    out[start:stop] = 0
    for k in range(0, table.shape[0], GROUP):
        c0, c1, c2, c3, c4 = np.uint8(k), np.uint8(k + 1), np.uint8(k + 2), np.uint8(k + 3), np.uint8(k + 4)
        c5, c6, c7, c8, c9 = np.uint8(k + 5), np.uint8(k + 6), np.uint8(k + 7), np.uint8(k + 8), np.uint8(k + 9)
        t0, t1, t2, t3, t4 = table[k], table[k + 1], table[k + 2], table[k + 3], table[k + 4]
        t5, t6, t7, t8, t9 = table[k + 5], table[k + 6], table[k + 7], table[k + 8], table[k + 9]
        for i in range(np.uint64(start), np.uint64(stop)):
            c, v = classes[i], out[i]
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
            out[i] = v


@lean
def look_up_any(out, table, base, classes, row, start, stop):
    """`look_up` of any number of classes, site by site."""
    for i in range(np.uint64(start), np.uint64(stop)):
        c = classes[i]
        out[i] = table[base[i % np.uint64(row)] + c] if c < ALONE else np.uint8(0)


@kernel
def copy_bytes(out, x):
    for i in range(x.shape[0]):
        out[i] = np.int8(x[i])
