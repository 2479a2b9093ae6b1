"""DULA and DMALA on restricted Boltzmann machines.

The gradient is b + W E[h given x]: one product a step. The hidden inputs follow the flips
(`compiled.rbm`). All else is in four kernels: E[h given x] and log pi, the draw of the flips, the
log normaliser, and the correction of Eq. (3).
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.models.forms import RBMForm
from latticework.samplers.compiled.arithmetic import exp32, sigmoid32
from latticework.samplers.compiled.jit import kernel, over_chunks, reordered
from latticework.samplers.compiled.philox import below, fill, unit
from latticework.samplers.compiled.rbm import (
    FACTORS,
    FRESH,
    accept_flips,
    chunk_size,
    collect,
    follow,
    layers,
    nanoseconds,
    no_flips,
    record,
    sigmoids,
    sigmoids_and_softplus,
)
from latticework.samplers.compiled.twin import Sums, Twin


class DULAState(NamedTuple):
    x: Tensor  # [chains, visible]
    inputs: Tensor  # [chains, hidden], W'x + c
    age: Tensor  # [chains], steps since inputs were computed; 0 or FRESH: they are due


class DMALAState(NamedTuple):
    x: Tensor
    inputs: Tensor
    age: Tensor
    gradient: Tensor  # [chains, visible]
    balance: Tensor  # [chains], log pi(x) - log normaliser, float64


@dataclass(frozen=True)
class RBMLangevinTwin(Twin):
    def refresh(self, state: Any, model: EnergyModel) -> Any:
        return state._replace(age=torch.zeros_like(state.age))

    def price(self, form: RBMForm) -> NDArray[np.float32]:
        """1 / (2 alpha g) of each site, which Eq. (2) subtracts from the logit of its flip."""
        sampler, visible = self.sampler, len(form.visible_bias)
        scale = np.ones(visible)
        if sampler.preconditioner is not None:
            scale = np.array(sampler.preconditioner) ** sampler.preconditioner_power
            if len(scale) != visible:
                raise ValueError(f"preconditioner must have {visible} entries, got {len(scale)}")
        return (0.5 / sampler.step_size / scale).astype(np.float32)

    def run(self, state: Any, form: RBMForm, keys: NDArray[np.int64], sums: Sums) -> Any:
        chains, work = len(state.x), nanoseconds(form, len(state.x), len(keys))
        over_chunks(self.advance_chunk, chains, chunk_size(form), work, state, form, keys, sums)
        return state

    @abstractmethod
    def advance_chunk(
        self, first: int, last: int, state: Any, form: RBMForm, keys: NDArray[np.int64], sums: Sums
    ) -> None:
        """Advance the chains `first` to `last` by a step for each of `keys`."""


@dataclass(frozen=True)
class RBMDULATwin(RBMLangevinTwin):
    def start(self, x: Tensor, form: RBMForm) -> DULAState:
        self.price(form)  # checks the preconditioner
        inputs = x.new_empty(len(x), len(form.hidden_bias))
        return DULAState(x, inputs, torch.zeros(len(x), dtype=torch.long))

    def advance_chunk(
        self,
        first: int,
        last: int,
        state: DULAState,
        form: RBMForm,
        keys: NDArray[np.int64],
        sums: Sums,
    ) -> None:
        net, price, age = layers(form), self.price(form), int(state.age[first])
        x, inputs = state.x[first:last], state.inputs[first:last]
        h, gradient = torch.empty_like(inputs), torch.empty_like(x)
        flips = no_flips(*x.shape)
        forward, uniform = np.empty((2, len(x)))
        here = x.numpy(), gradient.numpy(), price, *flips, forward, uniform
        sums.accept[first:last] += len(keys)
        for t, key in enumerate(keys):
            if age % FRESH == 0:
                net.hidden_inputs(x, inputs)
            sigmoids(inputs.numpy(), h.numpy())
            net.visible_inputs(h, gradient)
            flip_sites(first, key, *here)
            age = age + 1 if follow(net, x, flips, inputs) else 0
            sums.changed[first:last] += flips.number
            sums.invalid[first:last] += np.isnan(forward)
            record(sums, first, last, state.x.numpy(), t, len(keys))
        state.age[first:last] = age


@dataclass(frozen=True)
class RBMDMALATwin(RBMLangevinTwin):
    def start(self, x: Tensor, form: RBMForm) -> DMALAState:
        self.price(form)
        inputs, zero = x.new_empty(len(x), len(form.hidden_bias)), torch.zeros(len(x)).long()
        balance = x.new_empty(len(x), dtype=torch.float64)
        return DMALAState(x, inputs, zero, torch.empty_like(x), balance)

    def advance_chunk(
        self,
        first: int,
        last: int,
        state: DMALAState,
        form: RBMForm,
        keys: NDArray[np.int64],
        sums: Sums,
    ) -> None:
        net, price, age = layers(form), self.price(form), int(state.age[first])
        x, inputs, gradient = (s[first:last] for s in (state.x, state.inputs, state.gradient))
        balance = state.balance[first:last].numpy()
        h, proposed_inputs, proposed_gradient = map(torch.empty_like, (inputs, inputs, gradient))
        flips = no_flips(*x.shape)
        forward, backward, uniform, total, proposed_balance = np.empty((5, len(x)))
        here = x.numpy(), gradient.numpy(), price, *flips, forward, uniform
        there = x.numpy(), proposed_gradient.numpy()
        new = proposed_inputs.numpy(), proposed_gradient.numpy(), proposed_balance
        kept = inputs.numpy(), gradient.numpy(), balance, *new
        counts = tuple(s[first:last] for s in (sums.accept, sums.changed, sums.invalid))

        def evaluate(inputs: Tensor, gradient: Tensor, balance: NDArray[np.float64]) -> None:
            sigmoids_and_softplus(inputs.numpy(), h.numpy(), total)
            net.visible_inputs(h, gradient)
            balances(x.numpy(), gradient.numpy(), form.visible_bias, price, total, balance)

        for t, key in enumerate(keys):
            if (age + t) % FRESH == 0:
                net.hidden_inputs(x, inputs)
                evaluate(inputs, gradient, balance)
            flip_sites(first, key, *here)
            proposed_inputs.copy_(inputs)
            if not follow(net, x, flips, proposed_inputs):
                net.hidden_inputs(x, proposed_inputs)
            evaluate(proposed_inputs, proposed_gradient, proposed_balance)
            log_weights(*there, price, *flips, backward)
            accept_flips(x.numpy(), *flips, forward, backward, uniform, *kept, *counts)
            record(sums, first, last, state.x.numpy(), t, len(keys))
        state.age[first:last] += len(keys)


@kernel
def flip_sites(first, key, x, gradient, price, sites, count, forward, uniform):
    """Flip each site of a chunk of chains by Eq. (2), and list the sites.

    `forward` becomes the sum of the logits of the flips, or NaN if a logit is NaN; `uniform` a
    number for the correction.
    """
    visible = x.shape[1]
    words = np.empty(visible // 4 * 4 + 4, np.uint32)  # at least one more than the sites
    logits, flip = np.empty(visible, np.float32), np.zeros(visible // 8 * 8 + 8, np.uint8)
    for c in range(x.shape[0]):
        fill(words, key, first + c, 0)
        uniform[c] = unit(words[visible])
        unknown = np.uint32(0)
        for i in range(visible):
            logit = (np.float32(0.5) - x[c, i]) * gradient[c, i] - price[i]
            flip[i] = below(words[i], sigmoid32(-abs(logit))) != (logit > 0)
            logits[i] = logit
            unknown |= np.uint32(logit != logit)
        count[c] = collect(flip, sites, c)
        forward[c] = np.nan if unknown else 0.0
        for k in range(count[c]):
            i = sites[c, k]
            forward[c] += logits[i]
            x[c, i] = np.float32(1) - x[c, i]


@kernel
def balances(x, gradient, bias, price, total, balance):
    """The log normaliser of Eq. (2) subtracted from log pi(x), which is `total` + bias'x."""
    for c in range(x.shape[0]):
        balance[c] = total[c]
        for start in range(0, x.shape[1], FACTORS):
            part = slice(start, start + FACTORS)
            balance[c] += balance_of(x[c, part], gradient[c, part], bias[part], price[part])


@reordered
def balance_of(x, gradient, bias, price):
    """The terms of at most FACTORS sites."""
    linear, product = np.float32(0), 1.0
    for i in range(x.shape[0]):
        logit = (np.float32(0.5) - x[i]) * gradient[i] - price[i]
        size = abs(logit)
        linear += bias[i] * x[i] - max(logit, np.float32(0))
        product *= np.float64(np.float32(1) + exp32(-size))
    return np.float64(linear) - np.log(product)


@kernel
def log_weights(x, gradient, price, sites, count, out):
    """The sum of the logits of the listed flips from x."""
    for c in range(x.shape[0]):
        out[c] = 0.0
        for k in range(count[c]):
            i = sites[c, k]
            out[c] += (np.float32(0.5) - x[c, i]) * gradient[c, i] - price[i]
