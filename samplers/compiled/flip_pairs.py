"""GWG-1 and locally balanced on dense quadratic models, one flip a step.

Site i is drawn with probability w_i / Z(x), w_i = exp(gain_i / 2). The gain is first-order in GWG,
and exact in the locally balanced sampler; they differ by the diagonal. In both, the acceptance
probability is min(1, Z(x) / Z(y)). A flip adds one row of the matrix to the gradient.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from latticework.models.forms import PairForm
from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Keys, Sums
from latticework.samplers.compiled.jit import copy, kernel, over_chains, reordered
from latticework.samplers.compiled.philox import AHEAD, fill_steps, unit
from latticework.samplers.compiled.running_sums import finish, fresh, leave, record_chain
from latticework.samplers.compiled.sites import memory_of, renew, renewals
from latticework.samplers.gwg import GWG

GROUP = 32  # weights whose sum is kept, so that a draw looks at few numbers
LARGEST = 700.0  # logarithm of a ratio of Z: a larger one would be infinite, and accepts as well


class PairFlipState(NamedTuple):
    x: Tensor  # [chains, sites]
    gradient: Tensor  # [chains, sites]


@dataclass(frozen=True)
class PairFlipTwin(CompiledSampler):
    def start(self, x: Tensor, form: PairForm) -> PairFlipState:
        return PairFlipState(x, memory_of(form, x))

    def run(self, state: PairFlipState, form: PairForm, keys: Keys, sums: Sums) -> PairFlipState:
        x, gradient = state.x.numpy(), state.gradient.numpy()
        square = np.float32((form.high - form.low) ** 2)
        beyond = np.zeros_like(form.diagonal) if isinstance(self.sampler, GWG) else form.diagonal
        work = 2.0 * x.size * len(keys)
        over_chains(flip, len(x), work, form, beyond * square, x, gradient, keys, sums)
        return state


@kernel
def flip(first, last, form, beyond, x, gradient, keys, sums):
    """`beyond` is what the gains have beyond the first order."""
    steps, sites, matrix = keys.shape[0], x.shape[1], form.matrix
    low, high = np.float32(form.low), np.float32(form.high)
    both, mask = low + high, renewals(sites)
    words = np.empty((4, AHEAD), np.uint32)
    accept, changed, invalid = sums.accept, sums.changed, sums.invalid
    total, since = sums.total, fresh(sums, first, last, sites)
    padded = (sites + GROUP - 1) // GROUP * GROUP
    weights, after = np.zeros(padded, np.float32), np.zeros(padded, np.float32)
    groups, proposed = np.empty(padded // GROUP), np.empty(padded // GROUP)
    row, moved = np.empty(sites, np.float32), np.empty(sites, np.float32)
    for c in range(first, last):
        copy(row, x[c])
        copy(moved, gradient[c])
        top, here = weigh(weights, groups, row, moved, beyond, both)
        for t in range(steps):
            now = t % AHEAD
            if now == 0:
                fill_steps(words, keys[t : t + AHEAD], c, 0)
            if keys[t] & mask == 0:
                renew(form, x, gradient, c)
                top, here = weigh(weights, groups, row, gradient[c], beyond, both)
            probability = 0.0
            if np.isfinite(here) and np.isfinite(top):
                i = draw(weights, groups, unit(words[0, now]) * here, sites)
                old = row[i]
                new = low if old == high else high
                step = new - old
                for j in range(sites):
                    moved[j] = gradient[c, j] + step * matrix[i, j]
                row[i] = new
                new_top, there = weigh(after, proposed, row, moved, beyond, both)
                ratio = here / there * np.exp(min(np.float64(top - new_top), LARGEST))
                if np.isfinite(ratio):
                    probability = min(1.0, ratio)
                else:
                    invalid[c] += 1
                if unit(words[1, now]) < probability:
                    changed[c] += 1
                    leave(total, since, first, c, i, old, t)
                    x[c, i] = row[i]
                    gradient[c] = moved
                    weights, after, groups, proposed = after, weights, proposed, groups
                    top, here = new_top, there
                else:
                    row[i] = old
            else:
                invalid[c] += 1
            accept[c] += probability
            record_chain(sums.trace, x, c, t - steps)
    finish(sums, since, first, x, steps)


@reordered
def weigh(weights, groups, x, gradient, beyond, both):
    """The weights exp((gain - largest gain) / 2), their sums by group, half the largest gain, Z."""
    sites = x.shape[0]
    top = np.float32(-np.inf)
    for i in range(sites):
        weights[i] = ((both - x[i] - x[i]) * gradient[i] + beyond[i]) * np.float32(0.5)
    for i in range(sites):
        top = max(top, weights[i])
    for i in range(sites):
        weights[i] = exp32(weights[i] - top)
    total = 0.0
    for g in range(groups.shape[0]):
        part = np.float32(0)
        for i in range(g * GROUP, (g + 1) * GROUP):
            part += weights[i]
        groups[g] = part
        total += groups[g]
    return top, total


@kernel
def draw(weights, groups, level, sites):
    """The site at which the cumulative weights pass `level`."""
    g = 0
    while g < groups.shape[0] - 1 and level >= groups[g]:
        level -= groups[g]
        g += 1
    i, end = g * GROUP, min((g + 1) * GROUP, sites) - 1
    while i < end and level >= weights[i]:
        level -= weights[i]
        i += 1
    return i
