"""Potts models inside kernels: values as integers, the field of a site, and a change of value.

The field of a site is its log-probabilities given the rest. `memory` is a chain's row of a table
that dense models keep up to date: the field of all sites. `renew` computes it from scratch in the
steps that `sites.renewals` names. Outside, states are one-hot `x` `[chains, sites * q]`; a change
of value writes both.
"""

import numpy as np
import torch
from torch import Tensor

from latticework.models.forms import Form, PottsGraphForm, PottsLatticeForm, PottsPairForm
from latticework.models.matmul import affine
from latticework.samplers.compiled.jit import inlined, primitive
from latticework.samplers.compiled.running_sums import leave


def values_of(x: Tensor) -> Tensor:
    return x.argmax(-1).int()


def memory_of(form: Form, x: Tensor) -> Tensor:
    """The memory of all chains at `x` `[chains, sites, q]`, from scratch."""
    if isinstance(form, PottsPairForm):
        bias, coupling = torch.from_numpy(form.bias), torch.from_numpy(form.coupling)
        return affine(bias.flatten(), x.flatten(1), coupling)
    return x.new_empty(len(x), 0)


def field(form, values, memory, c, i, out):
    """Write the log-probabilities of site `i` given the rest, up to a constant, to `out` `[q]`.

    `out` is float64 where a site may have very many neighbours.
    """
    raise NotImplementedError


def move(form, memory, c, i, old, new):
    """Update `memory` after site `i` changed its value."""
    raise NotImplementedError


def renew(form, values, memory, c):
    """Compute the memory of chain `c` from scratch."""
    raise NotImplementedError


def lattice_field(form, values, memory, c, i, out):
    for v in range(out.shape[0]):
        out[v] = form.bias[i, v]
    for k in range(form.degree[i]):
        out[values[c, form.neighbours[i, k]]] += np.float32(form.coupling)


def graph_field(form, values, memory, c, i, out):
    for v in range(out.shape[0]):
        out[v] = form.bias[i, v]
    for k in range(form.starts[i], form.starts[i + 1]):
        out[values[c, form.neighbours[k]]] += form.coupling[k]


def move_nothing(form, memory, c, i, old, new):
    pass


def renew_nothing(form, values, memory, c):
    pass


def pair_field(form, values, memory, c, i, out):
    for v in range(out.shape[0]):
        out[v] = memory[c, i * out.shape[0] + v]


def pair_move(form, memory, c, i, old, new):
    own, q = memory[c], form.bias.shape[1]
    gained, lost = form.coupling[i * q + new], form.coupling[i * q + old]
    for j in range(own.shape[0]):
        own[j] += gained[j] - lost[j]


def pair_renew(form, values, memory, c):
    q = form.bias.shape[1]
    total = np.empty(values.shape[1] * q)
    for i in range(values.shape[1]):
        for v in range(q):
            total[i * q + v] = form.bias[i, v]
    for i in range(values.shape[1]):
        row = form.coupling[i * q + values[c, i]]
        for j in range(total.shape[0]):
            total[j] += row[j]
    for j in range(total.shape[0]):
        memory[c, j] = total[j]


@inlined
def set_value(x, values, total, changed, since, first, c, i, new, q, t):
    """Set site `i` of chain `c` in step `t`, and keep the sums."""
    old = values[c, i]
    leave(total, since, first, c, i * q + old, np.float32(1), t)
    leave(total, since, first, c, i * q + new, np.float32(0), t)
    x[c, i * q + old] = 0
    x[c, i * q + new] = 1
    values[c, i] = new
    changed[c] += 1


POTTS = (PottsLatticeForm, PottsGraphForm, PottsPairForm)
primitive(field, dict(zip(POTTS, (lattice_field, graph_field, pair_field), strict=True)))
primitive(move, dict.fromkeys(POTTS, move_nothing) | {PottsPairForm: pair_move})
RENEW = dict.fromkeys(POTTS, renew_nothing) | {PottsPairForm: pair_renew}
primitive(renew, RENEW, makes_arrays=True)
