"""Decisions about lanes before their numbers of neighbours are known.

Where each lane is decided about in one of several passes, one draw of random numbers serves all of
them: `decide_numbers` compares it with p for each number that a lane may turn out to have, and a
pass chooses among these decisions (`choose_decisions`). They are those of `decisions.decide_lanes`.

Decisions are rows of vectors: for each value and number, the lanes below p in the first planes;
then for each, the lanes that are equal; then those that are equal for any number; then where the
random numbers of the last planes start.
"""

import numpy as np

from latticework.samplers.compiled.bits.decisions import (
    FIRST_PLANES,
    TERMS,
    compare_late,
    draw_vector,
    seed_late,
    select_bits,
)
from latticework.samplers.compiled.bits.vectors import (
    BYTES,
    WORDS,
    has_bits,
    load_like,
    load_vector,
    repeat_like,
    repeat_word,
    store_vector,
    to_word,
)
from latticework.samplers.compiled.jit import lean


@lean
def count_rows(numbers):
    """How many rows the decisions for so many values and numbers have."""
    return 2 * numbers + 2


@lean
def decide_numbers(planes, at, numbers, drawn, rows, where, row, state):
    """Write the decisions of a vector for all values and numbers; returns the generators' state.

    The first planes, from the lowest bit up, are those of each number in turn. `drawn` is room for
    as many vectors. The vector is at byte `where` of the first of `rows`, which are `row` bytes
    long.
    """
    for k in range(FIRST_PLANES):
        u, state = draw_vector(state)
        store_vector(drawn, k * BYTES, u)
    zero = repeat_like(state[0], np.uint64(0))
    ties, end = zero, where + numbers * row
    for n in range(numbers):
        less, equal, first = zero, ~zero, at + n * FIRST_PLANES * BYTES
        for k in range(FIRST_PLANES):
            u = load_like(zero, drawn, k * BYTES)
            t = load_like(zero, planes, first + k * BYTES)
            less, equal = select_bits(t ^ u, t, less), equal & ~(t ^ u)
        store_vector(rows, where + n * row, less)
        store_vector(rows, end + n * row, equal)
        ties = ties | equal
    store_vector(rows, end + numbers * row, ties)
    store_vector(rows, end + (numbers + 1) * row, seed_late(state))
    return state


@lean
def decide_word(across, at, rows, state):
    """`decide_numbers` for a single word: the numbers are words of a vector, eight at most.

    Rows are then a word long, and each eight of them begin a new part.
    """
    less = repeat_word(np.uint64(0))
    equal = ~less
    for k in range(FIRST_PLANES):
        u, state = draw_vector(state)
        t, u = load_vector(across, at + k * BYTES), repeat_word(to_word(u))
        less, equal = select_bits(t ^ u, t, less), equal & ~(t ^ u)
    store_vector(rows, 0, less)
    store_vector(rows, BYTES, equal)
    ties = np.uint64(0) - np.uint64(has_bits(equal))
    rows[2 * WORDS], rows[2 * WORDS + 1] = ties, to_word(seed_late(state))


@lean
def choose_decisions(planes, at, plane, terms, valued, old, number, wanted, rows, where, row, part):
    """The lanes that `decide_lanes` finds, by the decisions that `decide_numbers` wrote.

    The rows of lanes that are equal begin `part` bytes after those of lanes that are below.
    """
    less = choose_rows(rows, where, row, terms, valued, old, number)
    ties = where + 2 * part
    if has_bits(load_like(old, rows, ties) & wanted):
        equal = choose_rows(rows, where + part, row, terms, valued, old, number) & wanted
        late = load_like(old, rows, ties + row)
        less = compare_late(planes, at, plane, terms, valued, old, number, less, equal, late)
    return less


@lean
def choose_rows(rows, at, row, terms, valued, old, number):
    """Each lane's bit of the row of its number, and of its value if that is `valued`."""
    chosen = choose_number(rows, at, row, terms, number)
    if valued:
        chosen = select_bits(old, choose_number(rows, at + terms * row, row, terms, number), chosen)
    return chosen


@lean
def choose_number(rows, at, row, terms, number):
    n0, n1, n2, n3 = number
    chosen, four = choose_four(rows, at, row, n0, n1), 4 * row
    if terms == TERMS[0]:
        return select_bits(n2, load_like(n0, rows, at + four), chosen)
    chosen = select_bits(n2, choose_four(rows, at + four, row, n0, n1), chosen)
    if terms > TERMS[1]:
        low = choose_four(rows, at + 2 * four, row, n0, n1)
        high = choose_four(rows, at + 3 * four, row, n0, n1)
        chosen = select_bits(n3, select_bits(n2, high, low), chosen)
    return chosen


@lean
def choose_four(rows, at, row, n0, n1):
    low = select_bits(n0, load_like(n0, rows, at + row), load_like(n0, rows, at))
    high = select_bits(n0, load_like(n0, rows, at + 3 * row), load_like(n0, rows, at + 2 * row))
    return select_bits(n1, high, low)
