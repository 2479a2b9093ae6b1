"""Proposals that choose a site by the gain of its move: the kernel shared by GWG and LB-1.

Move i is drawn with probability w_i / Z(x), w_i = exp(d_i / 2), where d_i is its gain in
log-probability, and corrected by Metropolis-Hastings. The samplers differ in their gains:
first-order in Gibbs with gradients (samplers/gwg.py), exact differences in the locally balanced
sampler (samplers/locally_balanced.py). `OneSite` chooses, moves and corrects for both.

On a pairwise model the first-order gain of a flip is exact. There both samplers are one kernel
whose acceptance probability is min(1, Z(x) / Z(y)), and `flip_step` runs it at a cost that does not
grow with the number of sites. A flip changes few weights (on a lattice, those of the site and of
its neighbours). `FlipState` keeps all weights and their sums over blocks of consecutive sites, from
which a site is drawn in two stages. Changed weights and block sums are computed afresh from x,
never incremented, so nothing drifts. The weights must fit floating point without a reference level:
`model.flip_bound` says whether they do.
"""

from abc import abstractmethod
from math import isqrt
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from latticework.models.base import Cache, EnergyModel
from latticework.models.distributions import draw_categorical
from latticework.models.domains import Binary
from latticework.samplers.base import Info, Sampler, decide, metropolis

LARGEST_GAIN = 80.0  # weights within exp(40) of 1


class MoveState(NamedTuple):
    """A position and the weights of all moves that leave it."""

    x: Tensor  # [chains, *domain.shape]
    log_prob: Tensor  # [chains]
    logits: Tensor  # [chains, dim * moves], d / 2, -inf for a move that stays
    weights: Tensor  # [chains, dim * moves], exp(logits - their maximum)
    log_normaliser: Tensor  # [chains], log Z(x), logsumexp of the logits
    cache: Cache  # the model's, for evaluating a neighbour of x


def weigh(x: Tensor, log_prob: Tensor, logits: Tensor, cache: Cache = ()) -> MoveState:
    """The state at `x`, whose moves have these `logits`."""
    top = logits.amax(-1, keepdim=True)
    weights = (logits - top).exp_()
    log_normaliser = weights.sum(-1).log_().add_(top.squeeze(-1))
    return MoveState(x, log_prob, logits, weights, log_normaliser, cache)


class OneSite(Sampler):
    """Draws moves by their weights and accepts or rejects them. Subclasses compute the gains.

    `flips` moves are drawn with replacement, and each distinct one is made.
    """

    flips: int = 1

    def at(self, x: Tensor, model: EnergyModel) -> Any:
        return start(x, model) if self._local(model) else self.price(x, model)

    def refresh(self, state: Any, model: EnergyModel) -> Any:
        return self.relocate(state.x, state, model)

    def relocate(self, x: Tensor, state: Any, model: EnergyModel) -> Any:
        """A state of the same kind, so that the model's bound is not read again."""
        return start(x, model) if isinstance(state, FlipState) else self.price(x, model)

    def step(self, state: Any, model: EnergyModel, rng: Generator) -> tuple[Any, Info]:
        if isinstance(state, FlipState):
            return flip_step(state, model, rng)
        index = draw_categorical(state.weights, rng, self.flips)
        y = model.domain.move_one(state.x, index)
        proposed = self.reprice(state, y, index, model)
        return metropolis(state, proposed, self.log_ratio(state, proposed, index, model), rng)

    def _local(self, model: EnergyModel) -> bool:
        return self.flips == 1 and flips_locally(model)

    @abstractmethod
    def price(self, x: Tensor, model: EnergyModel) -> MoveState:
        """The state at `x`."""

    @abstractmethod
    def reprice(self, state: MoveState, y: Tensor, index: Tensor, model: EnergyModel) -> MoveState:
        """The state at `y`, which the moves `index` `[chains, flips]` lead to from `state`."""

    def log_ratio(
        self, state: MoveState, proposed: MoveState, index: Tensor, model: EnergyModel
    ) -> Tensor:
        """The Metropolis-Hastings ratio, log [pi(y) q(x given y)] - log [pi(x) q(y given x)]."""
        domain, x = model.domain, state.x
        forward = state.logits.gather(1, index).sum(1)
        backward = proposed.logits.gather(1, domain.reverse(x, index)).sum(1)
        log_ratio = proposed.log_prob - state.log_prob + backward - forward
        log_ratio += self.flips * (state.log_normaliser - proposed.log_normaliser)
        return log_ratio


# One flip on a pairwise model.


class FlipState(NamedTuple):
    x: Tensor  # [chains, dim]
    weights: Tensor  # [chains, blocks * width], exp(d / 2), padded with zeros
    sums: Tensor  # [chains, blocks], of the weights, in double precision

    @property
    def logits(self) -> Tensor:
        """Half the gains, `[chains, dim]`, under the name that other states use."""
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
    """A site, drawn with probability proportional to its weight, `[chains, 1]`."""
    if state.sums.shape[1] == 1:
        return draw_categorical(state.weights, rng)
    block = draw_categorical(state.sums, rng)
    inside = draw_categorical(members(state.weights, block, state.sums.shape[1]), rng).squeeze(-1)
    site = torch.add(inside, block, alpha=state.weights.shape[1] // state.sums.shape[1])
    return site.clamp_(max=state.x.shape[1] - 1)  # a rounded-up draw could end in the padding


def members(weights: Tensor, blocks: Tensor, count: int) -> Tensor:
    """The weights in the given blocks, of `count`, `[chains, n] -> [chains, n, width]`."""
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
