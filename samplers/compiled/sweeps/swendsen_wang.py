"""Swendsen-Wang on lattices and graphs: the twin of `samplers.swendsen_wang.SwendsenWang`.

Clusters are found by union-find, which needs no rounds, so no chain stays. Values are small
integers inside, in {0, 1} on an Ising lattice.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import Form, GraphForm, LatticeForm, PottsLatticeForm
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Keys, Position
from latticework.samplers.compiled.draws import pick_index
from latticework.samplers.compiled.forms.pairwise import edges_of
from latticework.samplers.compiled.jit import inlined, kernel, over_chains
from latticework.samplers.compiled.philox import fill_step, thresholds, unit
from latticework.samplers.compiled.running_sums import add_chain
from latticework.samplers.sums import Sums


class Bonds(NamedTuple):
    """The numbers that the kernel reads of a form."""

    price: NDArray[np.float64]  # [edges], K, of an edge with unequal ends
    fields: NDArray[np.float64]  # [sites, values]
    edges: NDArray[np.int32]  # [edges, 2]


@dataclass(frozen=True)
class SwendsenWangTwin(CompiledSampler):
    loops = True  # as in the eager sampler; union-find always ends

    def refuses(self, form: Form) -> str:
        return "a negative coupling" if (bonds_of(form).price < 0).any() else ""

    def start(self, x: Tensor, form: Form) -> Position:
        return Position(x)

    def run(self, state: Position, form: Form, keys: Keys, sums: Sums) -> Position:
        one_hot = state.x.ndim == 3
        values = (state.x.argmax(-1) if one_hot else state.x).to(torch.int32).numpy()
        price, fields, edges = bonds_of(form)
        threshold = thresholds(-np.expm1(-price))
        flat = state.x.view(len(values), -1).numpy()
        work = 30.0 * values.size * len(keys)
        arrays = threshold, fields, edges, values, flat, keys, sums
        over_chains(swendsen_wang, len(values), work, *arrays)
        sums.accept[:] += len(keys)
        return state


def bonds_of(form: Form) -> Bonds:
    """The prices, fields and edges of a lattice or graph.

    A neighbour at 1 instead of 0 adds 2 K to the log-odds of an Ising site.
    """
    if isinstance(form, GraphForm):
        bias = form.bias.astype(np.float64)
        return Bonds(form.price, np.stack((-bias, bias), -1), form.edges)
    assert isinstance(form, LatticeForm | PottsLatticeForm)
    edges = edges_of(form)
    if isinstance(form, PottsLatticeForm):
        price = np.full(len(edges), form.coupling, np.float64)
        return Bonds(price, form.bias.astype(np.float64), edges)
    paid = float(form.odds[0, 1] - form.odds[0, 0]) / 2 if form.odds.shape[1] > 1 else 0.0
    high = form.odds[form.kind, 0] + paid * form.degree
    fields = np.stack((np.zeros_like(high), high), -1)
    return Bonds(np.full(len(edges), paid), fields, edges)


@kernel
def swendsen_wang(first, last, threshold, fields, edges, values, x, keys, sums):
    sites, q = fields.shape
    width = x.shape[1] // sites  # 1, or q on one-hot states
    words = np.empty((edges.shape[0] + 3) // 4 * 4, np.uint32)
    draws = np.empty((sites + 3) // 4 * 4, np.uint32)
    parent, total = np.empty(sites, np.int32), np.empty((sites, q), np.float64)
    steps, traced = keys.shape[0], sums.trace.shape[0]
    for c in range(first, last):
        now = values[c]
        for t in range(steps):
            fill_step(words, keys[t], c, 0)
            fill_step(draws, keys[t], c, 1)
            join_clusters(parent, now, words, threshold, edges)
            sums.changed[c] += redraw_clusters(now, parent, total, fields, draws)
            if sums.total.shape[0] or (t >= steps - traced and c < sums.trace.shape[1]):
                write_values(x[c], now, width)
                add_chain(sums, x, c, t - steps)
        write_values(x[c], now, width)


@kernel
def join_clusters(parent, now, words, threshold, edges):
    """Draw the bonds and join the clusters of their ends. `parent` then leads to the roots."""
    for i in range(parent.shape[0]):
        parent[i] = i
    for k in range(edges.shape[0]):
        i, j = edges[k, 0], edges[k, 1]
        if now[i] == now[j] and words[k] < threshold[k]:
            i, j = find_root(parent, i), find_root(parent, j)
            if i < j:
                parent[j] = i
            else:
                parent[i] = j


@inlined
def find_root(parent, i):
    """The root of `i`; halves the path to it."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@kernel
def redraw_clusters(now, parent, total, fields, draws):
    """Draw the value of every cluster; returns how many sites changed.

    A root has the smallest index of its cluster, so it comes before its members.
    """
    sites, q = fields.shape
    total[:] = 0
    for i in range(sites):
        parent[i] = find_root(parent, i)
        for v in range(q):
            total[parent[i], v] += fields[i, v]
    changed = 0
    for i in range(sites):
        old = now[i]
        if parent[i] == i:
            now[i] = draw_value(total[i], unit(draws[i]))
        else:
            now[i] = now[parent[i]]
        changed += now[i] != old
    return changed


@kernel
def draw_value(log_weights, uniform):
    """An index drawn in proportion to exp(log_weights), which are overwritten."""
    top, mass = log_weights.max(), 0.0
    for v in range(log_weights.shape[0]):
        log_weights[v] = np.exp(log_weights[v] - top)
        mass += log_weights[v]
    return pick_index(log_weights, 0, log_weights.shape[0], uniform * mass)[0]


@kernel
def write_values(x, now, width):
    """Write the values to a chain's state, one-hot if its `width` is above 1."""
    for i in range(now.shape[0]):
        if width == 1:
            x[i] = now[i]
        else:
            for v in range(width):
                x[i * width + v] = v == now[i]
