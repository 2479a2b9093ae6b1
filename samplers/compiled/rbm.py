"""What the compiled kernels of restricted Boltzmann machines share.

Products of a step run by a library (`models.product`), for a chunk of chains. Everything else is in
kernels over the chunk: `x`, `inputs`, ... are the rows of chains `first` to `first + len(x)`.

The hidden inputs W'x + c of a chain are kept. When sites flip, only the rows of W of these sites
are added, unless so many flip that the product is faster (`follow`). Each addition rounds, so all
inputs are computed from scratch every `FRESH` steps. A counter in the state, `age`, says when.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import RBMForm
from latticework.models.product import affine
from latticework.samplers.compiled import tally
from latticework.samplers.compiled.arithmetic import exp32, sigmoid32
from latticework.samplers.compiled.jit import inlined, kernel, reordered
from latticework.samplers.sums import Sums

FRESH = 256  # steps
ROWS = 0.3  # of the visible units: if this share flips, the product is as fast as rows
CHUNK = 2**17  # units of all chains of a chunk: they fit the cache
FACTORS = 512  # between 1 and 2, multiplied before a logarithm is taken: float64 holds 2^1023


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


def chunk_size(form: RBMForm) -> int:
    """The number of chains whose products are made together.

    Half as many are up to 15 % slower on one thread, and let two threads share 100 chains.
    """
    return max(16, CHUNK // sum(form.weight.shape))


def nanoseconds(form: RBMForm, chains: int, steps: int) -> float:
    """A rough estimate of the time of two products a step."""
    return 0.02 * form.weight.size * chains * steps


class Flips(NamedTuple):
    """The sites that a step flips: the first `number` of each row of `sites`."""

    sites: NDArray[np.int32]  # [chains, visible]
    number: NDArray[np.int64]  # [chains]


def no_flips(chains: int, visible: int) -> Flips:
    return Flips(np.empty((chains, visible), np.int32), np.zeros(chains, np.int64))


def most_rows(visible: int) -> int:
    """The number of flips of a chain up to which rows are added."""
    return int(ROWS * visible)


def follow(layers: Layers, x: Tensor, flips: Flips, inputs: Tensor) -> bool:
    """Update the hidden inputs of a chunk of chains after the flips that led to `x`.

    Returns False if so many sites flip that the product is faster. It is then due before the inputs
    are used again.
    """
    if flips.number.max() > most_rows(x.shape[1]):
        return False
    add_rows(layers.weight.numpy(), x.numpy(), *flips, inputs.numpy())
    return True


@reordered
def add_rows(weight, x, sites, count, inputs):
    """Add the rows of sites that are now at 1, subtract those of sites that are now at 0."""
    for c in range(x.shape[0]):
        k, end = 0, count[c]
        while k + 4 <= end:  # four rows at a time, so that inputs are loaded and stored less often
            a, b, d, e = sites[c, k], sites[c, k + 1], sites[c, k + 2], sites[c, k + 3]
            p, q, r, s = sign(x, c, a), sign(x, c, b), sign(x, c, d), sign(x, c, e)
            for j in range(weight.shape[1]):
                change = p * weight[a, j] + q * weight[b, j] + r * weight[d, j] + s * weight[e, j]
                inputs[c, j] += change
            k += 4
        while k < end:
            a = sites[c, k]
            p = sign(x, c, a)
            for j in range(weight.shape[1]):
                inputs[c, j] += p * weight[a, j]
            k += 1


@inlined
def sign(x, c, i):
    """The change that led to x: 1 if the site is now at 1, else -1."""
    return np.float32(2) * x[c, i] - np.float32(1)


@kernel
def collect(flip, sites, c):
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
def sigmoids(inputs, h):
    """E[h given x] of a chunk of chains."""
    for c in range(inputs.shape[0]):
        for j in range(inputs.shape[1]):
            h[c, j] = sigmoid32(inputs[c, j])


@kernel
def sigmoids_and_softplus(inputs, h, total):
    """E[h given x] and the sum over j of log(1 + exp(input_j)) of a chunk of chains."""
    for c in range(inputs.shape[0]):
        total[c] = 0.0
        for start in range(0, inputs.shape[1], FACTORS):
            end = start + FACTORS
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
def accept_flips(
    x, sites, count, forward, backward, uniform,
    inputs, logits, balance, new_inputs, new_logits, new_balance,
    accept, changed, invalid,
):  # noqa: ANN001, ANN201  # fmt: skip
    """Accept the flips of each chain by Eq. (3) of Zhang et al. (2022), or undo them.

    The logs of q(y given x) and q(x given y) are `forward` and `backward` - the log normalisers.
    The latter are part of `balance`, log pi - log normaliser. Accepted chains take the new values
    over. A ratio of NaN or infinity rejects.
    """
    for c in range(x.shape[0]):
        log_ratio = new_balance[c] - balance[c] + backward[c] - forward[c]
        valid = log_ratio < np.inf  # not NaN either
        probability = np.exp(min(log_ratio, 0.0)) if valid else 0.0
        accept[c] += probability
        invalid[c] += not valid
        if uniform[c] < probability:
            changed[c] += count[c]
            balance[c] = new_balance[c]
            inputs[c, :] = new_inputs[c, :]
            logits[c, :] = new_logits[c, :]
        else:
            for k in range(count[c]):
                i = sites[c, k]
                x[c, i] = np.float32(1) - x[c, i]


def record(sums: Sums, first: int, last: int, x: NDArray[np.float32], t: int, steps: int) -> None:
    """Add the states of chains `first` to `last` of `x` after step `t` to the sums, if wanted."""
    if sums.total.size or sums.trace.size:
        record_states(first, last, sums, x, t, steps)


@kernel
def record_states(first, last, sums, x, t, steps):
    tally.add(sums, first, last, x)
    tally.record(sums, first, last, x, t, steps)
