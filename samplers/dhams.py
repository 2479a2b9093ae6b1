"""DHAMS: discrete Hamiltonian-assisted Metropolis sampling.

Y. Zhou and Z. Tan, "Discrete Hamiltonian-assisted Metropolis sampling", 2025, the plain form.

    paper       here
    s           x
    u           momentum, with standard normal law
    epsilon     persistence
    delta       step_size
    phi         correction

With u <- -epsilon u + sqrt(1 - epsilon^2) noise and z = x + delta u, all sites are drawn
independently: q(y given x, z) is proportional to exp(grad(x)'y) N(z; y, delta^2 I). The momentum
becomes u' = -u + (y - x) / delta + phi (grad(y) - grad(x)), and the reverse move is the one from y
with the momentum -u'. The chain goes to (y, u') or, if it rejects, to (x, -u). Rejections reverse
the momentum, so the chain of (x, u) is irreversible. If log pi is linear, nothing is rejected.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.distributions import normal_like
from latticework.samplers.auxiliary import (
    log_noise_ratio,
    log_proposal_ratio,
    logits,
)
from latticework.samplers.base import Info, Sampler, evaluate, metropolis, require_positive
from latticework.samplers.scale import by_chain


class MomentumState(NamedTuple):
    x: Tensor  # [chains, *domain.shape]
    log_prob: Tensor  # [chains]
    grad: Tensor  # [chains, *domain.shape]
    momentum: Tensor  # [chains, *domain.shape]
    begun: Tensor  # [chains], 0 before the first step, which draws the momentum afresh; then 1


@dataclass(frozen=True)
class DHAMS(Sampler):
    """Every site moves, driven by the gradient and a momentum that persists. On every domain.

    It leaves the law pi(x) N(u; 0, I) of the position and momentum invariant. A step costs one
    evaluation with gradient.
    """

    scale = "step_size"
    scale_by_chain = True
    uses_gradient = True
    memory = ("momentum", "begun")
    step_size: float = 0.7  # delta, in units of the domain's values, not squared
    persistence: float = 0.9  # epsilon, in [0, 1); 0 draws the momentum afresh in each step
    correction: float = 0.0  # phi; 0 ignores how the gradient changes in a step

    def __post_init__(self) -> None:
        require_positive(step_size=self.step_size)
        if not 0 <= self.persistence < 1:
            raise ValueError(f"persistence must be in [0, 1), got {self.persistence}")

    def at(self, x: Tensor, model: EnergyModel) -> MomentumState:
        return MomentumState(*evaluate(model, x), torch.zeros_like(x), x.new_zeros(len(x)))

    def refresh(self, state: MomentumState, model: EnergyModel) -> MomentumState:
        return MomentumState(*evaluate(model, state.x), state.momentum, state.begun)

    def step(
        self, state: MomentumState, model: EnergyModel, rng: Generator
    ) -> tuple[MomentumState, Info]:
        x, domain, price = state.x, model.domain, 0.5 / self.step_size**2
        delta = by_chain(self.step_size, x)
        persistence = by_chain(self.persistence * state.begun, x)
        noise = (1 - persistence.square()).sqrt() * normal_like(x, rng)
        u = noise - persistence * state.momentum
        there = logits(x, state.grad + u / delta, price, domain)
        y = domain.move_all(x, there, rng)
        proposed = evaluate(model, y)
        shift = (y - x) / delta + self.correction * (proposed.grad - state.grad)
        back = logits(y, proposed.grad + (u - shift) / delta, price, domain)
        log_ratio = proposed.log_prob - state.log_prob + log_noise_ratio(u, shift)
        log_ratio += log_proposal_ratio(x, y, there, back, domain)
        begun = torch.ones_like(state.begun)
        reversed_ = state._replace(momentum=-u, begun=begun)
        return metropolis(reversed_, MomentumState(*proposed, shift - u, begun), log_ratio, rng)
