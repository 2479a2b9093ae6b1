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
from latticework.models.product import affine
from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.jit import inlined, kernel, over_chains, reordered
from latticework.samplers.compiled.philox import SCALE, fill, unit
from latticework.samplers.compiled.tally import record_chain
from latticework.samplers.compiled.twin import Sums, Twin
from latticework.samplers.langevin import DMALA

SMALL = 256  # sites up to which sums of rows in the cache are faster than a matrix product
GROUP = 512  # factors from 1 to 2 that are multiplied before a logarithm is taken


class LangevinPairState(NamedTuple):
    x: Tensor  # [chains, sites]
    flip: Tensor  # [chains, sites], the smaller probability, to flip or (negative) to stay
    normaliser: Tensor  # [chains], sum of log(1 + exp(logit)), float64


@dataclass(frozen=True)
class LangevinPairTwin(Twin):
    def start(self, x: Tensor, form: PairForm) -> LangevinPairState:
        flip, normaliser = torch.empty_like(x), torch.empty(len(x), dtype=torch.float64)
        matrix, offset = torch.from_numpy(form.matrix), torch.from_numpy(form.offset)
        gradient = affine(offset, x, matrix).numpy()
        site = form.low, form.high, self.prices(form)
        work = 3.0 * x.numel()
        arrays = x.numpy(), gradient, flip.numpy(), normaliser.numpy()
        over_chains(weigh_all, len(x), work, *site, *arrays)
        return LangevinPairState(x, flip, normaliser)

    def prices(self, form: PairForm) -> NDArray[np.float32]:
        """What Eq. (2) subtracts for the distance of a flip, `[sites]`."""
        sampler, sites = self.sampler, len(form.offset)
        scale = np.ones(sites)
        if sampler.preconditioner is not None:
            scale = np.array(sampler.preconditioner) ** sampler.preconditioner_power
            if len(scale) != sites:
                raise ValueError(f"preconditioner must have {sites} entries, got {len(scale)}")
        return (0.5 / sampler.step_size * (form.high - form.low) ** 2 / scale).astype(np.float32)

    def run(
        self, state: LangevinPairState, form: PairForm, keys: NDArray[np.int64], sums: Sums
    ) -> LangevinPairState:
        adjusted = isinstance(self.sampler, DMALA)
        arrays = tuple(field.numpy() for field in state)
        chains, sites = state.x.shape
        site = form.low, form.high, self.prices(form)
        if sites <= SMALL:
            work = len(keys) * chains * sites * (3.0 + 0.05 * sites)
            over_chains(small, chains, work, adjusted, form, *site, *arrays, keys, sums)
            return state
        matrix, offset = torch.from_numpy(form.matrix), torch.from_numpy(form.offset)
        y, gradient = torch.empty_like(state.x), torch.empty_like(state.x)
        proposal = y.numpy(), gradient.numpy(), np.empty((chains, sites), np.float32)
        drawn = np.empty(chains, np.int64), np.empty(chains)
        work = 3.0 * chains * sites
        for t in range(-1, len(keys)):
            if t >= 0:
                affine(offset, y, matrix, gradient)
            step = adjusted, t, keys, *site
            over_chains(large, chains, work, *step, *arrays, *proposal, *drawn, *sums[:5])
        return state


@kernel
def weigh_all(first, last, low, high, price, x, gradient, flip, normaliser):
    for c in range(first, last):
        normaliser[c] = weigh(flip[c], x[c], gradient[c], price, low, high)


@kernel
def small(
    first, last, adjusted, form, low, high, price, x, flip, normaliser, keys, sums
):  # fmt: skip
    """All steps of one chain after the other."""
    sites, steps = x.shape[1], keys.shape[0]
    matrix, base = form.matrix, np.empty(sites, np.float32)
    for i in range(sites):
        base[i] = form.offset[i] + np.float32(low) * matrix[i].sum()
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
            args = normaliser, sums.accept, sums.changed, sums.invalid
            if settle(c, adjusted, flips, level, after, *args):
                now[:], here[:] = y, there
            keep(x, c, t - steps, sums.total, sums.trace)


@kernel
def large(
    first, last, adjusted, t, keys, low, high, price, x, flip, normaliser,
    y, gradient, there, flips, level, total, trace, accept, changed, invalid,
):  # fmt: skip
    """Accept or reject the proposals `y` of step t, and draw those of step t + 1."""
    sites, steps = x.shape[1], keys.shape[0]
    words = np.empty(max(64, sites // 4 * 4 + 4), np.uint32)
    for c in range(first, last):
        now, here = x[c], flip[c]
        if t >= 0:
            after = weigh(there[c], y[c], gradient[c], price, low, high)
            args = normaliser, accept, changed, invalid
            if settle(c, adjusted, flips[c], level[c], after, *args):
                now[:], here[:] = y[c], there[c]
            keep(x, c, t - steps, total, trace)
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


@kernel
def settle(
    c, adjusted, flips, level, after, normaliser, accept, changed, invalid
):  # fmt: skip
    """Whether chain `c` moves to its proposal, where the log normaliser is `after`."""
    probability = 1.0
    if adjusted:
        log_ratio = normaliser[c] - after
        valid = log_ratio < np.inf
        probability = math.exp(min(log_ratio, 0.0)) if valid else 0.0
    else:
        valid = not np.isnan(after)
    if not valid:
        invalid[c] += 1
    accept[c] += probability
    accepted = level < probability
    if accepted:
        normaliser[c] = after
        changed[c] += flips
    return accepted


@inlined
def keep(x, c, t, total, trace):
    """Add a chain's state to the sums; `t` counts the steps from the end, the last being -1."""
    if total.shape[0]:
        for i in range(x.shape[1]):
            total[c, i] += x[c, i]
    record_chain(trace, x, c, t)
