"""Sweeps of lattices with one coupling: the twin of both samplers of `samplers.sweep`."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from latticework.models.forms import LatticeForm
from latticework.samplers.compiled.bits import MAX_NEIGHBOURS
from latticework.samplers.compiled.compiled_sampler import (
    GroupTwin,
    Keys,
    SameObjects,
    Sums,
)
from latticework.samplers.compiled.jit import over_chains
from latticework.samplers.compiled.lattice_rows import TILE_WORDS, LatticeRows, fit_lanes
from latticework.samplers.compiled.sweep_chances import chances_of
from latticework.samplers.compiled.sweep_rows import pack_sweeps, sweep_rows
from latticework.samplers.sweep import MetropolisSweep

NANOSECONDS = 0.08  # for a site, roughly


@dataclass(frozen=True)
class LatticeSweepTwin(GroupTwin):
    def refuses(self, form: LatticeForm) -> str:
        return refuse_degree(form)

    def run_groups(
        self,
        x: NDArray[np.float32],
        rows: NDArray[np.int64],
        forms: tuple[LatticeForm, ...],
        keys: Keys,
        sums: Sums,
    ) -> None:
        flips = isinstance(self.sampler, MetropolisSweep)
        lattice = _rows_of_forms(SameObjects(forms), flips)
        groups, size = rows.shape
        chains = lattice.rows * (2 if lattice.paired else 1)
        tiles, work = groups * -(-size // chains), NANOSECONDS * x.size * len(keys)
        args = fit_lanes(lattice, size), flips, size, rows.ravel(), x, keys, sums
        over_chains(sweep_rows, tiles, work, *args)
        sums.accept[:] += len(keys)
        if np.isnan(forms[0].odds).any():
            sums.invalid[:] += len(keys)


def refuse_degree(form: LatticeForm) -> str:
    most = int(form.degree.max())
    return (
        f"{most} neighbours of a site ({MAX_NEIGHBOURS} at most)" if most > MAX_NEIGHBOURS else ""
    )


@lru_cache(maxsize=16)
def _rows_of_forms(of: SameObjects, metropolis: bool) -> LatticeRows:
    return lattice_rows(of.objects, metropolis, by_number=True)


def lattice_rows(
    forms: tuple[LatticeForm, ...],
    metropolis: bool,
    tile_words: int = TILE_WORDS,
    by_number: bool = False,
) -> LatticeRows:
    """The arrays for sweeps of chains on these forms, which differ in their log-odds only."""
    numbers = int(forms[0].degree.max()) + 1
    odds = [form.odds[:, :numbers] for form in forms]
    return pack_sweeps(forms[0], chances_of(odds, metropolis), tile_words, by_number)
