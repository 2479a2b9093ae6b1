"""DULA and DMALA on graphs: as `compiled.langevin_pair` on small models, with sparse products.

The state also keeps the log-odds of all sites, which are the gradient. Those at y are those at x
and what the flipped sites change.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from latticework.models.forms import GraphForm
from latticework.samplers.compiled.graph import renew, spread
from latticework.samplers.compiled.jit import kernel, over_chains
from latticework.samplers.compiled.langevin import prices, settle
from latticework.samplers.compiled.langevin_pair import propose, weigh
from latticework.samplers.compiled.philox import fill, unit
from latticework.samplers.compiled.sites import renewals
from latticework.samplers.compiled.tally import add_chain
from latticework.samplers.compiled.twin import Keys, Sums, Twin, arrays_of
from latticework.samplers.langevin import DMALA


class LangevinGraphState(NamedTuple):
    x: Tensor  # [chains, sites]
    odds: Tensor  # [chains, sites]
    flip: Tensor  # [chains, sites], as in `LangevinPairState`
    normaliser: Tensor  # [chains], the same


@dataclass(frozen=True)
class LangevinGraphTwin(Twin):
    def start(self, x: Tensor, form: GraphForm) -> LangevinGraphState:
        normaliser = torch.empty(len(x), dtype=torch.float64)
        state = LangevinGraphState(x, torch.empty_like(x), torch.empty_like(x), normaliser)
        price = prices(self.sampler, x.shape[1])
        work = float(len(x) * (3.0 * x.shape[1] + len(form.neighbours)))
        over_chains(weigh_all, len(x), work, form, price, arrays_of(state))
        return state

    def run(
        self, state: LangevinGraphState, form: GraphForm, keys: Keys, sums: Sums
    ) -> LangevinGraphState:
        chains, sites = state.x.shape
        rule = isinstance(self.sampler, DMALA), form, prices(self.sampler, sites)
        work = len(keys) * chains * (3.0 * sites + 0.1 * len(form.neighbours))
        over_chains(move, chains, work, *rule, arrays_of(state), keys, sums)
        return state


@kernel
def weigh_all(first, last, form, price, state):
    for c in range(first, last):
        renew(form, state.x[c], state.odds[c])
        state.normaliser[c] = weigh(state.flip[c], state.x[c], state.odds[c], price, 0, 1)


@kernel
def move(first, last, adjusted, form, price, state, keys, sums):
    """All steps of one chain after the other."""
    (x, odds, flip, normaliser), steps = state, keys.shape[0]
    sites, mask = x.shape[1], renewals(1)
    starts, near, slope = form.starts, form.neighbours, form.slope
    words = np.empty(max(64, sites // 4 * 4 + 4), np.uint32)  # at least one more than the sites
    y, there = np.empty(sites, np.float32), np.empty(sites, np.float32)
    after, flipped = np.empty(sites, np.float32), np.empty(sites, np.uint64)
    for c in range(first, last):
        now, own, here = x[c], odds[c], flip[c]
        for t in range(steps):
            if keys[t] & mask == 0:
                renew(form, now, own)
                normaliser[c] = weigh(here, now, own, price, 0, 1)
            fill(words, keys[t], c, 0)
            flips = propose(y, now, here, words, 0, 1)
            after[:] = own
            list_flips(flipped, now, y)
            for f in range(flips):
                i = flipped[f]
                spread(starts, near, slope, after, i, y[i] - now[i])
            total, level = weigh(there, y, after, price, 0, 1), unit(words[sites])
            if settle(c, adjusted, flips, level, total, normaliser, sums):
                now[:], own[:], here[:] = y, after, there
            add_chain(sums, x, c, t - steps)


@kernel
def list_flips(flipped, x, y):
    """The sites at which both states differ. Nothing branches on them."""
    count = np.uint64(0)
    for i in range(np.uint64(x.shape[0])):
        flipped[count] = i
        count += np.uint64(x[i] != y[i])
