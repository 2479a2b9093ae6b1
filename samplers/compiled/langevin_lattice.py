"""DULA and DMALA on lattices with one coupling.

A site's proposal depends only on its kind (bias, number of neighbours, preconditioner), its value
and the number of its neighbours at 1. Its flip probability and its part of the log normaliser are
therefore read from tables. Chains are advanced one after the other, as bytes in the cache.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import LatticeForm
from latticework.samplers.compiled.jit import kernel, over_chains
from latticework.samplers.compiled.lattice import (
    add_bytes,
    classify,
    copy_bytes,
    count_ones,
    look_up,
    table_sum,
)
from latticework.samplers.compiled.philox import fill, thresholds, unit
from latticework.samplers.compiled.twin import Position, Sums, Twin
from latticework.samplers.langevin import DMALA


class Tables(NamedTuple):
    """What a step reads for each class of sites (`compiled.lattice`)."""

    most: int  # neighbours of a site
    first: NDArray[np.int32]  # [sites], the first class of the site's kind
    flip: NDArray[np.uint32]  # [classes], words below this flip the site
    softplus: NDArray[np.float64]  # [classes], log(1 + exp(logit of the flip))


@dataclass(frozen=True)
class LangevinLatticeTwin(Twin):
    def start(self, x: Tensor, form: LatticeForm) -> Position:
        self.tables(form)  # checks the preconditioner
        return Position(x)

    def tables(self, form: LatticeForm) -> Tables:
        """Eq. (2) of Zhang et al. (2022): logit = gain / 2 - 1 / (2 alpha g)."""
        sampler, odds, scale = self.sampler, form.odds, np.ones(1)
        kind: NDArray = form.kind
        if sampler.preconditioner is not None:
            given = np.array(sampler.preconditioner) ** sampler.preconditioner_power
            if len(given) != len(kind):
                raise ValueError(f"preconditioner must have {len(kind)} entries, got {len(given)}")
            pairs, kind = np.unique(np.stack((kind, given)), axis=1, return_inverse=True)
            odds, scale = odds[pairs[0].astype(int)], pairs[1]
        gains = np.stack((odds, -odds), 1)  # [kinds, value, neighbours at 1]
        logits = gains / 2 - (0.5 / sampler.step_size / scale)[:, None, None]
        width = gains[0].size
        return Tables(
            most=odds.shape[1] - 1,
            first=(kind * np.int32(width)).astype(np.int32),
            flip=thresholds(1 / (1 + np.exp(-logits))).ravel(),
            softplus=np.logaddexp(0, logits).ravel(),
        )

    def run(
        self, state: Position, form: LatticeForm, keys: NDArray[np.int64], sums: Sums
    ) -> Position:
        x, adjusted = state.x.numpy(), isinstance(self.sampler, DMALA)
        lattice = form.sides, form.periodic
        work = 2.0 * x.size * len(keys)
        over_chains(langevin, len(x), work, adjusted, *lattice, self.tables(form), x, keys, sums)
        return state


@kernel
def langevin(first, last, adjusted, sides, periodic, tables, x, keys, sums):
    sites, steps = x.shape[1], keys.shape[0]
    values = np.int32(tables.most + 1)
    words = np.empty(sites // 4 * 4 + 4, np.uint32)  # at least one more than the sites
    draws, limit = words[:sites], np.empty(sites, np.uint32)
    now, after = np.empty(sites, np.uint8), np.empty(sites, np.uint8)
    ones = np.empty(sites, np.uint8)
    classes, proposed = np.empty(sites, np.int32), np.empty(sites, np.int32)
    for c in range(first, last):
        for i in range(sites):
            now[i] = np.uint8(x[c, i])
        count_ones(now, ones, sides, periodic)
        classify(classes, tables.first, ones, now, values)
        total = table_sum(tables.softplus, classes)
        for t in range(steps):
            fill(words, keys[t], c, 0)
            look_up(limit, tables.flip, classes)
            flips = propose(after, now, draws, limit)
            count_ones(after, ones, sides, periodic)
            classify(proposed, tables.first, ones, after, values)
            accepted, probability = True, 1.0
            if adjusted:
                # On a quadratic target, Eq. (3) is a ratio of the two normalisers.
                normaliser = table_sum(tables.softplus, proposed)
                probability = np.exp(min(total - normaliser, 0.0))
                accepted = unit(words[sites]) < probability
            sums.accept[c] += probability
            if accepted:
                now, after, classes, proposed = after, now, proposed, classes
                sums.changed[c] += flips
                if adjusted:
                    total = normaliser
            if sums.total.shape[0]:
                add_bytes(sums.total[c], now)
            if c < sums.trace.shape[1] and t >= steps - sums.trace.shape[0]:
                copy_bytes(sums.trace[t - (steps - sums.trace.shape[0]), c], now)
        for i in range(sites):
            x[c, i] = now[i]


@kernel
def propose(y, x, words, limit):
    """Flip each site whose word is below its limit; returns how many."""
    flips = 0
    for i in range(x.shape[0]):
        flip = np.uint8(words[i] < limit[i])
        y[i] = x[i] ^ flip
        flips += flip
    return flips
