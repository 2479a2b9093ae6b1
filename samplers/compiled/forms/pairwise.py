"""Pairwise forms as kernels read them: neighbours in lists, or a dense coupling.

Sites are binary or one-hot. The numbers of a one-hot site come first in arrays over values and
sites, unless the form is a `PottsPairForm`.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.models.forms import (
    GraphForm,
    LatticeForm,
    PairForm,
    PottsGraphForm,
    PottsLatticeForm,
    PottsPairForm,
)
from latticework.samplers.compiled.compiled_sampler import SameObjects


class LatticeTable(NamedTuple):
    """A lattice with its probabilities of 1 as thresholds of random words."""

    neighbours: NDArray[np.int32]  # as in LatticeForm
    degree: NDArray[np.int32]
    kind: NDArray[np.int32]
    threshold: NDArray[np.uint32]  # [kinds, most neighbours + 1]


class LatticeCounts(NamedTuple):
    """Binary sites of a lattice, whose fields are the numbers of their neighbours at 1."""

    starts: NDArray[np.int64]  # [sites + 1], as in GraphForm
    neighbours: NDArray[np.int32]
    slope: NDArray[np.float32]  # [2 edges]
    kind: NDArray[np.int32]  # [sites]
    odds: NDArray[np.float64]  # [kinds, most neighbours + 1], as in LatticeForm
    weights: NDArray[np.float64]  # [kinds, most neighbours + 1, values], exp(gain of a flip / 2)


class PottsLists(NamedTuple):
    """One-hot sites with listed neighbours: those of a graph, or of a lattice."""

    starts: NDArray[np.int64]
    neighbours: NDArray[np.int32]
    coupling: NDArray[np.float32]  # [2 edges]
    bias: NDArray[np.float32]  # [q, sites]
    hubs: bool  # whether sites may have very many neighbours


class PottsMatrix(NamedTuple):
    """One-hot sites with a dense coupling, values first."""

    coupling: NDArray[np.float32]  # [q * sites, q * sites]
    bias: NDArray[np.float32]  # [q, sites]


PairwiseForm = GraphForm | LatticeCounts | PairForm | PottsLists | PottsMatrix | PottsPairForm
LISTED = (GraphForm, LatticeCounts, PottsLists)
ONE_HOT = (PottsLists, PottsMatrix, PottsPairForm)


def pairwise(form: Any) -> PairwiseForm:
    """The form with its neighbours in lists, or with the values first in a dense coupling."""
    if not isinstance(form, PottsPairForm):
        return list_neighbours(form)
    sites, q = form.bias.shape
    blocks = form.coupling.reshape(sites, q, sites, q).transpose(1, 0, 3, 2)
    bias = np.ascontiguousarray(form.bias.T)
    return PottsMatrix(np.ascontiguousarray(blocks).reshape(q * sites, -1), bias)


def list_neighbours(form: Any) -> Any:
    """The form with the neighbours of each site in a list, if it is a lattice or a Potts graph."""
    if isinstance(form, LatticeForm):
        return _count_neighbours(SameObjects((form,)))
    if isinstance(form, PottsGraphForm):
        bias = np.ascontiguousarray(form.bias.T)
        return PottsLists(form.starts, form.neighbours, form.coupling, bias, True)
    if isinstance(form, PottsLatticeForm):
        starts, neighbours = lists_of(form)
        coupling = np.full(len(neighbours), form.coupling, np.float32)
        bias = np.ascontiguousarray(form.bias.T)
        return PottsLists(starts, neighbours, coupling, bias, False)
    return form


@lru_cache(maxsize=64)
def _count_neighbours(of: SameObjects) -> LatticeCounts:
    (form,) = of.objects
    with np.errstate(over="ignore", invalid="ignore"):  # entries that no site has may overflow
        weights = np.exp(np.stack((form.odds, -form.odds), -1) / 2)
        slope = (form.odds[:, 1:2] - form.odds[:, :1]).astype(np.float32)[form.kind]
    slope = slope.ravel().repeat(form.degree if slope.size else 0)
    return LatticeCounts(*lists_of(form), slope, form.kind, form.odds, weights)


def graph_of(form: LatticeForm) -> GraphForm:
    """A lattice as a graph."""
    (starts, neighbours), edges = lists_of(form), edges_of(form)
    slope = float(form.odds[0, 1] - form.odds[0, 0]) if form.odds.shape[1] > 1 else 0.0
    offset = form.odds[form.kind, 0]
    return GraphForm(
        starts=starts,
        neighbours=neighbours,
        slope=np.full(len(neighbours), slope, np.float32),
        offset=offset,
        order=form.colours.argsort(kind="stable").astype(np.int32),
        classes=np.concatenate(([0], np.bincount(form.colours).cumsum())),
        edges=edges,
        price=np.full(len(edges), slope / 2),
        bias=((offset + form.degree * slope / 2) / 2).astype(np.float32),
    )


def lists_of(form: LatticeForm | PottsLatticeForm) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The neighbours of a lattice's sites as those of a graph: starts, and neighbours."""
    exists = np.arange(form.neighbours.shape[1]) < form.degree[:, None]
    starts = np.concatenate(([0], np.cumsum(form.degree, dtype=np.int64)))
    return starts, form.neighbours[exists]


def edges_of(form: LatticeForm | PottsLatticeForm) -> NDArray[np.int32]:
    """The edges of a lattice, `[edges, 2]`, the lower site first."""
    _, neighbours = lists_of(form)
    rows = np.repeat(np.arange(len(form.degree)), form.degree)
    once = rows < neighbours
    return np.stack((rows[once], neighbours[once]), -1).astype(np.int32)
