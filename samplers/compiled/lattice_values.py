"""Log-probabilities of many states of a lattice with one coupling."""

import numpy as np
import torch
from torch import Tensor

from latticework.models.forms import LatticeForm
from latticework.samplers.compiled.jit import kernel, lean, over_chains, reordered

NANOSECONDS = 0.5  # for a site, roughly
CHUNK_SITES = 2**16  # sites whose terms are written together, so that they stay in the cache


def evaluate_lattice(form: LatticeForm, states: Tensor) -> Tensor:
    """The log-probabilities of int8 states `[n, sites]`: the numbers of `Lattice.log_prob`."""
    coupling, bias = np.float32(form.coupling), form.bias
    together = max(1, CHUNK_SITES // states.shape[1])
    terms, values = torch.empty(min(len(states), together), states.shape[1]), []
    for part in states.split(together):
        args = form.shifts, form.joins, coupling, bias, part.numpy(), terms.numpy()
        over_chains(write_terms, len(part), NANOSECONDS * part.numel(), *args)
        values.append(terms[: len(part)].sum(-1))
    return torch.cat(values)


@kernel
def write_terms(first, last, shifts, joins, coupling, bias, states, terms):
    """The term of each site in the sum of `Lattice.forward`, by the same operations."""
    sites, margin = states.shape[1], np.int64(0)
    for axis in range(shifts.shape[0]):
        margin = max(margin, shifts[axis, 0], shifts[axis, 1])
    masks = np.empty((4 * shifts.shape[0], sites), np.int8)  # -1 where there is a neighbour
    for axis in range(shifts.shape[0]):
        for end in range(4):
            for i in range(sites):
                masks[4 * axis + end, i] = -np.int8(joins[axis, i] >> end & 1)
    spins, total = np.zeros(sites + 2 * margin, np.int8), np.empty(sites, np.int8)
    for r in range(first, last):
        write_spins(spins, margin, states[r])
        total[:] = 0
        for axis in range(shifts.shape[0]):
            near, far = shifts[axis, 0], shifts[axis, 1]
            add_spins(total, masks[4 * axis], spins, margin - near)
            add_spins(total, masks[4 * axis + 1], spins, margin + near)
            add_spins(total, masks[4 * axis + 2], spins, margin + far)
            add_spins(total, masks[4 * axis + 3], spins, margin - far)
        weigh_spins(terms[r], spins, margin, total, coupling, bias)


@lean
def write_spins(spins, at, x):
    for i in range(np.uint64(x.shape[0])):
        spins[np.uint64(at) + i] = np.int8(2) * x[i] - np.int8(1)


@lean
def add_spins(total, mask, spins, at):
    """Add the spins from place `at` on where `mask` is -1."""
    for i in range(np.uint64(total.shape[0])):
        total[i] += spins[np.uint64(at) + i] & mask[i]


@lean
def weigh_spins(terms, spins, at, total, coupling, bias):
    for i in range(np.uint64(total.shape[0])):
        field = np.float32(total[i]) * coupling + bias[i]
        terms[i] = np.float32(spins[np.uint64(at) + i]) * field


def lattice_values(form: LatticeForm, x: Tensor) -> Tensor:
    """Log f up to a constant, `[chains]`: the log-odds are linear in the neighbours at 1."""
    alone, slope = form.odds[form.kind, 0], form.odds[0, 1] - form.odds[0, 0]
    joined = np.stack((form.joins & 2, form.joins & 4), 1) > 0  # to the next site, to the last one
    values = np.empty(len(x))
    sum_pairs(form.shifts, joined.astype(np.float32), alone, slope, x.numpy(), values)
    return torch.from_numpy(values)


@reordered
def sum_pairs(shifts, joined, alone, slope, x, values):
    """The sum of `alone` over sites at 1, and of `slope` over pairs of neighbours at 1."""
    sites = x.shape[1]
    for c in range(x.shape[0]):
        row, total, pairs = x[c], 0.0, np.float32(0)
        for i in range(sites):
            total += alone[i] * row[i]
        for axis in range(len(shifts)):
            for place in range(2):
                there, met = row[shifts[axis, place] :], joined[axis, place]
                for i in range(len(there)):
                    pairs += met[i] * row[i] * there[i]
        values[c] = total + slope * pairs
