"""Gibbs with gradients: one gradient prices every one-site move, then a few sites flip.

W. Grathwohl, K. Swersky, M. Hashemi, D. Duvenaud and C. Maddison, "Oops I Took a Gradient: Scalable
Sampling for Discrete Distributions", ICML 2021, Algorithm 1 and its variant with several flips.

With d_i the first-order gain of move i (`domain.gains`), a step draws X moves with replacement from
softmax(d / 2), makes the set of them, and corrects by Metropolis-Hastings; the reverse move is
scored on the same draws at the proposed state. Named GWG-X.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Generator, Tensor

from models.base import Cache, EnergyModel
from models.domain import Binary, draw_categorical
from samplers.base import Info, Sampler, UnsupportedModelError, metropolis, require_count
from samplers.flip import FlipState, flip_step, flips_locally, start


class GWGState(NamedTuple):
    x: Tensor  # [chains, *domain.shape]
    log_prob: Tensor  # [chains]
    logits: Tensor  # [chains, dim * moves], d / 2, -inf for a move that stays
    weights: Tensor  # [chains, dim * moves], exp(logits - their maximum)
    log_normaliser: Tensor  # [chains], logsumexp of the logits
    cache: Cache  # the model's, for evaluating a neighbour of x


@dataclass(frozen=True)
class GWG(Sampler):
    """Flip `flips` sites drawn by their gains. More than one flip needs a binary model."""

    uses_gradient = True
    flips: int = 1

    def __post_init__(self) -> None:
        require_count(flips=self.flips)

    def at(self, x: Tensor, model: EnergyModel) -> GWGState | FlipState:
        if self.flips > 1 and not isinstance(model.domain, Binary):
            raise UnsupportedModelError(self, model, "a binary model for more than one flip")
        if self.flips == 1 and flips_locally(model):
            return start(x, model)
        return self._state(x, model, *model.evaluate_with_cache(x))

    def _state(
        self, x: Tensor, model: EnergyModel, log_prob: Tensor, grad: Tensor, cache: Cache
    ) -> GWGState:
        logits = model.domain.leaving(x, model.domain.gains(x, grad).mul_(0.5))
        top = logits.amax(-1, keepdim=True)
        weights = (logits - top).exp_()
        log_normaliser = weights.sum(-1).log_().add_(top.squeeze(-1))
        return GWGState(x, log_prob, logits, weights, log_normaliser, cache)

    def step(
        self, state: GWGState | FlipState, model: EnergyModel, rng: Generator
    ) -> tuple[GWGState | FlipState, Info]:
        if isinstance(state, FlipState):
            return flip_step(state, model, rng)
        domain, x = model.domain, state.x
        index = draw_categorical(state.weights, rng, self.flips)
        y = domain.move_one(x, index)
        proposed = self._state(y, model, *model.evaluate_flipped(state.cache, x, y, index))
        forward = state.logits.gather(1, index).sum(1)
        backward = proposed.logits.gather(1, domain.reverse(x, index)).sum(1)
        log_ratio = proposed.log_prob - state.log_prob + backward - forward
        log_ratio += self.flips * (state.log_normaliser - proposed.log_normaliser)
        return metropolis(state, proposed, log_ratio, rng)
