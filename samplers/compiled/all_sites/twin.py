"""DULA, DMALA, ACS, DLMC and DLMCf on pairwise forms: every site decides, and fields follow.

The log-probability is quadratic, so Eq. (3) of Zhang et al. (2022) is a ratio of the normalisers of
Eq. (2); other rules have terms beyond it. The state keeps the fields, what a proposal reads, and
the log normaliser. One chain after the other takes all steps, in the cache.

On lattices it serves where sites are of too many kinds for the kernel in bits.

On large models with a dense coupling all chains of a chunk take a step together. The rows of the
coupling for the sites that change are added to the fields of a chain, unless so many change that a
matrix product for all chains is faster.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.models.forms import GraphForm, LatticeForm, PairForm, forbids
from latticework.models.matmul import affine
from latticework.samplers.acs import ACS
from latticework.samplers.compiled.all_sites.langevin import prices
from latticework.samplers.compiled.all_sites.steps import (
    move_chains,
    step_together,
    weigh_all,
    write_one_hot,
)
from latticework.samplers.compiled.compiled_sampler import (
    CompiledSampler,
    Keys,
    SameObjects,
    Sums,
)
from latticework.samplers.compiled.forms.field_rows import fields_of, numbers_of, rows_of
from latticework.samplers.compiled.forms.pairwise import (
    LISTED,
    ONE_HOT,
    PairwiseForm,
    PottsMatrix,
    graph_of,
    pairwise,
)
from latticework.samplers.compiled.jit import over_chains, over_chunks
from latticework.samplers.dlmc import DLMC, DLMCf
from latticework.samplers.langevin import DULA

MAX_CACHED_FIELDS = 256  # fields up to which rows in the cache are faster than a matrix product
MAX_ROWS_SHARE = 0.2  # share of a dense coupling, up to which rows beat the product
CHUNK_FIELDS = 2**17  # fields of all chains of a chunk: they fit the cache


class AllSitesState(NamedTuple):
    x: Tensor  # [chains, sites] or [chains, sites, q]
    values: Tensor  # [chains, sites], the numbers of one-hot values; else empty
    fields: Tensor  # [chains, sites] or [chains, q * sites]
    law: Tensor  # like `fields`: ratios of binary sites, ladders of others
    normaliser: Tensor  # [chains], log normaliser of the proposal, float64
    phase: Tensor  # [1], the k of the next step in a cycle of rules


class SiteRule(NamedTuple):
    """How a site moves: by Eq. (2), or by `jumps` for a `time` (`samplers.dlmc`)."""

    adjusted: bool
    jumps: bool
    price: NDArray[np.float32]  # [steps of a cycle, sites]
    balance: NDArray[np.float32]  # [steps of a cycle], the factor of a gain
    time: np.float32
    root: bool  # whether the balancing function is the square root
    euler: bool  # whether a jump is an Euler step


class Proposals(NamedTuple):
    """The proposals of the chains of a chunk in a step; each array has a row for a chain."""

    y: NDArray[Any]  # [., sites], values
    fields: NDArray[Any]  # at y
    changes: NDArray[np.int64]  # [.], how many sites change
    level: NDArray[np.float64]  # [.], uniform numbers for the acceptance


@dataclass(frozen=True)
class AllSitesTwin(CompiledSampler):
    def refuses(self, form: Any) -> str:
        if forbids(form):
            return "a model with forbidden values, as it adds to fields and subtracts from them"
        return ""

    def rule(self, form: PairwiseForm, sites: int) -> SiteRule:
        sampler, half = self.sampler, np.full(1, 0.5, np.float32)
        distance = 2.0 if isinstance(form, ONE_HOT) else 1.0  # the squared one of two values
        if isinstance(form, PairForm):
            distance = (form.high - form.low) ** 2
        if isinstance(sampler, DLMC | DLMCf):
            root, euler = sampler.balancing == "sqrt", isinstance(sampler, DLMCf)
            price = np.zeros((1, 0), np.float32)
            return SiteRule(True, True, price, half, np.float32(sampler.time), root, euler)
        if isinstance(sampler, ACS):
            cycle = 0.5 * distance / np.array(sampler.cycle_of_steps())
            price = np.repeat(cycle[:, None], sites, 1).astype(np.float32)
            balance = np.array(sampler.cycle_of_balances(), np.float32)
            return SiteRule(True, False, price, balance, np.float32(0), False, False)
        price, adjusted = prices(sampler, sites, distance)[None], not isinstance(sampler, DULA)
        return SiteRule(adjusted, False, price, half, np.float32(0), False, False)

    def start(self, x: Tensor, form: Any) -> AllSitesState:
        form, chains = _list_pairs(form), len(x)
        fields = fields_of(form, x)
        law = torch.empty_like(fields, dtype=torch.int32 if x.ndim == 3 else torch.float32)
        normaliser = torch.empty(chains, dtype=torch.float64)
        phase = torch.zeros(1, dtype=torch.long)
        state = AllSitesState(x, numbers_of(x), fields, law, normaliser, phase)
        rule = self.rule(form, x.shape[1])
        over_chains(weigh_all, chains, 5.0 * x.numel(), form, rule, rows_of(state))
        return state

    def refresh(self, state: AllSitesState, model: EnergyModel) -> AllSitesState:
        return self.relocate(state.x, state, model)

    def relocate(self, x: Tensor, state: AllSitesState, model: EnergyModel) -> AllSitesState:
        return self.at(x, model)._replace(phase=state.phase)

    def run(self, state: AllSitesState, form: Any, keys: Keys, sums: Sums) -> AllSitesState:
        form, (chains, sites) = _list_pairs(form), state.x.shape[:2]
        rule, size, phase = self.rule(form, sites), state.fields.shape[1], int(state.phase)
        work = 3.0 * chains * len(keys) * size
        if isinstance(form, LISTED) or size <= MAX_CACHED_FIELDS:
            args = form, rule, phase, rows_of(state), keys, sums
            over_chains(move_chains, chains, work, *args)
        else:
            most = max(16, CHUNK_FIELDS // size)
            over_chunks(advance_chunk, chains, most, work, form, rule, phase, state, keys, sums)
        if len(rule.balance) == 1:
            return state
        return state._replace(phase=(state.phase + len(keys)) % len(rule.balance))


def _list_pairs(form: Any) -> PairwiseForm:
    return _graph(SameObjects((form,))) if isinstance(form, LatticeForm) else pairwise(form)


@lru_cache(maxsize=16)
def _graph(of: SameObjects) -> GraphForm:
    return graph_of(*of.objects)


def advance_chunk(
    first: int,
    last: int,
    form: PairwiseForm,
    rule: SiteRule,
    phase: int,
    state: AllSitesState,
    keys: Keys,
    sums: Sums,
) -> None:
    """Advance the chains `first` to `last` together, by a step for each of `keys`."""
    rows, chains = rows_of(state), last - first
    y, fields = np.empty_like(rows.values[first:last]), np.empty_like(rows.fields[first:last])
    proposals = Proposals(y, fields, np.empty(chains, np.int64), np.empty(chains))
    most = int(MAX_ROWS_SHARE * fields.shape[1] / (2 if isinstance(form, ONE_HOT) else 1))
    for t in range(-1, len(keys)):
        if t >= 0 and proposals.changes.max() > most:
            multiply_fields(form, y, fields)
        step_together(first, form, rule, phase, most, rows, proposals, t, keys, sums)


def multiply_fields(form: PairwiseForm, y: NDArray[Any], fields: NDArray[np.float32]) -> None:
    """Compute the fields of all proposals `y` of a chunk by a matrix product."""
    if isinstance(form, PairForm):
        matrix, offset, x = form.matrix, form.offset, y
    else:
        assert isinstance(form, PottsMatrix)
        matrix, offset, x = form.coupling, form.bias.ravel(), np.empty_like(fields)
        write_one_hot(x, y)
    affine(*map(torch.from_numpy, (offset, x, matrix, fields)))
