"""Sweeps of lattices with one coupling: the twin of both samplers of `samplers.sweep`."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from latticework.models.forms import LatticeForm
from latticework.samplers.compiled.bits.decisions import MAX_NEIGHBOURS
from latticework.samplers.compiled.bits.lattice_rows import (
    TILE_WORDS,
    LatticeRows,
    fit_lanes,
    pack_lattice,
)
from latticework.samplers.compiled.bits.sweep_chances import chances_of
from latticework.samplers.compiled.bits.sweep_colours import sweep_colours
from latticework.samplers.compiled.bits.sweep_pairs import sweep_pairs
from latticework.samplers.compiled.compiled_sampler import (
    GroupTwin,
    Keys,
    SameObjects,
    Sums,
)
from latticework.samplers.compiled.jit import over_chains
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
        lattice = _pack_forms(SameObjects(forms), flips)
        groups, size = rows.shape
        chains = lattice.rows * (2 if lattice.paired else 1)
        tiles, work = groups * -(-size // chains), NANOSECONDS * x.size * len(keys)
        args = fit_lanes(lattice, size), flips, size, rows.ravel(), x, keys, sums
        over_chains(sweep_pairs if lattice.paired else sweep_colours, tiles, work, *args)
        sums.accept[:] += len(keys)
        if np.isnan(forms[0].odds).any():
            sums.invalid[:] += len(keys)


def refuse_degree(form: LatticeForm) -> str:
    most = int(form.degree.max())
    return (
        f"{most} neighbours of a site ({MAX_NEIGHBOURS} at most)" if most > MAX_NEIGHBOURS else ""
    )


@lru_cache(maxsize=16)
def _pack_forms(of: SameObjects, metropolis: bool) -> LatticeRows:
    return pack_sweeps(of.objects, metropolis, by_number=True)


def pack_sweeps(
    forms: tuple[LatticeForm, ...],
    metropolis: bool,
    tile_words: int = TILE_WORDS,
    by_number: bool = False,
) -> LatticeRows:
    """The arrays for sweeps of chains on these forms, which differ in their log-odds only.

    Sites whose probabilities are NaN are in no pass. The first planes are `by_number`, if that is
    wanted, where chains are not in pairs.
    """
    first, numbers = forms[0], int(forms[0].degree.max()) + 1
    chances = chances_of([form.odds[:, :numbers] for form in forms], metropolis)
    unknown = np.isnan(chances[0].probability).any(axis=(1, 2))
    known = ~np.asarray(unknown)[first.kind]
    colours = np.arange(max(2, first.colours.max() + 1))
    passes = (first.colours == colours[:, None]) & known
    paired = len(colours) == 2 and bool(known.all())
    return pack_lattice(first, chances, passes, paired, tile_words, by_number and not paired)
