"""Pairwise forms as samplers read them: the fields of all sites, which follow the changes of x.

Sites are binary or one-hot, and their neighbours are listed or the coupling is dense. A chain has
a row of values (x itself, or the numbers of one-hot values) and a row of fields: the gradient of
binary sites `[sites]`; the log-probabilities of values, values first, `[q * sites]`. Each change
rounds the fields, so `renew` computes them from scratch in the steps that `sites.renewals` names.
numba chooses the code of each function by the form's type.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import (
    GraphForm,
    LatticeForm,
    PairForm,
    PottsGraphForm,
    PottsLatticeForm,
    PottsPairForm,
)
from latticework.models.matmul import affine
from latticework.samplers.compiled.jit import copy, kernel, over_chains, primitive
from latticework.samplers.compiled.running_sums import leave
from latticework.samplers.compiled.sites import other


class LatticeCounts(NamedTuple):
    """Binary sites of a lattice, whose fields are the numbers of their neighbours at 1."""

    starts: NDArray[np.int64]  # [sites + 1], as in GraphForm
    neighbours: NDArray[np.int32]
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


PairwiseForm = GraphForm | LatticeCounts | PairForm | PottsLists | PottsMatrix
PAIRWISE = (GraphForm, LatticeCounts, PairForm, PottsLists, PottsMatrix)
LISTED, ONE_HOT = (GraphForm, LatticeCounts, PottsLists), (PottsLists, PottsMatrix)


def pairwise(form: Any) -> PairwiseForm:
    """The form as the functions of this module read it."""
    if isinstance(form, GraphForm | PairForm):
        return form
    if isinstance(form, LatticeForm):
        with np.errstate(over="ignore"):  # entries that no site has may overflow
            weights = np.exp(np.stack((form.odds, -form.odds), -1) / 2)
        return LatticeCounts(*lists_of(form), form.kind, form.odds, weights)
    bias = np.ascontiguousarray(form.bias.T)
    if isinstance(form, PottsGraphForm):
        return PottsLists(form.starts, form.neighbours, form.coupling, bias, True)
    if isinstance(form, PottsLatticeForm):
        starts, neighbours = lists_of(form)
        coupling = np.full(len(neighbours), form.coupling, np.float32)
        return PottsLists(starts, neighbours, coupling, bias, False)
    assert isinstance(form, PottsPairForm)
    sites, q = form.bias.shape
    blocks = form.coupling.reshape(sites, q, sites, q).transpose(1, 0, 3, 2)
    return PottsMatrix(np.ascontiguousarray(blocks).reshape(q * sites, -1), bias)


def graph_of(form: LatticeForm) -> GraphForm:
    """A lattice as a graph."""
    starts, neighbours = lists_of(form)
    rows = np.repeat(np.arange(len(form.degree)), form.degree)
    slope = float(form.odds[0, 1] - form.odds[0, 0]) if form.odds.shape[1] > 1 else 0.0
    offset = form.odds[form.kind, 0]
    once = rows < neighbours
    edges = np.stack((rows[once], neighbours[once]), -1).astype(np.int32)
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


def numbers_of(x: Tensor) -> Tensor:
    """The numbers of one-hot values `[chains, sites]`; no columns if x is binary."""
    return x.argmax(-1).int() if x.ndim == 3 else x.new_empty(len(x), 0)


def fields_of(form: PairwiseForm, x: Tensor) -> Tensor:
    """The fields of all chains at `x`, in double precision where sums may have very many terms."""
    if isinstance(form, PairForm):
        return affine(torch.from_numpy(form.offset), x, torch.from_numpy(form.matrix))
    chains, values = len(x), x if x.ndim == 2 else numbers_of(x)
    double = isinstance(form, GraphForm) or (isinstance(form, PottsLists) and form.hubs)
    fields = x.new_empty(chains, x[0].numel(), dtype=torch.float64 if double else x.dtype)
    over_chains(renew_all, chains, 9.0 * x.numel(), form, values.numpy(), fields.numpy())
    return fields


def rows_of(state: Any) -> Any:
    """The state as arrays that share its memory, for which the values of binary sites are x."""
    x = state.x.view(len(state.x), -1).numpy()
    values = x if state.x.ndim == 2 else state.values.numpy()
    return type(state)(x, values, *(part.numpy() for part in state[2:]))


@kernel
def renew_all(first, last, form, values, fields):
    for c in range(first, last):
        renew(form, values[c], fields[c])


def renew(form, values, fields):
    """Compute the fields from scratch."""
    raise NotImplementedError


def add_change(form, fields, i, old, new):
    """Add to the fields what a change of site `i` does to them."""
    raise NotImplementedError


def add_changes(form, fields, sites, old, new):
    """`add_change` for several sites, which change from `old` to `new`, one after another."""
    raise NotImplementedError


def gain(form, values, fields, i, new):
    """The first-order change of log pi by a change of site `i` to the value `new`."""
    raise NotImplementedError


def target(form, values, m):
    """The site and the new value of move `m`. A one-hot site has one for each of its values."""
    raise NotImplementedError


def put(form, x, values, i, new):
    """Set a site's value, and `x` if that is one-hot."""
    raise NotImplementedError


def leave_value(form, total, since, first, c, i, old, new, t):
    """`running_sums.leave` before step `t` sets a site from `old` to `new`."""
    raise NotImplementedError


# Binary sites with listed neighbours.


def graph_renew(form, values, fields):
    for i in range(values.shape[0]):
        total = np.float64(form.offset[i])
        for k in range(form.starts[i], form.starts[i + 1]):
            total += np.float64(form.slope[k] * values[form.neighbours[k]])
        fields[i] = total


def graph_add_change(form, fields, i, old, new):
    step, i = new - old, np.uint64(i)
    for k in range(np.uint64(form.starts[i]), np.uint64(form.starts[i + np.uint64(1)])):
        fields[form.neighbours[k]] += step * form.slope[k]


def graph_gain(form, values, fields, i, new):
    return np.float32(fields[i]) * (new - values[i])


def flip_target(form, values, m):
    return m, np.float32(1) - values[m]


# Binary sites of a lattice.


def count_renew(form, values, fields):
    for i in range(values.shape[0]):
        count = np.float32(0)
        for k in range(form.starts[i], form.starts[i + 1]):
            count += values[form.neighbours[k]]
        fields[i] = count


def count_add_change(form, fields, i, old, new):
    step, i = new - old, np.uint64(i)
    for k in range(np.uint64(form.starts[i]), np.uint64(form.starts[i + np.uint64(1)])):
        fields[form.neighbours[k]] += step


def count_gain(form, values, fields, i, new):
    return form.odds[form.kind[i], np.int64(fields[i])] * (new - values[i])


# Binary sites with a dense coupling.


def pair_renew(form, values, fields):
    total = form.offset.astype(np.float64)
    for i in range(values.shape[0]):
        value, row = values[i], form.matrix[i]
        for j in range(total.shape[0]):
            total[j] += value * row[j]
    copy(fields, total)


def pair_add_change(form, fields, i, old, new):
    step, i = new - old, np.uint64(i)
    for j in range(np.uint64(fields.shape[0])):
        fields[j] += step * form.matrix[i, j]


def pair_add_changes(form, fields, sites, old, new):
    """Four rows at a time, so that fields are loaded and stored less often."""
    fours = sites.shape[0] // 4 * 4
    for f in range(0, fours, 4):
        a, b = np.uint64(sites[f]), np.uint64(sites[f + 1])
        c, d = np.uint64(sites[f + 2]), np.uint64(sites[f + 3])
        p, q = new[f] - old[f], new[f + 1] - old[f + 1]
        r, s = new[f + 2] - old[f + 2], new[f + 3] - old[f + 3]
        for j in range(np.uint64(fields.shape[0])):
            two = p * form.matrix[a, j] + q * form.matrix[b, j]
            fields[j] += two + (r * form.matrix[c, j] + s * form.matrix[d, j])
    for f in range(fours, sites.shape[0]):
        add_change(form, fields, sites[f], old[f], new[f])


def pair_gain(form, values, fields, i, new):
    return fields[i] * (new - values[i])


def pair_target(form, values, m):
    return m, other(values[m], form.low, form.high)


# One-hot sites with listed neighbours.


def lists_renew(form, values, fields):
    sites = np.uint64(values.shape[0])
    for v in range(np.uint64(form.bias.shape[0])):
        for i in range(sites):
            fields[v * sites + i] = form.bias[v, i]
    for i in range(sites):
        for k in range(np.uint64(form.starts[i]), np.uint64(form.starts[i + np.uint64(1)])):
            fields[np.uint64(values[form.neighbours[k]]) * sites + i] += form.coupling[k]


def lists_add_change(form, fields, i, old, new):
    i, sites = np.uint64(i), np.uint64(form.bias.shape[1])
    lost, gained = np.uint64(old) * sites, np.uint64(new) * sites
    for k in range(np.uint64(form.starts[i]), np.uint64(form.starts[i + np.uint64(1)])):
        j, coupling = np.uint64(form.neighbours[k]), form.coupling[k]
        fields[lost + j] -= coupling
        fields[gained + j] += coupling


# One-hot sites with a dense coupling.


def matrix_renew(form, values, fields):
    sites, total = values.shape[0], form.bias.astype(np.float64).reshape(fields.shape[0])
    for i in range(sites):
        row = form.coupling[values[i] * sites + i]
        for j in range(total.shape[0]):
            total[j] += row[j]
    copy(fields, total)


def matrix_add_change(form, fields, i, old, new):
    sites = np.uint64(form.bias.shape[1])
    lost, gained = np.uint64(old) * sites + np.uint64(i), np.uint64(new) * sites + np.uint64(i)
    for j in range(np.uint64(fields.shape[0])):
        fields[j] += form.coupling[gained, j] - form.coupling[lost, j]


# Both kinds of one-hot sites, and all kinds of sites.


def one_hot_gain(form, values, fields, i, new):
    sites = form.bias.shape[1]
    return np.float32(fields[new * sites + i] - fields[values[i] * sites + i])


def one_hot_target(form, values, m):
    q = form.bias.shape[0]
    return m // q, np.int32(m % q)


def one_hot_put(form, x, values, i, new):
    q = form.bias.shape[0]
    x[i * q + values[i]] = 0
    x[i * q + new] = 1
    values[i] = new


def one_hot_leave(form, total, since, first, c, i, old, new, t):
    q = form.bias.shape[0]
    leave(total, since, first, c, i * q + old, np.float32(1), t)
    leave(total, since, first, c, i * q + new, np.float32(0), t)


def binary_put(form, x, values, i, new):
    values[i] = new


def binary_leave(form, total, since, first, c, i, old, new, t):
    leave(total, since, first, c, i, old, t)


def add_each_change(form, fields, sites, old, new):
    for f in range(sites.shape[0]):
        add_change(form, fields, sites[f], old[f], new[f])


RENEW = (graph_renew, count_renew, pair_renew, lists_renew, matrix_renew)
ADD_CHANGE = (
    graph_add_change,
    count_add_change,
    pair_add_change,
    lists_add_change,
    matrix_add_change,
)
primitive(renew, dict(zip(PAIRWISE, RENEW, strict=True)), makes_arrays=True)
primitive(add_change, dict(zip(PAIRWISE, ADD_CHANGE, strict=True)))
primitive(add_changes, dict.fromkeys(PAIRWISE, add_each_change) | {PairForm: pair_add_changes})
GAIN = {GraphForm: graph_gain, LatticeCounts: count_gain, PairForm: pair_gain}
primitive(gain, dict.fromkeys(PAIRWISE, one_hot_gain) | GAIN)
TARGET = dict.fromkeys(PAIRWISE, flip_target) | {PairForm: pair_target}
primitive(target, TARGET | dict.fromkeys(ONE_HOT, one_hot_target))
primitive(put, dict.fromkeys(PAIRWISE, binary_put) | dict.fromkeys(ONE_HOT, one_hot_put))
LEAVE = dict.fromkeys(PAIRWISE, binary_leave) | dict.fromkeys(ONE_HOT, one_hot_leave)
primitive(leave_value, LEAVE)
