"""DULA, DMALA, DLMC and DLMCf on graphs: every site decides, and log-odds change around flips.

A site moves with odds m : s. The state keeps the smaller of m / s and s / m for each site, so a
proposal compares u (1 + e) with e, and no site needs a division. On a quadratic target log pi(y) -
log pi(x) is half the sum over the flips of the gain at x minus that at y, so with l = log(m / s)

    log ratio = sum of log(1 + exp(l)) at x minus at y
                + sum over the flips of l - gain / 2 at y minus at x

where the second sum is 0 for DMALA, Eq. (2) of Zhang et al. (2022).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import GraphForm
from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Keys, Sums, arrays_of
from latticework.samplers.compiled.graph import add_to_neighbours, renew
from latticework.samplers.compiled.jit import copy, inlined, kernel, lean, over_chains, reordered
from latticework.samplers.compiled.langevin import prices, settle
from latticework.samplers.compiled.philox import SCALE, fill, unit
from latticework.samplers.compiled.running_sums import add_chain
from latticework.samplers.compiled.sites import renewals
from latticework.samplers.dlmc import DLMC, DLMCf
from latticework.samplers.langevin import DULA

GROUP = 512  # factors from 1 to 2 that are multiplied before a logarithm is taken
TINY = np.float32(2e-38)  # the smallest weight


class LangevinGraphState(NamedTuple):
    x: Tensor  # [chains, sites]
    odds: Tensor  # [chains, sites], float64
    ratio: Tensor  # [chains, sites], rarer to likelier; negative where a flip is likelier
    normaliser: Tensor  # [chains], sum of log(1 + exp(l)), float64


class Rule(NamedTuple):
    """How a site moves: by Eq. (2), or by `jumps` for a `time` (`samplers.dlmc`)."""

    adjusted: bool
    jumps: bool
    price: NDArray[np.float32]  # [sites], of Eq. (2)
    time: np.float32
    root: bool  # whether the balancing function is the square root
    euler: bool  # whether a jump is an Euler step


@dataclass(frozen=True)
class LangevinGraphTwin(CompiledSampler):
    def rule(self, sites: int) -> Rule:
        sampler = self.sampler
        if isinstance(sampler, DLMC | DLMCf):
            root, euler = sampler.balancing == "sqrt", isinstance(sampler, DLMCf)
            return Rule(True, True, np.zeros(0, np.float32), np.float32(sampler.time), root, euler)
        price = prices(sampler, sites)
        return Rule(not isinstance(sampler, DULA), False, price, np.float32(0), False, False)

    def start(self, x: Tensor, form: GraphForm) -> LangevinGraphState:
        normaliser = torch.empty(len(x), dtype=torch.float64)
        odds = torch.empty_like(x, dtype=torch.float64)
        state = LangevinGraphState(x, odds, torch.empty_like(x), normaliser)
        work = float(len(x) * (3.0 * x.shape[1] + len(form.neighbours)))
        over_chains(weigh_all, len(x), work, form, self.rule(x.shape[1]), arrays_of(state))
        return state

    def run(
        self, state: LangevinGraphState, form: GraphForm, keys: Keys, sums: Sums
    ) -> LangevinGraphState:
        chains, sites = state.x.shape
        work = len(keys) * chains * (3.0 * sites + 0.1 * len(form.neighbours))
        over_chains(move, chains, work, form, self.rule(sites), arrays_of(state), keys, sums)
        return state


@kernel
def weigh_all(first, last, form, rule, state):
    none = np.zeros(state.x.shape[1], np.uint8)
    for c in range(first, last):
        renew(form, state.x[c], state.odds[c])
        state.normaliser[c] = weigh(state.ratio[c], state.x[c], none, state.odds[c], rule)


@kernel
def move(first, last, form, rule, state, keys, sums):
    """All steps of one chain after the other."""
    (x, odds, ratio, normaliser), steps = state, keys.shape[0]
    sites, mask = x.shape[1], renewals(1)
    starts, near, slope = form.starts, form.neighbours, form.slope
    words = np.empty(max(64, sites // 4 * 4 + 4), np.uint32)  # at least one more than the sites
    marks = np.zeros((sites + 7) // 8 * 8, np.uint8)
    found, flipped = np.empty(marks.shape[0], np.uint64), np.empty(marks.shape[0], np.uint64)
    after, there = np.empty(sites), np.empty(sites, np.float32)
    for c in range(first, last):
        now, own, here, swapped = x[c], odds[c], ratio[c], False
        for t in range(steps):
            if keys[t] & mask == 0:
                renew(form, now, own)
                marks[:] = 0
                normaliser[c] = weigh(here, now, marks, own, rule)
            fill(words, keys[t], c, 0)
            propose(marks, here, words, after, own)
            flips = list_flips(flipped, found, marks, marks.view(np.uint64))
            for f in range(flips):
                i = flipped[f]
                add_to_neighbours(starts, near, slope, after, i, away_from(now[i]))
            total, level = weigh(there, now, marks, after, rule), unit(words[sites])
            beyond = excess(flipped, flips, now, own, here, after, there) if rule.jumps else 0.0
            if settle(c, rule.adjusted, flips, level, total, normaliser, sums, beyond):
                own, after, here, there = after, own, there, here
                swapped = not swapped
                for f in range(flips):
                    now[flipped[f]] += away_from(now[flipped[f]])
            add_chain(sums, x, c, t - steps)
        if swapped:  # `after` and `there` are the rows of the state
            copy(after, own)
            copy(there, here)
            after, there = own, here


@inlined
def away_from(x):
    """The change of a site by a flip."""
    return np.float32(1) - x - x


@lean
def propose(marks, ratio, words, after, own):
    """Mark the sites that flip, each with its probability (never if that is NaN); copy `own`."""
    for i in range(np.uint64(ratio.shape[0])):
        level = np.float32(words[i]) * np.float32(SCALE) + np.float32(SCALE / 2)
        rare = abs(ratio[i])
        after[i] = own[i]
        marks[i] = np.uint8((level + level * rare < rare) != (ratio[i] < 0))


@lean
def list_flips(flipped, found, marks, words):
    """List the sites that are marked; returns how many. Nothing branches on them."""
    hits, count = np.uint64(0), np.uint64(0)
    for j in range(np.uint64(words.shape[0])):
        found[hits] = j
        hits += np.uint64(words[j] != 0)
    for k in range(np.uint64(8) * hits):
        i = np.uint64(8) * found[k >> np.uint64(3)] + (k & np.uint64(7))
        flipped[count] = i
        count += np.uint64(marks[i])
    return count


@kernel
def excess(flipped, flips, x, odds, ratio, after, there):
    """The sum over the flips of l - gain / 2 at y minus at x."""
    total = 0.0
    for f in range(flips):
        i = flipped[f]
        gains = np.float64(odds[i] + after[i]) * away_from(x[i])  # the gain at y has the other sign
        total += log_odds_of(there[i]) - log_odds_of(ratio[i]) + 0.5 * gains
    return total


@inlined
def log_odds_of(ratio):
    return math.copysign(1.0, ratio) * math.log(abs(ratio))


@kernel
def weigh(ratio, x, marks, odds, rule):
    """The state's numbers at `x` with the marked sites flipped.

    The ratios, and the sum of log(1 + exp(l)).
    """
    total = 0.0
    for a in range(0, x.shape[0], GROUP):
        b = min(a + GROUP, x.shape[0])
        part = ratio[a:b], x[a:b], marks[a:b], odds[a:b]
        if rule.jumps:
            total += weigh_jumps(*part, rule.time, rule.root, rule.euler)
        else:
            total += weigh_steps(*part, rule.price[a:b])
    return total


@reordered
def weigh_steps(ratio, x, marks, odds, price):
    """log(1 + exp(l)) is log(1 + exp(-|l|)) + max(l, 0)."""
    product, positive = 1.0, 0.0
    for i in range(x.shape[0]):
        odds_of_1 = np.float32(odds[i])
        gain = odds_of_1 * (-away_from(x[i]) if marks[i] else away_from(x[i]))
        z = np.float32(0.5) * gain - price[i]
        rare = exp32(-abs(z))
        ratio[i] = -rare if z > 0 else rare
        product *= 1.0 + np.float64(rare)
        positive += np.float64(max(z, np.float32(0)))
    return math.log(product) + positive


@reordered
def weigh_jumps(ratio, x, marks, odds, time, root, euler):
    """`weigh_steps` for jumps, where m : s = nu h : 1 - nu h.

    nu is the first-order probability of the other value, and h the share of it that moves. Where
    m > s, log(1 + exp(l)) is log(1 + s / m) - log(s / m), and the latter comes from exponents and
    mantissas.
    """
    one, product, passed, exponents = np.float32(1), 1.0, 1.0, np.int64(0)
    for i in range(x.shape[0]):
        odds_of_1 = np.float32(odds[i])
        gain = odds_of_1 * (-away_from(x[i]) if marks[i] else away_from(x[i]))
        half = exp32(np.float32(-0.5) * abs(gain))
        small = max(half * half, TINY)
        flow = time * (one / half + half) if root else time
        kept = one - min(flow, one) if euler else exp32(-flow)
        moved = one - kept
        if flow < np.float32(0.05):  # the difference from 1 is coarse
            series = flow - flow * flow * (np.float32(0.5) - flow * np.float32(1 / 6))
            moved = flow if euler else series
        goes = moved if gain > 0 else small * moved
        stays = small + kept if gain > 0 else one + small * kept
        likely = goes > stays
        rare = stays / goes if likely else goes / stays
        ratio[i] = -rare if likely else rare
        product *= 1.0 + np.float64(rare)
        bits = np.float32(rare if likely else one).view(np.int32)
        exponents += np.int64((bits >> np.int32(23)) - np.int32(127))
        part = np.int32((bits & np.int32(0x7FFFFF)) | np.int32(0x3F800000)).view(np.float32)
        passed *= np.float64(part)
    return math.log(product) - math.log(passed) - exponents * math.log(2.0)
