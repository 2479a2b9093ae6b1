"""Steps that decide about all sites of a lattice at once, in bits.

In a step, all sites flip independently, with probabilities that depend on their class only: their
kind (`LatticeForm.kind`), their value and the number of their neighbours at 1. Then the whole step
may be rejected. What that takes is a sum over the sites of numbers that depend on their class too.
So the sites of each class are counted, as bits at 1 of planes of such sites.
`compiled.bits.all_sites_lattice` has the numbers. The steps of a cycle have a row of them each.

A chain has a row of a tile. The first half of the tile has states, the second one proposals.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.samplers.compiled.bits.decisions import TERMS, decide_lanes, start_pass
from latticework.samplers.compiled.bits.lattice_rows import LatticeRows, Words, count_all
from latticework.samplers.compiled.bits.row_tiles import (
    add_changes,
    find_tile,
    load_tile,
    make_tile,
    record_step,
    seed_step,
    store_tile,
)
from latticework.samplers.compiled.bits.vectors import (
    BYTES,
    EIGHT,
    WORDS,
    count_bits,
    load_like,
    load_vector,
    repeat_like,
    shift_up,
    store_vector,
)
from latticework.samplers.compiled.draws import accepts
from latticework.samplers.compiled.jit import kernel, lean
from latticework.samplers.compiled.philox import HALF, LOW

UNIT_SHIFT, UNIT_SCALE = np.uint64(11), 2.0**-53  # a word as a number in [0, 1)
DECISIONS, ACCEPTANCES = 0, 1  # passes of random numbers


class AllSitesRows(NamedTuple):
    """The numbers that steps read. Planes and tables have a row for each step of a cycle."""

    lattice: LatticeRows
    period: int  # steps of a cycle
    kinds: Words  # [kinds, words of a tile], the sites of each kind
    softplus: NDArray[np.float64]  # [rows, kinds * terms, 2], log(1 + exp(logit of the flip))
    excess: NDArray[np.float64]  # the same, logit - gain / 2; no rows if it is a constant


class ClassCounts(NamedTuple):
    """Numbers of sites of each class: all in the lower half of a word, those at 1 above."""

    by_word: Words  # [kinds * terms, words of a tile]
    by_chain: Words  # [3, kinds * terms, chains], of states, of proposals, and of flips


@lean
def propose_rows(f, planes_at, x, source, target, words, seeds, seed, changes, summed):
    """Draw the proposals of a tile.

    They are written from byte `target` of `x` on, for the states from byte `source` on. Writes the
    number of flips of each word to `changes`, or adds them if that is `summed`.
    """
    lanes, plane = f.lanes, f.planes.strides[2]
    state = start_pass(lanes, seeds, seed, DECISIONS)
    for at in range(0, 8 * words, 8 * len(lanes)):
        number = count_all(f, x, source, at)
        old, place = load_like(lanes, x, source + at), planes_at + at // BYTES * f.stride
        mask = load_like(lanes, f.masks, at)
        flips, state = decide_lanes(f.planes, place, plane, f.terms, True, old, number, mask, state)
        flips = flips & mask
        store_vector(x, target + at, old ^ flips)
        count = count_bits(flips)
        if summed:
            count = count + load_like(lanes, changes, at)
        store_vector(changes, at, count)


@lean
def count_classes(f, kinds, x, here, compared, words, counts):
    """Count, in each word, the sites of each kind by their number of neighbours at 1.

    Sites are those of the states from byte `here` on; if `compared` is not `here`, only those that
    differ there.
    """
    lanes, size, plane = f.lanes, 8 * f.masks.shape[1], 8 * counts.shape[1]
    for at in range(0, 8 * words, 8 * len(lanes)):
        n0, n1, n2, n3 = count_all(f, x, here, at)
        value, place = load_like(lanes, x, here + at), at
        counted = ~repeat_like(lanes, np.uint64(0))
        if compared != here:
            counted = value ^ load_like(lanes, x, compared + at)
        for kind in range(kinds.shape[0]):
            sites = load_like(lanes, kinds, kind * size + at) & counted
            if f.terms > TERMS[1]:
                high = place + TERMS[1] * plane
                count_eight(counts, high, plane, True, n0, n1, n2, sites & n3, value)
                sites = sites & ~n3
            count_eight(counts, place, plane, f.terms > TERMS[0], n0, n1, n2, sites, value)
            place += f.terms * plane


@lean
def count_eight(counts, at, plane, more, n0, n1, n2, sites, value):
    """Count sites by three bits of their number, which is 4 at most unless there are `more`."""
    count_four(counts, at, plane, n0, n1, sites & ~n2, value)
    if more:
        count_four(counts, at + 4 * plane, plane, n0, n1, sites & n2, value)
    else:
        store_count(counts, at + 4 * plane, sites & n2, value)


@lean
def count_four(counts, at, plane, n0, n1, sites, value):
    store_count(counts, at, sites & ~n1 & ~n0, value)
    store_count(counts, at + plane, sites & ~n1 & n0, value)
    store_count(counts, at + 2 * plane, sites & n1 & ~n0, value)
    store_count(counts, at + 3 * plane, sites & n1 & n0, value)


@lean
def store_count(counts, at, sites, value):
    """Store the number of sites of each word, and of those at 1 in its upper half."""
    store_vector(counts, at, count_bits(sites) + shift_up(count_bits(sites & value), 32))


@lean
def add_words(numbers, by_word, row, chains):
    """Write the numbers of sites of chains, whose rows have `row` words, to `numbers`."""
    for k in range(numbers.shape[0]):
        for c in range(chains):
            number = np.uint64(0)
            for j in range(c * row, (c + 1) * row):
                number += by_word[k, j]
            numbers[k, c] = number


@lean
def sum_classes(sums, table, numbers, chains):
    """Write to `sums` the sums over the sites of chains of the number `table` has for a class."""
    for c in range(chains):
        sums[c] = 0.0
    for k in range(numbers.shape[0]):
        at_0, at_1 = table[k, 0], table[k, 1]  # perhaps infinite
        for c in range(chains):
            ones = numbers[k, c] >> HALF
            zeros = (numbers[k, c] & LOW) - ones
            sums[c] += np.float64(zeros) * at_0 if zeros else 0.0
            sums[c] += np.float64(ones) * at_1 if ones else 0.0


@lean
def copy_words(x, target, source, words):
    """Copy words from byte `source` of `x` to byte `target`."""
    for at in range(0, words // WORDS * BYTES, BYTES):
        store_vector(x, target + at, load_vector(x, source + at))
    for k in range(words // WORDS * WORDS, words):
        x[target // 8 + k] = x[source // 8 + k]


@lean
def draw_levels(levels, seeds, seed, chains):
    """A random word for each chain of a tile."""
    for at in range(0, 8 * chains, BYTES):
        store_vector(levels, at, start_pass(EIGHT, seeds, seed, ACCEPTANCES + at // BYTES)[0])


@kernel
def flip_rows(first, last, adjusted, f, phase, group, rows, x, keys, sums):
    """Advance the chains of the tiles `first <= tile < last`; `phase` is the first step's.

    Chain c is row `rows[c]` of `x`. Tiles have the chains of one group of `group` chains in turn.
    """
    lattice, steps = f.lattice, keys.shape[0]
    memory, size = make_tile(lattice, sums.total.shape[0] > 0), lattice.masks.shape[1]
    counts = make_counts(f, adjusted)
    levels = np.empty((lattice.rows + WORDS - 1) // WORDS * WORDS, np.uint64)
    of_chains = np.zeros((4, lattice.rows))
    here = 8 * lattice.margin
    there = here + 8 * (2 * lattice.margin + size)
    for tile in range(first, last):
        group_index, start, chains, words = find_tile(lattice, tile, group)
        load_tile(memory, lattice, rows[start : start + chains], x)
        for t in range(steps):
            seed = seed_step(memory, keys, t, tile)
            row = group_index * f.period + (phase + t) % f.period
            propose_rows(
                lattice, row * lattice.planes.strides[0], memory.x, here, there, words,
                memory.seeds, seed, memory.changes, not adjusted,
            )  # fmt: skip
            if adjusted:
                draw_levels(levels, memory.seeds, seed, chains)
                sum_sides(f, row, t == 0, memory.x, here, there, chains, counts, of_chains)
                judge_rows(f, memory, here, there, start, chains, counts, of_chains, levels, sums)
            else:
                copy_words(memory.x, here, there, words)
            record_step(memory, lattice, words, sums, start, chains, t, steps)
        store_tile(memory, lattice, rows[start : start + chains], x)
        if not adjusted:
            for c in range(start, start + chains):
                sums.accept[c] += steps
            add_changes(sums.changed, memory, lattice, start, chains)


@kernel
def make_counts(f, adjusted):
    classes = f.kinds.shape[0] * f.lattice.terms if adjusted else 0
    return ClassCounts(
        np.zeros((classes, f.kinds.shape[1]), np.uint64),
        np.zeros((3, classes, f.lattice.rows), np.uint64),
    )


@lean
def sum_row(words, c, row):
    total = np.uint64(0)
    for k in range(c * row, (c + 1) * row):
        total += words[k]
    return np.int64(total)


@lean
def sum_sides(f, row, is_first, x, here, there, chains, counts, of_chains):
    """Write the sums that an acceptance takes to the rows of `of_chains`.

    Rows 0 and 1 are log normalisers at the states, and at the proposals; rows 2 and 3 are sums of
    `excess` over the flips there. Between steps, row 0 is kept, or if tables differ, its counts.
    """
    words = chains * f.lattice.row
    if f.period > 1 and not is_first:
        sum_classes(of_chains[0], f.softplus[row], counts.by_chain[0], chains)
    for k in range(0 if is_first else 1, 4 if f.excess.shape[0] else 2):
        side, compared = (there, here) if k % 2 else (here, there)
        table = f.excess
        if k < 2:
            compared, table = side, f.softplus
        count_classes(f.lattice, f.kinds, x, side, compared, words, counts.by_word)
        numbers = counts.by_chain[min(k, 2)]
        add_words(numbers, counts.by_word, f.lattice.row, chains)
        sum_classes(of_chains[k], table[row], numbers, chains)


@lean
def judge_rows(f, memory, here, there, start, chains, counts, of_chains, levels, sums):
    """Accept the proposals of a tile or reject them.

    The target is quadratic, so log pi(y) - log pi(x) is half the sum over the flips of the gain at
    x minus that at y. It cancels against the halved gains in logits.
    """
    row = f.lattice.row
    for c in range(chains):
        log_ratio = of_chains[0, c] - of_chains[1, c] + of_chains[3, c] - of_chains[2, c]
        level = np.float64(levels[c] >> UNIT_SHIFT) * UNIT_SCALE
        if accepts(start + c, log_ratio, level, sums.accept, sums.invalid):
            of_chains[0, c] = of_chains[1, c]
            if f.period > 1:
                for k in range(counts.by_chain.shape[1]):
                    counts.by_chain[0, k, c] = counts.by_chain[1, k, c]
            sums.changed[start + c] += sum_row(memory.changes, c, row)
            copy_words(memory.x, here + 8 * c * row, there + 8 * c * row, row)
