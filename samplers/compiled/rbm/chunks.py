"""The common part of the compiled kernels of restricted Boltzmann machines.

Products of a step run by a library (`models.matmul`), for a chunk of chains. Everything else is in
kernels over the chunk: `x`, `inputs`, ... are the rows of chains `first` to `first + len(x)`.

The hidden inputs W'x + c of a chain are kept. When sites flip, only the rows of W of these sites
are added, unless so many flip that the product is faster (`follow_flips`). Each addition rounds, so
all inputs are computed from scratch every `RENEWAL_STEPS` steps. A counter in the state, `age`,
says when.

There are two kinds of step: draws that are always accepted, and proposals that may be rejected.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.models.forms import RBMForm
from latticework.models.matmul import affine
from latticework.samplers.compiled import running_sums
from latticework.samplers.compiled.arithmetic import exp32, sigmoid32
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Keys, Sums
from latticework.samplers.compiled.draws import accepts
from latticework.samplers.compiled.jit import copy, inlined, kernel, over_chunks, reordered

RENEWAL_STEPS = 256  # between two computations of the inputs from scratch
MAX_ROWS_SHARE = 0.3  # if this share of visible units flips, the product is as fast as rows
CHUNK_UNITS = 2**17  # units of all chains of a chunk: they fit the cache
MAX_FACTORS = 512  # between 1 and 2, multiplied before a logarithm is taken: float64 holds 2^1023


class Layers(NamedTuple):
    """The form's arrays as tensors, for products."""

    weight: Tensor  # [visible, hidden]
    visible_bias: Tensor
    hidden_bias: Tensor

    def hidden_inputs(self, x: Tensor, out: Tensor) -> None:
        affine(self.hidden_bias, x, self.weight, out)

    def visible_inputs(self, h: Tensor, out: Tensor) -> None:
        affine(self.visible_bias, h, self.weight.T, out)


def layers(form: RBMForm) -> Layers:
    return Layers(*map(torch.from_numpy, form))


class Flips(NamedTuple):
    """The sites that a step flips: the first `number` of each row of `sites`."""

    sites: NDArray[np.int32]  # [chains, visible]
    number: NDArray[np.int64]  # [chains]


def no_flips(chains: int, visible: int) -> Flips:
    return Flips(np.empty((chains, visible), np.int32), np.zeros(chains, np.int64))


def most_rows(visible: int) -> int:
    """The number of flips of a chain up to which rows are added."""
    return int(MAX_ROWS_SHARE * visible)


def follow_flips(layers: Layers, x: Tensor, flips: Flips, inputs: Tensor) -> bool:
    """Update the hidden inputs of a chunk of chains after the flips that led to `x`.

    Returns False if so many sites flip that the product is faster. It is then due before the inputs
    are used again.
    """
    if flips.number.max() > most_rows(x.shape[1]):
        return False
    add_rows(layers.weight.numpy(), x.numpy(), *flips, inputs.numpy())
    return True


@dataclass(frozen=True)
class RBMTwin(CompiledSampler):
    """Chains advance in chunks, because a library makes the products."""

    def run(self, state: Any, form: RBMForm, keys: Keys, sums: Sums) -> Any:
        chains = len(state.x)
        work = 0.02 * form.weight.size * chains * len(keys)  # ns, of two products each
        # Half as many chains are up to 15 % slower on one thread, and let two threads share 100.
        most = max(16, CHUNK_UNITS // sum(form.weight.shape))
        over_chunks(self.advance_chunk, chains, most, work, state, form, keys, sums)
        return state

    def refresh(self, state: Any, model: EnergyModel) -> Any:
        return state._replace(age=torch.zeros_like(state.age))

    @abstractmethod
    def advance_chunk(
        self, first: int, last: int, state: Any, form: RBMForm, keys: Keys, sums: Sums
    ) -> None:
        """Advance the chains `first` to `last` by a step for each of `keys`."""


class DrawnState(NamedTuple):
    x: Tensor  # [chains, visible]
    inputs: Tensor  # [chains, hidden], W'x + c
    age: Tensor  # [chains], draws since inputs were computed; 0 or FRESH: they are due


@dataclass(frozen=True)
class RBMDrawTwin(RBMTwin):
    """A step draws x and accepts it."""

    def start(self, x: Tensor, form: RBMForm) -> DrawnState:
        inputs = x.new_empty(len(x), len(form.hidden_bias))
        return DrawnState(x, inputs, torch.zeros(len(x), dtype=torch.long))

    @abstractmethod
    def drawing(
        self, x: Tensor, inputs: Tensor, form: RBMForm, flips: Flips, invalid: NDArray[np.bool_]
    ) -> Callable[[int, np.int64], None]:
        """A function of the first chain and the key.

        It overwrites `x` given the inputs, and `flips`, and adds to `invalid` `[chains]`.
        """

    def advance_chunk(
        self, first: int, last: int, state: DrawnState, form: RBMForm, keys: Keys, sums: Sums
    ) -> None:
        net, age = layers(form), int(state.age[first])
        x, inputs = state.x[first:last], state.inputs[first:last]
        flips, invalid = no_flips(*x.shape), np.zeros(len(x), np.bool_)
        draw = self.drawing(x, inputs, form, flips, invalid)
        sums.accept[first:last] += len(keys)
        for t, key in enumerate(keys):
            if age % RENEWAL_STEPS == 0:
                net.hidden_inputs(x, inputs)
            draw(first, key)
            age = age + 1 if follow_flips(net, x, flips, inputs) else 0
            sums.changed[first:last] += flips.number
            sums.invalid[first:last] += invalid
            invalid[:] = False
            record_wanted(sums, first, last, state.x.numpy(), t, len(keys))
        state.age[first:last] = age


class BalancedState(NamedTuple):
    x: Tensor  # [chains, visible]
    inputs: Tensor  # [chains, hidden], W'x + c
    age: Tensor  # [chains], steps since the start; inputs are due where FRESH divides it
    gradient: Tensor  # [chains, visible]
    balance: Tensor  # [chains], log pi(x) - log normaliser of the proposal, float64


@dataclass(frozen=True)
class RBMProposalTwin(RBMTwin):
    """A step proposes flips from the gradient, and accepts or rejects them."""

    def start(self, x: Tensor, form: RBMForm) -> BalancedState:
        self.prices(form)  # checks the settings
        inputs, age = x.new_empty(len(x), len(form.hidden_bias)), torch.zeros(len(x)).long()
        balance = x.new_empty(len(x), dtype=torch.float64)
        return BalancedState(x, inputs, age, torch.empty_like(x), balance)

    def prices(self, form: RBMForm) -> NDArray[np.float32]:
        """The price that is subtracted from the logit of each site's flip."""
        return np.zeros_like(form.visible_bias)

    @abstractmethod
    def propose(self, first: int, key: np.int64, proposal: "Proposal", flips: Flips) -> Flips:
        """Make flips, which overwrite x, and list them in `flips`. Fills `forward` and `uniform`.

        Returns the draws that led to them, whose way back has the same sites.
        """

    @abstractmethod
    def balances(self, proposal: "Proposal", bias: NDArray, total: NDArray, out: NDArray) -> None:
        """Write `BalancedState.balance` to `out`, where log pi(x) is `total` + bias'x."""

    def advance_chunk(
        self, first: int, last: int, state: BalancedState, form: RBMForm, keys: Keys, sums: Sums
    ) -> None:
        net, age, price = layers(form), int(state.age[first]), self.prices(form)
        x, inputs, gradient = (s[first:last] for s in (state.x, state.inputs, state.gradient))
        h, new_inputs, new_gradient = map(torch.empty_like, (inputs, inputs, gradient))
        forward, backward, uniform, total, new_balance = np.empty((5, len(x)))
        here = Evaluated(inputs.numpy(), gradient.numpy(), state.balance[first:last].numpy())
        there = Evaluated(new_inputs.numpy(), new_gradient.numpy(), new_balance)
        proposal = Proposal(x.numpy(), here.gradient, price, forward, uniform)
        flips = no_flips(*x.shape)

        def evaluate(inputs: Tensor, gradient: Tensor, balance: NDArray[np.float64]) -> None:
            write_sigmoids_and_softplus(inputs.numpy(), h.numpy(), total)
            net.visible_inputs(h, gradient)
            at = proposal._replace(gradient=gradient.numpy())
            self.balances(at, form.visible_bias, total, balance)

        for t, key in enumerate(keys):
            if (age + t) % RENEWAL_STEPS == 0:
                net.hidden_inputs(x, inputs)
                evaluate(inputs, gradient, here.balance)
            drawn = self.propose(first, key, proposal, flips)
            new_inputs.copy_(inputs)
            if not follow_flips(net, x, flips, new_inputs):
                net.hidden_inputs(x, new_inputs)
            evaluate(new_inputs, new_gradient, there.balance)
            sum_logits(x.numpy(), there.gradient, price, *drawn, backward)
            ratio = forward, backward, uniform
            accept_flips(first, x.numpy(), flips, *ratio, here, there, sums)
            record_wanted(sums, first, last, state.x.numpy(), t, len(keys))
        state.age[first:last] += len(keys)


class Proposal(NamedTuple):
    """Memory of a proposal of a chunk of chains."""

    x: NDArray[np.float32]  # [chains, visible], overwritten
    gradient: NDArray[np.float32]  # [chains, visible], at x
    price: NDArray[np.float32]  # [visible]
    forward: NDArray[np.float64]  # [chains], the log of q(y given x) and of the normaliser at x
    uniform: NDArray[np.float64]  # [chains], for the acceptance


class Evaluated(NamedTuple):
    """Fields of `BalancedState` of a chunk of chains."""

    inputs: NDArray[np.float32]
    gradient: NDArray[np.float32]
    balance: NDArray[np.float64]


@reordered
def add_rows(weight, x, sites, count, inputs):
    """Add the rows of sites that are now at 1, subtract those of sites that are now at 0."""
    for c in range(x.shape[0]):
        k, end = 0, count[c]
        while k + 4 <= end:  # four rows at a time, so that inputs are loaded and stored less often
            a, b, d, e = sites[c, k], sites[c, k + 1], sites[c, k + 2], sites[c, k + 3]
            p, q = sign_of_flip(x, c, a), sign_of_flip(x, c, b)
            r, s = sign_of_flip(x, c, d), sign_of_flip(x, c, e)
            for j in range(weight.shape[1]):
                change = p * weight[a, j] + q * weight[b, j] + r * weight[d, j] + s * weight[e, j]
                inputs[c, j] += change
            k += 4
        while k < end:
            a = sites[c, k]
            p = sign_of_flip(x, c, a)
            for j in range(weight.shape[1]):
                inputs[c, j] += p * weight[a, j]
            k += 1


@inlined
def sign_of_flip(x, c, i):
    """The change that led to x: 1 if the site is now at 1, else -1."""
    return np.float32(2) * x[c, i] - np.float32(1)


@kernel
def list_flips(flip, sites, c):
    """List the sites that flip in a row of `sites`; returns how many.

    `flip` has a byte for each site, and zeros up to a multiple of 8 bytes.
    """
    count, flips = 0, np.uint32(0)
    for i in range(flip.shape[0]):
        flips += np.uint32(flip[i])
    if flips > flip.shape[0] // 16:
        for i in range(sites.shape[1]):  # without a branch, which many flips would mislead
            sites[c, count] = i
            count += np.int64(flip[i])
        return count
    eights = flip.view(np.uint64)
    for eight in range(eights.shape[0]):
        if eights[eight]:
            for i in range(8 * eight, 8 * eight + 8):
                if flip[i]:
                    sites[c, count] = i
                    count += 1
    return count


@kernel
def write_sigmoids(inputs, h):
    """E[h given x] of a chunk of chains."""
    for c in range(inputs.shape[0]):
        for j in range(inputs.shape[1]):
            h[c, j] = sigmoid32(inputs[c, j])


@kernel
def write_sigmoids_and_softplus(inputs, h, total):
    """E[h given x] and the sum over j of log(1 + exp(input_j)) of a chunk of chains."""
    for c in range(inputs.shape[0]):
        total[c] = 0.0
        for start in range(0, inputs.shape[1], MAX_FACTORS):
            end = start + MAX_FACTORS
            total[c] += sigmoids_of(inputs[c, start:end], h[c, start:end])


@reordered
def sigmoids_of(z, h):
    """At most FACTORS sigmoids, and the sum of softplus(z), from one exponential each."""
    above, product = np.float32(0), 1.0
    for j in range(z.shape[0]):
        size = abs(z[j])
        small = exp32(-size)
        factor = np.float32(1) + small
        h[j] = (np.float32(1) if z[j] >= 0 else small) / factor
        above += max(z[j], np.float32(0))
        product *= np.float64(factor)
    return np.float64(above) + np.log(product)


@kernel
def sum_logits(x, gradient, price, sites, count, out):
    """The sum of the logits of the listed flips from x."""
    for c in range(x.shape[0]):
        out[c] = 0.0
        for k in range(count[c]):
            i = sites[c, k]
            out[c] += (np.float32(0.5) - x[c, i]) * gradient[c, i] - price[i]


@kernel
def accept_flips(first, x, flips, forward, backward, uniform, here, there, sums):
    """Accept the flips of each chain by Eq. (3) of Zhang et al. (2022), or undo them.

    The logs of q(y given x) and q(x given y) are `forward` and `backward` - the log normalisers.
    The latter are part of the balances. Accepted chains take the values of `there` over.
    """
    for c in range(x.shape[0]):
        log_ratio = there.balance[c] - here.balance[c] + backward[c] - forward[c]
        if accepts(first + c, log_ratio, uniform[c], sums.accept, sums.invalid):
            sums.changed[first + c] += flips.number[c]
            here.balance[c] = there.balance[c]
            copy(here.inputs[c], there.inputs[c])
            copy(here.gradient[c], there.gradient[c])
        else:
            for k in range(flips.number[c]):
                i = flips.sites[c, k]
                x[c, i] = np.float32(1) - x[c, i]


def record_wanted(
    sums: Sums, first: int, last: int, x: NDArray[np.float32], t: int, steps: int
) -> None:
    """Add the states of chains `first` to `last` of `x` after step `t` to the sums, if wanted."""
    if sums.total.size or sums.trace.size:
        record_states(first, last, sums, x, t, steps)


@kernel
def record_states(first, last, sums, x, t, steps):
    running_sums.add_states(sums, first, last, x)
    running_sums.record_chains(sums, first, last, x, t, steps)
