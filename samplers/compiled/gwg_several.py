"""GWG-X with several flips a step: the twin of `samplers.gwg` on pairwise models.

A site is drawn by its weight exp(d / 2) in two stages: first a block of consecutive sites by the
sum of its weights, then a site in it. On a lattice, flips change the weights of the flipped sites
and their neighbours. These and the sums of their blocks are computed afresh from x, so nothing
drifts, and the cost of a step grows with the square root of the number of sites.

On a quadratic target log pi(y) - log pi(x) is half the sum over the flipped sites of the gain at x
minus that of the flip back at y. With Z the total weight, it cancels against the weights of the
first draw of each site, so on a lattice with X draws

    log ratio = X log(Z(x) / Z(y)) + half the sum over repeated draws of (gain at y - gain at x)
"""

import math
from dataclasses import dataclass
from math import isqrt
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import LatticeForm, PairForm
from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.compiled_sampler import (
    CompiledSampler,
    Keys,
    Sums,
    arrays_of,
    too_large,
)
from latticework.samplers.compiled.draws import accepts, draw_site, sum_blocks, sum_of
from latticework.samplers.compiled.jit import copy, kernel, lean, over_chains
from latticework.samplers.compiled.philox import fill, unit
from latticework.samplers.compiled.running_sums import finish, fresh, leave, record_chain
from latticework.samplers.compiled.sites import (
    change,
    memory_of,
    ones_around,
    other,
    renew,
    renewals,
)


class SeveralState(NamedTuple):
    x: Tensor  # [chains, sites]
    memory: Tensor  # [chains, ...], of the form (`compiled.sites`)
    weights: Tensor  # [chains, blocks * width], exp(d / 2 - top), padded with zeros
    sums: Tensor  # [chains, blocks], of the weights, float64
    top: Tensor  # [chains], float64


def empty_state(x: Tensor, memory: Tensor, dtype: torch.dtype) -> SeveralState:
    """A state without weights. Blocks have about as many sites as there are blocks."""
    chains, sites = x.shape
    width = isqrt(sites)
    blocks = -(-sites // width)
    weights = x.new_zeros(chains, blocks * width, dtype=dtype)
    sums = x.new_zeros(chains, blocks, dtype=torch.float64)
    return SeveralState(x, memory, weights, sums, sums.new_zeros(chains))


@kernel
def distinct(drawn):
    """Move each different entry to the front, in order, and repeated ones behind them.

    Returns how many there are at the front.
    """
    count = 0
    for k in range(drawn.shape[0]):
        new = True
        for m in range(count):
            new &= drawn[m] != drawn[k]
        if new:
            drawn[count], drawn[k] = drawn[k], drawn[count]
            count += 1
    return count


# Lattices.


@dataclass(frozen=True)
class SeveralLatticeTwin(CompiledSampler):
    def refuses(self, form: LatticeForm) -> str:
        degree = np.zeros(len(form.odds), np.int64)
        degree[form.kind] = form.degree
        met = np.arange(form.odds.shape[1]) <= degree[:, None]  # other entries no site has
        return too_large(np.abs(form.odds[met]).max())

    def start(self, x: Tensor, form: LatticeForm) -> SeveralState:
        state = empty_state(x, x.new_empty(len(x), 0), torch.float64)
        args = form, self.table(form), arrays_of(state)
        over_chains(weigh_lattice, len(x), 5.0 * x.numel(), *args)
        return state

    def table(self, form: LatticeForm) -> NDArray[np.float64]:
        """exp(d / 2) by a site's kind, the number of its neighbours at 1, and its value."""
        with np.errstate(over="ignore"):  # entries that no site has may overflow
            return np.exp(np.stack((form.odds, -form.odds), -1) / 2)

    def run(self, state: SeveralState, form: LatticeForm, keys: Keys, sums: Sums) -> SeveralState:
        flips, work = self.sampler.flips, len(state.x) * len(keys) * 100.0 * self.sampler.flips
        args = form, self.table(form), flips, arrays_of(state), keys, sums
        over_chains(flip_lattice, len(state.x), work, *args)
        return state


@kernel
def weigh_lattice(first, last, form, table, state):
    x, _, weights, sums, _ = state
    for c in range(first, last):
        for i in range(x.shape[1]):
            weights[c, i] = table[form.kind[i], ones_around(form, x, c, i), np.int64(x[c, i])]
        sum_blocks(weights[c], sums[c])


@kernel
def flip_lattice(first, last, form, table, flips, state, keys, out):
    (x, memory, weights, sums, _), steps = state, keys.shape[0]
    words, drawn = np.empty(flips // 4 * 4 + 4, np.uint32), np.empty(flips, np.int64)
    since = fresh(out, first, last, x.shape[1])
    total, changed = out.total, out.changed
    for c in range(first, last):
        now = sum_of(sums[c])
        for t in range(steps):
            fill(words, keys[t], c, 0)
            for k in range(flips):
                drawn[k] = draw_site(weights[c], sums[c], now, unit(words[k]))
            count = distinct(drawn)
            gains = sum_of_gains(form, x, memory, c, drawn[count:])
            for k in range(count):
                i = drawn[k]
                leave(total, since, first, c, i, x[c, i], t)
                x[c, i] = np.float32(1) - x[c, i]
            reweigh(form, table, x, weights, sums, c, drawn[:count])
            after = sum_of(sums[c])
            log_ratio = flips * (math.log(now) - math.log(after))
            log_ratio += (sum_of_gains(form, x, memory, c, drawn[count:]) - gains) / 2
            if accepts(c, log_ratio, unit(words[flips]), out.accept, out.invalid):
                now = after
                changed[c] += count
            else:
                for k in range(count):
                    x[c, drawn[k]] = np.float32(1) - x[c, drawn[k]]
                reweigh(form, table, x, weights, sums, c, drawn[:count])
            record_chain(out.trace, x, c, t - steps)
    finish(out, since, first, x, steps)


@lean
def sum_of_gains(form, x, memory, c, sites):
    total = 0.0
    for k in range(sites.shape[0]):
        total += change(form, x, memory, c, sites[k])
    return total


@kernel
def reweigh(form, table, x, weights, sums, c, flipped):
    """Compute the weights of flipped sites and their neighbours afresh, and their blocks' sums."""
    kind, degree, neighbours = form.kind, form.degree, form.neighbours
    width, previous = weights.shape[1] // sums.shape[1], -1
    for k in range(flipped.shape[0]):
        i = flipped[k]
        for edge in range(-1, degree[i]):
            j = i if edge < 0 else np.int64(neighbours[i, edge])
            weights[c, j] = table[kind[j], ones_around(form, x, c, j), np.int64(x[c, j])]
    for k in range(flipped.shape[0]):
        i = flipped[k]
        for edge in range(-1, degree[i]):
            j = i if edge < 0 else np.int64(neighbours[i, edge])
            b = j // width
            if b != previous:
                sums[c, b] = sum_of(weights[c, b * width : (b + 1) * width])
                previous = b


# Dense pairs. The first-order gain leaves out the diagonal, which the ratio has.


@dataclass(frozen=True)
class SeveralPairTwin(CompiledSampler):
    def start(self, x: Tensor, form: PairForm) -> SeveralState:
        state = empty_state(x, memory_of(form, x), torch.float32)
        over_chains(weigh_pairs, len(x), 3.0 * x.numel(), form.low + form.high, arrays_of(state))
        return state

    def run(self, state: SeveralState, form: PairForm, keys: Keys, sums: Sums) -> SeveralState:
        flips, args = self.sampler.flips, (arrays_of(state), keys, sums)
        work = state.x.numel() * len(keys) * (2.0 + 0.2 * flips)
        over_chains(flip_pairs, len(state.x), work, form, flips, *args)
        return state


@kernel
def weigh_pairs(first, last, both, state):
    x, memory, weights, sums, top = state
    for c in range(first, last):
        top[c] = weigh(weights[c], sums[c], x[c], memory[c], np.float32(both))


@kernel
def flip_pairs(first, last, form, flips, state, keys, out):
    x, memory, weights, sums, top = state
    steps, sites, both = keys.shape[0], x.shape[1], np.float32(form.low + form.high)
    matrix, diagonal = form.matrix, form.diagonal
    words, drawn = np.empty(flips // 4 * 4 + 4, np.uint32), np.empty(flips, np.int64)
    all_drawn, old = np.empty(flips, np.int64), np.empty(flips, np.float32)
    own, new_weights = np.empty(sites, np.float32), np.zeros(weights.shape[1], np.float32)
    new_sums = np.empty(sums.shape[1])
    since, mask = fresh(out, first, last, sites), renewals(sites)
    total, changed = out.total, out.changed
    for c in range(first, last):
        now = sum_of(sums[c])
        for t in range(steps):
            fill(words, keys[t], c, 0)
            if keys[t] & mask == 0:
                renew(form, x, memory, c)
                top[c] = weigh(weights[c], sums[c], x[c], memory[c], both)
                now = sum_of(sums[c])
            log_ratio = 0.0
            for k in range(flips):
                i = draw_site(weights[c], sums[c], now, unit(words[k]))
                drawn[k] = all_drawn[k] = i
                log_ratio -= 0.5 * memory[c, i] * (both - 2 * x[c, i])
            copy(own, memory[c])
            count = distinct(drawn)
            for k in range(count):
                i = drawn[k]
                old[k] = x[c, i]
                new = other(old[k], form.low, form.high)
                step = new - old[k]
                log_ratio += own[i] * step + diagonal[i] * step * step
                leave(total, since, first, c, i, old[k], t)
                x[c, i] = new
                for j in range(sites):
                    own[j] += step * matrix[i, j]
            for k in range(flips):
                i = all_drawn[k]
                log_ratio += 0.5 * own[i] * (both - 2 * x[c, i])
            new_top = weigh(new_weights, new_sums, x[c], own, both)
            after = sum_of(new_sums)
            log_ratio += flips * (math.log(now / after) + top[c] - new_top)
            if accepts(c, log_ratio, unit(words[flips]), out.accept, out.invalid):
                memory[c], weights[c], sums[c], top[c] = own, new_weights, new_sums, new_top
                now = after
                changed[c] += count
            else:
                for k in range(count):
                    x[c, drawn[k]] = old[k]
            record_chain(out.trace, x, c, t - steps)
    finish(out, since, first, x, steps)


@kernel
def weigh(weights, sums, x, gradient, both):
    """Write exp(d / 2 - top) and their sums over blocks; returns the largest d / 2, `top`."""
    top = np.float32(-np.inf)
    for i in range(x.shape[0]):
        weights[i] = np.float32(0.5) * gradient[i] * (both - x[i] - x[i])
        top = max(top, weights[i])
    for i in range(x.shape[0]):
        weights[i] = exp32(weights[i] - top)
    sum_blocks(weights, sums)
    return np.float64(top)
