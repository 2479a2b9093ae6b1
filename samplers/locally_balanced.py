"""Locally balanced proposals with exact differences: LB-1.

G. Zanella, "Informed proposals for local MCMC in discrete spaces", JASA 2020, with the balancing
function g(t) = sqrt(t) and the window of one-site moves (Eq. (4) of Zhang, Liu & Liu, 2022).

    paper                       here
    x, y                        x, y
    log pi(y) - log pi(x)       model.differences(x, ...), all one-site moves at once
    Z(x) = sum_y g(pi(y)/pi(x)) exp(log_normaliser)

The proposal is q(y given x) = exp((log pi(y) - log pi(x)) / 2) / Z(x). In the Metropolis-Hastings
ratio, q(x given y) / q(y given x) is pi(x) Z(x) / (pi(y) Z(y)), so the acceptance probability is
min(1, Z(x) / Z(y)) and the reverse move is not needed.

A step evaluates the neighbours of y once. A model's local structure makes this cheap; a model
without any is evaluated once for each neighbour.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.samplers.conditional import without_unknown
from latticework.samplers.one_site import MoveState, OneSite, weigh


@dataclass(frozen=True)
class LocallyBalanced(OneSite):
    """One site moves, chosen by the square root of the exact probability ratio. On every domain."""

    swaps = True

    def price(self, x: Tensor, model: EnergyModel) -> MoveState:
        return self._state(x, model.log_prob(x), model)

    def reprice(self, state: MoveState, y: Tensor, index: Tensor, model: EnergyModel) -> MoveState:
        difference = 2 * state.logits.gather(-1, index).squeeze(-1)
        return self._state(y, state.log_prob + difference, model)

    def _state(self, x: Tensor, log_prob: Tensor, model: EnergyModel) -> MoveState:
        movers = torch.arange(model.domain.movers, device=x.device)
        differences = model.differences(x, model.cache(x), movers)
        # A neighbour whose probability is NaN is never proposed.
        logits = model.domain.leaving_logits(x, without_unknown(differences) / 2)
        state = weigh(x, log_prob, logits)
        # Z is 0 or infinite if all gains are -inf or one is +inf; `weigh` gives NaN there.
        infinite = state.log_normaliser.isnan()
        log_normaliser = torch.where(infinite, logits.amax(-1), state.log_normaliser)
        return state._replace(log_normaliser=log_normaliser)

    def log_prob(self, state: MoveState, model: EnergyModel) -> Tensor:
        """From an evaluation: a sum of differences keeps the rounding errors of large terms."""
        return model.log_prob(state.x)

    def log_ratio(
        self, state: MoveState, proposed: MoveState, index: Tensor, model: EnergyModel
    ) -> Tensor:
        return state.log_normaliser - proposed.log_normaliser
