"""EDLP: the entropic discrete Langevin proposal, guided towards flat modes.

P. Mohanty et al., "Entropy-guided sampling of flat modes in discrete spaces", 2025.

    paper       here
    theta       x
    theta_a     guide, in R^dim
    eta         variance
    alpha       step_size
    alpha_a     guide_step_size

The joint law of the state and its guide a is proportional to pi(x) exp(-|x - a|^2 / (2 eta)). Given
x, the guide is N(x, eta I), so the marginal of x is pi. The guide follows the mean of nearby
states, which pulls x towards broad modes. x is proposed by DMALA with the joint law's gradient,
grad(x) - (x - a) / eta. There are two forms:

- Gibbs-like: a is drawn from N(x, eta I), then x moves given a, corrected by Metropolis-Hastings.
- joint: x by DMALA and a by a Langevin step, a + alpha_a / 2 (x - a) / eta + sqrt(alpha_a) noise,
  are proposed together and corrected at once.
"""

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.distributions import normal_like
from latticework.models.domains import Domain
from latticework.samplers.auxiliary import (
    log_noise_ratio,
    log_proposal_ratio,
    logits,
)
from latticework.samplers.base import Info, Sampler, evaluate, metropolis, require_positive
from latticework.samplers.scale import by_chain


class GuidedState(NamedTuple):
    x: Tensor  # [chains, *domain.shape]
    log_prob: Tensor  # [chains], of x alone
    grad: Tensor  # [chains, *domain.shape], of x alone
    guide: Tensor  # [chains, *domain.shape], (a - x) / sqrt(eta), standard normal given x
    begun: Tensor  # [chains], 0 before the first step, which draws the guide; then 1


@dataclass(frozen=True)
class EDLP(Sampler):
    """DMALA on the joint law of the state and a Gaussian guide. On every domain.

    `guide_step_size` chooses the form: None is the Gibbs-like one, a number the joint one. A step
    costs one evaluation with gradient.
    """

    scale = "step_size"
    scale_by_chain = True
    uses_gradient = True
    memory = ("guide", "begun")
    step_size: float = 0.2  # alpha, in squared units of the domain's values
    variance: float = 1.0  # eta, likewise
    guide_step_size: float | None = None  # alpha_a, likewise

    def __post_init__(self) -> None:
        require_positive(step_size=self.step_size, variance=self.variance)
        if self.guide_step_size is not None:
            require_positive(guide_step_size=self.guide_step_size)

    def at(self, x: Tensor, model: EnergyModel) -> GuidedState:
        return GuidedState(*evaluate(model, x), torch.zeros_like(x), x.new_zeros(len(x)))

    def refresh(self, state: GuidedState, model: EnergyModel) -> GuidedState:
        return GuidedState(*evaluate(model, state.x), state.guide, state.begun)

    def step(
        self, state: GuidedState, model: EnergyModel, rng: Generator
    ) -> tuple[GuidedState, Info]:
        x, domain = state.x, model.domain
        guide = normal_like(x, rng)
        if self.guide_step_size is not None:
            guide = torch.where(by_chain(state.begun, x) > 0, state.guide, guide)
        state = state._replace(guide=guide, begun=torch.ones_like(state.begun))
        there = self._logits(x, state.grad, state.guide, domain)
        y = domain.move_all(x, there, rng)
        proposed = evaluate(model, y)
        # In units of sqrt(eta) around the state: the guide itself stays, its offset from x changes.
        shift = (y - x) / sqrt(self.variance)
        guide, log_guide_ratio = self._move_guide(state.guide, shift, rng)
        back = self._logits(y, proposed.grad, guide, domain)
        log_ratio = proposed.log_prob - state.log_prob + log_guide_ratio
        log_ratio += log_proposal_ratio(x, y, there, back, domain)
        return metropolis(state, GuidedState(*proposed, guide, state.begun), log_ratio, rng)

    def _logits(self, x: Tensor, grad: Tensor, guide: Tensor, domain: Domain) -> Tensor:
        """Eq. (2) of Zhang et al. (2022) with the gradient of the joint law in x."""
        drive = (grad + guide / sqrt(self.variance)) / 2
        return logits(x, drive, 0.5 / self.step_size, domain)

    def _move_guide(self, guide: Tensor, shift: Tensor, rng: Generator) -> tuple[Tensor, Tensor]:
        """The guide's offset from y, and its terms of the log ratio, `[chains]`.

        The offsets r = (a - x) / sqrt(eta) and r' = (a' - y) / sqrt(eta) have standard normal laws.
        With rate h = alpha_a / eta, the Langevin step from x is r' + shift = (1 - h / 2) r +
        sqrt(h) noise, and the one back from y is r - shift = (1 - h / 2) r' + sqrt(h) noise'.
        """
        if self.guide_step_size is None:
            return guide - shift, log_noise_ratio(guide, shift)
        rate = self.guide_step_size / self.variance
        noise = normal_like(guide, rng)
        moved = (1 - rate / 2) * guide + sqrt(rate) * noise - shift
        noise_back = (guide - shift - (1 - rate / 2) * moved) / sqrt(rate)
        # log N(r') - log N(r) + log N(noise') - log N(noise)
        return moved, log_noise_ratio(guide, guide - moved) + log_noise_ratio(
            noise, noise - noise_back
        )
