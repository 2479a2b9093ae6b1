"""Gibbs sweeps over the colours of a lattice: the twin of `samplers.sweep.GibbsSweep`.

To draw a site from its law given the rest is to flip it with the probability of its other value.
"""

from dataclasses import dataclass

import numpy as np

from latticework.models.forms import Form, LatticeForm
from latticework.samplers.compiled.all_sites_lattice import (
    AllSitesLatticeTwin,
    Tables,
    gains_of,
    tables_of,
)
from latticework.samplers.compiled.twin import Twin
from latticework.samplers.sweep import GibbsSweep


@dataclass(frozen=True)
class SweepTwin(AllSitesLatticeTwin):
    def tables(self, form: LatticeForm) -> Tables:
        return tables_of(form.kind, gains_of(form.odds), excess=np.empty(0), passes=form.colours)


def twin(sampler: GibbsSweep, form: Form) -> Twin | str:
    return SweepTwin(sampler) if isinstance(form, LatticeForm) else "but on lattices"
