"""One flip at a time on a pairwise model, at a cost that does not grow with the number of sites.

There, the first-order gain d_i of flipping site i is the exact difference of log-probabilities, so
that Gibbs with gradients (one flip) and the locally balanced sampler are the same kernel: site i
with probability w_i / Z(x), w_i = exp(d_i / 2), accepted with probability min(1, Z(x) / Z(y)).

A flip changes few weights (on a lattice, those of the site and of its neighbours). The state keeps
all of them and their sums over blocks of consecutive sites, from which a site is drawn in two
stages. Changed weights and block sums are computed afresh from x, never incremented, so nothing
drifts. The weights must fit floating point without a reference level: `model.flip_bound` says so.
"""

from math import isqrt
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from models.base import EnergyModel
from models.chance import draw_categorical
from models.domain import Binary
from samplers.base import Info, decide

LARGEST_GAIN = 80.0  # weights within exp(40) of 1


class FlipState(NamedTuple):
    x: Tensor  # [chains, dim]
    weights: Tensor  # [chains, blocks * width], exp(d / 2), padded with zeros
    sums: Tensor  # [chains, blocks], of the weights, in double precision

    @property
    def logits(self) -> Tensor:
        """The gains halved, `[chains, dim]`, as other states that keep a proposal have them."""
        return self.weights[:, : self.x.shape[1]].log()


def flips_locally(model: EnergyModel) -> bool:
    """Whether `start` and `flip_step` can serve the model."""
    return isinstance(model.domain, Binary) and model.flip_bound <= LARGEST_GAIN


def start(x: Tensor, model: EnergyModel) -> FlipState:
    """The state at `x`, which is copied."""
    x, dim = x.clone(), model.domain.dim
    sites, _ = model.differences_after(x, x.new_zeros(len(x), 1, dtype=torch.long))
    width = dim if sites is None else isqrt(dim)
    everywhere = torch.arange(dim, device=x.device)
    weights = model.differences(x, model.cache(x), everywhere).div_(2).exp_()
    weights = pad(weights, (0, -dim % width))
    return FlipState(x, weights, weights.unflatten(1, (-1, width)).sum(-1, dtype=torch.float64))


def draw(state: FlipState, rng: Generator) -> Tensor:
    """A site in proportion to its weight, `[chains, 1]`."""
    if state.sums.shape[1] == 1:
        return draw_categorical(state.weights, rng)
    block = draw_categorical(state.sums, rng)
    inside = draw_categorical(members(state.weights, block, state.sums.shape[1]), rng).squeeze(-1)
    site = torch.add(inside, block, alpha=state.weights.shape[1] // state.sums.shape[1])
    return site.clamp_(max=state.x.shape[1] - 1)  # a rounded-up draw could end in the padding


def members(weights: Tensor, blocks: Tensor, count: int) -> Tensor:
    """The weights in some of `count` blocks, `[chains, n] -> [chains, n, width]`."""
    grid = weights.unflatten(1, (count, -1))
    return grid.gather(1, blocks.unsqueeze(-1).expand(-1, -1, grid.shape[-1]))


def flip_step(state: FlipState, model: EnergyModel, rng: Generator) -> tuple[FlipState, Info]:
    """Advance every chain once; `state` is overwritten."""
    assert isinstance(model.domain, Binary)
    x, weights, sums = state
    index = draw(state, rng)
    old = x.gather(1, index)
    new = model.domain.flip(old)
    x.scatter_(1, index, new)  # as if accepted; undone below where it is not

    sites, differences = model.differences_after(x, index)
    after = differences.mul_(0.5).exp_()
    if sites is None:
        proposed = after.sum(-1, keepdim=True, dtype=torch.float64)
        ratio = sums / proposed
    else:
        now = weights.gather(1, sites)
        weights.scatter_(1, sites, after)
        count = sums.shape[1]
        blocks = sites.div(weights.shape[1] // count, rounding_mode="floor")
        fresh = members(weights, blocks, count).sum(-1, dtype=torch.float64)
        proposed = sums.scatter(1, blocks, fresh)
        ratio = sums.sum(-1, keepdim=True) / proposed.sum(-1, keepdim=True)

    # log [ pi(y) q(x given y) ] - log [ pi(x) q(y given x) ] = log Z(x) - log Z(y)
    log_ratio = ratio.log_().to(x.dtype)
    accepted, accept_prob = decide(log_ratio, rng)  # [chains, 1]

    x.scatter_(1, index, torch.where(accepted, new, old))
    if sites is None:
        weights = torch.where(accepted, after, weights)
    else:
        weights.scatter_(1, sites, torch.where(accepted, after, now))
    sums = torch.where(accepted, proposed, sums)
    return FlipState(x, weights, sums), Info(accept_prob.squeeze(-1), log_ratio.squeeze(-1))
