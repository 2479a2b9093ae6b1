"""GWG-X on restricted Boltzmann machines.

The gradient costs one product a step. The hidden inputs follow the flips (`compiled.rbm`).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.models.forms import RBMForm
from latticework.samplers.compiled.arithmetic import exp32, largest32
from latticework.samplers.compiled.jit import kernel, over_chunks, reordered
from latticework.samplers.compiled.philox import fill, unit
from latticework.samplers.compiled.rbm import (
    FRESH,
    accept_flips,
    chunk_size,
    follow,
    layers,
    nanoseconds,
    no_flips,
    record,
    sigmoids_and_softplus,
)
from latticework.samplers.compiled.rbm_langevin import log_weights
from latticework.samplers.compiled.twin import Sums, Twin

BLOCK = 32  # weights of a block: a draw finds the block first


class RBMGWGState(NamedTuple):
    x: Tensor  # [chains, visible]
    inputs: Tensor  # [chains, hidden], W'x + c
    age: Tensor  # [1], steps since the start; inputs are computed afresh where FRESH divides it
    gradient: Tensor  # [chains, visible]
    balance: Tensor  # [chains], log pi(x) - flips * log normaliser, float64


@dataclass(frozen=True)
class RBMGWGTwin(Twin):
    def start(self, x: Tensor, form: RBMForm) -> RBMGWGState:
        inputs, zero = x.new_empty(len(x), len(form.hidden_bias)), torch.zeros(1, dtype=torch.long)
        balance = x.new_empty(len(x), dtype=torch.float64)
        return RBMGWGState(x, inputs, zero, torch.empty_like(x), balance)

    def refresh(self, state: RBMGWGState, model: EnergyModel) -> RBMGWGState:
        return state._replace(age=torch.zeros_like(state.age))

    def run(
        self, state: RBMGWGState, form: RBMForm, keys: NDArray[np.int64], sums: Sums
    ) -> RBMGWGState:
        chains, work = len(state.x), nanoseconds(form, len(state.x), len(keys))
        over_chunks(self.advance_chunk, chains, chunk_size(form), work, state, form, keys, sums)
        return state._replace(age=state.age + len(keys))

    def advance_chunk(
        self,
        first: int,
        last: int,
        state: RBMGWGState,
        form: RBMForm,
        keys: NDArray[np.int64],
        sums: Sums,
    ) -> None:
        net, age, draws = layers(form), int(state.age), self.sampler.flips
        x, inputs, gradient = (s[first:last] for s in (state.x, state.inputs, state.gradient))
        balance = state.balance[first:last].numpy()
        h, proposed_inputs, proposed_gradient = map(torch.empty_like, (inputs, inputs, gradient))
        flips, drawn = no_flips(*x.shape), no_flips(len(x), draws)
        drawn.number[:] = draws
        forward, backward, uniform, total, proposed_balance = np.empty((5, len(x)))
        new = proposed_inputs.numpy(), proposed_gradient.numpy(), proposed_balance
        kept = inputs.numpy(), gradient.numpy(), balance, *new
        counts = tuple(s[first:last] for s in (sums.accept, sums.changed, sums.invalid))
        free = np.zeros_like(form.visible_bias)

        def evaluate(inputs: Tensor, gradient: Tensor, balance: NDArray[np.float64]) -> None:
            sigmoids_and_softplus(inputs.numpy(), h.numpy(), total)
            net.visible_inputs(h, gradient)
            balances(x.numpy(), gradient.numpy(), form.visible_bias, total, draws, balance)

        for t, key in enumerate(keys):
            if (age + t) % FRESH == 0:
                net.hidden_inputs(x, inputs)
                evaluate(inputs, gradient, balance)
            draw_sites(first, key, x.numpy(), gradient.numpy(), drawn.sites, uniform)
            log_weights(x.numpy(), gradient.numpy(), free, *drawn, forward)
            flip_drawn(x.numpy(), drawn.sites, *flips)
            proposed_inputs.copy_(inputs)
            if not follow(net, x, flips, proposed_inputs):
                net.hidden_inputs(x, proposed_inputs)
            evaluate(proposed_inputs, proposed_gradient, proposed_balance)
            log_weights(x.numpy(), proposed_gradient.numpy(), free, *drawn, backward)
            accept_flips(x.numpy(), *flips, forward, backward, uniform, *kept, *counts)
            record(sums, first, last, state.x.numpy(), t, len(keys))


@kernel
def draw_sites(first, key, x, gradient, sites, uniform):
    """Draw sites of each chain with replacement, by weights exp(gain / 2).

    `uniform` becomes a number for the correction.
    """
    visible, draws = x.shape[1], sites.shape[1]
    words = np.empty(draws // 4 * 4 + 4, np.uint32)  # at least one more than the draws
    weights = np.empty(visible, np.float32)
    for c in range(x.shape[0]):
        fill(words, key, first + c, 0)
        uniform[c] = unit(words[draws])
        weigh(x[c], gradient[c], weights)
        invert(weights, words[:draws], sites[c])


@reordered
def weigh(x, gradient, weights):
    """Weights exp(gain / 2) of the flips from x, the largest 1; returns log of their true sum."""
    for i in range(x.shape[0]):
        weights[i] = (np.float32(0.5) - x[i]) * gradient[i]
    top = largest32(weights)
    total = 0.0
    for i in range(x.shape[0]):
        weights[i] = exp32(weights[i] - top)
        total += np.float64(weights[i])
    return np.log(total) + np.float64(top)


@kernel
def invert(weights, words, sites):
    """Sites drawn by inverse transform: a block of sites, then one of its sites."""
    blocks = (weights.shape[0] + BLOCK - 1) // BLOCK
    sums, total = np.empty(blocks), 0.0
    for block in range(blocks):
        total += sum_of(weights[block * BLOCK : (block + 1) * BLOCK])
        sums[block] = total
    for draw in range(sites.shape[0]):
        level, block = unit(words[draw]) * total, 0
        while block < blocks - 1 and sums[block] <= level:
            block += 1
        inside, below = weights[block * BLOCK : (block + 1) * BLOCK], 0.0
        if block:
            below = sums[block - 1]
        chosen = 0
        for i in range(inside.shape[0]):
            if inside[i] > 0:
                chosen = i  # the last of a positive weight, if rounding leads beyond all
                below += np.float64(inside[i])
                if below > level:
                    break
        sites[draw] = block * BLOCK + chosen


@reordered
def sum_of(weights):
    total = 0.0
    for i in range(weights.shape[0]):
        total += np.float64(weights[i])
    return total


@kernel
def flip_drawn(x, drawn, sites, count):
    """Flip each distinct site that was drawn, and list these sites."""
    for c in range(x.shape[0]):
        count[c] = 0
        for k in range(drawn.shape[1]):
            i, seen = drawn[c, k], False
            for other in range(k):
                seen |= drawn[c, other] == i
            if not seen:
                x[c, i] = np.float32(1) - x[c, i]
                sites[c, count[c]] = i
                count[c] += 1


@kernel
def balances(x, gradient, bias, total, draws, balance):
    """The `draws`-fold log normaliser, subtracted from log pi(x), which is `total` + bias'x."""
    weights = np.empty(x.shape[1], np.float32)
    for c in range(x.shape[0]):
        log_z = weigh(x[c], gradient[c], weights)
        balance[c] = total[c] + dot(x[c], bias) - draws * log_z


@reordered
def dot(a, b):
    total = 0.0
    for i in range(a.shape[0]):
        total += np.float64(a[i] * b[i])
    return total
