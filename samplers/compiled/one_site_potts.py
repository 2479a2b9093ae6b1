"""GWG-1 and LB-1 on Potts models: the twins of `samplers.gwg` and `samplers.locally_balanced`.

The first-order gain d of a move is its exact gain, so both are one kernel: a move is drawn by its
weight exp(d / 2) and accepted with probability min(1, Z(x) / Z(y)), Z the sum of the weights. They
differ where a gain is NaN: LB-1 never proposes such a move, GWG-1 rejects all moves.

A move is drawn in two stages, as in `gwg_several`. On a lattice it changes the weights of one site
and its neighbours. These and the sums of their blocks are computed afresh from the values.
"""

import math
from dataclasses import dataclass
from math import isqrt
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import PottsLatticeForm, PottsPairForm, forbids
from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.compiled_sampler import (
    CompiledSampler,
    Keys,
    Sums,
    arrays_of,
    too_large,
)
from latticework.samplers.compiled.draws import accepts, draw_site, sum_blocks, sum_of
from latticework.samplers.compiled.jit import kernel, over_chains
from latticework.samplers.compiled.philox import fill, unit
from latticework.samplers.compiled.potts import memory_of, renew, set_value, values_of
from latticework.samplers.compiled.running_sums import finish, fresh, record_chain
from latticework.samplers.compiled.sites import renewals
from latticework.samplers.locally_balanced import LocallyBalanced


class PottsMoveState(NamedTuple):
    x: Tensor  # [chains, sites, q]
    values: Tensor  # [chains, sites]
    memory: Tensor  # [chains, sites * q], the field of a dense model; or empty
    weights: Tensor  # [chains, blocks * width], exp(d / 2 - top), 0 for a move that stays
    sums: Tensor  # [chains, blocks], of the weights, float64
    top: Tensor  # [chains], float64


def empty_state(x: Tensor, memory: Tensor, dtype: torch.dtype) -> PottsMoveState:
    """A state without weights. Blocks hold whole sites."""
    chains, sites, q = x.shape
    width = isqrt(sites)
    blocks = -(-sites // width)
    weights = x.new_zeros(chains, blocks * width * q, dtype=dtype)
    sums = x.new_zeros(chains, blocks, dtype=torch.float64)
    return PottsMoveState(x, values_of(x), memory, weights, sums, sums.new_zeros(chains))


# Lattices.


class PottsTables(NamedTuple):
    """The weight of value v is field[i, v] * near[v] / (the same for the present value)."""

    field: NDArray[np.float64]  # [sites, q], exp(bias / 2), the largest of a site 1
    near: NDArray[np.float64]  # [most neighbours + 1], exp(coupling * number / 2)


@dataclass(frozen=True)
class OneSiteLatticeTwin(CompiledSampler):
    def refuses(self, form: PottsLatticeForm) -> str:
        if forbids(form):
            return "a model with forbidden values, as it holds the weights of all moves"
        neighbours = abs(form.coupling) * form.degree.max()
        return too_large(np.ptp(form.bias.astype(float), axis=1).max() + neighbours)

    def start(self, x: Tensor, form: PottsLatticeForm) -> PottsMoveState:
        state = empty_state(x, memory_of(form, x), torch.float64)
        args = *self.rule(form), arrays_of(state)
        over_chains(weigh_lattice, len(x), 10.0 * x.numel(), *args)
        return state

    def rule(self, form: PottsLatticeForm) -> tuple[PottsLatticeForm, PottsTables, bool]:
        numbers = np.arange(form.degree.max() + 1)
        bias = form.bias.astype(float)
        field = np.exp((bias - bias.max(1, keepdims=True)) / 2)
        near = np.exp(form.coupling * numbers / 2)
        return form, PottsTables(field, near), isinstance(self.sampler, LocallyBalanced)

    def run(
        self, state: PottsMoveState, form: PottsLatticeForm, keys: Keys, sums: Sums
    ) -> PottsMoveState:
        chains, args = len(state.x), (*self.rule(form), arrays_of(state), keys, sums)
        over_chains(move_lattice, chains, 300.0 * chains * len(keys), *args)
        return state


@kernel
def weigh_lattice(first, last, form, tables, balanced, state):
    _, values, _, weights, sums, _ = state
    near = np.empty(form.bias.shape[1], np.float64)
    for c in range(first, last):
        for i in range(values.shape[1]):
            weigh_site(form, tables, balanced, values, weights, c, i, near)
        sum_blocks(weights[c], sums[c])


@kernel
def weigh_site(form, tables, balanced, values, weights, c, i, near):
    """Compute the weights of a site's moves; `near` `[q]` is overwritten."""
    q, now = near.shape[0], np.int64(values[c, i])
    near[:] = 0
    for k in range(form.degree[i]):
        near[values[c, form.neighbours[i, k]]] += 1
    for v in range(q):
        near[v] = tables.field[i, v] * tables.near[np.int64(near[v])]
    for v in range(q):
        weight = near[v] / near[now]
        weights[c, i * q + v] = 0.0 if balanced and np.isnan(weight) else weight
    weights[c, i * q + now] = 0


@kernel
def sum_block(weights, sums, c, b):
    width = weights.shape[1] // sums.shape[1]
    sums[c, b] = sum_of(weights[c, b * width : (b + 1) * width])


@kernel
def reweigh(form, tables, balanced, values, weights, sums, c, i, near):
    """Compute the weights of a site and its neighbours afresh, and the sums of their blocks."""
    width, previous = weights.shape[1] // sums.shape[1] // near.shape[0], -1
    for edge in range(-1, form.degree[i]):
        j = i if edge < 0 else np.int64(form.neighbours[i, edge])
        weigh_site(form, tables, balanced, values, weights, c, j, near)
    for edge in range(-1, form.degree[i]):
        j = i if edge < 0 else np.int64(form.neighbours[i, edge])
        if j // width != previous:
            previous = j // width
            sum_block(weights, sums, c, previous)


@kernel
def move_lattice(first, last, form, tables, balanced, state, keys, out):
    x, values, _, weights, sums, _ = state
    steps, q = keys.shape[0], form.bias.shape[1]
    words, near = np.empty(4, np.uint32), np.empty(q, np.float64)
    since = fresh(out, first, last, x.shape[1])
    total, changed = out.total, out.changed
    for c in range(first, last):
        now = sum_of(sums[c])
        for t in range(steps):
            fill(words, keys[t], c, 0)
            move = draw_site(weights[c], sums[c], now, unit(words[0]))
            i, new = move // q, move % q
            old = values[c, i]
            values[c, i] = new
            reweigh(form, tables, balanced, values, weights, sums, c, i, near)
            after = sum_of(sums[c])
            accepted = accepts(c, math.log(now / after), unit(words[1]), out.accept, out.invalid)
            values[c, i] = old
            if accepted:
                set_value(x, values, total, changed, since, first, c, i, new, q, t)
                now = after
            else:
                reweigh(form, tables, balanced, values, weights, sums, c, i, near)
            record_chain(out.trace, x, c, t - steps)
    finish(out, since, first, x, steps)


# Dense models.


@dataclass(frozen=True)
class OneSitePairTwin(CompiledSampler):
    def start(self, x: Tensor, form: PottsPairForm) -> PottsMoveState:
        state = empty_state(x, memory_of(form, x), torch.float32)
        balanced = isinstance(self.sampler, LocallyBalanced)
        over_chains(weigh_pairs, len(x), 4.0 * x.numel(), balanced, arrays_of(state))
        return state

    def run(
        self, state: PottsMoveState, form: PottsPairForm, keys: Keys, sums: Sums
    ) -> PottsMoveState:
        args = form, isinstance(self.sampler, LocallyBalanced), arrays_of(state), keys, sums
        over_chains(move_pairs, len(state.x), 4.0 * state.x.numel() * len(keys), *args)
        return state


@kernel
def weigh_pairs(first, last, balanced, state):
    _, values, memory, weights, sums, top = state
    for c in range(first, last):
        top[c] = weigh(balanced, weights[c], sums[c], values[c], memory[c])


@kernel
def weigh(balanced, weights, sums, values, fields):
    """Write exp(d / 2 - top) and their sums over blocks; returns the largest d / 2, `top`."""
    top, q, size = np.float32(-np.inf), fields.shape[0] // values.shape[0], fields.shape[0]
    for i in range(values.shape[0]):
        stays = fields[i * q + values[i]]
        for v in range(i * q, i * q + q):
            weights[v] = np.float32(0.5) * (fields[v] - stays)
            if weights[v] > top and v != i * q + values[i]:
                top = weights[v]
    for v in range(size):
        weights[v] = exp32(weights[v] - top)
    if balanced:
        for v in range(size):
            weights[v] = weights[v] if weights[v] == weights[v] else np.float32(0)
    for i in range(values.shape[0]):
        weights[i * q + values[i]] = 0
    sum_blocks(weights, sums)
    return np.float64(top)


@kernel
def move_pairs(first, last, form, balanced, state, keys, out):
    x, values, memory, weights, sums, top = state
    steps, q, size = keys.shape[0], form.bias.shape[1], x.shape[1]
    coupling, words, mask = form.coupling, np.empty(4, np.uint32), renewals(values.shape[1])
    own, new_weights = np.empty(size, np.float32), np.zeros(weights.shape[1], np.float32)
    new_sums = np.empty(sums.shape[1])
    since = fresh(out, first, last, size)
    total, changed = out.total, out.changed
    for c in range(first, last):
        now = sum_of(sums[c])
        for t in range(steps):
            fill(words, keys[t], c, 0)
            if keys[t] & mask == 0:
                renew(form, values, memory, c)
                top[c] = weigh(balanced, weights[c], sums[c], values[c], memory[c])
                now = sum_of(sums[c])
            move = draw_site(weights[c], sums[c], now, unit(words[0]))
            i, new = move // q, move % q
            old = values[c, i]
            gained, lost = np.uint32(move), np.uint32(i * q + old)
            for j in range(size):
                own[j] = memory[c, j] + (coupling[gained, j] - coupling[lost, j])
            values[c, i] = new
            new_top = weigh(balanced, new_weights, new_sums, values[c], own)
            after = sum_of(new_sums)
            log_ratio = math.log(now / after) + top[c] - new_top
            accepted = accepts(c, log_ratio, unit(words[1]), out.accept, out.invalid)
            values[c, i] = old
            if accepted:
                set_value(x, values, total, changed, since, first, c, i, new, q, t)
                memory[c], weights[c], sums[c], top[c] = own, new_weights, new_sums, new_top
                now = after
            record_chain(out.trace, x, c, t - steps)
    finish(out, since, first, x, steps)
