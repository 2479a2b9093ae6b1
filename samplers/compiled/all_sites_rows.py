"""Steps that decide about all sites of a lattice at once, in bits.

In a step, all sites flip independently, with probabilities that depend on their class only: their
kind (`LatticeForm.kind`), their value and the number of their neighbours at 1. Then the whole step
may be rejected. What that takes is a sum over the sites of numbers that depend on their class too.
So the sites of each class are counted, by the bits at 1 of products of planes.
`compiled.all_sites_lattice` has the numbers. The steps of a cycle have a row of them each.

A chain has a row of a tile. The first half of the tile has states, the second one proposals.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.samplers.compiled.bits import TERMS, decide_lanes, draw_vector, start_pass
from latticework.samplers.compiled.jit import kernel, lean, part
from latticework.samplers.compiled.langevin import settle
from latticework.samplers.compiled.lattice_rows import LatticeRows, Words, count_all
from latticework.samplers.compiled.philox import HALF, LOW
from latticework.samplers.compiled.row_tiles import (
    load_tile,
    make_tile,
    record_step,
    seed_step,
    store_tile,
)
from latticework.samplers.compiled.vectors import (
    BYTES,
    WORDS,
    count_bits,
    load_vector,
    repeat_word,
    shift_up,
    store_vector,
)

UNIT_SHIFT, UNIT_SCALE = np.uint64(11), 2.0**-53  # a word as a number in [0, 1)
DECISIONS, ACCEPTANCES = 0, 1  # passes of random numbers


class AllSitesRows(NamedTuple):
    """The numbers that steps read. Planes and tables have a row for each step of a cycle."""

    lattice: LatticeRows
    period: int  # steps of a cycle
    kinds: Words  # [kinds, words of a tile], the sites of each kind
    differences: NDArray[np.int64]  # [., 2], see `count_chain`
    softplus: NDArray[np.float64]  # [rows, kinds * terms, 2], log(1 + exp(logit of the flip))
    excess: NDArray[np.float64]  # the same, logit - gain / 2; no rows if it is a constant


class ClassCounts(NamedTuple):
    """Numbers of sites, `[kinds * terms]`: all in the lower half of a word, those at 1 above."""

    by_word: Words  # [kinds * terms, words of a tile]
    present: Words  # [chains, kinds * terms], by number of neighbours, of the states
    proposed: Words  # the same for a chain's proposal
    flips: Words  # the same for the sites that flip in a chain
    beyond: NDArray[np.float64]  # [chains], what log ratios have besides normalisers


@part
def propose_rows(f, planes_at, x, source, target, words, seeds, seed, changes, summed):
    """Draw the proposals of a tile.

    They are written from byte `target` of `x` on, for the states from byte `source` on. Writes the
    number of flips of each word to `changes`, or adds them if that is `summed`.
    """
    state, plane = start_pass(seeds, seed, DECISIONS), f.planes.strides[2]
    for at in range(0, 8 * words, BYTES):
        number = count_all(f, x, source, at)
        old, place = load_vector(x, source + at), planes_at + at // BYTES * f.stride
        flips, state = decide_lanes(f.planes, place, plane, f.terms, True, old, number, state)
        flips = flips & load_vector(f.masks, at)
        store_vector(x, target + at, old ^ flips)
        count = count_bits(flips)
        if summed:
            count = count + load_vector(changes, at)
        store_vector(changes, at, count)


@part
def count_products(f, kinds, x, here, other, words, counts):
    """Count, in each word, the sites of each kind at which a product of bits is 1.

    The products are the terms of `compiled.bits`. Sites are those of the states from byte `here`
    on; if `other` is not `here`, only those that differ there.
    """
    size, plane = 8 * f.masks.shape[1], 8 * counts.shape[1]
    for at in range(0, 8 * words, BYTES):
        n0, n1, n2, n3 = count_all(f, x, here, at)
        value, place = load_vector(x, here + at), at
        counted = ~repeat_word(np.uint64(0))
        if other != here:
            counted = value ^ load_vector(x, other + at)
        for kind in range(kinds.shape[0]):
            sites = load_vector(kinds, kind * size + at) & counted
            store_counts(counts, place, plane, f.terms, n0, n1, n2, sites, value)
            if f.terms > TERMS[1]:
                high = place + TERMS[1] * plane
                store_counts(counts, high, plane, TERMS[1], n0, n1, n2, sites & n3, value)
            place += f.terms * plane


@lean
def store_counts(counts, at, plane, terms, n0, n1, n2, sites, value):
    """Count the products of three bits in each word."""
    a, b, c = sites & n0, sites & n1, sites & n2
    store_count(counts, at, sites, value)
    store_count(counts, at + plane, a, value)
    store_count(counts, at + 2 * plane, b, value)
    store_count(counts, at + 3 * plane, a & n1, value)
    store_count(counts, at + 4 * plane, c, value)
    if terms > TERMS[0]:
        store_count(counts, at + 5 * plane, c & n0, value)
        store_count(counts, at + 6 * plane, c & n1, value)
        store_count(counts, at + 7 * plane, c & a & n1, value)


@lean
def store_count(counts, at, sites, value):
    """Store the number of sites of each word, and of those at 1 in its upper half."""
    store_vector(counts, at, count_bits(sites) + shift_up(count_bits(sites & value), 32))


@lean
def count_chain(numbers, counts, start, row, differences):
    """The numbers of sites of a chain's row by number of neighbours, from the counts of products.

    A product is 1 at the numbers that have all its bits, so those that have more are subtracted:
    of each pair of `differences`, the second from the first. No result is negative.
    """
    for k in range(counts.shape[0]):
        number = np.uint64(0)
        for j in range(start, start + row):
            number += counts[k, j]
        numbers[k] = number
    for pair in range(differences.shape[0]):
        numbers[differences[pair, 0]] -= numbers[differences[pair, 1]]


@lean
def sum_classes(table, row, numbers):
    """The sum of a row of `table` over sites, by their numbers in each class."""
    total = 0.0
    for k in range(numbers.shape[0]):
        ones = numbers[k] >> HALF
        zeros = (numbers[k] & LOW) - ones
        if zeros:
            total += np.float64(zeros) * table[row, k, 0]
        if ones:
            total += np.float64(ones) * table[row, k, 1]
    return total


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
    state = start_pass(seeds, seed, ACCEPTANCES)
    for at in range(0, 8 * chains, BYTES):
        word, state = draw_vector(state)
        store_vector(levels, at, word)


@kernel
def flip_rows(first, last, adjusted, f, phase, group, rows, x, keys, sums, normaliser):
    """Advance the chains of the tiles `first <= tile < last`; `phase` is the first step's.

    Chain c is row `rows[c]` of `x`. Tiles have the chains of one group of `group` chains in turn.
    `normaliser` `[chains]` is overwritten.
    """
    lattice, steps = f.lattice, keys.shape[0]
    memory, size = make_tile(lattice, sums.total.shape[0] > 0), lattice.masks.shape[1]
    counts = make_counts(f, adjusted)
    levels = np.empty((lattice.rows + WORDS - 1) // WORDS * WORDS, np.uint64)
    here = 8 * lattice.margin
    there = here + 8 * (2 * lattice.margin + size)
    tiles = (group + lattice.rows - 1) // lattice.rows  # in a group
    for tile in range(first, last):
        chains = min(lattice.rows, group - tile % tiles * lattice.rows)
        start, words = tile // tiles * group + tile % tiles * lattice.rows, chains * lattice.row
        load_tile(memory, lattice, rows[start : start + chains], x)
        if adjusted:
            count_products(lattice, f.kinds, memory.x, here, here, words, counts.by_word)
            for c in range(chains):
                numbers, line = counts.present[c], c * lattice.row
                count_chain(numbers, counts.by_word, line, lattice.row, f.differences)
        for t in range(steps):
            seed = seed_step(memory, keys, t, tile)
            row = tile // tiles * f.period + (phase + t) % f.period
            propose_rows(
                lattice, row * lattice.planes.strides[0], memory.x, here, there, words,
                memory.seeds, seed, memory.changes, not adjusted,
            )  # fmt: skip
            if adjusted:
                draw_levels(levels, memory.seeds, seed, chains)
                judge_rows(f, row, memory, here, there, start, chains, counts, levels,
                           normaliser, sums)  # fmt: skip
            else:
                copy_words(memory.x, here, there, words)
            record_step(memory, lattice, words, sums, start, chains, t, steps)
        store_tile(memory, lattice, rows[start : start + chains], x)
        if not adjusted:
            for c in range(chains):
                sums.accept[start + c] += steps
                sums.changed[start + c] += sum_row(memory.changes, c, lattice.row)


@kernel
def make_counts(f, adjusted):
    terms = f.kinds.shape[0] * f.lattice.terms if adjusted else 0
    return ClassCounts(
        np.zeros((terms, f.kinds.shape[1]), np.uint64),
        np.zeros((f.lattice.rows, terms), np.uint64),
        np.zeros(terms, np.uint64),
        np.zeros(terms, np.uint64),
        np.zeros(f.lattice.rows),
    )


@lean
def sum_row(words, c, row):
    total = np.uint64(0)
    for k in range(c * row, (c + 1) * row):
        total += words[k]
    return np.int64(total)


@part
def judge_rows(f, row, memory, here, there, start, chains, counts, levels, normaliser, sums):
    """Accept the proposals of a tile or reject them.

    The target is quadratic, so log pi(y) - log pi(x) is half the sum over the flips of the gain at
    x minus that at y. It cancels against the halved gains in logits.
    """
    lattice, words = f.lattice, chains * f.lattice.row
    beyond = counts.beyond
    for c in range(chains):
        beyond[c] = 0.0
    for side in range(2 if f.excess.shape[0] else 0):
        place, other = (there, here) if side else (here, there)
        count_products(lattice, f.kinds, memory.x, place, other, words, counts.by_word)
        for c in range(chains):
            count_chain(counts.flips, counts.by_word, c * lattice.row, lattice.row, f.differences)
            total = sum_classes(f.excess, row, counts.flips)
            beyond[c] += total if side else -total
    count_products(lattice, f.kinds, memory.x, there, there, words, counts.by_word)
    for c in range(chains):
        numbers, line = counts.proposed, c * lattice.row
        count_chain(numbers, counts.by_word, line, lattice.row, f.differences)
        normaliser[start + c] = sum_classes(f.softplus, row, counts.present[c])
        after = sum_classes(f.softplus, row, numbers)
        level = np.float64(levels[c] >> UNIT_SHIFT) * UNIT_SCALE
        changes = sum_row(memory.changes, c, lattice.row)
        if settle(start + c, True, changes, level, after, normaliser, sums, beyond[c]):
            for k in range(numbers.shape[0]):
                counts.present[c, k] = numbers[k]
            copy_words(memory.x, here + 8 * line, there + 8 * line, lattice.row)
