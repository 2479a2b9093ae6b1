"""Random numbers of the compiled kernels: Philox4x32-10.

J. Salmon, M. Moraes, R. Dror and D. Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
Decisions by one word meet a probability to within 2^-32: to 0.2 % at 10^-7. Those of
`compiled.bits.decisions` meet it to within 2^-40.

The generator has no memory. A 64-bit key and a 128-bit counter give four 32-bit words. The run's
generator draws one key for each step, or one for the run (`compiled.run_words`). The counter holds
the number of the chain, so each chain has its own stream, and its numbers do not depend on threads
or on how many steps a call makes.

    counter    (index of the four words, chain, stream, upper half of the index)
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator

from latticework.samplers.compiled.jit import inlined, kernel, lean

MULTIPLIER_0, MULTIPLIER_2 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL_0, WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
HALF, LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
ROUNDS = 10
SCALE = 2.0**-32
SHARED_CHAIN = np.uint32(0xFFFFFFFF)  # in place of a chain: numbers that all chains share
STEPS_AHEAD = 16  # steps whose numbers are drawn together, so that vector registers are used


def step_keys(steps: int, rng: Generator) -> NDArray[np.int64]:
    """One key for each of the next `steps` steps. Two calls give what one call would."""
    return torch.empty(steps, dtype=torch.int64).random_(-(2**63), None, generator=rng).numpy()


@inlined
def philox(c0, c1, c2, key):
    """Four words for the counter (lower half of c0, c1, c2, upper half of c0).

    Words are computed in the lower halves of 64 bits: every vector unit multiplies those.
    """
    c0, c1, c2, c3 = np.uint64(c0) & LOW, np.uint64(c1), np.uint64(c2), np.uint64(c0) >> HALF
    k0, k1 = key & LOW, key >> HALF
    for _ in range(ROUNDS):
        p0, p2 = MULTIPLIER_0 * c0, MULTIPLIER_2 * c2
        c0, c1, c2, c3 = (p2 >> HALF) ^ c1 ^ k0, p2 & LOW, (p0 >> HALF) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + WEYL_0) & LOW, (k1 + WEYL_1) & LOW
    return np.uint32(c0), np.uint32(c1), np.uint32(c2), np.uint32(c3)


@kernel
def fill_step(out, key, chain, stream):
    """Fill `out`, a multiple of 4 words, for one chain and step."""
    key, chain, stream = np.uint64(key), np.uint32(chain), np.uint32(stream)
    quarter = out.shape[0] // 4
    for i in range(quarter):
        a, b, c, d = philox(np.uint32(i), chain, stream, key)
        out[i], out[quarter + i], out[2 * quarter + i], out[3 * quarter + i] = a, b, c, d


@lean
def fill_sites(out, stride, chains, sites, first, chain, key):
    """A word for each site and for `chains` chains from `chain` on: `out` `[sites, stride]`, flat.

    Four sites of a chain share a call, and the first ones have the index `first`. `out` has room
    for a multiple of four sites.
    """
    key, first, row = np.uint64(key), np.uint64(first), np.uint64(stride)
    for four in range(np.uint64((sites + 3) // 4)):
        at = np.uint64(4) * four * row
        for c in range(np.uint64(chains)):
            a, b, d, e = philox(first + four, np.uint64(chain) + c, np.uint32(0), key)
            out[at + c], out[at + row + c] = a, b
            out[at + np.uint64(2) * row + c], out[at + np.uint64(3) * row + c] = d, e


@kernel
def fill_units(out, keys):
    """Fill `out` with float64 numbers in [0, 1), an even number of them for each of `keys`."""
    half = out.shape[0] // keys.shape[0] // 2
    for row in range(keys.shape[0]):
        first, key = row * 2 * half, np.uint64(keys[row])
        for i in range(half):
            a, b, c, d = philox(np.uint32(i), np.uint32(0), np.uint32(0), key)
            out[first + i], out[first + half + i] = unit_of(a, b), unit_of(c, d)


@kernel
def fill_steps(out, keys, chain, stream):
    """Four words a step for one chain: `out` `[4, steps ahead]`; `keys` may hold fewer steps."""
    chain, stream = np.uint32(chain), np.uint32(stream)
    for t in range(keys.shape[0]):
        a, b, c, d = philox(np.uint32(0), chain, stream, np.uint64(keys[t]))
        out[0, t], out[1, t], out[2, t], out[3, t] = a, b, c, d


@lean
def fill_lanes(out, keys, counters, lanes, stream):
    """Two words of 64 bits a lane: `out` `[2 * lanes]`, each lane with its own key and counter.

    `counters` hold the index in their lower half and the chain in the upper one.
    """
    stream = np.uint32(stream)
    for j in range(lanes):
        a, b, c, d = philox(counters[j] & LOW, counters[j] >> HALF, stream, keys[j])
        out[2 * j] = np.uint64(a) | (np.uint64(b) << HALF)
        out[2 * j + 1] = np.uint64(c) | (np.uint64(d) << HALF)


@inlined
def unit_of(high, low):
    """Two words as a uniform number in [0, 1), a multiple of 2^-53."""
    return (np.float64(high >> np.uint32(5)) * 2.0**26 + np.float64(low >> np.uint32(6))) * 2.0**-53


@inlined
def unit(word):
    """A word as a uniform number in (0, 1), float64."""
    return (np.float64(word) + 0.5) * SCALE


@inlined
def is_below(word, probability):
    """True with a probability in float32, to within 2^-32 if it is at most 1/2; False for NaN.

    Above 1/2, decide about the opposite: float32 numbers near 1 are coarse.
    """
    return np.float32(word) + np.float32(0.5) < probability * np.float32(2.0**32)


def thresholds(probability: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Words below these have the given probabilities, to within 2^-32; NaN gives 0."""
    scaled = np.nan_to_num(probability * 2.0**32)
    return np.clip(scaled, 0, 2**32 - 1).astype(np.uint32)
