"""Gibbs-1 on binary sites: the twin of `samplers.gibbs.Gibbs` with one site a step."""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.forms import GraphForm, LatticeForm, RBMForm
from latticework.samplers.compiled.compiled_sampler import (
    CompiledSampler,
    SameObjects,
    Sums,
    form_of,
)
from latticework.samplers.compiled.draws import draw_bit
from latticework.samplers.compiled.gibbs_rbm import gibbs_rbm
from latticework.samplers.compiled.gibbs_tiles import FEW, MANY, LatticeTable, resample_tiles
from latticework.samplers.compiled.jit import (
    SHORT,
    inlined,
    kernel,
    lean,
    over_chains,
    primitive,
    reordered,
)
from latticework.samplers.compiled.packed_chains import LANES
from latticework.samplers.compiled.philox import thresholds, unit
from latticework.samplers.compiled.run_words import BLOCK, RunSteps, fill_words, next_steps
from latticework.samplers.compiled.running_sums import finish, fresh, leave, record
from latticework.samplers.compiled.scans import next_blocks, start_scan
from latticework.samplers.compiled.sites import (
    BINARY,
    BinaryForm,
    bounds,
    flip,
    memory_of,
    probability,
    renew,
    renewals,
)
from latticework.samplers.scans import Memory

TAME = 1e37  # sums of parameters, far below the largest float32


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

    def draw_keys(self, state: SitesState, steps: int, rng: Generator) -> RunSteps:
        return next_steps(state.scan[0], steps, rng)

    def refresh(self, state: SitesState, model: EnergyModel) -> SitesState:
        return state._replace(memory=memory_of(form_of(model), state.x))

    def relocate(self, x: Tensor, state: SitesState, model: EnergyModel) -> SitesState:
        return self.at(x, model)._replace(scan=state.scan)


@dataclass(frozen=True)
class GibbsTwin(SitesTwin):
    def run(self, state: SitesState, form: BinaryForm, run: RunSteps, sums: Sums) -> SitesState:
        x, memory = state.x.numpy(), state.memory.numpy()
        sites = next_blocks(self.sampler.scan, state.scan, 1, x.shape[1], run)[:, 0].copy()
        work = len(x) * run.steps * (10.0 + memory.shape[1])
        lattice, rest = isinstance(form, LatticeForm), (x, run, sites, sums)
        table = table_of(SameObjects((form,))) if isinstance(form, LatticeForm) else form
        if prefers_tiles(form, len(x), run.steps):
            over_chains(
                resample_tiles, len(x), work, table, *rest, fewest=SHORT if lattice else LANES
            )
        elif lattice:
            over_chains(gibbs_lattice, len(x), work, table, *rest, fewest=SHORT)
        else:
            resample = gibbs_rbm if isinstance(form, RBMForm) else gibbs
            over_chains(resample, len(x), work, form, x, memory, run, sites, sums)
        sums.accept[:] += run.steps
        return state


@lru_cache(maxsize=8)
def table_of(form: SameObjects) -> LatticeTable:
    (lattice,) = form.objects
    threshold = thresholds(lattice.high)
    return LatticeTable(lattice.neighbours, lattice.degree, lattice.kind, threshold)


def prefers_tiles(form: BinaryForm, chains: int, steps: int) -> bool:
    """Whether these steps take less time by `gibbs_tiles`, which gives the same numbers.

    What a step saves there is what it costs to load so many sites, measured.
    """
    if isinstance(form, LatticeForm):
        return steps * (3 if chains >= FEW else 0.5) > len(form.degree)
    if not isinstance(form, GraphForm) or chains < 3 or steps * 50 < len(form.offset):
        return False
    return sum_sizes(form.slope, form.offset) < TAME  # log-odds are finite, so none is counted


@reordered
def sum_sizes(slope, offset):
    total = 0.0
    for k in range(slope.shape[0]):
        total += abs(np.float64(slope[k]))
    for i in range(offset.shape[0]):
        total += abs(offset[i])
    return total


@kernel
def gibbs(first, last, form, x, memory, run, sites, sums):
    """Resample `sites[t]` of each chain in step t."""
    steps, (low, high) = run.steps, bounds(form)
    words = np.empty((BLOCK, last - first), np.uint32)
    total, changed, invalid = sums.total, sums.changed, sums.invalid
    since, mask = fresh(sums, first, last, x.shape[1]), renewals(x.shape[1])
    for t in range(steps):
        step = run.first + t
        i, now = sites[t], step % BLOCK
        if t == 0 or now == 0:
            fill_words(words, run.key, step, run.first + steps, first, 0)
        for c in range(first, last):
            if step & mask == mask:
                renew(form, x, memory, c)
            old = x[c, i]
            is_high, unknown = draw_high(form, x, memory, c, i, words[now, c - first])
            if unknown:
                invalid[c] += 1
            else:
                new = high if is_high else low
                if new != old:
                    changed[c] += 1
                    leave(total, since, first, c, i, old, t)
                    flip(form, x, memory, c, i)
        record(sums, first, last, x, t, steps)
    finish(sums, since, first, x, steps)


@kernel
def gibbs_lattice(first, last, form, x, run, sites, sums):
    """`gibbs` with a table of probabilities, and without a branch on what is drawn."""
    steps = run.steps
    words = np.empty((BLOCK, last - first), np.uint32)
    total, changed, traced = sums.total, sums.changed, sums.trace.shape[0] > 0
    since = fresh(sums, first, last, x.shape[1])
    neighbours, degree, kind, threshold = form
    near = np.empty(neighbours.shape[1], np.int64)
    for t in range(steps):
        step = run.first + t
        i, now = sites[t], step % BLOCK
        if t == 0 or now == 0:
            fill_words(words, run.key, step, run.first + steps, first, 0)
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
            new = np.float32(words[now, c - first] < threshold[row, np.uint32(ones)])
            old = x[c, i]
            x[c, i] = new
            changed[c] += np.int64(new != old)
            leave(total, since, first, c, i, old, t)
        if traced:
            record(sums, first, last, x, t, steps)
    finish(sums, since, first, x, steps)


def draw_high(form, x, memory, c, i, word):
    """Whether site `i` gets its high value, and whether its probability is NaN."""
    raise NotImplementedError


def draw_by_probability(form, x, memory, c, i, word):
    p = probability(form, x, memory, c, i)
    return unit(word) < p, np.isnan(p)


def draw_of_graph(form, x, memory, c, i, word):
    odds = graph_log_odds(form, x, c, i)
    return draw_bit(word, odds), np.isnan(odds)


@inlined
def graph_log_odds(form, x, c, i):
    """The log-odds of a site, by the operations of `gibbs_tiles.find_odds`."""
    start, stop = form.starts[i], form.starts[i + 1]
    if stop - start <= MANY:
        return add_slopes(form, x, c, start, stop, np.float32(form.offset[i]))
    total = form.offset[i]
    for k in range(start, stop, MANY):
        total += add_slopes(form, x, c, k, min(k + MANY, stop), np.float32(0))
    return np.float32(total)


@lean
def add_slopes(form, x, c, start, stop, base):
    """`base` + the slopes of neighbours at 1: four sums, as those of `packed_chains`."""
    whole, near, slope = stop - (stop - start) % 4, form.neighbours, form.slope
    zero = np.float32(0)
    a, b, d, e = base, zero, zero, zero
    for k in range(start, whole, 4):
        a += slope[k] * x[c, near[k]]
        b += slope[k + 1] * x[c, near[k + 1]]
        d += slope[k + 2] * x[c, near[k + 2]]
        e += slope[k + 3] * x[c, near[k + 3]]
    for k in range(whole, stop):
        a += slope[k] * x[c, near[k]]
    return ((a + b) + d) + e


primitive(
    draw_high,
    dict.fromkeys(BINARY, draw_by_probability) | {GraphForm: draw_of_graph},
    makes_arrays=True,
)
