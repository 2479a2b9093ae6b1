"""The common part of kernels on lattices: tiles of chains as bytes, and classes of sites.

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

from latticework.samplers.compiled.jit import copy, kernel, lean

BLOCK = 4096  # bytes that are handled together, so that they stay in the cache
VECTOR = 64  # tiles are multiples of it
ALONE = np.uint8(128)  # the class of padding, which a step leaves alone


class Tile(NamedTuple):
    """`x` has `margin` bytes on both sides, so that neighbours that do not exist can be read."""

    x: NDArray[np.uint8]  # [margin + size + margin]
    margin: int
    row: int  # bytes of a chain
    size: int
    first: NDArray[np.uint8]  # [size], see `Tables`; ALONE in the padding
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
    firsts = np.full(size, ALONE, np.uint8)
    joined = np.zeros((joins.shape[0], size), np.uint8)
    for r in range(rows):
        copy(firsts[r * row : r * row + sites], first)
        for axis in range(joins.shape[0]):
            copy(joined[axis, r * row : r * row + sites], joins[axis])
    return Tile(np.zeros(size + 2 * margin, np.uint8), margin, row, size, firsts, joined)


@kernel
def up_to_vectors(size):
    return (size + VECTOR - 1) // VECTOR * VECTOR


@lean
def classify(classes, tile, shifts, values, start, stop):
    """The classes of the sites from `start` to `stop`.

    `values` is how many numbers of neighbours at 1 are possible.
    """
    x, first, joins = tile.x, tile.first, tile.joins
    here, values = np.uint64(tile.margin), np.uint8(values)
    for i in range(np.uint64(start), np.uint64(stop)):
        classes[i] = first[i] + x[here + i] * values
    for axis in range(shifts.shape[0]):
        near, far = np.uint64(shifts[axis, 0]), np.uint64(shifts[axis, 1])
        for i in range(np.uint64(start), np.uint64(stop)):
            at, joined = here + i, joins[axis, i]
            ones = (x[at - near] & joined) + (x[at + near] & (joined >> 1))
            ones += (x[at + far] & (joined >> 2)) + (x[at - far] & (joined >> 3))
            classes[i] += ones


@kernel
def copy_bytes(out, x):
    for i in range(x.shape[0]):
        out[i] = np.int8(x[i])
