"""DULA and DMALA on lattices with one coupling: the twins of `samplers.langevin`."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latticework.models.forms import LatticeForm
from latticework.samplers.compiled.all_sites_lattice import (
    AllSitesLatticeTwin,
    Tables,
    gains_of,
    tables_of,
)
from latticework.samplers.langevin import DMALA


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
