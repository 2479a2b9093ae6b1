"""Sweeps of lattices in bits, a chain in a tile's row: a pass updates the sites of its colour.

They serve lattices of three colours, which have a side of odd length, and those with sites whose
probabilities are unknown.
"""

from latticework.samplers.compiled.bits.decisions import flip_lanes, start_pass
from latticework.samplers.compiled.bits.lattice_rows import count_all
from latticework.samplers.compiled.bits.number_decisions import (
    choose_decisions,
    decide_numbers,
    decide_word,
)
from latticework.samplers.compiled.bits.row_tiles import (
    add_changes,
    count_changes,
    find_tile,
    load_tile,
    make_tile,
    record_step,
    seed_step,
    store_tile,
)
from latticework.samplers.compiled.bits.vectors import BYTES, load_like, store_vector
from latticework.samplers.compiled.jit import kernel, lean


@kernel
def sweep_colours(first, last, f, flips, group, rows, x, keys, sums):
    """Advance the chains of the tiles `first <= tile < last`.

    Chain c is row `rows[c]` of `x`. Tiles have the chains of one group of `group` chains in turn.
    """
    memory, steps, here = make_tile(f, sums.total.shape[0] > 0), keys.shape[0], 8 * f.margin
    for tile in range(first, last):
        group_index, start, chains, words = find_tile(f, tile, group)
        planes_at = group_index * f.planes.strides[0]
        load_tile(memory, f, rows[start : start + chains], x)
        for t in range(steps):
            decide_tile(f, planes_at, words, memory, seed_step(memory, keys, t, tile))
            for turn in range(f.masks.shape[0]):
                update_colour(
                    f, flips, planes_at, memory.x, here, words, turn, memory.decisions,
                    memory.changes,
                )  # fmt: skip
            record_step(memory, f, words, sums, start, chains, t, steps)
        store_tile(memory, f, rows[start : start + chains], x)
        add_changes(sums.changed, memory, f, start, chains)


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
        count_changes(changes, at, differ)
