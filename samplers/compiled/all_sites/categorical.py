"""How one-hot sites that all decide at once are drawn: by DULA, DMALA and ACS.

The state keeps the cumulative probabilities of each site's values at x as whole numbers of random
words, so each value has its probability to within 2^-31. Arrays over sites and values have the
values first, `[q * sites]`: sites have few values, and loops over sites use vector registers.
"""

import math

import numpy as np

from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.jit import kernel, reordered

ALL_WORDS = np.int32(2**31 - 1)  # words of a cumulative probability of 1
USED_WORDS = np.float32(2**31 - 2**9)  # about as many, so that rounding does not reach 2^31
MAX_FACTORS = 64  # sites whose normalisers, from 1 to q, are multiplied before a logarithm is taken


@kernel
def draw_sites(y, marks, ladder, words, x, level):
    """Draw each site's value (its own if the probabilities are NaN), and mark those that change.

    `level` `[sites]` is overwritten.
    """
    sites, last = x.shape[0], ladder.shape[0] - x.shape[0]
    for i in range(sites):
        level[i] = min(np.int32(words[i] >> np.uint32(1)), ALL_WORDS - np.int32(1))
    y[:] = 0
    for v in range(0, last, sites):
        count_rungs(y, level, ladder[v : v + sites])
    valid = ladder[last:]
    for i in range(sites):
        y[i] = y[i] if valid[i] else x[i]
        marks[i] = np.uint8(y[i] != x[i])


@kernel
def count_rungs(y, level, rung):
    for i in range(y.shape[0]):
        y[i] += np.int32(level[i] >= rung[i])


@kernel
def weigh(ladder, fields, x, price, balance, room, counts):
    """The rungs of each site's values at `x`; returns the log normaliser.

    A word of 31 bits below rung v, and not below rung v - 1, draws value v. So values have whole
    numbers of words, the nearest to their probabilities. The likeliest value has those that are
    left. The last value needs no rung; in its place is 1, or 0 where the probabilities are NaN.

    Logits are relative to that of staying. `fields` `[q * sites]`, `room` `[3, sites]` and `counts`
    `[2, sites]` are overwritten.
    """
    sites, size, result = x.shape[0], ladder.shape[0], 0.0
    (stays, top, total), (below, unused) = (room[0], room[1], room[2]), (counts[0], counts[1])
    for i in range(sites):
        stays[i] = fields[np.uint32(x[i] * sites + i)]
    top[:], total[:], below[:] = 0, 0, 0
    for a in range(0, size, sites):
        write_logits(fields[a : a + sites], stays, x, a // sites, price, balance, top)
    for a in range(0, size, sites):
        write_weights(fields[a : a + sites], top, total)
    write_scales(stays, total)
    for a in range(0, size, sites):
        write_rungs(ladder[a : a + sites], fields[a : a + sites], stays, below)
    for i in range(sites):
        unused[i] = ALL_WORDS - below[i]
        below[i] = 0
    for a in range(0, size - sites, sites):
        lift_rungs(ladder[a : a + sites], fields[a : a + sites], unused, below)
    for i in range(sites):
        ladder[size - sites + i] = np.int32(total[i] == total[i])
    for a in range(0, sites, MAX_FACTORS):
        b = min(a + MAX_FACTORS, sites)
        product, tops = multiply_and_sum(total[a:b], top[a:b])
        result += math.log(product) + tops
    return result


@kernel
def write_logits(fields, stays, x, v, price, balance, top):
    for i in range(fields.shape[0]):
        gain = balance * (fields[i] - stays[i])
        fields[i] = gain if x[i] == np.int32(v) else gain - price[i]
        top[i] = max(top[i], fields[i])


@reordered
def write_weights(fields, top, total):
    for i in range(fields.shape[0]):
        weight = exp32(fields[i] - top[i])
        fields[i] = weight
        total[i] += weight


@kernel
def write_scales(out, total):
    for i in range(out.shape[0]):
        out[i] = USED_WORDS / total[i]


@kernel
def write_rungs(rung, weight, scale, below):
    for i in range(rung.shape[0]):
        below[i] += np.int32(weight[i] * scale[i] + np.float32(0.5))
        rung[i] = below[i]


@kernel
def lift_rungs(rung, weight, unused, passed):
    """Add the words that are left from the first of the likeliest values on."""
    for i in range(rung.shape[0]):
        passed[i] |= -np.int32(weight[i] == np.float32(1))
        rung[i] += unused[i] & passed[i]


@reordered
def multiply_and_sum(total, top):
    product, tops = 1.0, 0.0
    for i in range(total.shape[0]):
        product *= np.float64(total[i])
        tops += np.float64(top[i])
    return product, tops
