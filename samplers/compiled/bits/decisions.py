"""Random bits and decisions about 512 lanes at once, or about the first of them.

A lane is decided to be 1 with a probability p of 40 bits: if a random number u of 40 bits is below
p 2^40. So P(1) is p rounded to a multiple of 2^-40, and 1 becomes 1 - 2^-40. The twelve highest
bits of all lanes are compared first, from the lowest of them up. Lanes that are equal in all of
them, one of 4,096, compare the others from the highest down, until all are decided.

p depends on the number n of neighbours at 1, and perhaps on the present value of the lane. Each of
its bits is a polynomial over GF(2) of the bits of n, whose coefficients are 0 or 1 in every lane:
the terms are 1, n0, n1, n0 n1, then the same times n2, and all of these times n3. That is one
instruction a term.

Bits are those of xoshiro256++ (D. Blackman and S. Vigna, "Scrambled linear pseudorandom number
generators", ACM TOMS 2021), eight generators side by side. Their seed is two words by Philox from
the key of the step and the number of the block of chains. SplitMix64 makes of it the states at the
start of each pass. The words of the last 28 planes come from the
generators' state by SplitMix64's mixing function and leave the state alone. So the numbers of a
lane depend on the key, on the block, on the pass and on its place, but not on other lanes.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.samplers.compiled.bits.vectors import (
    BYTES,
    has_bits,
    load_like,
    load_vector,
    multiply_words,
    repeat_like,
    repeat_word,
    shift_down,
    shift_up,
    store_vector,
)
from latticework.samplers.compiled.jit import lean
from latticework.samplers.compiled.philox import HALF, fill_lanes

FIRST_PLANES, PLANES = 12, 40  # bits of p that all lanes compare, and all its bits
LATE_PLANES = 4  # planes after the first that are compared at once: a divisor of their number
CERTAIN_PLANE = PLANES  # the plane of lanes at 0 that change for certain; the next: lanes at 1
STORED_PLANES = PLANES + 2
TERMS = (5, 8, 16)  # a polynomial has so many, one for each number of neighbours
MAX_NEIGHBOURS = 15
SEED_BYTES = 256  # state of eight generators
PAST_CALLS = 16  # calls of Philox for one seed of perfect draws
SEEDS, PAST_SEEDS = 3, 4  # streams
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
LANE_STEP = np.uint64(0xDA942042E4DD58B5)  # from lane to lane of a seed; GOLDEN: from pass to pass
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
Words = NDArray[np.uint64]
LANE_STEPS = LANE_STEP * np.arange(SEED_BYTES // 8, dtype=np.uint64)


def count_terms(neighbours: int) -> int:
    """How many terms polynomials of the numbers 0 to `neighbours` have."""
    return next(terms for terms in TERMS if neighbours < terms)


def terms_of(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The coefficients of polynomials with the given values, bits `[..., numbers]`."""
    values = values.copy()
    for bit in (1, 2, 4, 8):
        for number in range(values.shape[-1]):
            if number & bit:
                values[..., number] ^= values[..., number - bit]
    return values


class Chances(NamedTuple):
    """The probabilities of decisions. The last axis is n; numbers that no lane has are filled up.

    Two values mean that they differ by the present value of a lane. `certain` are lanes at 0 and at
    1 that flip whatever is decided.
    """

    probability: NDArray[np.float64]  # [kinds of lanes, values, terms]; NaN is taken as 0
    certain: NDArray[np.bool_]  # [kinds, 2, terms]


def bit_planes(chances: Chances, by_number: bool = False) -> Iterator[NDArray[np.uint8]]:
    """The coefficients of each plane that kernels read, `[kinds, values * terms]`.

    The first planes hold the bits `by_number` themselves if that is wanted.
    """
    probability, certain = chances
    scaled = np.rint(np.clip(np.nan_to_num(probability), 0, 1) * 2.0**PLANES)
    whole = scaled.clip(max=2**PLANES - 1).astype(np.int64)
    for plane in range(PLANES):
        terms = (whole >> (PLANES - 1 - plane) & 1).astype(np.uint8)
        if not by_number or plane >= FIRST_PLANES:
            terms = terms_of(terms)
            terms[:, 1:] ^= terms[:, :1]
        yield terms.reshape(len(terms), -1)
    for value in range(2):
        terms = np.zeros(probability.shape, np.uint8)
        terms[:, 0] = terms_of(certain[:, value].astype(np.uint8))
        yield terms.reshape(len(terms), -1)


# Random bits.


@lean
def fill_seeds(seeds, keys, block, counters, lanes):
    """The generators' seeds for each of `keys` and for a block of chains: `[keys, 4, 8]`, flat.

    `counters` and `lanes` are room for a word a key.
    """
    for k in range(keys.shape[0]):
        counters[k], lanes[k] = np.uint64(block) << HALF, np.uint64(keys[k])
    fill_lanes(seeds, lanes, counters, keys.shape[0], SEEDS)
    for k in range(keys.shape[0] - 1, -1, -1):  # backwards, as words are read where seeds go
        first, second = repeat_word(seeds[2 * k]), repeat_word(seeds[2 * k + 1])
        for at in range(0, SEED_BYTES, BYTES):
            word = first if at < SEED_BYTES // 2 else second
            store_vector(seeds, k * SEED_BYTES + at, word + load_vector(LANE_STEPS, at))


@lean
def fill_past_seeds(seeds, key, time, count, block, counters, lanes):
    """Seeds for the times -time, -time + 1, ... (`count` of them), all of one key and by Philox.

    `counters` and `lanes` are room for 16 words a time.
    """
    calls = PAST_CALLS * count
    for k in range(calls):
        index = PAST_CALLS * (time - k // PAST_CALLS) + k % PAST_CALLS
        counters[k] = np.uint64(index) | (np.uint64(block) << HALF)
        lanes[k] = np.uint64(key)
    fill_lanes(seeds, lanes, counters, calls, PAST_SEEDS)


@lean
def start_pass(lanes, seeds, at, turn):
    """The generators' states at the start of pass `turn` of the step whose seed is at byte `at`.

    There are as many as `lanes`, the first of the eight.
    """
    shift = repeat_like(lanes, GOLDEN * np.uint64(turn))
    a = mix_words(load_like(lanes, seeds, at) + shift)
    b = mix_words(load_like(lanes, seeds, at + BYTES) + shift)
    c = mix_words(load_like(lanes, seeds, at + 2 * BYTES) + shift)
    d = mix_words(load_like(lanes, seeds, at + 3 * BYTES) + shift)
    return a, b, c, d


@lean
def mix_words(x):
    """Each word by the last function of SplitMix64."""
    x = multiply_words(x ^ shift_down(x, 30), MIX_1)
    x = multiply_words(x ^ shift_down(x, 27), MIX_2)
    return x ^ shift_down(x, 31)


@lean
def rotate_words(x, bits):
    """Each word with its highest `bits` moved to its low end."""
    return shift_up(x, bits) | shift_down(x, 64 - bits)


@lean
def draw_vector(state):
    """512 random bits, and the state of xoshiro256++ after that."""
    a, b, c, d = state
    drawn = rotate_words(a + d, 23) + a
    e = shift_up(b, 17)
    c, d = c ^ a, d ^ b
    return drawn, (a ^ d, b ^ c, c ^ e, rotate_words(d, 45))


# Decisions.


@lean
def select_bits(where, a, b):
    return (where & a) | (~where & b)


@lean
def add_bit(n0, n1, n2, x):
    """The bits of a number modulo 8 in each lane, and of one more where x is 1."""
    carry = n0 & x
    return n0 ^ x, n1 ^ carry, n2 ^ (n1 & carry)


@lean
def sum_terms(planes, at, terms, n0, n1, n01, n2):
    """The polynomial of three bits whose coefficients are in `planes` from byte `at` on."""
    t = load_like(n0, planes, at) ^ (load_like(n0, planes, at + 64) & n0)
    t = t ^ (load_like(n0, planes, at + 128) & n1)
    t = t ^ (load_like(n0, planes, at + 192) & n01)
    s = load_like(n0, planes, at + 256)
    if terms > TERMS[0]:
        s = s ^ (load_like(n0, planes, at + 320) & n0)
        s = s ^ (load_like(n0, planes, at + 384) & n1)
        s = s ^ (load_like(n0, planes, at + 448) & n01)
    return t ^ (s & n2)


@lean
def evaluate_terms(planes, at, terms, number):
    """The polynomial of all four bits of a number of neighbours."""
    n0, n1, n2, n3 = number
    n01 = n0 & n1
    t = sum_terms(planes, at, terms, n0, n1, n01, n2)
    if terms > TERMS[1]:
        t = t ^ (n3 & sum_terms(planes, at + TERMS[1] * BYTES, terms, n0, n1, n01, n2))
    return t


@lean
def evaluate_plane(planes, at, terms, valued, old, number):
    """A plane's bit in each lane. Only if `valued` does it depend on the lanes' value, `old`."""
    t = evaluate_terms(planes, at, terms, number)
    if valued:
        t = t ^ (old & evaluate_terms(planes, at + terms * BYTES, terms, number))
    return t


@lean
def compare_first(planes, at, plane, terms, valued, old, number, state):
    """`decide_lanes` by the first planes: the lanes below in these, and the equal ones."""
    less = repeat_like(old, np.uint64(0))
    equal = ~less
    for k in range(FIRST_PLANES):
        u, state = draw_vector(state)
        place = at + (FIRST_PLANES - 1 - k) * plane
        t = evaluate_plane(planes, place, terms, valued, old, number)
        differ = t ^ u
        less = select_bits(differ, t, less)
        equal = equal & ~differ
    return less, equal, state


@lean
def decide_lanes(planes, at, plane, terms, valued, old, number, wanted, state):
    """1 in the lanes whose random number is below their p, and the generators' state after that.

    Planes begin at byte `at` and are `plane` bytes apart. Lanes that are not `wanted` may be wrong.
    """
    # The usual cases have loops of their own, without branches.
    if terms > TERMS[1]:
        less, equal, state = compare_first(planes, at, plane, terms, valued, old, number, state)
    elif terms > TERMS[0] and valued:
        less, equal, state = compare_first(planes, at, plane, TERMS[1], True, old, number, state)
    elif terms > TERMS[0]:
        less, equal, state = compare_first(planes, at, plane, TERMS[1], False, old, number, state)
    elif valued:
        less, equal, state = compare_first(planes, at, plane, TERMS[0], True, old, number, state)
    else:
        less, equal, state = compare_first(planes, at, plane, TERMS[0], False, old, number, state)
    equal = equal & wanted
    if has_bits(equal):
        late = seed_late(state)
        less = compare_late(planes, at, plane, terms, valued, old, number, less, equal, late)
    return less, state


@lean
def seed_late(state):
    """The start of the random numbers of the last planes, from the generators' state."""
    return state[1] + rotate_words(state[2], 32)


@lean
def compare_late(planes, at, plane, terms, valued, old, number, less, equal, late):
    """`decide_lanes` by the last planes, for the lanes that are `equal` in the first."""
    k = FIRST_PLANES
    while k < PLANES and has_bits(equal):
        for _ in range(LATE_PLANES):  # so that the loop seldom turns twice
            late = late + repeat_like(late, GOLDEN)
            u = mix_words(late)
            t = evaluate_plane(planes, at + k * plane, terms, valued, old, number)
            less = less | (equal & t & ~u)
            equal = equal & ~(t ^ u)
            k += 1
    return less


@lean
def decide_both(planes, at, plane, terms, low, high, state):
    """`decide_lanes` for two numbers of neighbours by the same random numbers."""
    zero = repeat_like(state[0], np.uint64(0))
    less, more, ties_low, ties_high = zero, zero, ~zero, ~zero
    for k in range(FIRST_PLANES):
        u, state = draw_vector(state)
        place = at + (FIRST_PLANES - 1 - k) * plane
        s, t = evaluate_terms(planes, place, terms, low), evaluate_terms(planes, place, terms, high)
        less, more = select_bits(s ^ u, s, less), select_bits(t ^ u, t, more)
        ties_low, ties_high = ties_low & ~(s ^ u), ties_high & ~(t ^ u)
    if has_bits(ties_low | ties_high):
        k, v = FIRST_PLANES, seed_late(state)
        while k < PLANES and has_bits(ties_low | ties_high):
            v = v + repeat_like(v, GOLDEN)
            u, place = mix_words(v), at + k * plane
            s, t = (
                evaluate_terms(planes, place, terms, low),
                evaluate_terms(planes, place, terms, high),
            )
            less, more = less | (ties_low & s & ~u), more | (ties_high & t & ~u)
            ties_low, ties_high = ties_low & ~(s ^ u), ties_high & ~(t ^ u)
            k += 1
    return less, more, state


@lean
def update_lanes(flips, planes, at, plane, terms, valued, old, number, wanted, state):
    """The new values, and the generators' state. What is decided is the value, or if it `flips`."""
    new, state = decide_lanes(planes, at, plane, terms, valued, old, number, wanted, state)
    if flips:
        new = flip_lanes(planes, at, plane, terms, old, number, new)
    return new, state


@lean
def flip_lanes(planes, at, plane, terms, old, number, flips):
    """The values of lanes that flip, besides those that flip for certain."""
    rise = evaluate_terms(planes, at + CERTAIN_PLANE * plane, terms, number)
    fall = evaluate_terms(planes, at + (CERTAIN_PLANE + 1) * plane, terms, number)
    return old ^ (flips | select_bits(old, fall, rise))
