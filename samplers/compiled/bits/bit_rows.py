"""Rows of bits: states of chains as words, a bit a site, and sums of such states over steps.

A sum over steps is kept in planes: bit k of each site's sum is in plane k. Three planes count seven
steps, which takes a few instructions a vector. Then they are added to sixteen planes, and these
once a call to the sums in single precision.
"""

import numpy as np
from numpy.typing import NDArray

from latticework.samplers.compiled.bits.vectors import (
    BYTES,
    add_where,
    load_vector,
    pack_floats,
    repeat_word,
    store_vector,
    unpack_word,
)
from latticework.samplers.compiled.jit import lean

WORD_BITS = 64
LOW_PLANES, HIGH_PLANES = 3, 16
STEPS_OF_LOW, STEPS_OF_HIGH = 7, 65534  # counted by them; the latter is a multiple of the former


def pack_flags(values: NDArray) -> NDArray[np.uint64]:
    """Bits `[..., sites]` as words `[..., words of a row]`."""
    packed = np.packbits(values.astype(np.uint8), axis=-1, bitorder="little")
    spare = [(0, 0)] * (packed.ndim - 1) + [(0, -packed.shape[-1] % 8)]
    return np.ascontiguousarray(np.pad(packed, spare)).view(np.uint64)


@lean
def pack_row(words, at, x, c):
    """Write row `c` of the states `x`, 0.0 or 1.0, to the words from number `at` on."""
    sites = x.shape[1]
    for k in range(sites // WORD_BITS):
        words[at + k] = pack_floats(x, (c * sites + WORD_BITS * k) * 4)
    if sites % WORD_BITS:
        word = np.uint64(0)
        for i in range(sites // WORD_BITS * WORD_BITS, sites):
            word |= np.uint64(x[c, i] != 0) << np.uint64(i % WORD_BITS)
        words[at + sites // WORD_BITS] = word


@lean
def unpack_row(x, c, words, at):
    """Write the words from number `at` on to row `c` of `x`, which has floats or bytes."""
    sites = x.shape[1]
    for k in range(sites // WORD_BITS):
        unpack_word(x, (c * sites + WORD_BITS * k) * x.itemsize, words[at + k])
    for i in range(sites // WORD_BITS * WORD_BITS, sites):
        x[c, i] = words[at + sites // WORD_BITS] >> np.uint64(i % WORD_BITS) & np.uint64(1)


@lean
def add_row(total, c, words, at, value):
    """Add `value` to row `c` of `total` where a bit of the words from number `at` on is 1."""
    sites = total.shape[1]
    for k in range(sites // WORD_BITS):
        add_where(total, (c * sites + WORD_BITS * k) * 4, words[at + k], value)
    for i in range(sites // WORD_BITS * WORD_BITS, sites):
        bit = words[at + sites // WORD_BITS] >> np.uint64(i % WORD_BITS) & np.uint64(1)
        total[c, i] += value * np.float32(bit)


@lean
def count_states(low, at, x, here, size):
    """Add the bits of `x` from byte `here` on to the low planes from byte `at` on."""
    plane = 8 * low.shape[1]
    for place in range(0, size, BYTES):
        v, p = load_vector(x, here + place), at + place
        for _ in range(LOW_PLANES):
            n = load_vector(low, p)
            store_vector(low, p, n ^ v)
            v = n & v
            p += plane


@lean
def carry_to_high(high, low, at, size):
    """Add the low planes to the high ones, from byte `at` on, and set them to 0."""
    plane, zero = 8 * low.shape[1], repeat_word(np.uint64(0))
    for place in range(at, at + size, BYTES):
        carry = zero
        for k in range(HIGH_PLANES):
            p = place + k * plane
            if k < LOW_PLANES:
                v = load_vector(low, p)
                store_vector(low, p, zero)
                carry = add_plane(high, p, v, carry)
            else:
                carry = add_plane(high, p, zero, carry)


@lean
def add_plane(planes, at, x, carry):
    """Add two bits to those of a plane, at byte `at`; returns the carry to the next plane."""
    n = load_vector(planes, at)
    store_vector(planes, at, n ^ x ^ carry)
    return (n & x) | (carry & (n ^ x))
