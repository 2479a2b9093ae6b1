"""Gibbs-X on Potts models: the twin of `samplers.gibbs` on one-hot sites.

All joint values of a block are listed, the last site fastest. Row k of `inner` holds the fields of
the block's sites when the first k have their values, so each joint value costs a few additions.
"""

from dataclasses import dataclass

import numpy as np

from latticework.models.forms import PottsForm, PottsGraphForm, PottsPairForm, forbids
from latticework.samplers.compiled.compiled_sampler import Sums
from latticework.samplers.compiled.draws import draw
from latticework.samplers.compiled.fields import (
    change_site,
    count_values,
    find_field,
    renew,
    renewals,
)
from latticework.samplers.compiled.gibbs import SitesState, SitesTwin, site_rows
from latticework.samplers.compiled.jit import copy, kernel, lean, over_chains, primitive
from latticework.samplers.compiled.pairwise import PottsLists, list_neighbours
from latticework.samplers.compiled.philox import unit
from latticework.samplers.compiled.run_words import BLOCK, RunSteps, fill_words
from latticework.samplers.compiled.running_sums import finish, fresh, record
from latticework.samplers.compiled.scans import next_blocks


@dataclass(frozen=True)
class PottsBlockTwin(SitesTwin):
    def refuses(self, form: PottsForm | PottsGraphForm) -> str:
        if forbids(form):
            return "blocks of a model with forbidden values, as it subtracts couplings"
        return ""

    def run(
        self, state: SitesState, form: PottsForm | PottsGraphForm, run: RunSteps, sums: Sums
    ) -> SitesState:
        (chains, dim, q), sites, rows = state.x.shape, self.sampler.sites, site_rows(state)
        blocks = next_blocks(self.sampler.scan, state.scan, sites, dim, run)
        work = chains * run.steps * (5.0 * q**sites + state.fields.shape[1])
        over_chains(resample, chains, work, list_neighbours(form), *rows, run, blocks, sums)
        sums.accept[:] += run.steps
        return state


@kernel
def resample(first, last, form, x, values, fields, run, blocks, sums):
    """Resample `blocks[t]` of each chain in step t."""
    (steps, sites), q = blocks.shape, count_values(form)
    words = np.empty((BLOCK, last - first), np.uint32)
    inner = np.empty((sites, sites, q))  # float64: a hub adds up very many couplings
    inside = np.zeros((sites, q, sites, q), np.float32)
    log_probs, weights = np.empty(q**sites), np.empty(q**sites, np.float32)
    now, before = np.empty(sites, np.int64), np.zeros(sites + 1)
    since, mask = fresh(sums, first, last, x.shape[1]), renewals(values.shape[1])
    kept = sums.total, since, sums.changed, sums.invalid
    for t in range(steps):
        step = run.first + t
        block, row = blocks[t], step % BLOCK
        couple(form, block, inside)
        if t == 0 or row == 0:
            fill_words(words, run.key, step, run.first + steps, first, 0)
        for c in range(first, last):
            if step & mask == mask:
                renew(form, values[c], fields[c])
            for k in range(sites):
                find_field(form, values[c], fields[c], block[k], inner[0, k])
            for k in range(sites):
                add(inner[0], inner[0], inside[k, values[c, block[k]]], np.float32(-1))
            now[:] = 0
            k = 0
            for s in range(len(log_probs)):
                while k < sites:  # the sites whose values have changed since the last joint value
                    before[k + 1] = before[k] + inner[k, k, now[k]]
                    if k + 1 < sites:
                        add(inner[k + 1], inner[k], inside[k, now[k]], np.float32(1))
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
                sums.invalid[c] += 1
            for k in range(sites - 1, -1, -1):
                i = np.int64(block[k])
                new = s % q
                s //= q
                if s >= 0 and new != values[c, i]:
                    change_site(form, x, values, fields, c, i, new, kept, first, t)
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


def lists_couple(form, block, inside):
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


primitive(couple, {PottsLists: lists_couple, PottsPairForm: pair_couple})
