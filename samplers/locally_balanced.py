"""Locally balanced proposals with exact differences: LB-1.

G. Zanella, "Informed proposals for local MCMC in discrete spaces", JASA 2020, with the balancing
function g(t) = sqrt(t) and the window of one-site moves (Eq. (4) of Zhang, Liu & Liu, 2022).

    paper                       here
    x, y                        x, y
    log pi(y) - log pi(x)       model.differences(x, ...), all one-site moves at once
    Z(x) = sum_y g(pi(y)/pi(x)) exp(log_normaliser)

The proposal is q(y given x) = exp((log pi(y) - log pi(x)) / 2) / Z(x). In the Metropolis-Hastings
ratio the differences of a move and of its reverse cancel against pi(y) / pi(x), so that the
acceptance probability is min(1, Z(x) / Z(y)) and the reverse move need not be looked up.

A step prices the neighbourhood once, at y: what a model's local structure makes cheap, and a model
without any pays one evaluation a neighbour.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from models.base import EnergyModel
from models.domain import draw_categorical, softmax_weights
from samplers.base import Info, Sampler, metropolis
from samplers.flip import FlipState, flip_step, flips_locally, start


class BalancedState(NamedTuple):
    """A position and the proposal that leaves it."""

    x: Tensor  # [chains, *domain.shape]
    log_prob: Tensor  # [chains], carried along by the exact differences of the accepted moves
    logits: Tensor  # [chains, dim * moves], half the differences; -inf where a move stays at x
    log_normaliser: Tensor  # [chains], log Z(x)


@dataclass(frozen=True)
class LocallyBalanced(Sampler):
    """One site moves, chosen by the square root of the exact probability ratio. On every domain."""

    def at(self, x: Tensor, model: EnergyModel) -> BalancedState | FlipState:
        if flips_locally(model):
            return start(x, model)
        return self._price(x, model.log_prob(x), model)

    def _price(self, x: Tensor, log_prob: Tensor, model: EnergyModel) -> BalancedState:
        sites = torch.arange(model.domain.dim, device=x.device)
        differences = model.differences(x, model.cache(x), sites)
        # A neighbour of unknown probability is never proposed.
        differences = differences.nan_to_num(-torch.inf, torch.inf, -torch.inf)
        logits = model.domain.leaving(x, differences / 2)
        return BalancedState(x, log_prob, logits, logits.logsumexp(-1))

    def step(
        self, state: BalancedState | FlipState, model: EnergyModel, rng: Generator
    ) -> tuple[BalancedState | FlipState, Info]:
        if isinstance(state, FlipState):
            return flip_step(state, model, rng)
        index = draw_categorical(softmax_weights(state.logits), rng)  # [chains, 1]
        y = model.domain.move_one(state.x, index)
        difference = 2 * state.logits.gather(-1, index).squeeze(-1)
        proposed = self._price(y, state.log_prob + difference, model)
        log_ratio = state.log_normaliser - proposed.log_normaliser
        return metropolis(state, proposed, log_ratio, rng)
