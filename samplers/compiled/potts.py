"""Potts models inside kernels: values as integers, the field of a site, and a change of value.

The field of a site is its log-probabilities given the rest. `memory` is a chain's row of a table
that dense models keep up to date: the field of all sites (`compiled.sites`). Outside, states are
one-hot `x` `[chains, sites * q]`; a change of value writes both.
"""

import numpy as np

from latticework.models.forms import PottsGraphForm, PottsLatticeForm, PottsPairForm
from latticework.samplers.compiled.jit import inlined, primitive
from latticework.samplers.compiled.running_sums import leave


def field(form, values, memory, c, i, out):
    """Write the log-probabilities of site `i` given the rest, up to a constant, to `out` `[q]`.

    `out` is float64 where a site may have very many neighbours.
    """
    raise NotImplementedError


def move(form, memory, c, i, old, new):
    """Update `memory` after site `i` changed its value."""
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


def pair_field(form, values, memory, c, i, out):
    for v in range(out.shape[0]):
        out[v] = memory[c, i * out.shape[0] + v]


def pair_move(form, memory, c, i, old, new):
    own, q = memory[c], form.bias.shape[1]
    gained, lost = form.coupling[i * q + new], form.coupling[i * q + old]
    for j in range(own.shape[0]):
        own[j] += gained[j] - lost[j]


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
