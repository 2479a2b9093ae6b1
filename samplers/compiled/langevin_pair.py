"""DULA and DMALA on dense pairwise models.

The log-probability is quadratic, so Eq. (3) of Zhang et al. (2022) is a ratio of the normalisers
of Eq. (2). The state keeps the flip probabilities and the log normaliser at x. A step draws y,
evaluates the gradient there, and from it both for y. On small models a kernel sums the rows of the
matrix and takes one chain after the other through all steps, in the cache. On large ones all chains
take a step together, around one matrix product.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import PairForm
from latticework.models.matmul import affine
from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Keys, Sums, arrays_of
from latticework.samplers.compiled.jit import copy, kernel, over_chains, reordered
from latticework.samplers.compiled.langevin import prices, settle
from latticework.samplers.compiled.philox import SCALE, fill, unit
from latticework.samplers.compiled.running_sums import add_chain
from latticework.samplers.langevin import DMALA

SMALL = 256  # sites up to which sums of rows in the cache are faster than a matrix product
GROUP = 512  # factors from 1 to 2 that are multiplied before a logarithm is taken


class LangevinPairState(NamedTuple):
    x: Tensor  # [chains, sites]
    flip: Tensor  # [chains, sites], the smaller probability, to flip or (negative) to stay
    normaliser: Tensor  # [chains], sum of log(1 + exp(logit)), float64


class PairProposals(NamedTuple):
    """The proposals of all chains in a step, in arrays like those of the state."""

    y: NDArray[np.float32]
    gradient: NDArray[np.float32]  # at y
    flip: NDArray[np.float32]  # at y
    flips: NDArray[np.int64]  # [chains], how many sites flip
    level: NDArray[np.float64]  # [chains], uniform numbers for the acceptance


@dataclass(frozen=True)
class LangevinPairTwin(CompiledSampler):
    def start(self, x: Tensor, form: PairForm) -> LangevinPairState:
        state = LangevinPairState(x, torch.empty_like(x), torch.empty(len(x), dtype=torch.float64))
        matrix, offset = torch.from_numpy(form.matrix), torch.from_numpy(form.offset)
        gradient, price = affine(offset, x, matrix).numpy(), self.prices(form)
        args = form, price, gradient, arrays_of(state)
        over_chains(weigh_all, len(x), 3.0 * x.numel(), *args)
        return state

    def prices(self, form: PairForm) -> NDArray[np.float32]:
        return prices(self.sampler, len(form.offset), (form.high - form.low) ** 2)

    def run(
        self, state: LangevinPairState, form: PairForm, keys: Keys, sums: Sums
    ) -> LangevinPairState:
        chains, sites = state.x.shape
        rule = isinstance(self.sampler, DMALA), form, self.prices(form)
        arrays = arrays_of(state)
        if sites <= SMALL:
            work = len(keys) * chains * sites * (3.0 + 0.05 * sites)
            over_chains(small, chains, work, *rule, arrays, keys, sums)
            return state
        matrix, offset = torch.from_numpy(form.matrix), torch.from_numpy(form.offset)
        y, gradient, there = (torch.empty_like(state.x) for _ in range(3))
        drawn = np.empty(chains, np.int64), np.empty(chains)
        proposals = PairProposals(y.numpy(), gradient.numpy(), there.numpy(), *drawn)
        for t in range(-1, len(keys)):
            if t >= 0:
                affine(offset, y, matrix, gradient)
            args = *rule, t, keys, arrays, proposals, sums
            over_chains(large, chains, 3.0 * chains * sites, *args)
        return state


@kernel
def weigh_all(first, last, form, price, gradient, state):
    for c in range(first, last):
        flip, x = state.flip[c], state.x[c]
        state.normaliser[c] = weigh(flip, x, gradient[c], price, form.low, form.high)


@kernel
def small(first, last, adjusted, form, price, state, keys, sums):
    """All steps of one chain after the other."""
    (x, flip, normaliser), low, high = state, form.low, form.high
    sites, steps = x.shape[1], keys.shape[0]
    matrix, base = form.matrix, np.empty(sites, np.float32)
    for i in range(sites):
        total = np.float64(form.offset[i])
        for j in range(sites):
            total += low * matrix[i, j]
        base[i] = total
    words = np.empty(max(64, sites // 4 * 4 + 4), np.uint32)  # at least one more than the sites
    y, gradient, there = np.empty(sites, np.float32), np.empty_like(base), np.empty_like(base)
    at_high = np.empty(sites, np.uint32)
    for c in range(first, last):
        now, here = x[c], flip[c]
        for t in range(steps):
            fill(words, keys[t], c, 0)
            flips = propose(y, now, here, words, low, high)
            sum_rows(gradient, matrix, base, y, low, high, at_high)
            after, level = weigh(there, y, gradient, price, low, high), unit(words[sites])
            if settle(c, adjusted, flips, level, after, normaliser, sums):
                copy(now, y)
                copy(here, there)
            add_chain(sums, x, c, t - steps)


@kernel
def large(first, last, adjusted, form, price, t, keys, state, proposals, sums):
    """Accept or reject the proposals of step t, and draw those of step t + 1."""
    (x, flip, normaliser), low, high = state, form.low, form.high
    y, gradient, there, flips, level = proposals
    sites, steps = x.shape[1], keys.shape[0]
    words = np.empty(max(64, sites // 4 * 4 + 4), np.uint32)
    for c in range(first, last):
        now, here = x[c], flip[c]
        if t >= 0:
            after = weigh(there[c], y[c], gradient[c], price, low, high)
            if settle(c, adjusted, flips[c], level[c], after, normaliser, sums):
                copy(now, y[c])
                copy(here, there[c])
            add_chain(sums, x, c, t - steps)
        if t + 1 < steps:
            fill(words, keys[t + 1], c, 0)
            flips[c] = propose(y[c], now, here, words, low, high)
            level[c] = unit(words[sites])


@kernel
def propose(y, x, flip, words, low, high):
    """Flip each site with its probability (never if that is NaN); returns how many."""
    low, high, flips = np.float32(low), np.float32(high), 0
    for i in range(x.shape[0]):
        level = np.float32(words[i]) * np.float32(SCALE) + np.float32(SCALE / 2)
        flipped = (level < abs(flip[i])) != (flip[i] < 0)
        y[i] = high if (x[i] == high) != flipped else low
        flips += flipped
    return flips


@kernel
def sum_rows(gradient, matrix, base, y, low, high, at_high):
    """The gradient, `base` + (high - low) * the rows of sites at `high`, four rows at a time."""
    sites, count = y.shape[0], 0
    for j in range(sites):
        at_high[count] = j
        count += np.int64(y[j] == np.float32(high))
    gradient[:] = 0
    for k in range(0, count - 3, 4):
        j0, j1, j2, j3 = at_high[k], at_high[k + 1], at_high[k + 2], at_high[k + 3]
        for i in range(sites):
            four = matrix[j0, i] + matrix[j1, i] + matrix[j2, i] + matrix[j3, i]
            gradient[i] += four
    for k in range(count // 4 * 4, count):
        for i in range(sites):
            gradient[i] += matrix[at_high[k], i]
    for i in range(sites):
        gradient[i] = base[i] + np.float32(high - low) * gradient[i]


@kernel
def weigh(flip, x, gradient, price, low, high):
    """Eq. (2): what `LangevinPairState.flip` holds at `x`, and the log normaliser."""
    result, sites, both = 0.0, x.shape[0], np.float32(low + high)
    for a in range(0, sites, GROUP):
        b = min(a + GROUP, sites)
        product, positive = weigh_some(flip[a:b], x[a:b], gradient[a:b], price[a:b], both)
        result += math.log(product) + positive
    return result


@reordered
def weigh_some(flip, x, gradient, price, both):
    """The product of 1 + exp(-|z|), and the sum of max(z, 0): log(1 + exp(z)) has both parts."""
    product, positive = 1.0, 0.0
    for i in range(x.shape[0]):
        z = np.float32(0.5) * gradient[i] * (both - x[i] - x[i]) - price[i]
        e = exp32(-abs(z))
        rare = e / (np.float32(1) + e)
        flip[i] = -rare if z > 0 else rare
        product *= 1.0 + np.float64(e)
        positive += np.float64(max(z, np.float32(0)))
    return product, positive
