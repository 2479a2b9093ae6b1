"""PAFS (without replacement) on pairwise models: the twin of `samplers.path_auxiliary`.

A site is drawn as in `compiled.gwg_several`. Its weight exp(d / 2) is then set to zero, and the sum
of its block is computed afresh, so the next site is drawn among those that are left. On a quadratic
target log pi(y) - log pi(x) is half the sum over the flips of the gain at x minus that of the flip
back at y. It cancels against the weights of the sites, so with Z_k the total weight of the sites
that are left at move k, on the path and on the path back,

    log ratio = sum_k log(Z_k(x) / Z_k(y))

All totals are sums of weights: nothing is subtracted, and a total is right to the last digits after
the sites have gone that carried nearly all of it.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from latticework.models.forms import GraphForm, LatticeForm, PairForm
from latticework.samplers.compiled.arithmetic import largest32, wide_exp
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Keys, Sums, arrays_of
from latticework.samplers.compiled.draws import accepts, draw_site, sum_blocks, sum_of
from latticework.samplers.compiled.flip_graph import LEAST, MOST, GraphFlipTwin, turn
from latticework.samplers.compiled.flip_graph import weigh as weigh_graph
from latticework.samplers.compiled.graph import renew as renew_graph
from latticework.samplers.compiled.gwg_several import (
    SeveralLatticeTwin,
    SeveralState,
    empty_state,
    reweigh,
)
from latticework.samplers.compiled.jit import copy, kernel, lean, over_chains
from latticework.samplers.compiled.philox import fill, unit
from latticework.samplers.compiled.running_sums import finish, fresh, leave, record_chain
from latticework.samplers.compiled.sites import memory_of, other, renew, renewals
from latticework.samplers.path_auxiliary import PAFS


def longest_path(sampler: PAFS, sites: int) -> int:
    return min(2 * sampler.length - 1, sites)


@lean
def draw_path(weights, sums, words, path, taken, totals):
    """Draw the sites of `path` in order, and set their weights to zero.

    `taken` becomes these weights, and `totals` the sum of all weights before each draw.
    """
    for k in range(path.shape[0]):
        totals[k] = sum_of(sums)
        i = draw_site(weights, sums, totals[k], unit(words[k]))
        path[k], taken[k] = i, weights[i]
        weights[i] = 0
        sum_block(weights, sums, i)


@lean
def log_ratio_of(weights, sums, path, totals, own, kept):
    """The sum of log(totals[k] / total weight at y of the sites left at move k of the path back).

    The path back takes the sites of `path` from the last to the first. `weights` and `sums` are
    those at y; `own` and `kept` are overwritten.
    """
    count, result = path.shape[0], 0.0
    for b in range(sums.shape[0]):
        kept[b] = sums[b]
    for k in range(count):
        own[k] = weights[path[k]]
        weights[path[k]] = 0
    for k in range(count):
        sum_block(weights, sums, path[k])
    left = sum_of(sums)
    for k in range(count):
        left += own[k]
        result += math.log(totals[k] / left)
    restore(weights, sums, path, own, kept)
    return result


@lean
def sum_block(weights, sums, i):
    """Compute the sum of the block of site `i` afresh."""
    width = weights.shape[0] // sums.shape[0]
    b = i // width
    sums[b] = sum_of(weights[b * width : (b + 1) * width])


@lean
def restore(weights, sums, path, taken, kept):
    """Undo what set the weights of `path` to zero; `kept` are the sums before."""
    for k in range(path.shape[0] - 1, -1, -1):  # without finite weights a site may occur twice
        weights[path[k]] = taken[k]
    for b in range(sums.shape[0]):
        sums[b] = kept[b]


# Lattices.


@dataclass(frozen=True)
class PathLatticeTwin(SeveralLatticeTwin):
    def run(self, state: SeveralState, form: LatticeForm, keys: Keys, sums: Sums) -> SeveralState:
        chains, longest = len(state.x), longest_path(self.sampler, state.x.shape[1])
        args = form, self.table(form), longest, arrays_of(state), keys, sums
        over_chains(walk_lattice, chains, chains * len(keys) * 100.0 * longest, *args)
        return state


@kernel
def walk_lattice(first, last, form, table, longest, state, keys, out):
    x, _, weights, sums, _ = state
    steps, total, changed = keys.shape[0], out.total, out.changed
    words, sites = np.empty((longest + 5) // 4 * 4, np.uint32), np.empty(longest, np.int64)
    taken, totals = np.empty((2, longest))
    kept = np.empty(sums.shape[1])
    since = fresh(out, first, last, x.shape[1])
    for c in range(first, last):
        for t in range(steps):
            fill(words, keys[t], c, 0)
            number = 1 + np.int64(unit(words[0]) * longest)
            path = sites[:number]
            draw_path(weights[c], sums[c], words[2:], path, taken, totals)
            for k in range(number):
                leave(total, since, first, c, path[k], x[c, path[k]], t)
                x[c, path[k]] = np.float32(1) - x[c, path[k]]
            reweigh(form, table, x, weights, sums, c, path)
            log_ratio = log_ratio_of(weights[c], sums[c], path, totals, taken, kept)
            if accepts(c, log_ratio, unit(words[1]), out.accept, out.invalid):
                changed[c] += number
            else:
                for k in range(number):
                    x[c, path[k]] = np.float32(1) - x[c, path[k]]
                reweigh(form, table, x, weights, sums, c, path)
            record_chain(out.trace, x, c, t - steps)
    finish(out, since, first, x, steps)


# Graphs.


@dataclass(frozen=True)
class PathGraphTwin(GraphFlipTwin):
    def run(self, state: SeveralState, form: GraphForm, keys: Keys, sums: Sums) -> SeveralState:
        chains, longest = len(state.x), longest_path(self.sampler, state.x.shape[1])
        args = form, longest, arrays_of(state), keys, sums
        over_chains(walk_graph, chains, chains * len(keys) * 300.0 * longest, *args)
        return state


@kernel
def walk_graph(first, last, form, longest, state, keys, out):
    x, odds, weights, sums, _ = state
    sites, steps, total = x.shape[1], keys.shape[0], out.total
    starts, near, slope = form.starts, form.neighbours, form.slope
    words, drawn = np.empty((longest + 5) // 4 * 4, np.uint32), np.empty(longest, np.int64)
    taken, totals, kept = np.empty(longest), np.empty(longest), np.empty(sums.shape[1])
    since, mask = fresh(out, first, last, sites), renewals(sites)
    for c in range(first, last):
        row, own, heights, parts = x[c], odds[c], weights[c], sums[c]
        for t in range(steps):
            fill(words, keys[t], c, 0)
            if keys[t] & mask == 0:
                renew_graph(form, row, own)
            if keys[t] & mask == 0 or not LEAST < sum_of(parts) < MOST:
                weigh_graph(state, c)
            top, number = np.float32(state.top[c]), 1 + np.int64(unit(words[0]) * longest)
            path = drawn[:number]
            draw_path(heights, parts, words[2:], path, taken, totals)
            for k in range(number):
                leave(total, since, first, c, path[k], row[path[k]], t)
                turn(starts, near, slope, row, own, heights, parts, top, path[k])
            log_ratio = log_ratio_of(heights, parts, path, totals, taken, kept)
            if accepts(c, log_ratio, unit(words[1]), out.accept, out.invalid):
                out.changed[c] += number
            else:
                for k in range(number):
                    turn(starts, near, slope, row, own, heights, parts, top, path[k])
            record_chain(out.trace, x, c, t - steps)
    finish(out, since, first, x, steps)


# Dense pairs.


@dataclass(frozen=True)
class PathPairTwin(CompiledSampler):
    def start(self, x: Tensor, form: PairForm) -> SeveralState:
        state = empty_state(x, memory_of(form, x), torch.float64)
        over_chains(weigh_pairs, len(x), 3.0 * x.numel(), form.low + form.high, arrays_of(state))
        return state

    def run(self, state: SeveralState, form: PairForm, keys: Keys, sums: Sums) -> SeveralState:
        longest = longest_path(self.sampler, state.x.shape[1])
        work = state.x.numel() * len(keys) * (3.0 + 0.2 * longest)
        args = form, longest, arrays_of(state), keys, sums
        over_chains(walk_pairs, len(state.x), work, *args)
        return state


@kernel
def weigh_pairs(first, last, both, state):
    x, memory, weights, sums, top = state
    halves = np.empty(x.shape[1], np.float32)
    for c in range(first, last):
        top[c] = weigh(weights[c], sums[c], halves, x[c], memory[c], np.float32(both))


@kernel
def walk_pairs(first, last, form, longest, state, keys, out):
    x, memory, weights, sums, top = state
    steps, width, total, changed = keys.shape[0], x.shape[1], out.total, out.changed
    both = np.float32(form.low + form.high)
    words, sites = np.empty((longest + 5) // 4 * 4, np.uint32), np.empty(longest, np.int64)
    taken, own, totals = np.empty((3, longest))
    new_weights, new_sums = np.zeros(weights.shape[1]), np.empty(sums.shape[1])
    before, kept = np.empty((2, sums.shape[1]))
    old, halves = np.empty(longest, np.float32), np.empty(width, np.float32)
    gradient = np.empty(width, np.float32)
    since, mask = fresh(out, first, last, width), renewals(width)
    for c in range(first, last):
        for t in range(steps):
            fill(words, keys[t], c, 0)
            if keys[t] & mask == 0:
                renew(form, x, memory, c)
                top[c] = weigh(weights[c], sums[c], halves, x[c], memory[c], both)
            number = 1 + np.int64(unit(words[0]) * longest)
            path = sites[:number]
            copy(before, sums[c])
            copy(gradient, memory[c])
            draw_path(weights[c], sums[c], words[2:], path, taken, totals)
            for k in range(number):
                i = path[k]
                old[k] = x[c, i]
                new = other(old[k], form.low, form.high)
                leave(total, since, first, c, i, old[k], t)
                x[c, i] = new
                for j in range(width):
                    gradient[j] += (new - old[k]) * form.matrix[i, j]
            new_top = weigh(new_weights, new_sums, halves, x[c], gradient, both)
            log_ratio = log_ratio_of(new_weights, new_sums, path, totals, own, kept)
            log_ratio += number * (top[c] - new_top)
            if accepts(c, log_ratio, unit(words[1]), out.accept, out.invalid):
                copy(memory[c], gradient)
                copy(weights[c], new_weights)
                copy(sums[c], new_sums)
                top[c] = new_top
                changed[c] += number
            else:
                for k in range(number - 1, -1, -1):
                    x[c, path[k]] = old[k]
                restore(weights[c], sums[c], path, taken, before)
            record_chain(out.trace, x, c, t - steps)
    finish(out, since, first, x, steps)


@kernel
def weigh(weights, sums, halves, x, gradient, both):
    """Write exp(d / 2 - top) and their sums over blocks; returns the largest d / 2, `top`."""
    for i in range(x.shape[0]):
        halves[i] = np.float32(0.5) * gradient[i] * (both - x[i] - x[i])
    top = largest32(halves)
    for i in range(x.shape[0]):
        weights[i] = wide_exp(halves[i] - top)
    sum_blocks(weights, sums)
    return np.float64(top)
