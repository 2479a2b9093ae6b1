"""Draws by inversion, and decisions with exact probabilities, as the kernels share them.

A value of unknown (NaN) log-probability is never drawn. Nothing can be drawn if no finite value is
left, or if one is +infinity.
"""

import math

import numpy as np

from latticework.models.forms import IMPOSSIBLE
from latticework.samplers.compiled.arithmetic import exp32, sigmoid32
from latticework.samplers.compiled.jit import inlined, kernel, lean, reordered
from latticework.samplers.compiled.philox import is_below


@inlined
def draw_bit(word, logit):
    """True with probability sigmoid(logit); the rarer of both outcomes to within 2^-32."""
    return is_below(word, sigmoid32(-abs(logit))) != (logit > 0)


@kernel
def accepts(c, log_ratio, uniform, accept, invalid):
    """Metropolis-Hastings. A ratio of NaN or infinity rejects."""
    if log_ratio < np.inf:
        probability = math.exp(min(log_ratio, 0.0))
        accept[c] += probability
        return uniform < probability
    invalid[c] += 1
    return False


@lean
def pick_index(weights, start, stop, level):
    """The index from `start` on at which the running sum of the weights passes `level`.

    Also returns what is left of `level` before it. An index of weight 0 is picked only if all
    weights are 0, even where sums are rounded.
    """
    chosen, left = start, level
    for v in range(start, stop):
        if weights[v] > 0:
            chosen, left = v, level
            level -= weights[v]
            if level < 0:
                break
    return chosen, left


@reordered
def sum_of(weights):
    """The sum in double precision."""
    result = 0.0
    for v in range(weights.shape[0]):
        result += np.float64(weights[v])
    return result


@kernel
def sum_blocks(weights, sums):
    """The sums of blocks of equal width."""
    width = weights.shape[0] // sums.shape[0]
    for b in range(sums.shape[0]):
        sums[b] = sum_of(weights[b * width : (b + 1) * width])


@kernel
def draw_by_blocks(weights, sums, total, uniform):
    """An index in proportion to its weight: a block by `sums`, of sum `total`, then a site."""
    width = weights.shape[0] // sums.shape[0]
    block, level = pick_index(sums, 0, sums.shape[0], uniform * total)
    site, _ = pick_index(weights, block * width, (block + 1) * width, level)
    return site


@kernel
def draw_index(log_probs, weights, uniform):
    """The index of a value (-1 if nothing can be drawn), and whether some value is unknown.

    `log_probs` `[values]` are up to a constant; `weights` `[values]`, float32, is overwritten;
    `uniform` is a number in (0, 1).
    """
    top, unknown = -np.inf, False
    for v in range(log_probs.shape[0]):
        unknown |= np.isnan(log_probs[v])
        if log_probs[v] > top:
            top = log_probs[v]
    if np.isinf(top):
        return -1, unknown
    for v in range(log_probs.shape[0]):
        weight = exp32(np.float32(log_probs[v] - top))
        weights[v] = weight if log_probs[v] > IMPOSSIBLE else np.float32(0)
    return pick_index(weights, 0, weights.shape[0], uniform * sum_of(weights))[0], unknown
