"""Sweeps of lattices with one coupling: a bit a site, a row of words a chain.

The neighbours of a site are at fixed distances in its row, so 512 sites are updated by the same
few instructions (`compiled.bits`). Of two colours, chains advance in pairs: one half of the tile
has the sites of colour 0 of the first chain and those of colour 1 of the second, and the other half
has the rest. So all neighbours of the sites in one half are in the other, at the same distances,
and a pass updates every bit of a half. It follows that the second chain of a pair sweeps colour 1
first, which leaves the same law invariant. With three colours, a chain is alone in a tile's row,
and a pass updates the sites of its colour.

A tile has a few rows, so that it stays in the cache. Tiles are what threads share.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.models.forms import LatticeForm
from latticework.samplers.compiled.bit_rows import (
    HIGH_PLANES,
    LOW_PLANES,
    STEPS_OF_HIGH,
    STEPS_OF_LOW,
    add_row,
    carry_to_high,
    count_states,
    pack_flags,
    pack_row,
    unpack_row,
)
from latticework.samplers.compiled.bits import (
    SEED_BYTES,
    SEED_CALLS,
    STEPS_AHEAD,
    STORED_PLANES,
    TERMS,
    Chances,
    add_bit,
    bit_planes,
    fill_seeds,
    select_bits,
    start_pass,
    update_lanes,
)
from latticework.samplers.compiled.jit import kernel, lean
from latticework.samplers.compiled.vectors import (
    BYTES,
    WORDS,
    copy_aligned,
    count_bits,
    count_unaligned,
    join_shifted,
    load_vector,
    repeat_word,
    store_vector,
)

TILE_WORDS = 128  # at most in the rows of a tile, unless one row is longer
Words = NDArray[np.uint64]


class LatticeRows(NamedTuple):
    """The numbers that a sweep reads. Masks are of a whole tile, one row after another."""

    shifts: NDArray[np.int64]  # [axes, 2], as in LatticeForm
    joins: Words  # [axes, 4, words], which neighbours exist: before, after, and round the ends
    masks: Words  # [passes, words], the sites of each pass
    paired: bool
    row: int  # words of a row
    rows: int  # at most in a tile
    margin: int  # words on both sides of a half, so that missing neighbours can be read
    planes: Words  # [groups, vectors or 1, planes, values * terms, 8], by `bit_planes`
    terms: int
    stride: int  # bytes from the planes of a vector to those of the next one, or 0


def pack_lattice(
    form: LatticeForm, chances: list[Chances], tile_words: int = TILE_WORDS
) -> LatticeRows:
    """The arrays of a lattice, with the chances of each group of chains.

    Sites whose probabilities are NaN are in no pass.
    """
    sites = len(form.kind)
    row = -(-sites // 64)
    rows = max(1, tile_words // row)
    words = -(-rows * row // WORDS) * WORDS

    def repeat_rows(mask: NDArray) -> Words:
        """Bits `[..., sites]` as the words of a tile."""
        tile = np.tile(pack_flags(mask), rows)
        return np.pad(tile, [(0, 0)] * (tile.ndim - 1) + [(0, words - rows * row)])

    unknown = np.isnan(chances[0].probability).any(axis=(1, 2))
    known = ~np.asarray(unknown)[form.kind]
    colours = np.arange(max(2, form.colours.max() + 1))
    masks = (form.colours == colours[:, None]) & known
    joins = (form.joins[:, None] >> np.arange(4)[:, None]) & 1
    vectors = 1 if len(form.odds) == 1 else words // WORDS
    values, terms = chances[0].probability.shape[1:]
    shape = len(chances), vectors, STORED_PLANES, values * terms, WORDS
    planes = np.empty(shape, np.uint64)
    for group, given in enumerate(chances):
        for plane, bits in enumerate(bit_planes(given)):
            if vectors == 1:
                planes[group, 0, plane] = -bits[0].astype(np.int64)[:, None]
            else:
                tile = repeat_rows(bits.T[:, form.kind])
                planes[group, :, plane] = tile.reshape(-1, vectors, WORDS).swapaxes(0, 1)
    planes = copy_aligned(planes)
    farthest = int(abs(form.shifts).max(initial=0))
    return LatticeRows(
        shifts=form.shifts,
        joins=copy_aligned(repeat_rows(joins)),
        masks=copy_aligned(repeat_rows(masks)),
        paired=len(colours) == 2 and bool(known.all()),
        row=row,
        rows=rows,
        margin=-(-(farthest // 64 + 2) // WORDS) * WORDS,
        planes=planes,
        terms=terms,
        stride=planes.strides[1] if vectors > 1 else 0,
    )


# A pass.


@lean
def load_shifted(x, at, bits):
    """The vector that begins `bits` bits after byte `at`, of words in a row."""
    place = at + ((bits >> 6) << 3)
    return join_shifted(load_vector(x, place + 8), load_vector(x, place), bits & 63)


@lean
def count_neighbours(f, x, here, at):
    """The lowest three bits of the number of neighbours at 1.

    They are those of the vector at byte `at` of a tile. The half of `x` with the neighbours begins
    at byte `here`.
    """
    n0 = repeat_word(np.uint64(0))
    n1, n2, size = n0, n0, 8 * f.joins.shape[2]
    for axis in range(f.shifts.shape[0]):
        near, far, mask = f.shifts[axis, 0], f.shifts[axis, 1], at + 4 * axis * size
        v = load_shifted(x, here + at, -near) & load_vector(f.joins, mask)
        v = v | (load_shifted(x, here + at, far) & load_vector(f.joins, mask + 2 * size))
        n0, n1, n2 = add_bit(n0, n1, n2, v)
        v = load_shifted(x, here + at, near) & load_vector(f.joins, mask + size)
        v = v | (load_shifted(x, here + at, -far) & load_vector(f.joins, mask + 3 * size))
        n0, n1, n2 = add_bit(n0, n1, n2, v)
    return n0, n1, n2


@lean
def find_eights(f, x, here, at):
    """The fourth bit of that number, which a lattice of less than four dimensions has not."""
    n0 = repeat_word(np.uint64(0))
    n1, n2, n3, size = n0, n0, n0, 8 * f.joins.shape[2]
    for axis in range(f.shifts.shape[0]):
        for end in range(2):
            near, far, mask = f.shifts[axis, 0], f.shifts[axis, 1], at + (4 * axis + end) * size
            near, far = (near, -far) if end else (-near, far)
            v = load_shifted(x, here + at, near) & load_vector(f.joins, mask)
            v = v | (load_shifted(x, here + at, far) & load_vector(f.joins, mask + 2 * size))
            n3 = n3 ^ (n0 & n1 & n2 & v)
            n0, n1, n2 = add_bit(n0, n1, n2, v)
    return n3


@kernel
def update_rows(f, flips, planes_at, x, target, source, words, turn, seeds, seed, changes):
    """Pass `turn` over the half of `x` from byte `target` on, whose neighbours begin at `source`.

    Adds the number of changed bits of each word to `changes` `[2, words]`, flat: in a pair, those
    of the mask of this pass to the first row, and the others to the second.
    """
    state = start_pass(seeds, seed, turn)
    size, valued = 8 * f.masks.shape[1], f.planes.shape[3] > f.terms
    first, plane = turn * size, f.planes.strides[2]
    for at in range(0, 8 * words, BYTES):
        n0, n1, n2 = count_neighbours(f, x, source, at)
        n3 = find_eights(f, x, source, at) if f.terms > TERMS[1] else n0
        old, place = load_vector(x, target + at), planes_at + at // BYTES * f.stride
        new, state = update_lanes(
            flips, f.planes, place, plane, f.terms, valued, old, (n0, n1, n2, n3), state
        )
        mask = load_vector(f.masks, first + at)
        if not f.paired:
            new = select_bits(mask, new, old)
        store_vector(x, target + at, new)
        differ = new ^ old
        store_vector(changes, at, load_vector(changes, at) + count_bits(differ & mask))
        if f.paired:
            second = load_vector(f.masks, size - first + at)
            before = load_vector(changes, size + at)
            store_vector(changes, size + at, before + count_bits(differ & second))


# Tiles.


class RowsWork(NamedTuple):
    """Memory that a tile's sweeps write. A half is `margin`, a tile's words, `margin`."""

    x: Words  # [2 * half], the states
    lines: Words  # [2 * words], the rows of first chains, and those of second chains
    changes: Words  # [2 * words]
    low: Words  # [planes, 2 * words], sums over steps (`compiled.bit_rows`), or empty
    high: Words
    seeds: Words
    lanes: Words
    counters: Words


@kernel
def make_work(f, wanted):
    size = f.masks.shape[1]
    room = np.zeros(2 * (2 * f.margin + size) + WORDS, np.uint64)
    changes = np.zeros(2 * size + WORDS, np.uint64)
    summed = 2 * size if wanted else 0
    return RowsWork(
        room[count_unaligned(room) :],
        np.zeros(2 * size, np.uint64),
        changes[count_unaligned(changes) :],
        np.zeros((LOW_PLANES, summed), np.uint64),
        np.zeros((HIGH_PLANES, summed), np.uint64),
        np.empty(SEED_BYTES // 8 * STEPS_AHEAD, np.uint64),
        np.empty(SEED_CALLS * STEPS_AHEAD, np.uint64),
        np.empty(SEED_CALLS * STEPS_AHEAD, np.uint64),
    )


@kernel
def sweep_rows(first, last, f, flips, group, rows, x, keys, sums):
    """Advance the chains of the tiles `first <= tile < last`.

    Chain c is row `rows[c]` of `x`. Tiles have the chains of one group of `group` chains in turn.
    """
    work, steps, size = make_work(f, sums.total.shape[0] > 0), keys.shape[0], f.masks.shape[1]
    each = 2 if f.paired else 1
    half, here, most = 8 * (2 * f.margin + size), 8 * f.margin, f.rows * each
    tiles = (group + most - 1) // most  # in a group
    for tile in range(first, last):
        chains = min(most, group - tile % tiles * most)
        start, words = tile // tiles * group + tile % tiles * most, (chains + each - 1) // each
        words *= f.row
        planes_at = tile // tiles * f.planes.strides[0]
        load_tile(work, f, rows[start : start + chains], x)
        for t in range(steps):
            if t % STEPS_AHEAD == 0:
                ahead = keys[t : t + STEPS_AHEAD]
                fill_seeds(work.seeds, ahead, tile, work.counters, work.lanes)
            for turn in range(f.masks.shape[0]):
                target, source = here, here
                if f.paired:
                    target, source = here + turn * half, here + (1 - turn) * half
                update_rows(
                    f, flips, planes_at, work.x, target, source, words, turn,
                    work.seeds, t % STEPS_AHEAD * SEED_BYTES, work.changes,
                )  # fmt: skip
            if sums.total.shape[0]:
                add_to_total(work, f, words, sums.total, start, chains, t, steps)
            draw = t - steps + sums.trace.shape[0]
            if draw >= 0 and start < sums.trace.shape[1]:
                separate_pairs(work.lines, work.x, f.margin, f)
                for c in range(min(chains, sums.trace.shape[1] - start)):
                    line = c % each * size + c // each * f.row
                    unpack_row(sums.trace[draw], start + c, work.lines, line)
        separate_pairs(work.lines, work.x, f.margin, f)
        for c in range(chains):
            line = c % each * size + c // each * f.row
            unpack_row(x, rows[start + c], work.lines, line)
            for k in range(f.row):
                sums.changed[start + c] += np.int64(work.changes[line + k])


@lean
def load_tile(work, f, rows, x):
    """The states of the chains that are these `rows` of `x`."""
    each, size = 2 if f.paired else 1, f.masks.shape[1]
    for k in range(2 * size):
        work.lines[k], work.changes[k] = 0, 0
    for c in range(rows.shape[0]):
        pack_row(work.lines, c % each * size + c // each * f.row, x, rows[c])
    for k in range(size):
        p, q, m, n = work.lines[k], work.lines[size + k], f.masks[0, k], f.masks[1, k]
        work.x[f.margin + k] = (p & m) | (q & n) if f.paired else p
        work.x[3 * f.margin + size + k] = (p & n) | (q & m)


@lean
def separate_pairs(lines, x, margin, f):
    """The rows of the first and of the second chains of pairs, from the halves in `x`."""
    size = f.masks.shape[1]
    for k in range(size):
        p, q, m, n = x[margin + k], x[3 * margin + size + k], f.masks[0, k], f.masks[1, k]
        lines[k] = (p & m) | (q & n) if f.paired else p
        lines[size + k] = (p & n) | (q & m)


@lean
def add_to_total(work, f, words, total, start, chains, t, steps):
    """Count the states after step `t`. When planes are full, or at the end, add them to `total`."""
    each, size = 2 if f.paired else 1, f.masks.shape[1]
    for side in range(each):
        here = 8 * (f.margin + side * (2 * f.margin + size))
        count_states(work.low, 8 * side * size, work.x, here, 8 * words)
    if (t + 1) % STEPS_OF_LOW == 0 or t == steps - 1:
        for side in range(each):
            carry_to_high(work.high, work.low, 8 * side * size, 8 * words)
    if (t + 1) % STEPS_OF_HIGH == 0 or t == steps - 1:
        for k in range(HIGH_PLANES):
            if t % STEPS_OF_HIGH + 1 >> k == 0:
                break
            separate_pairs(work.lines, work.high[k], 0, f)
            for c in range(chains):
                line = c % each * size + c // each * f.row
                add_row(total, start + c, work.lines, line, np.float32(2.0**k))
            for j in range(2 * size):
                work.high[k, j] = 0
