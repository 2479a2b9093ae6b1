"""Samplers whose proposals flip all sites of a lattice with one coupling: the tables of each."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.models.forms import LatticeForm
from latticework.samplers.compiled.all_sites_lattice import AllSitesLatticeTwin
from latticework.samplers.compiled.compiled_sampler import Keys, Sums
from latticework.samplers.compiled.langevin import scales
from latticework.samplers.compiled.lattice_tables import Tables, gains_of, join_rows, tables_of
from latticework.samplers.dlmc import DLMC
from latticework.samplers.langevin import DMALA


@dataclass(frozen=True)
class LangevinLatticeTwin(AllSitesLatticeTwin):
    @property
    def adjusted(self) -> bool:  # type: ignore[override]
        return isinstance(self.sampler, DMALA)

    def tables(self, form: LatticeForm) -> Tables:
        """Eq. (2) of Zhang et al. (2022): logit = gain / 2 - 1 / (2 alpha g)."""
        kind, odds, scale = form.kind, form.odds, np.ones(1)
        if self.sampler.preconditioner is not None:
            given = np.stack((kind, scales(self.sampler, len(kind))))
            pairs, kind = np.unique(given, axis=1, return_inverse=True)
            odds, scale = odds[pairs[0].astype(int)], pairs[1]
        logits = gains_of(odds) / 2 - (0.5 / self.sampler.step_size / scale)[:, None, None]
        return tables_of(kind, logits, excess=np.empty(0))


@dataclass(frozen=True)
class DLMCLatticeTwin(AllSitesLatticeTwin):
    """DLMC and DLMCf."""

    adjusted = True

    def tables(self, form: LatticeForm) -> Tables:
        sampler, gains = self.sampler, gains_of(form.odds)
        log_z = np.logaddexp(0, gains)
        rate = gains / 2 if sampler.balancing == "sqrt" else gains - log_z
        log_flow = np.log(sampler.time) + rate - (gains - log_z)
        with np.errstate(divide="ignore"):
            if isinstance(sampler, DLMC):
                kept = -np.exp(log_flow)
                moved = np.log(-np.expm1(kept))
            else:
                moved = np.minimum(log_flow, 0)
                kept = np.log(-np.expm1(moved))
        logits = gains + moved - np.logaddexp(gains + kept, 0)
        return tables_of(form.kind, logits, logits - gains / 2)


class CyclePosition(NamedTuple):
    x: Tensor  # [chains, sites]
    phase: Tensor  # [1], the k of the next step


@dataclass(frozen=True)
class ACSLatticeTwin(AllSitesLatticeTwin):
    adjusted = True

    def start(self, x: Tensor, form: LatticeForm) -> CyclePosition:
        return CyclePosition(x, torch.zeros(1, dtype=torch.long))

    def refresh(self, state: CyclePosition, model: EnergyModel) -> CyclePosition:
        return state

    def relocate(self, x: Tensor, state: CyclePosition, model: EnergyModel) -> CyclePosition:
        return self.at(x, model)._replace(phase=state.phase)

    def tables(self, form: LatticeForm) -> Tables:
        """Tables with a row for each k, with logits b_k gain - 1 / (2 a_k)."""
        gains, rows = gains_of(form.odds), []
        cycle = zip(self.sampler.cycle_of_steps(), self.sampler.cycle_of_balances(), strict=True)
        for step, balance in cycle:
            logits = balance * gains - 0.5 / step
            rows.append(tables_of(form.kind, logits, logits - gains / 2))
        return join_rows(rows)

    def run(self, state: CyclePosition, form: LatticeForm, keys: Keys, sums: Sums) -> CyclePosition:
        self.flip(state.x.numpy(), form, int(state.phase), keys, sums)
        return CyclePosition(state.x, (state.phase + len(keys)) % self.sampler.period)
