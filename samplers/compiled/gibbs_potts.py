"""Gibbs-X on Potts models: the twin of `samplers.gibbs` on one-hot sites.

All joint values of a block are listed, the last site fastest. Row k of `fields` holds the fields of
the block's sites when the first k have their values, so each joint value costs a few additions.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.forms import (
    PottsForm,
    PottsGraphForm,
    forbids,
)
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Sums, form_of
from latticework.samplers.compiled.draws import draw
from latticework.samplers.compiled.fields import numbers_of
from latticework.samplers.compiled.gibbs import resample_sites
from latticework.samplers.compiled.jit import copy, kernel, lean, over_chains, primitive
from latticework.samplers.compiled.philox import unit
from latticework.samplers.compiled.potts import POTTS, field, move, set_value
from latticework.samplers.compiled.run_words import BLOCK, RunSteps, fill_words, next_steps
from latticework.samplers.compiled.running_sums import finish, fresh, record
from latticework.samplers.compiled.scans import next_blocks, start_scan
from latticework.samplers.compiled.sites import memory_of, renew, renewals
from latticework.samplers.scans import Memory


class GibbsPottsState(NamedTuple):
    x: Tensor  # [chains, sites, q]
    values: Tensor  # [chains, sites]
    memory: Tensor  # [chains, sites * q], or empty
    scan: Memory


@dataclass(frozen=True)
class GibbsPottsTwin(CompiledSampler):
    def refuses(self, form: PottsForm | PottsGraphForm) -> str:
        if self.sampler.sites > 1 and forbids(form):
            return "blocks of a model with forbidden values, as it subtracts couplings"
        return ""

    def start(self, x: Tensor, form: PottsForm | PottsGraphForm) -> GibbsPottsState:
        scan = start_scan(self.sampler.scan, self.sampler.sites, x.shape[1])
        return GibbsPottsState(x, numbers_of(x), memory_of(form, x), scan)

    def draw_keys(self, state: GibbsPottsState, steps: int, rng: Generator) -> RunSteps:
        return next_steps(state.scan[0], steps, rng)

    def refresh(self, state: GibbsPottsState, model: EnergyModel) -> GibbsPottsState:
        return state._replace(memory=memory_of(form_of(model), state.x))

    def relocate(self, x: Tensor, state: GibbsPottsState, model: EnergyModel) -> GibbsPottsState:
        return self.at(x, model)._replace(scan=state.scan)

    def run(
        self, state: GibbsPottsState, form: PottsForm | PottsGraphForm, run: RunSteps, sums: Sums
    ) -> GibbsPottsState:
        chains, sites, q = state.x.shape
        x, memory = state.x.view(chains, -1), state.memory
        arrays = x.numpy(), state.values.numpy(), memory.numpy()
        blocks = next_blocks(self.sampler.scan, state.scan, self.sampler.sites, sites, run)
        if self.sampler.sites == 1:
            resample_sites(form, *arrays, run, blocks[:, 0].copy(), sums)
            return state
        work = chains * run.steps * (5.0 * q**self.sampler.sites + memory.shape[1])
        over_chains(resample, chains, work, form, *arrays, run, blocks, sums)
        sums.accept[:] += run.steps
        return state


@kernel
def resample(first, last, form, x, values, memory, run, blocks, sums):
    """Resample `blocks[t]` of each chain in step t."""
    (steps, sites), q = blocks.shape, form.bias.shape[1]
    words = np.empty((BLOCK, last - first), np.uint32)
    fields = np.empty((sites, sites, q))  # float64: a hub adds up very many couplings
    inside = np.zeros((sites, q, sites, q), np.float32)
    log_probs, weights = np.empty(q**sites), np.empty(q**sites, np.float32)
    now, before = np.empty(sites, np.int64), np.zeros(sites + 1)
    total, changed, invalid = sums.total, sums.changed, sums.invalid
    since, mask = fresh(sums, first, last, x.shape[1]), renewals(values.shape[1])
    for t in range(steps):
        step = run.first + t
        block, row = blocks[t], step % BLOCK
        couple(form, block, inside)
        if t == 0 or row == 0:
            fill_words(words, run.key, step, run.first + steps, first, 0)
        for c in range(first, last):
            if step & mask == mask:
                renew(form, values, memory, c)
            for k in range(sites):
                field(form, values, memory, c, block[k], fields[0, k])
            for k in range(sites):
                add(fields[0], fields[0], inside[k, values[c, block[k]]], np.float32(-1))
            now[:] = 0
            k = 0
            for s in range(len(log_probs)):
                while k < sites:  # the sites whose values have changed since the last joint value
                    before[k + 1] = before[k] + fields[k, k, now[k]]
                    if k + 1 < sites:
                        add(fields[k + 1], fields[k], inside[k, now[k]], np.float32(1))
                    k += 1
                log_probs[s] = before[sites]
                while k > 0:
                    k -= 1
                    now[k] += 1
                    if now[k] < q:
                        break
                    now[k] = 0
            s, unknown = draw(log_probs, weights, unit(words[row, c - first]))
            if s < 0 or unknown:
                invalid[c] += 1
            for k in range(sites - 1, -1, -1):
                i = np.int64(block[k])
                old, new = values[c, i], s % q
                s //= q
                if s >= 0 and new != old:
                    set_value(x, values, total, changed, since, first, c, i, new, q, t)
                    move(form, memory, c, i, old, new)
        record(sums, first, last, x, t, steps)
    finish(sums, since, first, x, steps)


@lean
def add(out, fields, inside, sign):
    """`out[:] = fields + sign * inside`, each `[sites, q]`."""
    for m in range(out.shape[0]):
        for v in range(out.shape[1]):
            out[m, v] = fields[m, v] + sign * inside[m, v]


def couple(form, block, inside):
    """Write the coupling inside a block, `[sites, q, sites, q]`."""
    raise NotImplementedError


def lattice_couple(form, block, inside):
    inside[:] = 0
    for k, i in enumerate(block):
        for edge in range(form.degree[i]):
            for m in range(block.shape[0]):
                if form.neighbours[i, edge] == block[m]:
                    for v in range(inside.shape[1]):
                        inside[k, v, m, v] += np.float32(form.coupling)


def graph_couple(form, block, inside):
    inside[:] = 0
    for k, i in enumerate(block):
        for edge in range(form.starts[i], form.starts[i + 1]):
            for m in range(block.shape[0]):
                if form.neighbours[edge] == block[m]:
                    for v in range(inside.shape[1]):
                        inside[k, v, m, v] += form.coupling[edge]


def pair_couple(form, block, inside):
    q = inside.shape[1]
    for k, i in enumerate(block):
        for m, j in enumerate(block):
            for v in range(q):
                copy(inside[k, v, m], form.coupling[i * q + v, j * q : (j + 1) * q])


COUPLE = dict(zip(POTTS, (lattice_couple, graph_couple, pair_couple), strict=True))
primitive(couple, COUPLE)
