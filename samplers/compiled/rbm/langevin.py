"""DULA and DMALA on restricted Boltzmann machines.

The gradient is b + W E[h given x]: one product a step. The hidden inputs follow the flips
(`compiled.rbm.chunks`). All else is in four kernels: E[h given x] and log pi, the draw of the
flips, the log normaliser, and the correction of Eq. (3).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import RBMForm
from latticework.samplers.compiled.all_sites.langevin import prices
from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.draws import draw_bit
from latticework.samplers.compiled.jit import kernel, reordered
from latticework.samplers.compiled.philox import fill_step, unit
from latticework.samplers.compiled.rbm.chunks import (
    MAX_FACTORS,
    DrawnState,
    Flips,
    Proposal,
    RBMDrawTwin,
    RBMProposalTwin,
    layers,
    list_flips,
    write_sigmoids,
)


@dataclass(frozen=True)
class RBMDULATwin(RBMDrawTwin):
    def start(self, x: Tensor, form: RBMForm) -> DrawnState:
        prices(self.sampler, x.shape[1])  # checks the preconditioner
        return super().start(x, form)

    def drawing(
        self, x: Tensor, inputs: Tensor, form: RBMForm, flips: Flips, invalid: NDArray[np.bool_]
    ) -> Callable[[int, np.int64], None]:
        net, h, gradient = layers(form), torch.empty_like(inputs), torch.empty_like(x)
        forward, uniform = np.empty((2, len(x)))
        args = x.numpy(), gradient.numpy(), prices(self.sampler, x.shape[1]), *flips

        def draw(first: int, key: np.int64) -> None:
            write_sigmoids(inputs.numpy(), h.numpy())
            net.visible_inputs(h, gradient)
            flip_sites(first, key, *args, forward, uniform)
            invalid[:] = np.isnan(forward)

        return draw


@dataclass(frozen=True)
class RBMDMALATwin(RBMProposalTwin):
    def prices(self, form: RBMForm) -> NDArray[np.float32]:
        return prices(self.sampler, len(form.visible_bias))

    def propose(self, first: int, key: np.int64, proposal: Proposal, flips: Flips) -> Flips:
        x, gradient, price, forward, uniform = proposal
        flip_sites(first, key, x, gradient, price, *flips, forward, uniform)
        return flips

    def balances(self, proposal: Proposal, bias: NDArray, total: NDArray, out: NDArray) -> None:
        write_balances(*proposal[:2], bias, proposal.price, total, out)


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
        fill_step(words, key, first + c, 0)
        uniform[c] = unit(words[visible])
        unknown = np.uint32(0)
        for i in range(visible):
            logit = (np.float32(0.5) - x[c, i]) * gradient[c, i] - price[i]
            flip[i] = draw_bit(words[i], logit)
            logits[i] = logit
            unknown |= np.uint32(logit != logit)
        count[c] = list_flips(flip, sites, c)
        forward[c] = np.nan if unknown else 0.0
        for k in range(count[c]):
            i = sites[c, k]
            forward[c] += logits[i]
            x[c, i] = np.float32(1) - x[c, i]


@kernel
def write_balances(x, gradient, bias, price, total, balance):
    """The log normaliser of Eq. (2) subtracted from log pi(x), which is `total` + bias'x."""
    for c in range(x.shape[0]):
        balance[c] = total[c]
        for start in range(0, x.shape[1], MAX_FACTORS):
            part = slice(start, start + MAX_FACTORS)
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
