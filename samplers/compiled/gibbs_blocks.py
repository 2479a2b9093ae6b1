"""Gibbs-X and the Hamming ball sampler: the twins of `samplers.gibbs` and `samplers.hamming`.

Given the other sites, a block follows a small model of its own. Its patterns are listed depth
first. Each is one flip away from its parent, whose fields stay in a row of their own: nothing is
undone, so nothing drifts. The chain itself makes only the flips to the pattern that is drawn.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.models.forms import PairForm, RBMForm
from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.compiled_sampler import Sums
from latticework.samplers.compiled.draws import draw
from latticework.samplers.compiled.fields import (
    change,
    change_site,
    renew,
    renewals,
    target,
)
from latticework.samplers.compiled.gibbs import SitesState, SitesTwin
from latticework.samplers.compiled.hidden_units import exact_change
from latticework.samplers.compiled.jit import copy, kernel, over_chains, primitive, reordered
from latticework.samplers.compiled.pairwise import BINARY, SitesForm, list_neighbours
from latticework.samplers.compiled.philox import unit
from latticework.samplers.compiled.run_words import BLOCK, RunSteps, fill_words
from latticework.samplers.compiled.running_sums import finish, fresh, record
from latticework.samplers.compiled.scans import next_blocks
from latticework.samplers.hamming import HammingBall

GROUP = 256  # factors that are multiplied before a logarithm is taken
FAR = np.float32(40)  # a block that moves an input further takes its sigmoids beyond float32


class Ball(NamedTuple):
    """The sets of at most `radius` of a block's sites, depth first. Set 0 is empty."""

    site: NDArray[np.int32]  # [sets], the last site of each set
    parent: NDArray[np.int32]  # [sets], the set without that site
    size: NDArray[np.int32]  # [sets]
    inner: NDArray[np.bool_]  # [sets], whether the set is a parent


@lru_cache(maxsize=8)
def ball(sites: int, radius: int) -> Ball:
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

    def run(self, state: SitesState, form: SitesForm, run: RunSteps, sums: Sums) -> SitesState:
        x, fields, sampler = state.x.numpy(), state.fields.numpy(), self.sampler
        blocks = next_blocks(sampler.scan, state.scan, sampler.sites, x.shape[1], run)
        centred = isinstance(sampler, HammingBall) and sampler.radius < sampler.sites
        sets = ball(sampler.sites, sampler.radius if centred else sampler.sites)
        work = len(x) * run.steps * len(sets.site) * (10.0 + fields.shape[1])
        args = list_neighbours(form), x, fields, sets, centred, run, blocks, sums
        over_chains(resample, len(x), work, *args)
        sums.accept[:] += run.steps
        return state


@kernel
def resample(first, last, form, x, fields, ball, centred, run, blocks, sums):
    """Resample `blocks[t]` of each chain in step t."""
    (steps, sites), sets = blocks.shape, len(ball.site)
    site, parent, size, inner = ball.site, ball.parent, ball.size, ball.inner
    words = np.empty((BLOCK, last - first), np.uint32)
    centres = np.zeros_like(words)
    # Row r: the block after r flips from the centre.
    step = np.empty((size.max() + 1, sites), np.float32)
    levels = np.empty((size.max() + 1, width(form, fields, sites)), np.float32)
    log_probs, weights = np.zeros(sets), np.empty(sets, np.float32)
    flipped = np.empty(sites, np.bool_)
    since, mask = fresh(sums, first, last, x.shape[1]), renewals(x.shape[1])
    kept = sums.total, since, sums.changed, sums.invalid
    for t in range(steps):
        number = run.first + t
        block, row = blocks[t], number % BLOCK
        bias, coupling = read_block(form, block)
        if t == 0 or row == 0:
            fill_words(words, run.key, number, run.first + steps, first, 0)
            if centred:
                fill_words(centres, run.key, number, run.first + steps, first, 1)
        for c in range(first, last):
            now = x[c]
            if number & mask == mask:
                renew(form, now, fields[c])
            for k in range(sites):
                i, new = target(form, now, block[k])
                step[0, k] = new - now[i]
                flipped[k] = False
            look(form, now, fields[c], block, levels)
            log_probs[0] = 0.0
            if centred:
                s = np.int64(unit(centres[row, c - first]) * sets)
                while s > 0:
                    flipped[site[s]] = True
                    log_probs[0] += gain(form, bias, coupling, step, levels, 0, site[s])
                    turn(form, coupling, step, levels, 0, 0, site[s])
                    s = parent[s]
            for s in range(1, sets):
                k, at = site[s], size[s] - 1
                log_probs[s] = log_probs[parent[s]] + gain(
                    form, bias, coupling, step, levels, at, k
                )
                if inner[s]:
                    turn(form, coupling, step, levels, at, at + 1, k)
            s, unknown = draw(log_probs, weights, unit(words[row, c - first]))
            if s < 0 or unknown:
                sums.invalid[c] += 1
            if s >= 0:
                while s > 0:
                    flipped[site[s]] ^= True
                    s = parent[s]
                for k in range(sites):
                    if flipped[k]:
                        i, new = target(form, now, block[k])
                        change_site(form, x, x, fields, c, i, new, kept, first, t)
        record(sums, first, last, x, t, steps)
    finish(sums, since, first, x, steps)


# The model inside a block. `step` `[rows, sites]` is what a flip would add to each site, and
# `levels` `[rows, width]` are the fields there: the gain of each flip of a pairwise model; inputs,
# sigmoid(inputs) and sigmoid(-inputs) of an RBM's hidden units.


def read_block(form, block):
    """Biases and couplings of the sites in `block`, which all chains share."""
    raise NotImplementedError


def width(form, fields, sites):
    raise NotImplementedError


def look(form, now, fields, block, levels):
    """Write the fields of a chain to row 0."""
    raise NotImplementedError


def gain(form, bias, coupling, step, levels, row, k):
    """The change in log-probability when site `k` of the block flips, float64."""
    raise NotImplementedError


def turn(form, coupling, step, levels, row, to, k):
    """Write what follows from `row` by a flip of site `k` to the row `to`."""
    raise NotImplementedError


# Pairwise models. Coupling: what two flips gain together beyond their own gains, over both steps.


def listed_inside(form, block):
    coupling = np.zeros((1, block.shape[0], block.shape[0]), np.float32)
    for k, i in enumerate(block):
        for edge in range(form.starts[i], form.starts[i + 1]):
            for m in range(block.shape[0]):
                if form.neighbours[edge] == block[m]:
                    coupling[0, k, m] += form.slope[edge]
    return np.empty(0, np.float32), coupling


def pair_inside(form, block):
    coupling = np.empty((1, block.shape[0], block.shape[0]), np.float32)
    for k, i in enumerate(block):
        for m, j in enumerate(block):
            coupling[0, k, m] = form.matrix[i, j]
    return np.empty(0, np.float32), coupling


def pair_look(form, now, fields, block, levels):
    for k in range(block.shape[0]):
        levels[0, k] = np.float32(change(form, now, fields, block[k]))


def pair_gain(form, bias, coupling, step, levels, row, k):
    return np.float64(levels[row, k])


def pair_turn(form, coupling, step, levels, row, to, k):
    pace, gained = step[row, k], levels[row, k]
    for m in range(step.shape[1]):
        levels[to, m] = levels[row, m] + coupling[0, k, m] * pace * step[row, m]
        step[to, m] = step[row, m]
    levels[to, k], step[to, k] = -gained, -pace


# RBMs. Coupling: exp(-w) and exp(w), for flips to 0 and to 1, and w. The exponentials are NaN if
# the block can move an input by FAR or more: gains then come from the inputs (`exact_change`).


def rbm_inside(form, block):
    hidden = form.weight.shape[1]
    coupling, reach = np.empty((3, block.shape[0], hidden), np.float32), np.zeros(hidden)
    for k, i in enumerate(block):
        for j in range(hidden):
            coupling[0, k, j] = exp32(-form.weight[i, j])
            coupling[1, k, j] = exp32(form.weight[i, j])
            coupling[2, k, j] = form.weight[i, j]
            reach[j] += abs(form.weight[i, j])
    if not reach.max() < FAR:
        coupling[:2] = np.nan
    return form.visible_bias[block], coupling


def rbm_look(form, now, fields, block, levels):
    copy(levels[0], fields)


@reordered
def rbm_factors(on, off, rise):
    """The product of (1 + exp(input + w)) / (1 + exp(input)) over some hidden units."""
    product = 1.0
    for j in range(rise.shape[0]):
        product *= np.float64(off[j] + on[j] * rise[j])
    return product


def rbm_gain(form, bias, coupling, step, levels, row, k):
    hidden, pace = coupling.shape[2], step[row, k]
    inputs, on, off = (
        levels[row, :hidden],
        levels[row, hidden : 2 * hidden],
        levels[row, 2 * hidden :],
    )
    rise, weight = coupling[np.int64(pace > 0), k], coupling[2, k]
    result = np.float64(pace * bias[k])
    for start in range(0, hidden, GROUP):
        stop = min(start + GROUP, hidden)
        product = rbm_factors(on[start:stop], off[start:stop], rise[start:stop])
        if 1e-300 < product < 1e300:
            result += math.log(product)
        else:  # too large or too small for double precision, or NaN
            result += exact_change(inputs[start:stop], weight[start:stop], pace)
    return result


def rbm_turn(form, coupling, step, levels, row, to, k):
    hidden, pace = coupling.shape[2], step[row, k]
    rise, weight = coupling[np.int64(pace > 0), k], coupling[2, k]
    inputs, on, off = (
        levels[row, :hidden],
        levels[row, hidden : 2 * hidden],
        levels[row, 2 * hidden :],
    )
    new_inputs, new_on = levels[to, :hidden], levels[to, hidden : 2 * hidden]
    new_off = levels[to, 2 * hidden :]
    for j in range(hidden):
        new_inputs[j] = inputs[j] + pace * weight[j]
        risen, fallen = on[j] * rise[j], off[j]
        scale = np.float32(1) / (risen + fallen)
        new_on[j], new_off[j] = risen * scale, fallen * scale
    for m in range(step.shape[1]):
        step[to, m] = step[row, m]
    step[to, k] = -pace


# The choice by type.


def width_of_pairs(form, fields, sites):
    return sites


def width_of_rbm(form, fields, sites):
    return fields.shape[1]


INSIDE = dict.fromkeys(BINARY, listed_inside) | {PairForm: pair_inside, RBMForm: rbm_inside}
primitive(read_block, INSIDE, makes_arrays=True)
primitive(width, dict.fromkeys(BINARY, width_of_pairs) | {RBMForm: width_of_rbm})
primitive(look, dict.fromkeys(BINARY, pair_look) | {RBMForm: rbm_look}, makes_arrays=True)
primitive(gain, dict.fromkeys(BINARY, pair_gain) | {RBMForm: rbm_gain})
primitive(turn, dict.fromkeys(BINARY, pair_turn) | {RBMForm: rbm_turn})
