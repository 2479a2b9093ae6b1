"""ACS on lattices with one coupling: the twin of `samplers.acs`."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.models.forms import Form, LatticeForm
from latticework.samplers.acs import ACS
from latticework.samplers.compiled.all_sites_lattice import (
    AllSitesLatticeTwin,
    Tables,
    gains_of,
    tables_of,
)
from latticework.samplers.compiled.twin import Sums, Twin


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

    def moved_to(self, x: Tensor, state: CyclePosition, model: EnergyModel) -> CyclePosition:
        return self.at(x, model)._replace(phase=state.phase)

    def tables(self, form: LatticeForm) -> Tables:
        """Tables with a row for each k, with logits b_k gain - 1 / (2 a_k)."""
        gains, rows = gains_of(form.odds), []
        cycle = zip(self.sampler.cycle_of_steps(), self.sampler.cycle_of_balances(), strict=True)
        for step, balance in cycle:
            logits = balance * gains - 0.5 / step
            rows.append(tables_of(form.kind, logits, logits - gains / 2))
        return rows[0]._replace(
            limit=np.concatenate([row.limit for row in rows]),
            fraction=np.concatenate([row.fraction for row in rows]),
            softplus=np.concatenate([row.softplus for row in rows]),
            excess=np.concatenate([row.excess for row in rows]),
        )

    def run(
        self, state: CyclePosition, form: LatticeForm, keys: NDArray[np.int64], sums: Sums
    ) -> CyclePosition:
        self.flip(state.x.numpy(), form, int(state.phase), keys, sums)
        return CyclePosition(state.x, (state.phase + len(keys)) % self.sampler.period)


def twin(sampler: ACS, form: Form) -> Twin | str:
    return ACSLatticeTwin(sampler) if isinstance(form, LatticeForm) else "but on lattices"
