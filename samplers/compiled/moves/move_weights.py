"""The weights of one-site moves on pairwise forms, which a sampler draws a move from.

Move m has the weight exp(gain / 2 - top). A binary site has one move; a one-hot site has one for
each value, and that to its present value weighs nothing. A move is drawn in two stages: a block of
consecutive moves by the sum of its weights, then a move in it.

Where neighbours are listed, changes of x reach few weights. These and the sums of their blocks are
computed afresh in place, and so again if x goes back. Where the coupling is dense, changes reach
all weights, which are written to spare rows. `rows` are the fields, weights and sums of a chain,
and room for half the gains of a dense form.
"""

from math import isqrt
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import GraphForm, PairForm
from latticework.samplers.compiled.arithmetic import exp32, largest_number32, wide_exp
from latticework.samplers.compiled.draws import sum_blocks, sum_of
from latticework.samplers.compiled.forms.field_rows import fields_of, numbers_of, rows_of
from latticework.samplers.compiled.forms.fields import add_changes
from latticework.samplers.compiled.forms.pairwise import (
    LISTED,
    LatticeCounts,
    PottsLists,
    PottsMatrix,
)
from latticework.samplers.compiled.jit import (
    copy,
    inlined,
    kernel,
    lean,
    over_chains,
    primitive,
    reordered,
)

BLOCK_MOVES = 16  # moves of a block where the coupling is dense
MIN_SUM, MAX_SUM = 1e-200, 1e200  # sums of weights; beyond them, weights follow a `top`


class MovesState(NamedTuple):
    x: Tensor  # [chains, sites] or [chains, sites, q]
    values: Tensor  # [chains, sites], the numbers of one-hot values; else empty
    fields: Tensor  # [chains, sites] or [chains, q * sites]
    weights: Tensor  # [chains, blocks * moves of each], padded with zeros
    sums: Tensor  # [chains, blocks], of the weights, float64
    top: Tensor  # [chains], float64


class MoveRule(NamedTuple):
    """How a move is weighed."""

    unknown: float  # the weight of a move whose gain is NaN: 0, or NaN if all moves are rejected
    beyond: NDArray[np.float32]  # [sites], of dense binary sites: gains beyond the first order


def weighed_state(x: Tensor, form: Any, rule: MoveRule, double: bool) -> MovesState:
    """The state at `x`, with weights in double precision or, on dense forms, in single."""
    chains, moves = len(x), x[0].numel()
    width = isqrt(x.shape[1]) * (moves // x.shape[1]) if isinstance(form, LISTED) else BLOCK_MOVES
    blocks = -(-moves // width)
    dtype = torch.float64 if double or isinstance(form, LISTED) else torch.float32
    weights = x.new_zeros(chains, blocks * width, dtype=dtype)
    sums = x.new_zeros(chains, blocks, dtype=torch.float64)
    fields = fields_of(form, x)
    state = MovesState(x, numbers_of(x), fields, weights, sums, sums.new_zeros(chains))
    over_chains(weigh_chains, chains, 5.0 * x.numel(), form, rule, rows_of(state))
    return state


@kernel
def weigh_chains(first, last, form, rule, state):
    top, room = state.top, make_room(form, state.fields.shape[1])
    for c in range(first, last):
        top[c] = weigh_moves(form, rule, state.values[c], rows_of_chain(state, c, room))


@inlined
def rows_of_chain(state, c, room):
    return state.fields[c], state.weights[c], state.sums[c], room


@inlined
def spare_rows(state, room):
    """Rows for what `follow_changes` writes."""
    fields, weights, sums = state.fields[0], state.weights[0], state.sums[0]
    return np.empty_like(fields), np.zeros_like(weights), np.empty_like(sums), room


# Rules of forms with listed neighbours, whose weights are in double precision and seldom need a
# `top`. Those of dense couplings are further below.


def make_room(form, moves):
    """Room for half the gains, which only dense forms need."""
    return np.empty(0, np.float32)


def weigh_moves(form, rule, now, rows):
    """Compute all weights and sums from the fields; returns `top`."""
    fields, weights, sums, _ = rows
    top = 0.0
    for _ in range(2):
        largest = -np.inf
        for i in range(now.shape[0]):
            largest = max(largest, weigh_site(form, rule, now, fields, weights, i, top))
        sum_blocks(weights, sums)
        if not has_lost_range(form, sum_of(sums)):
            break
        top = largest
    return top


def follow_changes(form, rule, now, rows, spare, top, sites, old, new):
    """Bring fields and weights to `now`, where `sites` have changed from `old` to `new`.

    Returns the sum of the weights and their `top`. They are in `rows_of_proposal`.
    """
    add_changes(form, rows[0], sites, old, new)
    reweigh_sites(form, rule, now, rows, top, sites)
    return sum_of(rows[2]), top


def rows_of_proposal(form, rows, spare):
    """The rows that `follow_changes` has written."""
    return rows


def adopt_proposal(form, rows, spare):
    """Take the proposed rows over."""


def undo_changes(form, rule, now, rows, top, sites, old, new):
    """Undo `follow_changes`, after `now` has the values `old` again."""
    add_changes(form, rows[0], sites, new, old)
    reweigh_sites(form, rule, now, rows, top, sites)


def has_lost_range(form, total):
    """Whether a sum of weights is so large or small that `top` should follow it."""
    return not MIN_SUM < total < MAX_SUM


def weigh_site(form, rule, now, fields, weights, i, top):
    """Compute the weights of a site's moves, whose neighbours are listed; returns half a gain.

    That is the largest of them, or 0 where weights never need a `top`.
    """
    raise NotImplementedError


@lean
def reweigh_sites(form, rule, now, rows, top, sites):
    """Compute the weights of sites and their neighbours afresh, and the sums of their blocks."""
    fields, weights, sums, _ = rows
    moves, width = fields.shape[0] // now.shape[0], weights.shape[0] // sums.shape[0]
    for f in range(sites.shape[0]):
        i = np.int64(sites[f])
        weigh_site(form, rule, now, fields, weights, i, top)
        for k in range(form.starts[i], form.starts[i + 1]):
            weigh_site(form, rule, now, fields, weights, form.neighbours[k], top)
    previous = np.int64(-1)
    for f in range(sites.shape[0]):
        i = np.int64(sites[f])
        for k in range(form.starts[i] - 1, form.starts[i + 1]):
            j = i if k < form.starts[i] else np.int64(form.neighbours[k])
            b = np.int64(np.uint64(j * moves) // np.uint64(width))  # faster than with signs
            if b != previous:
                sums[b] = sum_of(weights[b * width : (b + 1) * width])
                previous = b


def graph_weigh_site(form, rule, now, fields, weights, i, top):
    i = np.uint64(i)
    x = now[i]
    half = np.float32(0.5) * np.float32(fields[i]) * (np.float32(1) - x - x)
    weight = wide_exp(half - np.float32(top))
    weights[i] = weight if weight == weight else rule.unknown
    return np.float64(half)


def lattice_weigh_site(form, rule, now, fields, weights, i, top):
    i = np.uint64(i)
    weight = form.weights[np.uint64(form.kind[i]), np.uint64(fields[i]), np.uint64(now[i])]
    weights[i] = weight if weight == weight else rule.unknown
    return 0.0


def potts_weigh_site(form, rule, now, fields, weights, i, top):
    q, sites = form.bias.shape
    stays, largest = fields[now[i] * sites + i], -np.inf
    for v in range(q):
        half = np.float32(0.5) * np.float32(fields[v * sites + i] - stays)
        weight = wide_exp(half - np.float32(top))
        weights[i * q + v] = weight if weight == weight else rule.unknown
        if v != now[i]:
            largest = max(largest, np.float64(half))
    weights[i * q + now[i]] = 0
    return largest


# Dense couplings: weights relative to the largest.


def dense_weigh_moves(form, rule, now, rows):
    fields, weights, sums, halves = rows
    weigh_halves(form, rule, now, fields, halves)
    top = largest_number32(halves)
    exponentiate_halves(weights, halves, top, weights.dtype.type(rule.unknown))
    clear_present(form, now, weights)
    sum_groups(weights, sums)
    return np.float64(top)


@reordered
def exponentiate_halves(weights, halves, top, unknown):
    for m in range(np.uint64(halves.shape[0])):
        half = halves[m] - top
        weight = wide_exp(half) if weights.itemsize == 8 else exp32(half)
        weights[m] = weight if weight == weight else unknown


@reordered
def sum_groups(weights, sums):
    for g in range(sums.shape[0]):
        total = weights[g * BLOCK_MOVES]
        for m in range(g * BLOCK_MOVES + 1, (g + 1) * BLOCK_MOVES):
            total += weights[m]
        sums[g] = total


def dense_follow_changes(form, rule, now, rows, spare, top, sites, old, new):
    copy(spare[0], rows[0])
    add_changes(form, spare[0], sites, old, new)
    new_top = weigh_moves(form, rule, now, spare)
    return sum_of(spare[2]), new_top


def dense_rows_of_proposal(form, rows, spare):
    return spare


def dense_adopt_proposal(form, rows, spare):
    copy(rows[0], spare[0])
    copy(rows[1], spare[1])
    copy(rows[2], spare[2])


def dense_undo_changes(form, rule, now, rows, top, sites, old, new):
    pass


def never_loses_range(form, total):
    return False


def weigh_halves(form, rule, now, fields, halves):
    """Write half the gains of all moves, -inf for those to a present value."""
    raise NotImplementedError


def clear_present(form, now, weights):
    """Set the weights of moves to the present values of one-hot sites to 0."""


def pair_halves(form, rule, now, fields, halves):
    both = np.float32(form.low + form.high)
    for i in range(np.uint64(fields.shape[0])):
        gain = fields[i] * (both - now[i] - now[i]) + rule.beyond[i]
        halves[i] = np.float32(0.5) * gain


def matrix_halves(form, rule, now, fields, halves):
    q, sites = np.uint64(form.bias.shape[0]), np.uint64(form.bias.shape[1])
    for i in range(sites):
        stays = fields[np.uint64(now[i]) * sites + i]
        for v in range(q):
            halves[i * q + v] = np.float32(0.5) * (fields[v * sites + i] - stays)
        halves[i * q + np.uint64(now[i])] = np.float32(-np.inf)


def matrix_clear_present(form, now, weights):
    q = np.uint64(form.bias.shape[0])
    for i in range(np.uint64(now.shape[0])):
        weights[i * q + np.uint64(now[i])] = 0


def room_for_halves(form, moves):
    return np.empty(moves, np.float32)


def for_dense(function):
    """The choice of a function for dense couplings."""
    return dict.fromkeys((PairForm, PottsMatrix), function)


primitive(make_room, for_dense(room_for_halves), makes_arrays=True)
primitive(weigh_moves, for_dense(dense_weigh_moves))
primitive(follow_changes, for_dense(dense_follow_changes))
primitive(rows_of_proposal, for_dense(dense_rows_of_proposal), makes_arrays=True)
primitive(adopt_proposal, for_dense(dense_adopt_proposal))
primitive(undo_changes, for_dense(dense_undo_changes))
primitive(has_lost_range, for_dense(never_loses_range) | {LatticeCounts: never_loses_range})
WEIGH_SITE = {GraphForm: graph_weigh_site, LatticeCounts: lattice_weigh_site}
primitive(weigh_site, WEIGH_SITE | {PottsLists: potts_weigh_site})
primitive(weigh_halves, {PairForm: pair_halves, PottsMatrix: matrix_halves})
primitive(clear_present, {PottsMatrix: matrix_clear_present})
