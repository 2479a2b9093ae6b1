"""Draws of one site by each form, for `gibbs`: its log-odds or fields, and its new value.

All chains visit the same site, so what they share there is prepared once. A draw of a lattice has
no branch on what is drawn. On graphs and Potts models of listed neighbours, operations are those of
`tile_values`, so that both give the same bits.
"""

import math

import numpy as np

from latticework.models.forms import IMPOSSIBLE, GraphForm, PairForm, RBMForm
from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.draws import draw_bit
from latticework.samplers.compiled.forms.fields import (
    change,
    change_site,
    count_values,
    find_field,
    two_values,
)
from latticework.samplers.compiled.forms.hidden_units import softplus_change, write_exponentials
from latticework.samplers.compiled.forms.pairwise import ONE_HOT, LatticeTable, PottsLists
from latticework.samplers.compiled.jit import copy, inlined, lean, primitive
from latticework.samplers.compiled.philox import unit
from latticework.samplers.compiled.running_sums import add_held_value
from latticework.samplers.compiled.sweeps.packed_chains import MAX_SINGLE_NEIGHBOURS

ONE = np.uint64(1)


def room_of(form):
    """Room for `prepare` and `resample_site`, if they need any."""


def prepare(form, i, room):
    """Write to `room` what all chains need at site `i`, if there is anything."""


def resample_site(form, x, values, fields, c, i, word, room, running, first, t):
    """Draw site `i` of chain `c` in step `t`, and keep the sums (`change_site`)."""
    raise NotImplementedError


# Lattices.


def lattice_resample(form, x, values, fields, c, i, word, room, running, first, t):
    total, since, changed, _ = running
    near, count = form.neighbours, form.degree[i]
    if count == 4:  # a loop of unknown length takes longer
        ones = x[c, near[i, 0]] + x[c, near[i, 1]] + x[c, near[i, 2]] + x[c, near[i, 3]]
    else:
        ones = np.float32(0)
        for k in range(count):
            ones += x[c, near[i, k]]
    new = np.float32(word < form.threshold[form.kind[i], np.uint32(ones)])
    old = x[c, i]
    x[c, i] = new
    changed[c] += np.int64(new != old)
    add_held_value(total, since, first, c, i, old, t)


# Graphs.


def graph_resample(form, x, values, fields, c, i, word, room, running, first, t):
    odds = graph_log_odds(form, x, c, i)
    new = np.float32(draw_bit(word, odds))
    if np.isnan(odds):
        running[3][c] += 1
    elif new != x[c, i]:
        change_site(form, x, x, fields, c, i, new, running, first, t)


@inlined
def graph_log_odds(form, x, c, i):
    """The log-odds of a site, by the operations of `tile_values.find_odds`."""
    start, stop = form.starts[i], form.starts[i + 1]
    if stop - start <= MAX_SINGLE_NEIGHBOURS:
        return add_slopes(form, x, c, start, stop, np.float32(form.offset[i]))
    total = form.offset[i]
    for k in range(start, stop, MAX_SINGLE_NEIGHBOURS):
        total += add_slopes(form, x, c, k, min(k + MAX_SINGLE_NEIGHBOURS, stop), np.float32(0))
    return np.float32(total)


@lean
def add_slopes(form, x, c, start, stop, base):
    """`base` + the slopes of neighbours at 1: four sums, as those of `packed_chains`."""
    near, slope, row = form.neighbours, form.slope, np.uint64(c)
    k, last, four = np.uint64(start), np.uint64(stop), np.uint64(4)
    a, b, d, e = base, np.float32(0), np.float32(0), np.float32(0)
    while k + four <= last:
        i, j = np.uint64(near[k]), np.uint64(near[k + ONE])
        m, n = np.uint64(near[k + np.uint64(2)]), np.uint64(near[k + np.uint64(3)])
        a += slope[k] * x[row, i]
        b += slope[k + ONE] * x[row, j]
        d += slope[k + np.uint64(2)] * x[row, m]
        e += slope[k + np.uint64(3)] * x[row, n]
        k += four
    while k < last:
        a += slope[k] * x[row, np.uint64(near[k])]
        k += ONE
    return ((a + b) + d) + e


# Dense pairs.


def pair_resample(form, x, values, fields, c, i, word, room, running, first, t):
    (low, high), old = two_values(form), x[c, i]
    gain = change(form, x[c], fields[c], i)
    p = 1.0 / (1.0 + math.exp(gain if old == high else -gain))
    new = high if unit(word) < p else low
    if np.isnan(p):
        running[3][c] += 1
    elif new != old:
        change_site(form, x, x, fields, c, i, new, running, first, t)


# RBMs. The change of the softplus sum is the logarithm of a product (`hidden_units`), whose
# exponentials of a row of W all chains share.


def rbm_room(form):
    return np.empty((2, form.hidden_bias.shape[0]), np.float32)


def rbm_prepare(form, i, room):
    """The odds of a flip to 1 and of a flip to 0."""
    write_exponentials(form.weight[i], np.float32(1), room[0])
    write_exponentials(form.weight[i], np.float32(-1), room[1])


def rbm_resample(form, x, values, fields, c, i, word, room, running, first, t):
    old = x[c, i]
    sign = np.float32(1) - np.float32(2) * old
    gain = softplus_change(fields[c], room[np.int64(old)], form.weight[i], sign)
    p = 1.0 / (1.0 + math.exp(-(form.visible_bias[i] + sign * gain)))
    new = np.float32(unit(word) < p)
    if np.isnan(p):
        running[3][c] += 1
    elif new != old:
        change_site(form, x, x, fields, c, i, new, running, first, t)


# Potts models.


def potts_room(form):
    q = count_values(form)
    return np.empty(q), np.empty(q, np.float32), np.empty(q + 1)


def potts_resample(form, x, values, fields, c, i, word, room, running, first, t):
    logits, single, passed = room
    q = logits.shape[0]
    find_logits(form, values[c], fields[c], i, logits, single)
    top, unknown = -np.inf, False
    for v in range(q):
        unknown |= np.isnan(logits[v])
        top = logits[v] if logits[v] > top else top
    passed[0] = 0.0
    for v in range(q):
        weight = exp32(np.float32(logits[v] - top))
        passed[v + 1] = passed[v]
        passed[v + 1] += np.float64(weight if logits[v] > IMPOSSIBLE else np.float32(0))
    level, new = unit(word) * passed[q], 0
    for v in range(1, q):
        new += passed[v] <= level
    drawn = passed[q] > 0 and not np.isinf(top)
    if unknown or np.isinf(top):
        running[3][c] += 1
    if drawn and new != values[c, i]:
        change_site(form, x, values, fields, c, i, new, running, first, t)


def find_logits(form, values, fields, i, logits, single):
    """The log-probabilities of site `i` given the rest, up to a constant. `single` is room."""
    find_field(form, values, fields, i, logits)


def lists_find_logits(form, values, fields, i, logits, single):
    """In single precision, unless the site is a hub."""
    if form.starts[i + 1] - form.starts[i] > MAX_SINGLE_NEIGHBOURS:
        find_field(form, values, fields, i, logits)
    else:
        find_field(form, values, fields, i, single)
        copy(logits, single)


RESAMPLE = {LatticeTable: lattice_resample, GraphForm: graph_resample, PairForm: pair_resample}
RESAMPLE |= {RBMForm: rbm_resample} | dict.fromkeys(ONE_HOT, potts_resample)
primitive(resample_site, RESAMPLE)
ROOM = {RBMForm: rbm_room} | dict.fromkeys(ONE_HOT, potts_room)
primitive(room_of, ROOM, makes_arrays=True)
primitive(prepare, {RBMForm: rbm_prepare})
primitive(find_logits, {PottsLists: lists_find_logits})
