"""Relaxed MALA: Langevin steps on a continuous relaxation, thresholded to discrete states.

The baseline R-MALA of W. Grathwohl, K. Swersky, M. Hashemi, D. Duvenaud and C. Maddison, "Oops I
took a gradient", ICML 2021, on the continuous parameterisation of J. Han et al., "Stein variational
inference for discrete distributions", AISTATS 2020 (see also samplers/svgd.py).

    paper               here
    z                   position, in R^dim
    Gamma(z)            threshold(z): `high` where z > 0, else `low`
    p0(z)               standard normal density; Gamma splits it into 2^dim parts of equal mass
    p_c(z)              p0(z) pi(Gamma(z)), the piecewise continuous target
    rho(z)              p0(z) pi(soften(z)), its smooth surrogate
    step_size           alpha in y = z + alpha / 2 grad log rho(z) + sqrt(alpha) noise

pi(soften(z)) is the model's formula at the point low + (high - low) sigmoid(z / temperature).
"""

from dataclasses import dataclass
from math import sqrt
from typing import Literal, NamedTuple, cast

import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.distributions import normal_like
from latticework.models.domains import Binary
from latticework.samplers.base import (
    Info,
    Sampler,
    metropolis,
    own_generator,
    reject_impossible,
    require_domain,
    require_positive,
)


def binary_domain(sampler: Sampler, model: EnergyModel) -> Binary:
    """The model's domain; UnsupportedModelError unless it is Binary."""
    require_domain(sampler, model, Binary)
    return cast(Binary, model.domain)


def threshold(position: Tensor, domain: Binary) -> Tensor:
    """Gamma(z), `[chains, dim]`."""
    return torch.where(position > 0, domain.high, domain.low).to(position)


def lift(x: Tensor, domain: Binary) -> Tensor:
    """A position with threshold(position) = x, `[chains, dim]`; |z| is half-normal, as under p0.

    `at` has no generator, so the magnitudes are a fixed table of pseudo-random numbers. They
    differ between chains: otherwise particles that start at the same x would never separate.
    """
    magnitude = torch.empty_like(x).normal_(generator=own_generator(x.device)).abs_()
    return torch.where(x == domain.high, magnitude, -magnitude)


def surrogate(
    position: Tensor, temperature: float, model: EnergyModel, domain: Binary
) -> tuple[Tensor, Tensor]:
    """The model's log-probability at soften(z), `[chains]`, and grad log rho(z), `[chains, dim]`.

    The chain rule is written out to make use of a model's closed-form gradient.
    """
    width = domain.high - domain.low
    weight = (position / temperature).sigmoid()
    log_prob, grad = model.log_prob_and_grad(domain.low + width * weight)
    slope = weight * (1 - weight) * (width / temperature)
    return log_prob, grad * slope - position


class RelaxedState(NamedTuple):
    """A continuous position, its thresholded state, and the values that the next step needs."""

    x: Tensor  # [chains, dim], threshold(position)
    position: Tensor  # [chains, dim]
    log_density: Tensor  # [chains], log of the density that the kernel leaves invariant
    score: Tensor  # [chains, dim], grad log rho(position)


@dataclass(frozen=True)
class RMALA(Sampler):
    """MALA with the gradient of the surrogate rho. Binary domains only.

    `accept` chooses the density in the Metropolis-Hastings ratio. The kernel leaves it invariant.

    - "target" (Grathwohl et al.): p_c, under which x = Gamma(z) has distribution pi. A step costs
      one evaluation with gradient (of rho) and one evaluation (at x).
    - "relaxation": rho, plain MALA. A step costs one evaluation with gradient. The distribution of
      x is then *biased*: rho's mass of each orthant, which is not pi.
    """

    scale = "step_size"
    uses_gradient = True
    memory = ("position", "log_density", "score")
    stationary_start = False  # the magnitudes |z| start from a table (`lift`)
    step_size: float = 0.3  # alpha, in squared units of the position
    temperature: float = 0.5  # a smaller one makes the sigmoid steeper, and closer to the threshold
    accept: Literal["target", "relaxation"] = "target"

    def __post_init__(self) -> None:
        require_positive(step_size=self.step_size, temperature=self.temperature)
        if self.accept not in ("target", "relaxation"):
            raise ValueError(f"accept must be 'target' or 'relaxation', got {self.accept!r}")

    @property
    def exact(self) -> bool:  # type: ignore[override]
        return self.accept == "target"

    def at(self, x: Tensor, model: EnergyModel) -> RelaxedState:
        """The state at a position that thresholds to `x`."""
        return self.at_position(lift(x, binary_domain(self, model)), model)

    def refresh(self, state: RelaxedState, model: EnergyModel) -> RelaxedState:
        return self.at_position(state.position, model)

    def at_position(self, position: Tensor, model: EnergyModel) -> RelaxedState:
        """The state at a continuous position, `[chains, dim]`."""
        domain = binary_domain(self, model)
        x = threshold(position, domain)
        log_prob, score = surrogate(position, self.temperature, model, domain)
        if self.accept == "target":
            log_prob = model.log_prob(x)
        log_density = log_prob - position.square().sum(-1) / 2
        return RelaxedState(x, position, log_density, score)

    def step(
        self, state: RelaxedState, model: EnergyModel, rng: Generator
    ) -> tuple[RelaxedState, Info]:
        noise = normal_like(state.position, rng)
        y = state.position + self.step_size / 2 * state.score + sqrt(self.step_size) * noise
        proposed = self.at_position(y, model)
        log_ratio = proposed.log_density - state.log_density
        log_ratio += self._log_proposal(proposed, state) + noise.square().sum(-1) / 2
        log_ratio = reject_impossible(log_ratio, proposed.log_density)
        return metropolis(state, proposed, log_ratio, rng)

    def _log_proposal(self, start: RelaxedState, end: RelaxedState) -> Tensor:
        """Logarithm of q(end given start) up to a constant, `[chains]`."""
        mean = start.position + self.step_size / 2 * start.score
        return (end.position - mean).square().sum(-1) / (-2 * self.step_size)
