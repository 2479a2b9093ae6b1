"""Proposals that flip all sites independently, on lattices with one coupling: DULA and DMALA.

A site's proposal depends only on its kind (bias, number of neighbours, preconditioner), its value
and the number of its neighbours at 1. Its flip probability and its part of the acceptance ratio are
therefore read from tables. Chains are advanced one after the other, as bytes in the cache.
`samplers.compiled.dlmc` fills the tables for DLMC.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import LatticeForm
from latticework.samplers.compiled.jit import kernel, over_chains, reordered
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
    excess: NDArray[np.float64]  # [classes], logit - gain / 2; empty if it is a constant


def gains_of(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The gain of a flip, `[kinds, value, neighbours at 1]`, from the log-odds of each kind."""
    return np.stack((odds, -odds), 1)


def tables_of(kind: NDArray, logits: NDArray[np.float64], excess: NDArray[np.float64]) -> Tables:
    """The tables for the flips with these `logits`, `[kinds, value, neighbours at 1]`."""
    return Tables(
        most=logits.shape[2] - 1,
        first=(kind * np.int32(logits[0].size)).astype(np.int32),
        flip=thresholds(1 / (1 + np.exp(-logits))).ravel(),
        softplus=np.logaddexp(0, logits).ravel(),
        excess=excess.ravel(),
    )


@dataclass(frozen=True)
class AllSitesLatticeTwin(Twin):
    adjusted = True  # whether a proposal may be rejected

    def start(self, x: Tensor, form: LatticeForm) -> Position:
        self.tables(form)  # checks the preconditioner
        return Position(x)

    @abstractmethod
    def tables(self, form: LatticeForm) -> Tables:
        """What the kernel reads."""

    def run(
        self, state: Position, form: LatticeForm, keys: NDArray[np.int64], sums: Sums
    ) -> Position:
        x, lattice = state.x.numpy(), (form.sides, form.periodic)
        work, tables = 2.0 * x.size * len(keys), self.tables(form)
        over_chains(flip_all, len(x), work, self.adjusted, *lattice, tables, x, keys, sums)
        return state


@dataclass(frozen=True)
class LangevinLatticeTwin(AllSitesLatticeTwin):
    @property
    def adjusted(self) -> bool:  # type: ignore[override]
        return isinstance(self.sampler, DMALA)

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
        logits = gains_of(odds) / 2 - (0.5 / sampler.step_size / scale)[:, None, None]
        return tables_of(kind, logits, excess=np.empty(0))


@kernel
def flip_all(first, last, adjusted, sides, periodic, tables, x, keys, sums):
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
                # The target is quadratic, so log pi(y) - log pi(x) is half the sum over the flips
                # of the gain at x minus that at y. It cancels against the halved gains in logits.
                normaliser = table_sum(tables.softplus, proposed)
                log_ratio = total - normaliser
                if tables.excess.shape[0]:
                    log_ratio += change(tables.excess, proposed, classes, after, now)
                probability = np.exp(min(log_ratio, 0.0))
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


@reordered
def change(table, new, old, y, x):
    """The sum of `table` over the sites that flip, at the new classes minus at the old ones."""
    total = 0.0
    for i in range(x.shape[0]):
        total += (y[i] ^ x[i]) * (table[np.uint32(new[i])] - table[np.uint32(old[i])])
    return total


@kernel
def propose(y, x, words, limit):
    """Flip each site whose word is below its limit; returns how many."""
    flips = 0
    for i in range(x.shape[0]):
        flip = np.uint8(words[i] < limit[i])
        y[i] = x[i] ^ flip
        flips += flip
    return flips
