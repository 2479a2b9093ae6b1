"""Draws from log-probabilities that may be NaN or infinite: the twin of `samplers.conditional`.

A value of unknown (NaN) log-probability is never drawn. Nothing can be drawn if no finite value is
left, or if one is +infinity.
"""

import numpy as np

from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.jit import kernel, reordered


@kernel
def draw(log_probs, weights, uniform):
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
        weights[v] = weight if log_probs[v] > -np.inf else np.float32(0)
    return pick(weights, uniform), unknown


@kernel
def pick(weights, uniform):
    """An index in proportion to `weights`, of which one at least is positive."""
    level, chosen = uniform * total(weights), 0
    for v in range(weights.shape[0]):
        if weights[v] > 0:  # never one of weight 0, even if the sums are rounded
            chosen = v
            level -= weights[v]
            if level < 0:
                break
    return chosen


@reordered
def total(weights):
    """The sum in double precision."""
    result = 0.0
    for v in range(weights.shape[0]):
        result += np.float64(weights[v])
    return result
