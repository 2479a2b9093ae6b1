"""Sweeps of lattices of two colours in bits, whose chains advance in pairs.

One half of a tile has the sites of colour 0 of the first chain and those of colour 1 of the second,
and the other half has the rest. So all neighbours of the sites in one half are in the other, at the
same distances, and a pass updates every bit of a half. It follows that the second chain of a pair
sweeps colour 1 first, which leaves the same law invariant.
"""

from latticework.samplers.compiled.bits.decisions import start_pass, update_lanes
from latticework.samplers.compiled.bits.lattice_rows import count_all
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
def sweep_pairs(first, last, f, flips, group, rows, x, keys, sums):
    """Advance the chains of the tiles `first <= tile < last`.

    Chain c is row `rows[c]` of `x`. Tiles have the chains of one group of `group` chains in turn.
    """
    memory, steps = make_tile(f, sums.total.shape[0] > 0), keys.shape[0]
    here, half = 8 * f.margin, 8 * (2 * f.margin + f.masks.shape[1])
    for tile in range(first, last):
        group_index, start, chains, words = find_tile(f, tile, group)
        planes_at = group_index * f.planes.strides[0]
        load_tile(memory, f, rows[start : start + chains], x)
        for t in range(steps):
            seed = seed_step(memory, keys, t, tile)
            for turn in range(2):
                update_half(
                    f, flips, planes_at, memory.x, here + turn * half, here + (1 - turn) * half,
                    words, turn, memory.seeds, seed, memory.changes,
                )  # fmt: skip
            record_step(memory, f, words, sums, start, chains, t, steps)
        store_tile(memory, f, rows[start : start + chains], x)
        add_changes(sums.changed, memory, f, start, chains)


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
        first_mask = load_like(lanes, f.masks, first + at)
        second_mask = load_like(lanes, f.masks, size - first + at)
        both = first_mask | second_mask
        new, state = update_lanes(
            flips, f.planes, place, plane, f.terms, valued, old, number, both, state
        )
        store_vector(x, target + at, new)
        count_changes(changes, at, (new ^ old) & first_mask)
        count_changes(changes, size + at, (new ^ old) & second_mask)
