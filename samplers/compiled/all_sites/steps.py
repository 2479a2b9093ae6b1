"""The kernels of samplers that decide about all sites at once (`compiled.all_sites.twin`)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.samplers.compiled.all_sites import binary, categorical
from latticework.samplers.compiled.all_sites.langevin import settle_proposal
from latticework.samplers.compiled.forms.fields import (
    add_changes,
    gain,
    renew_fields,
    renewal_mask,
    two_values,
)
from latticework.samplers.compiled.forms.pairwise import ONE_HOT
from latticework.samplers.compiled.jit import copy, inlined, kernel, lean, primitive
from latticework.samplers.compiled.philox import fill_step, unit
from latticework.samplers.compiled.running_sums import add_chain, record_chain


class StepMemory(NamedTuple):
    """Memory of a step of one chain."""

    words: NDArray[np.uint32]  # at least one more than the sites
    marks: NDArray[np.uint8]  # 1 at the sites that change; zeros up to a multiple of 8
    eights: NDArray[np.uint64]  # the places of eight marks of which some are not 0
    sites: NDArray[np.uint64]  # the sites that change


@kernel
def make_memory(sites):
    marks = np.zeros((sites + 7) // 8 * 8, np.uint8)
    words = np.empty(max(64, sites // 4 * 4 + 4), np.uint32)
    rows = np.empty((2, marks.shape[0]), np.uint64)
    return StepMemory(words, marks, rows[0], rows[1])


@kernel
def weigh_all(first, last, form, rule, state):
    _, values, fields, laws, normaliser, _ = state
    room = room_of(form, values.shape[1])
    for c in range(first, last):
        normaliser[c] = weigh_values(form, rule, 0, laws[c], values[c], fields[c], room)


@kernel
def move_chains(first, last, form, rule, phase, state, keys, sums):
    """All steps of one chain after the other."""
    x, values, fields, laws, normaliser, _ = state
    steps, period, work = keys.shape[0], rule.balance.shape[0], make_memory(values.shape[1])
    y, after, there = np.empty_like(values[0]), np.empty_like(fields[0]), np.empty_like(laws[0])
    changes, room = (work.sites, np.empty_like(y), np.empty_like(y)), room_of(form, y.shape[0])
    for c in range(first, last):
        now, field, law, swapped = values[c], fields[c], laws[c], False
        for t in range(steps):
            k, at = (phase + t) % period if period > 1 else 0, (now, field, law)
            if is_due(keys[t], normaliser[c]):
                renew_fields(form, now, field)
            propose_values(form, rule, k, keys[t], c, at, normaliser, y, work, room)
            count = list_changes(now, y, changes, work)
            sites, old, new = changes[0][:count], changes[1][:count], changes[2][:count]
            copy(after, field)
            add_changes(form, after, sites, old, new)
            total = weigh_values(form, rule, k, there, y, after, room)
            beyond = 0.0
            if has_more(rule, k):
                beyond = ratio_beyond(form, rule, k, at, (y, after, there), (sites, old, new))
            level = unit(work.words[now.shape[0]])
            if settle_proposal(c, rule.adjusted, count, level, total, normaliser, sums, beyond):
                field, after, law, there = after, field, there, law
                swapped = not swapped
                for f in range(count):
                    now[sites[f]] = new[f]
            add_values(form, sums, x, now, c, t - steps)
        if swapped:  # `after` and `there` are the rows of the state
            copy(after, field)
            copy(there, law)
            after, there = field, law
        write_values(form, x, now, c)


@kernel
def step_together(first, form, rule, phase, most, state, proposals, t, keys, sums):
    """Accept or reject the proposals of step t of some chains, and draw those of step t + 1.

    The fields of proposals with more than `most` changes are left to a matrix product.
    """
    (x, values, fields, laws, normaliser, _), (y, after, counts, level) = state, proposals
    steps, period, work = keys.shape[0], rule.balance.shape[0], make_memory(values.shape[1])
    changes = work.sites, np.empty_like(y[0]), np.empty_like(y[0])
    there, room = np.empty_like(laws[0]), room_of(form, values.shape[1])
    for r in range(y.shape[0]):
        c = first + r
        now, field, law = values[c], fields[c], laws[c]
        at = now, field, law
        if t >= 0:
            k, beyond = (phase + t) % period, 0.0
            total = weigh_values(form, rule, k, there, y[r], after[r], room)
            if has_more(rule, k):
                mark_changes(now, y[r], work.marks)
                count = list_changes(now, y[r], changes, work)
                lists = changes[0][:count], changes[1][:count], changes[2][:count]
                beyond = ratio_beyond(form, rule, k, at, (y[r], after[r], there), lists)
            if settle_proposal(
                c, rule.adjusted, counts[r], level[r], total, normaliser, sums, beyond
            ):
                copy(now, y[r])
                copy(field, after[r])
                copy(law, there)
            add_values(form, sums, x, now, c, t - steps)
        if t + 1 < steps:
            k, key = (phase + t + 1) % period, keys[t + 1]
            if is_due(key, normaliser[c]):
                renew_fields(form, now, field)
            propose_values(form, rule, k, key, c, at, normaliser, y[r], work, room)
            counts[r], level[r] = count_marks(work.marks), unit(work.words[now.shape[0]])
            if counts[r] <= most:
                count = list_changes(now, y[r], changes, work)
                copy(after[r], field)
                add_changes(
                    form, after[r], changes[0][:count], changes[1][:count], changes[2][:count]
                )
        else:
            write_values(form, x, now, c)


@inlined
def is_due(key, normaliser):
    """Whether fields are computed from scratch. NaN that was added to them would stay."""
    return key & renewal_mask(16) == 0 or not np.isfinite(normaliser)


@inlined
def has_more(rule, k):
    """Whether the log ratio is more than the difference of the normalisers."""
    return rule.jumps or rule.balance[k] != np.float32(0.5)


@lean
def propose_values(form, rule, k, key, c, at, normaliser, y, work, room):
    """Draw the values `y` of all sites from the values, fields and law `at` a chain's state."""
    now, field, law = at
    if is_due(key, normaliser[c]) or rule.balance.shape[0] > 1:
        normaliser[c] = weigh_values(form, rule, k, law, now, field, room)
    fill_step(work.words, key, c, 0)
    draw_values(form, y, work.marks, law, work.words, now, room)


@lean
def mark_changes(now, y, marks):
    for i in range(np.uint64(now.shape[0])):
        marks[i] = np.uint8(now[i] != y[i])


@lean
def count_marks(marks):
    count = np.uint32(0)
    for i in range(np.uint64(marks.shape[0])):
        count += np.uint32(marks[i])
    return np.int64(count)


@lean
def list_changes(now, y, changes, work):
    """List the sites that are marked, and their values at x and y; returns how many.

    Nothing branches on the marks.
    """
    (sites, old, new), eights, words = changes, work.eights, work.marks.view(np.uint64)
    hits, count = np.uint64(0), np.uint64(0)
    for j in range(np.uint64(words.shape[0])):
        eights[hits] = j
        hits += np.uint64(words[j] != 0)
    for m in range(np.uint64(8) * hits):
        i = np.uint64(8) * eights[m >> np.uint64(3)] + (m & np.uint64(7))
        sites[count] = i
        count += np.uint64(work.marks[i])
    for f in range(count):
        old[f], new[f] = now[sites[f]], y[sites[f]]
    return np.int64(count)


@lean
def ratio_beyond(form, rule, k, at, to, changes):
    """The sum over the changes of l - gain / 2 at y minus at x, without prices, which cancel."""
    (now, field, law), (y, after, there), (sites, old, new), total = at, to, changes, 0.0
    share = np.float64(rule.balance[k]) - 0.5
    for f in range(sites.shape[0]):
        i = sites[f]
        back = np.float64(gain(form, y, after, i, old[f]))
        forth = np.float64(gain(form, now, field, i, new[f]))
        if rule.jumps:
            total += jump_log_odds(form, there, i) - jump_log_odds(form, law, i)
            total += 0.5 * (forth - back)
        else:
            total += share * (back - forth)
    return total


# Rules of binary sites. Those of one-hot sites are below.


def room_of(form, sites):
    """Memory that `draw_values` and `weigh_values` overwrite."""
    return np.empty(0, np.uint8)


def draw_values(form, y, marks, law, words, now, room):
    """Draw the values `y` of all sites, and mark the sites that change."""
    low, high = two_values(form)
    binary.draw_sites(y, marks, law, words, now, low, high)


def weigh_values(form, rule, k, law, values, fields, room):
    """Write what `draw_values` reads at `values` in step `k` of a cycle.

    Returns the log normaliser.
    """
    low, high = two_values(form)
    return binary.weigh(law, values, fields, rule, k, low + high)


def jump_log_odds(form, law, i):
    """The log-odds of a jump of site `i`. One-hot sites do not jump."""
    return binary.log_odds_of(law[i])


def add_values(form, sums, x, now, c, t):
    """Add the state of chain `c` to the sums; `t` counts the steps from the end, the last is -1.

    One-hot `x` is free to be overwritten.
    """
    add_chain(sums, x, c, t)


def write_values(form, x, now, c):
    """Write the values of chain `c` to its one-hot states."""


def one_hot_room(form, sites):
    fields = np.empty(form.bias.size, np.float32)
    return fields, np.empty((3, sites), np.float32), np.empty((2, sites), np.int32)


def one_hot_draw_values(form, y, marks, law, words, now, room):
    categorical.draw_sites(y, marks, law, words, now, room[2][0])


def one_hot_weigh_values(form, rule, k, law, values, fields, room):
    copy(room[0], fields)
    price, balance = rule.price[k], rule.balance[k]
    return categorical.weigh(law, room[0], values, price, balance, room[1], room[2])


def no_jumps(form, law, i):
    return np.nan


def one_hot_add_values(form, sums, x, now, c, t):
    q = form.bias.shape[0]
    if sums.total.shape[0]:
        for i in range(now.shape[0]):
            sums.total[c, i * q + now[i]] += np.float32(1)
    if c < sums.trace.shape[1] and t + sums.trace.shape[0] >= 0:
        write_values(form, x, now, c)
        record_chain(sums.trace, x, c, t)


def one_hot_write_values(form, x, now, c):
    q = form.bias.shape[0]
    for i in range(now.shape[0]):
        for v in range(q):
            x[c, i * q + v] = np.float32(now[i] == v)


@kernel
def write_one_hot(out, y):
    """Write values `[., sites]` one-hot, values first, to `out` `[., q * sites]`."""
    sites = np.uint64(y.shape[1])
    for r in range(np.uint64(y.shape[0])):
        row = y[r]
        for v in range(np.uint64(out.shape[1]) // sites):
            for i in range(sites):
                out[r, v * sites + i] = np.float32(row[i] == np.int32(v))


primitive(room_of, dict.fromkeys(ONE_HOT, one_hot_room), makes_arrays=True)
primitive(draw_values, dict.fromkeys(ONE_HOT, one_hot_draw_values))
primitive(weigh_values, dict.fromkeys(ONE_HOT, one_hot_weigh_values))
primitive(jump_log_odds, dict.fromkeys(ONE_HOT, no_jumps))
primitive(add_values, dict.fromkeys(ONE_HOT, one_hot_add_values))
primitive(write_values, dict.fromkeys(ONE_HOT, one_hot_write_values))
