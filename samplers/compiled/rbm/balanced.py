"""The locally balanced sampler on restricted Boltzmann machines.

The exact change of log pi by the flip of a site is the logarithm of a product over the hidden
units, sigmoid(-z_j) + sigmoid(z_j) exp(+-W_ij). It is needed for every site, so the exponentials
are computed once a call. A row of them serves several chains while it is in the cache. Four factors
are multiplied in single precision; the hidden units are divided into four parts for that.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.models.forms import RBMForm
from latticework.samplers.compiled.arithmetic import largest32, sigmoid32
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Keys, Sums, arrays_of
from latticework.samplers.compiled.draws import accepts
from latticework.samplers.compiled.forms.hidden_units import (
    exact_change,
    find_inputs,
    write_exponentials,
)
from latticework.samplers.compiled.jit import copy, kernel, over_chains, reordered
from latticework.samplers.compiled.philox import fill_step, unit
from latticework.samplers.compiled.rbm.chunks import RENEWAL_STEPS, record_states
from latticework.samplers.compiled.rbm.gwg import draw_by_inversion, exponentiate_logits

BLOCK_CHAINS = 8  # chains


class RBMBalancedState(NamedTuple):
    x: Tensor  # [chains, visible]
    inputs: Tensor  # [chains, hidden], W'x + c
    age: Tensor  # [1], steps since the start; inputs are computed afresh where FRESH divides it
    weights: Tensor  # [chains, visible], of the flips, the largest 1
    log_normaliser: Tensor  # [chains], float64


@dataclass(frozen=True)
class RBMBalancedTwin(CompiledSampler):
    def start(self, x: Tensor, form: RBMForm) -> RBMBalancedState:
        inputs, zero = x.new_empty(len(x), len(form.hidden_bias)), torch.zeros(1, dtype=torch.long)
        log_normaliser = x.new_empty(len(x), dtype=torch.float64)
        return RBMBalancedState(x, inputs, zero, torch.empty_like(x), log_normaliser)

    def refresh(self, state: RBMBalancedState, model: EnergyModel) -> RBMBalancedState:
        return state._replace(age=torch.zeros_like(state.age))

    def run(
        self, state: RBMBalancedState, form: RBMForm, keys: Keys, sums: Sums
    ) -> RBMBalancedState:
        chains, (visible, hidden) = len(state.x), form.weight.shape
        odds = np.empty((2, visible, 4, (hidden + 3) // 4), np.float32)
        tabulate_odds(form.weight, odds)
        work = 0.2 * form.weight.size * chains * len(keys)
        over_chains(flip_balanced, chains, work, form, odds, arrays_of(state), keys, sums)
        return state._replace(age=state.age + len(keys))


@kernel
def tabulate_odds(weight, odds):
    """The exponentials of W and -W, in four parts padded with 1."""
    width = odds.shape[3]
    row = np.empty(weight.shape[1], np.float32)
    odds[:] = 1
    for sign in range(2):
        for i in range(weight.shape[0]):
            write_exponentials(weight[i], np.float32(1 - 2 * sign), row)
            for j in range(row.shape[0]):
                odds[sign, i, j // width, j % width] = row[j]


@kernel
def flip_balanced(first, last, form, odds, state, keys, sums):
    x, inputs, ages, weights, log_z = state
    age, steps, (visible, hidden) = ages[0], keys.shape[0], form.weight.shape
    new_inputs = np.empty((BLOCK_CHAINS, hidden), np.float32)
    new_weights, new_log_z = np.empty((BLOCK_CHAINS, visible), np.float32), np.empty(BLOCK_CHAINS)
    words, site, uniform = np.empty(4, np.uint32), np.empty(1, np.int64), np.empty(BLOCK_CHAINS)
    sites = np.empty(BLOCK_CHAINS, np.int64)
    for start in range(first, last, BLOCK_CHAINS):
        end = min(start + BLOCK_CHAINS, last)
        here = slice(start, end)
        for t in range(steps):
            if (age + t) % RENEWAL_STEPS == 0:
                for c in range(start, end):
                    find_inputs(form, x[c], inputs[c])
                weigh_flips(form, odds, x[here], inputs[here], weights[here], log_z[here])
            for c in range(start, end):
                fill_step(words, keys[t], c, 0)
                uniform[c - start] = unit(words[1])
                draw_by_inversion(weights[c], words[:1], site)
                i = sites[c - start] = site[0]
                sign = np.float32(1) - np.float32(2) * x[c, i]
                x[c, i] += sign
                for j in range(hidden):
                    new_inputs[c - start, j] = inputs[c, j] + sign * form.weight[i, j]
            weigh_flips(form, odds, x[here], new_inputs, new_weights, new_log_z)
            for c in range(start, end):
                log_ratio, i = log_z[c] - new_log_z[c - start], sites[c - start]
                if accepts(c, log_ratio, uniform[c - start], sums.accept, sums.invalid):
                    sums.changed[c] += 1
                    copy(inputs[c], new_inputs[c - start])
                    copy(weights[c], new_weights[c - start])
                    log_z[c] = new_log_z[c - start]
                else:
                    x[c, i] = np.float32(1) - x[c, i]
            record_states(start, end, sums, x, t, steps)


@kernel
def weigh_flips(form, odds, x, inputs, weights, log_z):
    """The weights sqrt(pi(y) / pi(x)) of all flips, the largest 1, and the log of their true sum.

    A neighbour whose probability is NaN is never proposed.
    """
    width = odds.shape[3]
    on = np.zeros((x.shape[0], 4, width), np.float32)
    off = np.ones((x.shape[0], 4, width), np.float32)
    product = np.empty(x.shape[0])
    for c in range(x.shape[0]):
        for j in range(inputs.shape[1]):
            on[c, j // width, j % width] = sigmoid32(inputs[c, j])
            off[c, j // width, j % width] = sigmoid32(-inputs[c, j])
    for i in range(x.shape[1]):
        row = form.weight[i]
        multiply_factors(on, off, odds[0, i], odds[1, i], x[:, i], product)
        for c in range(x.shape[0]):
            sign = np.float32(1) - np.float32(2) * x[c, i]
            if 1e-300 < product[c] < 1e300:
                change = np.log(product[c])
            else:  # beyond double precision, or NaN
                change = exact_change(inputs[c], row, sign)
            change += np.float64(sign * form.visible_bias[i])
            weights[c, i] = np.float32(-np.inf if np.isnan(change) else change / 2)
    for c in range(x.shape[0]):
        top = largest32(weights[c])
        infinite = abs(top) == np.inf
        log_z[c] = np.float64(top) if infinite else exponentiate_logits(weights[c], top)


@reordered
def multiply_factors(on, off, up, down, x, product):
    """The products over hidden units for one site, of several chains."""
    for c in range(x.shape[0]):
        total = 1.0
        w = up if x[c] == 0 else down
        for j in range(w.shape[1]):
            two = (off[c, 0, j] + on[c, 0, j] * w[0, j]) * (off[c, 1, j] + on[c, 1, j] * w[1, j])
            more = (off[c, 2, j] + on[c, 2, j] * w[2, j]) * (off[c, 3, j] + on[c, 3, j] * w[3, j])
            total *= np.float64(two * more)
        product[c] = total
