"""Sweeps of lattices in bits.

Of two colours, chains advance in pairs: one half of the tile has the sites of colour 0 of the first
chain and those of colour 1 of the second, and the other half has the rest. So all neighbours of the
sites in one half are in the other, at the same distances, and a pass updates every bit of a half.
It follows that the second chain of a pair sweeps colour 1 first, which leaves the same law
invariant. With three colours, a chain is alone in a tile's row, and a pass updates the sites of its
colour.
"""

import numpy as np

from latticework.models.forms import LatticeForm
from latticework.samplers.compiled.bits import (
    Chances,
    flip_lanes,
    start_pass,
    update_lanes,
)
from latticework.samplers.compiled.jit import kernel, lean
from latticework.samplers.compiled.lattice_rows import (
    TILE_WORDS,
    LatticeRows,
    count_all,
    pack_lattice,
)
from latticework.samplers.compiled.number_decisions import (
    choose_decisions,
    decide_numbers,
    decide_word,
)
from latticework.samplers.compiled.row_tiles import (
    find_line,
    load_tile,
    make_tile,
    record_step,
    seed_step,
    store_tile,
)
from latticework.samplers.compiled.vectors import BYTES, count_bits, load_like, store_vector


def pack_sweeps(
    form: LatticeForm,
    chances: list[Chances],
    tile_words: int = TILE_WORDS,
    by_number: bool = False,
) -> LatticeRows:
    """The arrays for sweeps of a lattice, with the chances of each group of chains.

    Sites whose probabilities are NaN are in no pass.
    """
    unknown = np.isnan(chances[0].probability).any(axis=(1, 2))
    known = ~np.asarray(unknown)[form.kind]
    colours = np.arange(max(2, form.colours.max() + 1))
    passes = (form.colours == colours[:, None]) & known
    paired = len(colours) == 2 and bool(known.all())
    return pack_lattice(form, chances, passes, paired, tile_words, by_number and not paired)


@lean
def update_half(f, flips, planes_at, x, target, source, words, turn, seeds, seed, changes):
    """Pass `turn` over the half of `x` from byte `target` on, whose neighbours begin at `source`.

    The half has sites of both chains of a pair. Adds the number of changed bits of each word to
    `changes` `[2, words]`, flat: those of the mask of this pass to the first row, and the others to
    the second.
    """
    lanes, state = f.lanes, start_pass(f.lanes, seeds, seed, turn)
    size, valued = 8 * f.masks.shape[1], f.planes.shape[3] > f.terms
    first, plane = turn * size, f.planes.strides[2]
    for at in range(0, 8 * words, 8 * len(lanes)):
        number = count_all(f, x, source, at)
        old, place = load_like(lanes, x, target + at), planes_at + at // BYTES * f.stride
        mask = load_like(lanes, f.masks, first + at)
        rest = load_like(lanes, f.masks, size - first + at)
        new, state = update_lanes(
            flips, f.planes, place, plane, f.terms, valued, old, number, mask | rest, state
        )
        store_vector(x, target + at, new)
        add_count(changes, at, (new ^ old) & mask)
        add_count(changes, size + at, (new ^ old) & rest)


@lean
def is_word(f):
    """Whether a tile is one word, and its decisions for all numbers are a vector."""
    return len(f.lanes) == 1 and f.across.shape[0] > 0


@lean
def decide_tile(f, planes_at, words, memory, seed):
    """Decide about all sites of a tile, for each number of neighbours that they may have."""
    lanes, state = f.lanes, start_pass(f.lanes, memory.seeds, seed, 0)
    size, numbers = 8 * f.masks.shape[1], f.planes.shape[3]
    if is_word(f):
        group = planes_at // f.planes.strides[0]
        decide_word(f.across, group * f.across.strides[0], memory.decisions, state)
        return
    for at in range(0, 8 * words, 8 * len(lanes)):
        place = planes_at + at // BYTES * f.stride
        state = decide_numbers(
            f.planes, place, numbers, memory.drawn, memory.decisions, at, size, state
        )


@lean
def update_colour(f, flips, planes_at, x, here, words, turn, decisions, changes):
    """Pass `turn` over the states from byte `here` of `x` on: sites of a colour, as decided."""
    lanes, size, valued = f.lanes, 8 * f.masks.shape[1], f.planes.shape[3] > f.terms
    plane, row, part = f.planes.strides[2], size, f.planes.shape[3] * size
    if is_word(f):
        row, part = 8, BYTES
    for at in range(0, 8 * words, 8 * len(lanes)):
        number, mask = count_all(f, x, here, at), load_like(lanes, f.masks, turn * size + at)
        old, place = load_like(lanes, x, here + at), planes_at + at // BYTES * f.stride
        new = choose_decisions(
            f.planes, place, plane, f.terms, valued, old, number, mask, decisions, at, row, part
        )
        if flips:
            new = flip_lanes(f.planes, place, plane, f.terms, old, number, new)
        differ = (new ^ old) & mask
        store_vector(x, here + at, old ^ differ)
        add_count(changes, at, differ)


@lean
def add_count(counts, at, bits):
    """Add the number of bits of each word to the numbers from byte `at` on."""
    store_vector(counts, at, load_like(bits, counts, at) + count_bits(bits))


@kernel
def sweep_rows(first, last, f, flips, group, rows, x, keys, sums):
    """Advance the chains of the tiles `first <= tile < last`.

    Chain c is row `rows[c]` of `x`. Tiles have the chains of one group of `group` chains in turn.
    """
    memory, steps, size = make_tile(f, sums.total.shape[0] > 0), keys.shape[0], f.masks.shape[1]
    each = 2 if f.paired else 1
    half, here, most = 8 * (2 * f.margin + size), 8 * f.margin, f.rows * each
    tiles = (group + most - 1) // most  # in a group
    for tile in range(first, last):
        chains = min(most, group - tile % tiles * most)
        start, words = tile // tiles * group + tile % tiles * most, (chains + each - 1) // each
        words *= f.row
        planes_at = tile // tiles * f.planes.strides[0]
        load_tile(memory, f, rows[start : start + chains], x)
        for t in range(steps):
            seed = seed_step(memory, keys, t, tile)
            if not f.paired:
                decide_tile(f, planes_at, words, memory, seed)
            for turn in range(f.masks.shape[0]):
                if f.paired:
                    update_half(
                        f, flips, planes_at, memory.x, here + turn * half, here + (1 - turn) * half,
                        words, turn, memory.seeds, seed, memory.changes,
                    )  # fmt: skip
                else:
                    update_colour(
                        f, flips, planes_at, memory.x, here, words, turn, memory.decisions,
                        memory.changes,
                    )  # fmt: skip
            record_step(memory, f, words, sums, start, chains, t, steps)
        store_tile(memory, f, rows[start : start + chains], x)
        for c in range(chains):
            line = find_line(f, c)
            for k in range(f.row):
                sums.changed[start + c] += np.int64(memory.changes[line + k])
