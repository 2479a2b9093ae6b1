"""Gibbs-1 on any form: the twin of `samplers.gibbs.Gibbs`."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.forms import Form, GraphForm, LatticeForm, RBMForm
from latticework.samplers.compiled.compiled_sampler import (
    CompiledSampler,
    SameObjects,
    Sums,
    form_of,
)
from latticework.samplers.compiled.forms.field_rows import dense_fields_of, numbers_of
from latticework.samplers.compiled.forms.fields import renew_fields, renewal_mask
from latticework.samplers.compiled.forms.pairwise import (
    LatticeTable,
    PairwiseForm,
    PottsLists,
    list_neighbours,
)
from latticework.samplers.compiled.jit import MIN_THREAD_CHAINS, kernel, over_chains
from latticework.samplers.compiled.philox import thresholds
from latticework.samplers.compiled.resampling.gibbs_sites import prepare, resample_site, room_of
from latticework.samplers.compiled.resampling.gibbs_tiles import resample_tiles
from latticework.samplers.compiled.resampling.scans import next_blocks, next_row, start_scan
from latticework.samplers.compiled.resampling.tile_values import MIN_VECTOR_CHAINS
from latticework.samplers.compiled.run_words import BLOCK_STEPS, RunSteps, fill_words, next_steps
from latticework.samplers.compiled.running_sums import add_last_values, record_chains, start_since
from latticework.samplers.compiled.sweeps.packed_chains import LANES
from latticework.samplers.scans import Memory

MAX_TAME_SUM = 1e37  # sums of parameters, far below the largest float32


class SitesState(NamedTuple):
    x: Tensor  # [chains, sites] or [chains, sites, q]
    values: Tensor  # [chains, sites], the numbers of one-hot values; else empty
    fields: Tensor  # [chains, ...], of dense forms (`compiled.forms.fields`)
    scan: Memory


@dataclass(frozen=True)
class SitesTwin(CompiledSampler):
    """A twin that changes the sites of one block a step, with `sites` and `scan` of its sampler."""

    def start(self, x: Tensor, form: Form) -> SitesState:
        scan = start_scan(self.sampler.scan, self.sampler.sites, x.shape[1])
        return SitesState(x, numbers_of(x), dense_fields_of(form, x), scan)

    def draw_keys(self, state: SitesState, steps: int, rng: Generator) -> RunSteps:
        return next_steps(state.scan[0], steps, rng)

    def refresh(self, state: SitesState, model: EnergyModel) -> SitesState:
        return state._replace(fields=dense_fields_of(form_of(model), state.x))

    def relocate(self, x: Tensor, state: SitesState, model: EnergyModel) -> SitesState:
        return self.at(x, model)._replace(scan=state.scan)


@dataclass(frozen=True)
class GibbsTwin(SitesTwin):
    def run(self, state: SitesState, form: Form, run: RunSteps, sums: Sums) -> SitesState:
        x, values, fields = site_rows(state)
        (chains, size), dim = x.shape, values.shape[1]
        sites = next_blocks(self.sampler.scan, state.scan, 1, dim, run).ravel()
        work = chains * run.steps * (5.0 + 5.0 * (size // dim) + fields.shape[1])
        on_lattice = isinstance(form, LatticeForm)
        read: Any = table_of(SameObjects((form,))) if on_lattice else list_neighbours(form)
        if prefers_tiles(read, chains, run.steps):
            fewest = LANES if isinstance(form, GraphForm) else MIN_THREAD_CHAINS
            args: tuple[Any, ...] = read, x, values, run, sites, sums
            over_chains(resample_tiles, chains, work, *args, fewest=fewest)
        else:
            fewest = MIN_THREAD_CHAINS if on_lattice else 1
            args = read, x, values, fields, run, sites, sums
            over_chains(resample_sites, chains, work, *args, fewest=fewest)
        sums.accept[:] += run.steps
        return state


def site_rows(state: SitesState) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[np.float32]]:
    """The states, values and fields as rows of chains; the values of binary sites are x."""
    x, fields = state.x.numpy(), state.fields.numpy()
    if x.ndim == 2:
        return x, x, fields
    return x.reshape(len(x), -1), state.values.numpy(), fields


@lru_cache(maxsize=8)
def table_of(form: SameObjects) -> LatticeTable:
    (lattice,) = form.objects
    threshold = thresholds(lattice.high)
    return LatticeTable(lattice.neighbours, lattice.degree, lattice.kind, threshold)


def prefers_tiles(form: LatticeTable | PairwiseForm | RBMForm, chains: int, steps: int) -> bool:
    """Whether these steps take less time by `gibbs_tiles`, which gives the same numbers.

    What a step saves there is what it costs to load so many sites, measured.
    """
    if isinstance(form, LatticeTable):
        return steps * (3 if chains >= MIN_VECTOR_CHAINS else 0.5) > len(form.degree)
    # Tiles count no unknown draws. Small parameters have finite log-odds, so there are none.
    if isinstance(form, GraphForm):
        saved = 40 + 4 * len(form.neighbours) / len(form.offset)
        pays = chains >= 3 and steps * saved > len(form.offset)
        return pays and is_tame(form.slope, form.offset)
    if isinstance(form, PottsLists):
        pays = chains >= MIN_VECTOR_CHAINS and steps * 4 > form.bias.shape[1]
        return pays and is_tame(form.coupling, form.bias)
    return False


def is_tame(*parameters: NDArray[Any]) -> bool:
    """Whether no sum of some of these numbers is large, or unknown."""
    return all(part.size * float(np.abs(part).max(initial=0)) < MAX_TAME_SUM for part in parameters)


@kernel
def resample_sites(first, last, form, x, values, fields, run, sites, sums):
    """Resample a site of each chain in each step: one of `sites` after the other, in rounds.

    `values` are x itself unless that is one-hot.
    """
    steps, mask, room = run.steps, renewal_mask(values.shape[1]), room_of(form)
    words = np.empty((BLOCK_STEPS, last - first), np.uint32)
    word_room = np.empty(BLOCK_STEPS, np.uint32)
    since = start_since(sums, first, last, x.shape[1])
    running = sums.total, since, sums.changed, sums.invalid
    traced, turn = sums.trace.shape[0] > 0, 0
    for t in range(steps):
        step = run.first + t
        i, now = sites[turn], step % BLOCK_STEPS
        turn = next_row(turn, sites)
        if t == 0 or now == 0:
            fill_words(words, word_room, run.key, step, run.first + steps, first, 0)
        if step & mask == mask:
            for c in range(first, last):
                renew_fields(form, values[c], fields[c])
        prepare(form, i, room)
        for c in range(first, last):
            resample_site(
                form, x, values, fields, c, i, words[now, c - first], room, running, first, t
            )
        if traced:
            record_chains(sums, first, last, x, t, steps)
    add_last_values(sums, since, first, x, steps)
