"""DULA, DMALA, ACS, DLMC and DLMCf on lattices with one coupling: the twins of `all_sites_rows`."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.models.forms import LatticeForm
from latticework.samplers.compiled.all_sites.langevin import scales
from latticework.samplers.compiled.bits.all_sites_rows import AllSitesRows, flip_rows
from latticework.samplers.compiled.bits.decisions import Chances
from latticework.samplers.compiled.bits.lattice_rows import fit_lanes, pack_lattice, repeat_rows
from latticework.samplers.compiled.bits.sweep_chances import pad_numbers
from latticework.samplers.compiled.bits.sweep_lattice import refuse_degree
from latticework.samplers.compiled.bits.vectors import copy_aligned
from latticework.samplers.compiled.compiled_sampler import (
    GroupTwin,
    Keys,
    Position,
    SameObjects,
    Sums,
)
from latticework.samplers.compiled.jit import over_chains
from latticework.samplers.dlmc import DLMC
from latticework.samplers.langevin import DMALA

NANOSECONDS = 0.1  # for a site, roughly
MAX_KINDS = 12  # kinds of sites, each of which is counted for an acceptance


class FlipLogits(NamedTuple):
    """The log-odds of flips in a step, by classes of sites: `[kinds, value, neighbours at 1]`."""

    kind: NDArray[Any]  # [sites], whole numbers
    logits: NDArray[np.float64]
    excess: NDArray[np.float64] | None  # logit - gain / 2, unless that is a constant


@dataclass(frozen=True)
class AllSitesLatticeTwin(GroupTwin):
    is_adjusted = False  # whether a step may be rejected

    def refuses(self, form: LatticeForm) -> str:
        kinds = 1 + int(self.steps(form)[0].kind.max())
        if self.is_adjusted and kinds > MAX_KINDS:
            return f"{kinds} kinds of sites ({MAX_KINDS} at most)"
        return refuse_degree(form)

    def start(self, x: Tensor, form: LatticeForm) -> Any:
        _rows_of_forms(SameObjects((self, form)))  # checks the settings
        return Position(x)

    @abstractmethod
    def steps(self, form: LatticeForm) -> list[FlipLogits]:
        """The numbers of each step of a cycle. They differ in nothing else."""

    def run_groups(
        self,
        x: NDArray[np.float32],
        rows: NDArray[np.int64],
        forms: tuple[LatticeForm, ...],
        keys: Keys,
        sums: Sums,
        phase: int = 0,
    ) -> None:
        """One step for each of `keys`; the first is number `phase` of its cycle."""
        numbers = _rows_of_forms(SameObjects((self, *forms)))
        groups, size = rows.shape
        tiles, work = groups * -(-size // numbers.lattice.rows), NANOSECONDS * x.size * len(keys)
        numbers = numbers._replace(lattice=fit_lanes(numbers.lattice, size))
        args = self.is_adjusted, numbers, phase, size, rows.ravel(), x, keys, sums
        over_chains(flip_rows, tiles, work, *args)
        if not self.is_adjusted and np.isnan(forms[0].odds).any():
            sums.invalid[:] += len(keys)


@dataclass(frozen=True)
class LangevinLatticeTwin(AllSitesLatticeTwin):
    @property
    def is_adjusted(self) -> bool:  # type: ignore[override]
        return isinstance(self.sampler, DMALA)

    def steps(self, form: LatticeForm) -> list[FlipLogits]:
        """Eq. (2) of Zhang et al. (2022): logit = gain / 2 - 1 / (2 alpha g)."""
        kind, odds, scale = form.kind, form.odds, np.ones(1)
        if self.sampler.preconditioner is not None:
            given = np.stack((kind, scales(self.sampler, len(kind))))
            pairs, kind = np.unique(given, axis=1, return_inverse=True)
            odds, scale = odds[pairs[0].astype(int)], pairs[1]
        price = (0.5 / self.sampler.step_size / scale)[:, None, None]
        return [FlipLogits(kind, gains_of(odds) / 2 - price, None)]


@dataclass(frozen=True)
class DLMCLatticeTwin(AllSitesLatticeTwin):
    """DLMC and DLMCf."""

    is_adjusted = True

    def steps(self, form: LatticeForm) -> list[FlipLogits]:
        sampler, gains = self.sampler, gains_of(form.odds)
        with np.errstate(divide="ignore", invalid="ignore"):  # log 0, and NaN that stays NaN
            log_z = np.logaddexp(0, gains)
            rate = gains / 2 if sampler.balancing == "sqrt" else gains - log_z
            log_flow = np.log(sampler.time) + rate - (gains - log_z)
            if isinstance(sampler, DLMC):
                stayed = -np.exp(log_flow)
                moved = np.log(-np.expm1(stayed))
            else:
                moved = np.minimum(log_flow, 0)
                stayed = np.log(-np.expm1(moved))
            logits = gains + moved - np.logaddexp(gains + stayed, 0)
        return [FlipLogits(form.kind, logits, logits - gains / 2)]


class CyclePosition(NamedTuple):
    x: Tensor  # [chains, sites]
    phase: Tensor  # [1], the k of the next step


@dataclass(frozen=True)
class ACSLatticeTwin(AllSitesLatticeTwin):
    is_adjusted = True

    def start(self, x: Tensor, form: LatticeForm) -> CyclePosition:
        return CyclePosition(x, torch.zeros(1, dtype=torch.long))

    def refresh(self, state: CyclePosition, model: EnergyModel) -> CyclePosition:
        return state

    def relocate(self, x: Tensor, state: CyclePosition, model: EnergyModel) -> CyclePosition:
        return self.at(x, model)._replace(phase=state.phase)

    def steps(self, form: LatticeForm) -> list[FlipLogits]:
        """A step for each k, with logits b_k gain - 1 / (2 a_k)."""
        gains, numbers = gains_of(form.odds), []
        cycle = zip(self.sampler.cycle_of_steps(), self.sampler.cycle_of_balances(), strict=True)
        for step, balance in cycle:
            logits = balance * gains - 0.5 / step
            numbers.append(FlipLogits(form.kind, logits, logits - gains / 2))
        return numbers

    def run(self, state: CyclePosition, form: LatticeForm, keys: Keys, sums: Sums) -> CyclePosition:
        x, phase = state.x.numpy(), int(state.phase)
        self.run_groups(x, np.arange(len(x))[None], (form,), keys, sums, phase)
        return CyclePosition(state.x, (state.phase + len(keys)) % self.sampler.period)


def gains_of(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The gain of a flip, `[kinds, value, neighbours at 1]`, from the log-odds of each kind."""
    odds = pad_numbers(odds)
    return np.stack((odds, -odds), 1)


@lru_cache(maxsize=16)
def _rows_of_forms(of: SameObjects) -> AllSitesRows:
    """The numbers of a twin's steps for groups of chains, from the twin and their forms."""
    twin, *forms = of.objects
    steps, chances, tables, excess = [], [], [], []
    with np.errstate(invalid="ignore"):  # NaN stays NaN
        for form in forms:
            steps += twin.steps(form)
        for _, logits, beyond in steps:
            never = np.zeros(logits.shape, bool)
            chances.append(Chances(np.exp(-np.logaddexp(0, -logits)), never))
            tables.append(_by_number(np.logaddexp(0, logits)))
            if beyond is not None:
                excess.append(_by_number(beyond))
    kind, kinds = steps[0].kind, len(steps[0].logits)
    everywhere = np.ones((1, len(kind)), bool)
    lattice = pack_lattice(forms[0]._replace(kind=kind), chances, everywhere, paired=False)
    members = kind == np.arange(kinds)[:, None] if twin.is_adjusted else everywhere
    return AllSitesRows(
        lattice=lattice,
        period=len(steps) // len(forms),
        kinds=copy_aligned(repeat_rows(members, lattice.rows, lattice.masks.shape[1])),
        softplus=np.stack(tables),
        excess=np.stack(excess) if excess else np.empty((0, 0, 2)),
    )


def _by_number(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """A table `[kinds, 2, terms]` as `[kinds * terms, 2]`."""
    return table.swapaxes(1, 2).reshape(-1, 2)
