"""Gibbs-1 on binary sites: the twin of `samplers.gibbs.Gibbs` with one site a step."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.models.forms import LatticeForm, RBMForm
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Keys, Sums, form_of
from latticework.samplers.compiled.gibbs_rbm import gibbs_rbm
from latticework.samplers.compiled.jit import SHORT, kernel, over_chains
from latticework.samplers.compiled.philox import AHEAD, fill_ahead, thresholds, unit
from latticework.samplers.compiled.running_sums import finish, fresh, leave, record
from latticework.samplers.compiled.scans import next_blocks, start_scan
from latticework.samplers.compiled.sites import (
    BinaryForm,
    bounds,
    flip,
    memory_of,
    probability,
    renew,
    renewals,
)
from latticework.samplers.scans import Memory


class SitesState(NamedTuple):
    x: Tensor  # [chains, sites]
    memory: Tensor  # [chains, ...], of the form (`compiled.sites`)
    scan: Memory


@dataclass(frozen=True)
class SitesTwin(CompiledSampler):
    """A twin that changes the sites of one block a step, with `sites` and `scan` of its sampler."""

    def start(self, x: Tensor, form: BinaryForm) -> SitesState:
        scan = start_scan(self.sampler.scan, self.sampler.sites, x.shape[1])
        return SitesState(x, memory_of(form, x), scan)

    def refresh(self, state: SitesState, model: EnergyModel) -> SitesState:
        return state._replace(memory=memory_of(form_of(model), state.x))

    def relocate(self, x: Tensor, state: SitesState, model: EnergyModel) -> SitesState:
        return self.at(x, model)._replace(scan=state.scan)


@dataclass(frozen=True)
class GibbsTwin(SitesTwin):
    def run(self, state: SitesState, form: BinaryForm, keys: Keys, sums: Sums) -> SitesState:
        x, memory = state.x.numpy(), state.memory.numpy()
        sites = next_blocks(self.sampler.scan, state.scan, 1, x.shape[1], keys)[:, 0].copy()
        work = len(x) * len(keys) * (10.0 + memory.shape[1])
        if isinstance(form, LatticeForm):
            lattice = (form.neighbours, form.degree, form.kind, thresholds(form.high))
            args = x, *lattice, keys, sites, sums
            over_chains(gibbs_lattice, len(x), work, *args, fewest=SHORT)
        else:
            resample = gibbs_rbm if isinstance(form, RBMForm) else gibbs
            over_chains(resample, len(x), work, form, x, memory, keys, sites, sums)
        sums.accept[:] += len(keys)
        return state


@kernel
def gibbs(first, last, form, x, memory, keys, sites, sums):
    """Resample `sites[t]` of each chain in step t."""
    steps, (low, high), start = keys.shape[0], bounds(form), first // 4 * 4
    words = np.empty(((last + 3) // 4 * 4 - start, AHEAD), np.uint32)
    total, changed, invalid = sums.total, sums.changed, sums.invalid
    since, mask = fresh(sums, first, last, x.shape[1]), renewals(x.shape[1])
    for t in range(steps):
        i, now = sites[t], t % AHEAD
        if now == 0:
            fill_ahead(words, keys[t : t + AHEAD], start, 0)
        for c in range(first, last):
            if keys[t] & mask == 0:
                renew(form, x, memory, c)
            old, p = x[c, i], probability(form, x, memory, c, i)
            if np.isnan(p):
                invalid[c] += 1
            else:
                new = high if unit(words[c - start, now]) < p else low
                if new != old:
                    changed[c] += 1
                    leave(total, since, first, c, i, old, t)
                    flip(form, x, memory, c, i)
        record(sums, first, last, x, t, steps)
    finish(sums, since, first, x, steps)


@kernel
def gibbs_lattice(first, last, x, neighbours, degree, kind, threshold, keys, sites, sums):
    """`gibbs` with a table of probabilities, and without a branch on what is drawn."""
    steps, start = keys.shape[0], first // 4 * 4
    words = np.empty(((last + 3) // 4 * 4 - start, AHEAD), np.uint32)
    total, changed, traced = sums.total, sums.changed, sums.trace.shape[0] > 0
    since = fresh(sums, first, last, x.shape[1])
    near = np.empty(neighbours.shape[1], np.int64)
    for t in range(steps):
        i, now = sites[t], t % AHEAD
        if now == 0:
            fill_ahead(words, keys[t : t + AHEAD], start, 0)
        count, row = degree[i], kind[i]
        for k in range(count):
            near[k] = neighbours[i, k]
        for c in range(first, last):
            if count == 4:  # a loop of unknown length takes longer
                ones = x[c, near[0]] + x[c, near[1]] + x[c, near[2]] + x[c, near[3]]
            else:
                ones = np.float32(0)
                for k in range(count):
                    ones += x[c, near[k]]
            new = np.float32(words[c - start, now] < threshold[row, np.uint32(ones)])
            old = x[c, i]
            x[c, i] = new
            changed[c] += np.int64(new != old)
            leave(total, since, first, c, i, old, t)
        if traced:
            record(sums, first, last, x, t, steps)
    finish(sums, since, first, x, steps)
