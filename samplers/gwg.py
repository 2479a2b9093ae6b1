"""Gibbs with gradients, GWG-X: one gradient estimates the gain of every one-site move.

W. Grathwohl, K. Swersky, M. Hashemi, D. Duvenaud and C. Maddison, "Oops I Took a Gradient: Scalable
Sampling for Discrete Distributions", ICML 2021, Algorithm 1 and its variant with several flips.

Let d_i be the first-order gain of move i (`domain.gains`). A step draws X moves with replacement
from softmax(d / 2), makes each distinct one, and corrects by Metropolis-Hastings. The reverse
probability is that of the same X draws at the proposed state.
"""

from dataclasses import dataclass

from torch import Tensor

from latticework.models.base import Cache, EnergyModel
from latticework.models.domains import Binary
from latticework.samplers.base import UnsupportedModelError, require_count
from latticework.samplers.one_site import MoveState, OneSite, weigh


@dataclass(frozen=True)
class GWG(OneSite):
    """Flip up to `flips` sites, drawn by their gains. Several flips need a binary model."""

    uses_gradient = True
    swaps = True
    flips: int = 1

    def __post_init__(self) -> None:
        require_count(flips=self.flips)

    def price(self, x: Tensor, model: EnergyModel) -> MoveState:
        if self.flips > 1 and not isinstance(model.domain, Binary):
            raise UnsupportedModelError(self, model, "a binary model for more than one flip")
        return self._state(x, model, *model.evaluate_with_cache(x))

    def reprice(self, state: MoveState, y: Tensor, index: Tensor, model: EnergyModel) -> MoveState:
        return self._state(y, model, *model.evaluate_flipped(state.cache, state.x, y, index))

    def _state(
        self, x: Tensor, model: EnergyModel, log_prob: Tensor, grad: Tensor, cache: Cache
    ) -> MoveState:
        logits = model.domain.leaving_logits(x, model.domain.gains(x, grad).mul_(0.5))
        return weigh(x, log_prob, logits, cache)
