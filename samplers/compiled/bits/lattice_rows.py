"""Lattices with one coupling in bits: a bit a site, a row of words a chain.

The neighbours of a site are at fixed distances in its row, so 512 sites are handled by the same few
instructions (`compiled.bits.decisions`). A tile has a few rows, one after another, so that it stays
in the cache. Tiles are what threads share.

Sweeps of a lattice with two colours keep the states of chains in pairs
(`compiled.bits.sweep_pairs`).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.models.forms import LatticeForm
from latticework.samplers.compiled.bits.bit_rows import pack_flags
from latticework.samplers.compiled.bits.decisions import (
    FIRST_PLANES,
    STORED_PLANES,
    TERMS,
    Chances,
    add_bit,
    bit_planes,
)
from latticework.samplers.compiled.bits.vectors import (
    EIGHT,
    VECTORS,
    WORDS,
    copy_aligned,
    join_shifted,
    load_like,
    repeat_like,
    shift_down,
    shift_up,
)
from latticework.samplers.compiled.jit import lean

TILE_WORDS = 128  # at most in the rows of a tile, unless one row is longer
Words = NDArray[np.uint64]


class LatticeRows(NamedTuple):
    """The numbers that a kernel reads. Masks are of a whole tile, one row after another."""

    shifts: NDArray[np.int64]  # [axes, 2], as in LatticeForm
    joins: Words  # [axes, 4, words], which neighbours exist: before, after, and round the ends
    masks: Words  # [passes, words], the sites of each pass
    paired: bool
    row: int  # words of a row
    rows: int  # at most in a tile
    margin: int  # words on both sides of a half, so that missing neighbours can be read
    planes: Words  # [groups, vectors or 1, planes, values * terms, 8], by `bit_planes`
    across: Words  # [groups or 0, first planes, 8], those of the first word, a number a word
    terms: int
    stride: int  # bytes from the planes of a vector to those of the next one, or 0
    lanes: tuple[int, ...]  # an item a word of the vectors of a tile, by `fit_lanes`


def pack_lattice(
    form: LatticeForm,
    chances: list[Chances],
    passes: NDArray[np.bool_],
    paired: bool,
    tile_words: int = TILE_WORDS,
    by_number: bool = False,
) -> LatticeRows:
    """The arrays of a lattice, with the chances of each group, and the sites of each pass."""
    sites = len(form.kind)
    row = -(-sites // 64)
    rows = max(1, tile_words // row)
    words = -(-rows * row // WORDS) * WORDS
    joins = (form.joins[:, None] >> np.arange(4)[:, None]) & 1
    vectors = 1 if len(chances[0].probability) == 1 else words // WORDS
    values, terms = chances[0].probability.shape[1:]
    shape = len(chances), vectors, STORED_PLANES, values * terms, WORDS
    planes = np.empty(shape, np.uint64)
    for group, given in enumerate(chances):
        for plane, bits in enumerate(bit_planes(given, by_number)):
            if vectors == 1:
                planes[group, 0, plane] = -bits[0].astype(np.int64)[:, None]
            else:
                tile = repeat_rows(bits.T[:, form.kind], rows, words)
                planes[group, :, plane] = tile.reshape(-1, vectors, WORDS).swapaxes(0, 1)
    across = np.zeros((0, FIRST_PLANES, WORDS), np.uint64)
    if by_number:  # those of a number one after another, from the lowest bit up
        first, numbers = planes[:, :, :FIRST_PLANES], values * terms
        if numbers <= WORDS:
            across = np.zeros((len(chances), FIRST_PLANES, WORDS), np.uint64)
            across[..., :numbers] = first[:, 0, ::-1, :, 0]
        first[...] = first[:, :, ::-1].swapaxes(2, 3).reshape(first.shape)
    planes = copy_aligned(planes)
    farthest = int(abs(form.shifts).max(initial=0))
    return LatticeRows(
        shifts=form.shifts,
        joins=copy_aligned(repeat_rows(joins, rows, words)),
        masks=copy_aligned(repeat_rows(passes, rows, words)),
        paired=paired,
        row=row,
        rows=rows,
        margin=-(-(farthest // 64 + 2) // WORDS) * WORDS,
        planes=planes,
        across=copy_aligned(across),
        terms=terms,
        stride=planes.strides[1] if vectors > 1 else 0,
        lanes=EIGHT,
    )


def fit_lanes(f: LatticeRows, chains: int) -> LatticeRows:
    """The arrays for tiles of at most so many chains: one vector holds all words of small tiles.

    A narrower vector takes fewer instructions, and its words are those of the whole vector.
    """
    words = -(-chains // (2 if f.paired else 1)) * f.row
    return f._replace(lanes=(0,) * next((n for n in VECTORS if words <= n), WORDS))


def repeat_rows(bits: NDArray, rows: int, words: int) -> Words:
    """Bits `[..., sites]` as the words of a tile of so many rows and words."""
    tile = np.tile(pack_flags(bits), rows)
    return np.pad(tile, [(0, 0)] * (tile.ndim - 1) + [(0, words - tile.shape[-1])])


@lean
def load_shifted(f, x, at, bits):
    """The vector that begins `bits` bits after byte `at`, of words in a row."""
    if f.row == 1:  # no neighbour is in another word, so the bits of others are in no mask
        word = load_like(f.lanes, x, at)
        return shift_down(word, bits) if bits >= 0 else shift_up(word, -bits)
    place = at + ((bits >> 6) << 3)
    return join_shifted(load_like(f.lanes, x, place + 8), load_like(f.lanes, x, place), bits & 63)


@lean
def count_neighbours(f, x, here, at):
    """The lowest three bits of the number of neighbours at 1.

    They are those of the vector at byte `at` of a tile. The half of `x` with the neighbours begins
    at byte `here`.
    """
    lanes, joins, n0 = f.lanes, f.joins, repeat_like(f.lanes, np.uint64(0))
    n1, n2, size = n0, n0, 8 * joins.shape[2]
    for axis in range(f.shifts.shape[0]):
        near, far, mask = f.shifts[axis, 0], f.shifts[axis, 1], at + 4 * axis * size
        v = load_shifted(f, x, here + at, -near) & load_like(lanes, joins, mask)
        v = v | (load_shifted(f, x, here + at, far) & load_like(lanes, joins, mask + 2 * size))
        n0, n1, n2 = add_bit(n0, n1, n2, v)
        v = load_shifted(f, x, here + at, near) & load_like(lanes, joins, mask + size)
        v = v | (load_shifted(f, x, here + at, -far) & load_like(lanes, joins, mask + 3 * size))
        n0, n1, n2 = add_bit(n0, n1, n2, v)
    return n0, n1, n2


@lean
def find_eights(f, x, here, at):
    """The fourth bit of that number, which a lattice of less than four dimensions has not."""
    lanes, joins, n0 = f.lanes, f.joins, repeat_like(f.lanes, np.uint64(0))
    n1, n2, n3, size = n0, n0, n0, 8 * joins.shape[2]
    for axis in range(f.shifts.shape[0]):
        for end in range(2):
            near, far, mask = f.shifts[axis, 0], f.shifts[axis, 1], at + (4 * axis + end) * size
            near, far = (near, -far) if end else (-near, far)
            v = load_shifted(f, x, here + at, near) & load_like(lanes, joins, mask)
            v = v | (load_shifted(f, x, here + at, far) & load_like(lanes, joins, mask + 2 * size))
            n3 = n3 ^ (n0 & n1 & n2 & v)
            n0, n1, n2 = add_bit(n0, n1, n2, v)
    return n3


@lean
def count_all(f, x, here, at):
    """All four bits of the number of neighbours at 1."""
    n0, n1, n2 = count_neighbours(f, x, here, at)
    n3 = find_eights(f, x, here, at) if f.terms > TERMS[1] else n0
    return n0, n1, n2, n3
