"""Primitives of kernels over all forms: the fields of sites, and changes of single sites.

A chain has a row of values (x itself, or the numbers of one-hot values) and a row of fields: the
gradient of binary sites `[sites]`; the log-probabilities of values `[q * sites]`; the hidden units
of an RBM (`hidden_units`). Each change rounds the fields, so `renew_fields` computes them from
scratch in the steps that `renewal_mask` names.

Samplers that visit one site at a time keep no fields where neighbours are listed. Their rows are
empty there, and `change` and `find_field` read the neighbours. numba chooses the code of each
function by the form's type.
"""

import numpy as np

from latticework.models.forms import GraphForm, PairForm, PottsPairForm, RBMForm
from latticework.samplers.compiled.forms.hidden_units import rbm_add_change, rbm_renew
from latticework.samplers.compiled.forms.pairwise import (
    ONE_HOT,
    LatticeCounts,
    PottsLists,
    PottsMatrix,
)
from latticework.samplers.compiled.jit import copy, inlined, lean, primitive
from latticework.samplers.compiled.running_sums import add_held_value

RENEWAL_STEPS = 64  # steps a site, at least, between two renewals of the fields on average


@inlined
def renewal_mask(sites):
    """A mask: the fields are computed from scratch in steps with `key & mask == 0`.

    Keys are random, so this takes no counter, and does not depend on how steps are divided into
    calls. A renewal costs as much as one flip of each site, and comes once in 64 to 128 steps a
    site.
    """
    mask = 1
    while mask < RENEWAL_STEPS * sites:
        mask *= 2
    return np.int64(mask - 1)


def renew_fields(form, values, fields):
    """Compute the fields from scratch. A form that keeps none has nothing to do."""


def add_change(form, fields, i, old, new):
    """Add to the fields what a change of site `i` does to them."""
    raise NotImplementedError


def add_changes(form, fields, sites, old, new):
    """`add_change` for several sites, which change from `old` to `new`, one after another."""
    for f in range(sites.shape[0]):
        add_change(form, fields, sites[f], old[f], new[f])


def gain(form, values, fields, i, new):
    """The first-order change of log pi by a change of site `i` to the value `new`."""
    raise NotImplementedError


def change(form, values, fields, i):
    """The change of log pi when a binary site flips, float64. Reads neighbours that are listed."""
    raise NotImplementedError


def find_field(form, values, fields, i, out):
    """Write the log-probabilities of one-hot site `i` given the rest, up to a constant, to `out`.

    Reads neighbours that are listed. `out` `[q]` is float64 where they may be very many.
    """
    raise NotImplementedError


def target(form, values, m):
    """The site and the new value of move `m`. A one-hot site has one for each of its values."""
    return m, np.float32(1) - values[m]


def two_values(form):
    """The two values of a binary site, float32."""
    return np.float32(0), np.float32(1)


def count_values(form):
    """The number of values of a one-hot site."""
    return form.bias.shape[0]


def place(form, i, v):
    """The place of value `v` of one-hot site `i` in the fields."""
    return v * form.bias.shape[1] + i


def put_value(form, x, values, i, new):
    """Set a site's value, and `x` if that is one-hot."""
    values[i] = new


def add_held_site(form, total, since, first, c, i, old, new, t):
    """`running_sums.add_held_value` before step `t` sets a site from `old` to `new`."""
    add_held_value(total, since, first, c, i, old, t)


@lean
def set_site(form, x, values, fields, i, new):
    """Set a site's value; the fields follow, unless they are empty."""
    old = values[i]
    put_value(form, x, values, i, new)
    if fields.shape[0]:
        add_change(form, fields, i, old, new)


@lean
def change_site(form, x, values, fields, c, i, new, running, first, t):
    """Set site `i` of chain `c` to another value in step `t`, and keep the sums.

    `running` are the total, `since`, and the numbers of changed and of invalid ones
    (`running_sums`).
    """
    total, since, changed, _ = running
    changed[c] += 1
    add_held_site(form, total, since, first, c, i, values[c, i], new, t)
    set_site(form, x[c], values[c], fields[c], i, new)


# Binary sites with listed neighbours.


def graph_renew(form, values, fields):
    for i in range(fields.shape[0]):
        total = np.float64(form.offset[i])
        for k in range(form.starts[i], form.starts[i + 1]):
            total += np.float64(form.slope[k] * values[form.neighbours[k]])
        fields[i] = total


def graph_add_change(form, fields, i, old, new):
    step, i = new - old, np.uint64(i)
    for k in range(np.uint64(form.starts[i]), np.uint64(form.starts[i + np.uint64(1)])):
        fields[form.neighbours[k]] += step * form.slope[k]


def slope_gain(form, values, fields, i, new):
    return np.float32(fields[i]) * (new - values[i])


def graph_change(form, values, fields, i):
    i = np.uint64(i)
    odds = np.float64(form.offset[i])
    for k in range(np.uint64(form.starts[i]), np.uint64(form.starts[i + np.uint64(1)])):
        odds += np.float64(form.slope[k]) * values[np.uint64(form.neighbours[k])]
    return -odds if values[i] == 1 else odds


# Binary sites of a lattice.


def count_renew(form, values, fields):
    for i in range(fields.shape[0]):
        fields[i] = count_ones(form, values, i)


@inlined
def count_ones(form, values, i):
    """How many neighbours of a lattice site are at 1."""
    count, i = np.float32(0), np.uint64(i)
    for k in range(np.uint64(form.starts[i]), np.uint64(form.starts[i + np.uint64(1)])):
        count += values[np.uint64(form.neighbours[k])]
    return count


def count_add_change(form, fields, i, old, new):
    step, i = new - old, np.uint64(i)
    for k in range(np.uint64(form.starts[i]), np.uint64(form.starts[i + np.uint64(1)])):
        fields[form.neighbours[k]] += step


def count_gain(form, values, fields, i, new):
    return form.odds[form.kind[i], np.int64(fields[i])] * (new - values[i])


def count_change(form, values, fields, i):
    i = np.uint64(i)
    odds = form.odds[np.uint64(form.kind[i]), np.uint64(count_ones(form, values, i))]
    return -odds if values[i] == 1 else odds


# Binary sites with a dense coupling.


@lean
def other_value(value, low, high):
    """The other value of a site. low + high - value could be off by a rounding error."""
    return np.float32(low) if value == np.float32(high) else np.float32(high)


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


def pair_change(form, values, fields, i):
    step = other_value(values[i], form.low, form.high) - values[i]
    return np.float64(fields[i] * step + form.diagonal[i] * step * step)


def pair_target(form, values, m):
    return m, other_value(values[m], form.low, form.high)


def pair_two_values(form):
    return np.float32(form.low), np.float32(form.high)


# One-hot sites with listed neighbours.


def lists_renew(form, values, fields):
    q = np.uint64(form.bias.shape[0])
    sites = np.uint64(fields.shape[0]) // q
    for v in range(q):
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


def lists_find_field(form, values, fields, i, out):
    for v in range(out.shape[0]):
        out[v] = form.bias[v, i]
    for k in range(form.starts[i], form.starts[i + 1]):
        out[values[form.neighbours[k]]] += form.coupling[k]


# One-hot sites with a dense coupling.


def matrix_renew(form, values, fields):
    total = form.bias.astype(np.float64).reshape(fields.shape[0])
    for i in range(values.shape[0]):
        row = form.coupling[place(form, i, values[i])]
        for j in range(total.shape[0]):
            total[j] += row[j]
    copy(fields, total)


def matrix_add_change(form, fields, i, old, new):
    lost, gained = np.uint64(place(form, i, old)), np.uint64(place(form, i, new))
    for j in range(np.uint64(fields.shape[0])):
        fields[j] += form.coupling[gained, j] - form.coupling[lost, j]


def matrix_find_field(form, values, fields, i, out):
    for v in range(out.shape[0]):
        out[v] = fields[place(form, i, v)]


def sites_first_count(form):
    return form.bias.shape[1]


def sites_first_place(form, i, v):
    return i * form.bias.shape[1] + v


# All one-hot sites.


def one_hot_gain(form, values, fields, i, new):
    return np.float32(fields[place(form, i, new)] - fields[place(form, i, values[i])])


def one_hot_target(form, values, m):
    q = count_values(form)
    return m // q, np.int32(m % q)


def one_hot_put_value(form, x, values, i, new):
    q = count_values(form)
    x[i * q + values[i]] = 0
    x[i * q + new] = 1
    values[i] = new


def one_hot_add_held_site(form, total, since, first, c, i, old, new, t):
    q = count_values(form)
    add_held_value(total, since, first, c, i * q + old, np.float32(1), t)
    add_held_value(total, since, first, c, i * q + new, np.float32(0), t)


RENEW = {
    GraphForm: graph_renew,
    LatticeCounts: count_renew,
    PairForm: pair_renew,
    RBMForm: rbm_renew,
    PottsLists: lists_renew,
    PottsMatrix: matrix_renew,
    PottsPairForm: matrix_renew,
}
primitive(renew_fields, RENEW, makes_arrays=True)
ADD_CHANGE = {
    GraphForm: graph_add_change,
    LatticeCounts: count_add_change,
    PairForm: pair_add_change,
    RBMForm: rbm_add_change,
    PottsLists: lists_add_change,
    PottsMatrix: matrix_add_change,
    PottsPairForm: matrix_add_change,
}
primitive(add_change, ADD_CHANGE)
primitive(add_changes, {PairForm: pair_add_changes})
GAIN = {GraphForm: slope_gain, LatticeCounts: count_gain, PairForm: slope_gain}
primitive(gain, GAIN | dict.fromkeys(ONE_HOT, one_hot_gain))
primitive(change, {GraphForm: graph_change, LatticeCounts: count_change, PairForm: pair_change})
primitive(find_field, {PottsLists: lists_find_field, PottsPairForm: matrix_find_field})
primitive(target, {PairForm: pair_target} | dict.fromkeys(ONE_HOT, one_hot_target))
primitive(two_values, {PairForm: pair_two_values})
primitive(count_values, {PottsPairForm: sites_first_count})
primitive(place, {PottsPairForm: sites_first_place})
primitive(put_value, dict.fromkeys(ONE_HOT, one_hot_put_value))
primitive(add_held_site, dict.fromkeys(ONE_HOT, one_hot_add_held_site))
