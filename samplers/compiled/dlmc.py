"""DLMC and DLMCf on lattices: the twins of `samplers.dlmc`."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latticework.models.forms import Form, LatticeForm
from latticework.samplers.compiled.all_sites_lattice import (
    AllSitesLatticeTwin,
    Tables,
    gains_of,
    tables_of,
)
from latticework.samplers.compiled.twin import Twin
from latticework.samplers.dlmc import DLMC, DLMCf


@dataclass(frozen=True)
class DLMCLatticeTwin(AllSitesLatticeTwin):
    adjusted = True

    def tables(self, form: LatticeForm) -> Tables:
        gains = gains_of(form.odds)
        logits = flip_logits(self.sampler, gains)
        return tables_of(form.kind, logits, logits - gains / 2)


def flip_logits(sampler: DLMC | DLMCf, gains: NDArray[np.float64]) -> NDArray[np.float64]:
    """The log-odds of a flip, from its gain."""
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
    return gains + moved - np.logaddexp(gains + kept, 0)


def twin(sampler: DLMC | DLMCf, form: Form) -> Twin | str:
    return DLMCLatticeTwin(sampler) if isinstance(form, LatticeForm) else "but on lattices"
