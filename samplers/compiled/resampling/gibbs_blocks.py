"""Gibbs-X and the Hamming ball sampler: the twins of `samplers.gibbs` and `samplers.hamming`.

Given the other sites, a block follows a small model of its own, whose patterns are all listed.

Those of binary sites are listed depth first. Each is one flip away from its parent, whose fields
stay in a row of their own: nothing is undone, so nothing drifts. Those of one-hot sites are all
joint values, the last site fastest. The chain itself makes only the changes to the pattern that is
drawn.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.models.forms import Form, PairForm, PottsPairForm, RBMForm, forbids
from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.compiled_sampler import Sums
from latticework.samplers.compiled.draws import draw_index
from latticework.samplers.compiled.forms.fields import (
    change,
    change_site,
    count_values,
    find_field,
    renew_fields,
    renewal_mask,
    target,
)
from latticework.samplers.compiled.forms.hidden_units import (
    MAX_WEIGHT,
    softplus_change,
    split_units,
)
from latticework.samplers.compiled.forms.pairwise import ONE_HOT, PottsLists, list_neighbours
from latticework.samplers.compiled.jit import copy, kernel, lean, over_chains, primitive
from latticework.samplers.compiled.philox import unit
from latticework.samplers.compiled.resampling.gibbs import SitesState, SitesTwin, site_rows
from latticework.samplers.compiled.resampling.scans import next_blocks, next_row
from latticework.samplers.compiled.run_words import BLOCK_STEPS, RunSteps, fill_words
from latticework.samplers.compiled.running_sums import add_last_values, record_chains, start_since
from latticework.samplers.hamming import HammingBall


class Ball(NamedTuple):
    """The sets of at most `radius` of a block's sites, depth first. Set 0 is empty."""

    site: NDArray[np.int32]  # [sets], the last site of each set
    parent: NDArray[np.int32]  # [sets], the set without that site
    size: NDArray[np.int32]  # [sets]
    inner: NDArray[np.bool_]  # [sets], whether the set is a parent


@lru_cache(maxsize=8)
def list_ball(sites: int, radius: int) -> Ball:
    rows = [(0, 0, 0)]

    def extend(parent: int, size: int, first: int) -> None:
        for site in range(first, sites if size < radius else first):
            rows.append((site, parent, size + 1))
            extend(len(rows) - 1, size + 1, site + 1)

    extend(0, 0, 0)
    site, parent, size = np.array(rows, np.int32).T.copy()
    inner = np.zeros(len(rows), np.bool_)
    inner[parent[1:]] = True
    return Ball(site, parent, size, inner)


@dataclass(frozen=True)
class BlockTwin(SitesTwin):
    """Gibbs-X, and the Hamming ball sampler around a centre that is drawn first."""

    def refuses(self, form: Form) -> str:
        if forbids(form):
            return "blocks of a model with forbidden values, as it subtracts couplings"
        return ""

    def run(self, state: SitesState, form: Form, run: RunSteps, sums: Sums) -> SitesState:
        (x, values, fields), sampler = site_rows(state), self.sampler
        chains, dim = values.shape
        blocks = next_blocks(sampler.scan, state.scan, sampler.sites, dim, run)
        centred = isinstance(sampler, HammingBall) and sampler.radius < sampler.sites
        if x.shape == values.shape:
            sets = list_ball(sampler.sites, sampler.radius if centred else sampler.sites)
            work = len(sets.site) * (10.0 + fields.shape[1])
        else:
            sets = None
            work = 5.0 * (x.shape[1] // dim) ** sampler.sites + fields.shape[1]
        args = list_neighbours(form), x, values, fields, sets, centred, run, blocks, sums
        over_chains(resample_blocks, chains, chains * run.steps * work, *args)
        sums.accept[:] += run.steps
        return state


@kernel
def resample_blocks(first, last, form, x, values, fields, ball, centred, run, blocks, sums):
    """Resample a block of each chain in each step: one of `blocks` after the other, in rounds."""
    steps, sites, turn = run.steps, blocks.shape[1], 0
    room = make_room(form, fields, ball, sites)
    log_probs = room.log_probs
    patterns, weights = log_probs.shape[0], np.empty(log_probs.shape[0], np.float32)
    words = np.empty((BLOCK_STEPS, last - first), np.uint32)
    word_room = np.empty(BLOCK_STEPS, np.uint32)
    centres = np.zeros_like(words)
    since, mask = start_since(sums, first, last, x.shape[1]), renewal_mask(values.shape[1])
    running = sums.total, since, sums.changed, sums.invalid
    for t in range(steps):
        step = run.first + t
        block, row = blocks[turn], step % BLOCK_STEPS
        turn = next_row(turn, blocks)
        read_block(form, block, room)
        if t == 0 or row == 0:
            fill_words(words, word_room, run.key, step, run.first + steps, first, 0)
            if centred:
                fill_words(centres, word_room, run.key, step, run.first + steps, first, 1)
        for c in range(first, last):
            if step & mask == mask:
                renew_fields(form, values[c], fields[c])
            centre = np.int64(unit(centres[row, c - first]) * patterns) if centred else 0
            weigh_patterns(form, values[c], fields[c], block, ball, centre, room)
            s, unknown = draw_index(log_probs, weights, unit(words[row, c - first]))
            if s < 0 or unknown:
                sums.invalid[c] += 1
            if s >= 0:
                adopt_pattern(form, x, values, fields, c, block, ball, s, room, running, first, t)
        record_chains(sums, first, last, x, t, steps)
    add_last_values(sums, since, first, x, steps)


# Blocks of binary sites; those of pairwise models, unless there is another rule below.


class BinaryRoom(NamedTuple):
    """The model inside a block of binary sites. Row r: after r flips from the centre."""

    log_probs: NDArray[np.float64]  # [sets]
    bias: NDArray[np.float32]  # [sites]
    coupling: NDArray[np.float32]  # [1, sites, sites], or [3, sites, hidden]
    step: NDArray[np.float32]  # [rows, sites], what a flip would add to each site
    levels: NDArray[np.float32]  # [rows, sites], or [rows, 3 * hidden], the fields
    flipped: NDArray[np.bool_]  # [sites], on the way to a pattern


@kernel
def binary_room(ball, coupling, width):
    rows, sites = ball.size.max() + 1, coupling.shape[1]
    return BinaryRoom(
        np.empty(ball.site.shape[0]),
        np.empty(sites, np.float32),
        coupling,
        np.empty((rows, sites), np.float32),
        np.empty((rows, width), np.float32),
        np.empty(sites, np.bool_),
    )


def make_room(form, fields, ball, sites):
    """Room for the model inside a block."""
    return binary_room(ball, np.empty((1, sites, sites), np.float32), sites)


def read_block(form, block, room):
    """Read what all chains share of the sites in `block`.

    For listed neighbours and dense pairs, it is what two flips gain together beyond their own
    gains, over both steps.
    """
    coupling = room.coupling
    coupling[:] = 0
    for k, i in enumerate(block):
        for edge in range(form.starts[i], form.starts[i + 1]):
            for m in range(block.shape[0]):
                if form.neighbours[edge] == block[m]:
                    coupling[0, k, m] += form.slope[edge]


def weigh_patterns(form, values, fields, block, ball, centre, room):
    """Find the log-probabilities of all patterns of a chain, up to a constant.

    Those of a Hamming ball lie around the set `centre` of flips, which come first.
    """
    log_probs = room.log_probs
    for k in range(block.shape[0]):
        i, new = target(form, values, block[k])
        room.step[0, k] = new - values[i]
        room.flipped[k] = False
    write_levels(form, values, fields, block, room)
    log_probs[0] = 0.0
    while centre > 0:
        k = ball.site[centre]
        room.flipped[k] = True
        log_probs[0] += level_gain(form, room, 0, k)
        flip_level(form, room, 0, 0, k)
        centre = ball.parent[centre]
    for s in range(1, log_probs.shape[0]):
        k, row = ball.site[s], ball.size[s] - 1
        log_probs[s] = log_probs[ball.parent[s]] + level_gain(form, room, row, k)
        if ball.inner[s]:
            flip_level(form, room, row, row + 1, k)


def adopt_pattern(form, x, values, fields, c, block, ball, s, room, running, first, t):
    """Change the sites of `block` that differ from pattern `s`, right after `weigh_patterns`."""
    while s > 0:
        room.flipped[ball.site[s]] ^= True
        s = ball.parent[s]
    for k in range(block.shape[0]):
        if room.flipped[k]:
            i, new = target(form, values[c], block[k])
            change_site(form, x, values, fields, c, i, new, running, first, t)


def write_levels(form, values, fields, block, room):
    """Write the fields of a chain to row 0. Those of pairwise models are the gains of the flips."""
    for k in range(block.shape[0]):
        room.levels[0, k] = np.float32(change(form, values, fields, block[k]))


def level_gain(form, room, row, k):
    """The change in log-probability when site `k` of the block flips, float64."""
    return np.float64(room.levels[row, k])


def flip_level(form, room, row, to, k):
    """Write what follows from `row` by a flip of site `k` to the row `to`."""
    coupling, step, levels = room.coupling, room.step, room.levels
    pace, gained = step[row, k], levels[row, k]
    for m in range(step.shape[1]):
        levels[to, m] = levels[row, m] + coupling[0, k, m] * pace * step[row, m]
        step[to, m] = step[row, m]
    levels[to, k], step[to, k] = -gained, -pace


def pair_read_block(form, block, room):
    for k, i in enumerate(block):
        for m, j in enumerate(block):
            room.coupling[0, k, m] = form.matrix[i, j]


# RBMs. Fields: inputs, sigmoid(inputs) and sigmoid(-inputs) of the hidden units. Coupling: exp(-w)
# and exp(w), for flips to 0 and to 1, and w. The exponentials are NaN if the block can move an
# input by LARGEST_WEIGHT or more: gains then come from the inputs (`exact_change`).


def rbm_make_room(form, fields, ball, sites):
    hidden = form.weight.shape[1]
    return binary_room(ball, np.empty((3, sites, hidden), np.float32), 3 * hidden)


def rbm_read_block(form, block, room):
    coupling, reach = room.coupling, np.zeros(form.weight.shape[1])
    for k, i in enumerate(block):
        room.bias[k] = form.visible_bias[i]
        for j in range(reach.shape[0]):
            coupling[0, k, j] = exp32(-form.weight[i, j])
            coupling[1, k, j] = exp32(form.weight[i, j])
            coupling[2, k, j] = form.weight[i, j]
            reach[j] += abs(form.weight[i, j])
    if not reach.max() < MAX_WEIGHT:
        coupling[:2] = np.nan


def rbm_write_levels(form, values, fields, block, room):
    copy(room.levels[0], fields)


def rbm_level_gain(form, room, row, k):
    pace, weight = room.step[row, k], room.coupling[2, k]
    rise = room.coupling[np.int64(pace > 0), k]
    return np.float64(pace * room.bias[k]) + softplus_change(room.levels[row], rise, weight, pace)


def rbm_flip_level(form, room, row, to, k):
    step = room.step
    pace, weight = step[row, k], room.coupling[2, k]
    rise = room.coupling[np.int64(pace > 0), k]
    hidden = rise.shape[0]
    inputs, on, off = split_units(room.levels[row], hidden)
    new_inputs, new_on, new_off = split_units(room.levels[to], hidden)
    for j in range(hidden):
        new_inputs[j] = inputs[j] + pace * weight[j]
        risen, fallen = on[j] * rise[j], off[j]
        scale = np.float32(1) / (risen + fallen)
        new_on[j], new_off[j] = risen * scale, fallen * scale
    for m in range(step.shape[1]):
        step[to, m] = step[row, m]
    step[to, k] = -pace


# Blocks of one-hot sites. Row k of `inner` holds the fields of the block's sites when the first k
# have their values, so each joint value costs a few additions.


class OneHotRoom(NamedTuple):
    """The model inside a block of one-hot sites."""

    log_probs: NDArray[np.float64]  # [q ** sites]
    coupling: NDArray[np.float32]  # [sites, q, sites, q]
    inner: NDArray[np.float64]  # [sites, sites, q]: a hub adds up very many couplings
    before: NDArray[np.float64]  # [sites + 1], the sums of the fields of the first sites
    now: NDArray[np.int64]  # [sites], the joint value


def one_hot_make_room(form, fields, ball, sites):
    q = count_values(form)
    return OneHotRoom(
        np.empty(q**sites),
        np.empty((sites, q, sites, q), np.float32),
        np.empty((sites, sites, q)),
        np.zeros(sites + 1),
        np.empty(sites, np.int64),
    )


def lists_read_block(form, block, room):
    coupling = room.coupling
    coupling[:] = 0
    for k, i in enumerate(block):
        for edge in range(form.starts[i], form.starts[i + 1]):
            for m in range(block.shape[0]):
                if form.neighbours[edge] == block[m]:
                    for v in range(coupling.shape[1]):
                        coupling[k, v, m, v] += form.coupling[edge]


def matrix_read_block(form, block, room):
    q = room.coupling.shape[1]
    for k, i in enumerate(block):
        for m, j in enumerate(block):
            for v in range(q):
                copy(room.coupling[k, v, m], form.coupling[i * q + v, j * q : (j + 1) * q])


def one_hot_weigh_patterns(form, values, fields, block, ball, centre, room):
    log_probs, coupling, inner, before, now = room
    sites, q = now.shape[0], coupling.shape[1]
    for k in range(sites):
        find_field(form, values, fields, block[k], inner[0, k])
    for k in range(sites):
        add_coupling(inner[0], inner[0], coupling[k, values[block[k]]], np.float32(-1))
    now[:] = 0
    k = 0
    for s in range(log_probs.shape[0]):
        while k < sites:  # the sites whose values have changed since the last joint value
            before[k + 1] = before[k] + inner[k, k, now[k]]
            if k + 1 < sites:
                add_coupling(inner[k + 1], inner[k], coupling[k, now[k]], np.float32(1))
            k += 1
        log_probs[s] = before[sites]
        while k > 0:
            k -= 1
            now[k] += 1
            if now[k] < q:
                break
            now[k] = 0


@lean
def add_coupling(out, fields, coupling, sign):
    """`out[:] = fields + sign * coupling`, each `[sites, q]`."""
    for m in range(out.shape[0]):
        for v in range(out.shape[1]):
            out[m, v] = fields[m, v] + sign * coupling[m, v]


def one_hot_adopt_pattern(form, x, values, fields, c, block, ball, s, room, running, first, t):
    q = room.coupling.shape[1]
    for k in range(block.shape[0] - 1, -1, -1):
        i, new = np.int64(block[k]), s % q
        s //= q
        if new != values[c, i]:
            change_site(form, x, values, fields, c, i, new, running, first, t)


READ = {PairForm: pair_read_block, RBMForm: rbm_read_block, PottsLists: lists_read_block}
primitive(read_block, READ | {PottsPairForm: matrix_read_block}, makes_arrays=True)
ROOM = {RBMForm: rbm_make_room} | dict.fromkeys(ONE_HOT, one_hot_make_room)
primitive(make_room, ROOM, makes_arrays=True)
primitive(weigh_patterns, dict.fromkeys(ONE_HOT, one_hot_weigh_patterns))
primitive(adopt_pattern, dict.fromkeys(ONE_HOT, one_hot_adopt_pattern))
primitive(write_levels, {RBMForm: rbm_write_levels})
primitive(level_gain, {RBMForm: rbm_level_gain})
primitive(flip_level, {RBMForm: rbm_flip_level})
