"""GWG-1 and locally balanced on graphs, at the cost of a site's neighbours.

On a quadratic target both draw a site with probability w_i / Z(x), w_i = exp(gain_i / 2), and
accept with probability min(1, Z(x) / Z(y)) (`samplers.one_site`). A site is drawn in two stages, as
in `compiled.gwg_several`. A flip changes the weights of the site and of its neighbours; the sums of
their blocks are computed afresh. Where Z leaves the range from `LEAST` to `MOST`, all weights are
computed again, relative to the largest if need be.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from latticework.models.forms import GraphForm
from latticework.samplers.compiled.arithmetic import wide_exp
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Keys, Sums, arrays_of
from latticework.samplers.compiled.draws import accepts, draw_site, sum_blocks, sum_of
from latticework.samplers.compiled.graph import add_to_neighbours, renew
from latticework.samplers.compiled.gwg_several import SeveralState, empty_state
from latticework.samplers.compiled.jit import kernel, over_chains
from latticework.samplers.compiled.philox import AHEAD, fill_steps, unit
from latticework.samplers.compiled.running_sums import finish, fresh, leave, record_chain
from latticework.samplers.compiled.sites import renewals

LEAST, MOST = 1e-200, 1e200
LARGEST = 700.0  # logarithm of a ratio of Z: a larger one would be infinite, and accepts as well


@dataclass(frozen=True)
class GraphFlipTwin(CompiledSampler):
    """The memory of a state are the log-odds of all sites."""

    def start(self, x: Tensor, form: GraphForm) -> SeveralState:
        state = empty_state(x, torch.empty_like(x, dtype=torch.float64), torch.float64)
        work = float(len(x) * (5.0 * x.shape[1] + len(form.neighbours)))
        over_chains(weigh_all, len(x), work, form, arrays_of(state))
        return state

    def run(self, state: SeveralState, form: GraphForm, keys: Keys, sums: Sums) -> SeveralState:
        work = 500.0 * len(state.x) * len(keys)
        over_chains(flip, len(state.x), work, form, arrays_of(state), keys, sums)
        return state


@kernel
def weigh_all(first, last, form, state):
    for c in range(first, last):
        renew(form, state.x[c], state.memory[c])
        weigh(state, c)


@kernel
def weigh(state, c):
    """The weights of all sites and the sums of their blocks; returns Z."""
    x, odds, weights, sums = state.x[c], state.memory[c], state.weights[c], state.sums[c]
    top, largest = np.float32(0), np.float32(-np.inf)
    for _ in range(2):
        for i in range(x.shape[0]):
            half = gain_of(x[i], odds[i])
            largest = max(largest, half)
            weights[i] = wide_exp(half - top)
        sum_blocks(weights, sums)
        if LEAST < sum_of(sums) < MOST:
            break
        top = largest
    state.top[c] = top
    return sum_of(sums)


@kernel
def gain_of(x, odds):
    """Half of what a flip adds to the log-probability."""
    return np.float32(0.5) * np.float32(odds) * (np.float32(1) - x - x)


@kernel
def flip(first, last, form, state, keys, out):
    x, odds, weights, sums, _ = state
    sites, steps, mask = x.shape[1], keys.shape[0], renewals(x.shape[1])
    starts, near, slope = form.starts, form.neighbours, form.slope
    words, since = np.empty((4, AHEAD), np.uint32), fresh(out, first, last, sites)
    for c in range(first, last):
        row, own, heights, parts = x[c], odds[c], weights[c], sums[c]
        top, here = np.float32(state.top[c]), sum_of(parts)
        for t in range(steps):
            now = t % AHEAD
            if now == 0:
                fill_steps(words, keys[t : t + AHEAD], c, 0)
            if keys[t] & mask == 0:
                renew(form, row, own)
            if keys[t] & mask == 0 or not LEAST < here < MOST:
                here = weigh(state, c)
                top = np.float32(state.top[c])
            i = draw_site(heights, parts, here, unit(words[0, now]))
            old = row[i]
            turn(starts, near, slope, row, own, heights, parts, top, i)
            there = sum_of(parts)
            log_ratio = min(math.log(here) - math.log(there), LARGEST)
            if accepts(c, log_ratio, unit(words[1, now]), out.accept, out.invalid):
                here = there
                out.changed[c] += 1
                leave(out.total, since, first, c, i, old, t)
            else:
                turn(starts, near, slope, row, own, heights, parts, top, i)
            record_chain(out.trace, x, c, t - steps)
    finish(out, since, first, x, steps)


@kernel
def turn(starts, near, slope, x, odds, weights, sums, top, i):
    """Flip site `i`, with all that follows from it."""
    step = np.float32(1) - np.float32(2) * x[i]
    x[i] += step
    add_to_neighbours(starts, near, slope, odds, np.uint64(i), step)
    weights[i] = wide_exp(gain_of(x[i], odds[i]) - top)
    for k in range(starts[i], starts[i + 1]):
        j = near[k]
        weights[j] = wide_exp(gain_of(x[j], odds[j]) - top)
    width, previous = weights.shape[0] // sums.shape[0], i // (weights.shape[0] // sums.shape[0])
    sums[previous] = sum_of(weights[previous * width : (previous + 1) * width])
    for k in range(starts[i], starts[i + 1]):
        b = near[k] // width
        if b != previous:
            sums[b] = sum_of(weights[b * width : (b + 1) * width])
            previous = b
