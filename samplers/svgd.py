"""Discrete Stein variational gradient descent: DSVGD.

J. Han, F. Ding, X. Liu, L. Torresani, J. Peng and Q. Liu, "Stein variational inference for discrete
distributions", AISTATS 2020: gradient-free SVGD (Han & Liu, ICML 2018) on the continuous
parameterisation that samplers/relaxed.py writes down.

    paper                       here
    z_j, j = 1..n               position, one particle a chain
    p_c(z), rho(z)              as in samplers/relaxed.py
    w(z) = rho(z) / p_c(z)      softmax of log_weight over the particles
    k(z, z')                    exp(-|z - z'|^2 / h), h = bandwidth
    epsilon                     step_size

    z_i <- z_i + epsilon sum_j w_j [grad log rho(z_j) k(z_j, z_i) + grad_{z_j} k(z_j, z_i)] / W,
    W = sum_j w_j

The discrete particles are x_j = Gamma(z_j).
"""

from dataclasses import dataclass
from math import log
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.samplers.base import Info, Sampler, require_positive
from latticework.samplers.relaxed import binary_domain, lift, surrogate, threshold


class ParticleState(NamedTuple):
    """Interacting particles, one for each chain."""

    x: Tensor  # [chains, dim], threshold(position)
    position: Tensor  # [chains, dim]


def stein_direction(
    position: Tensor, score: Tensor, weight: Tensor, bandwidth: float | None
) -> Tensor:
    """The weighted SVGD direction at every particle, `[chains, dim]`.

    `score` is grad log rho at the particles; `weight` `[chains]` sums to 1. Uses
    grad_{z_j} k(z_j, z_i) = 2 / h (z_i - z_j) k(z_j, z_i).
    """
    squared = torch.cdist(position, position).square()
    h = median_bandwidth(squared) if bandwidth is None else bandwidth
    kernel = (squared / -h).exp() * weight  # [i, j]
    repulsion = position * kernel.sum(-1, keepdim=True) - kernel @ position
    return kernel @ score + repulsion * (2 / h)


def median_bandwidth(squared: Tensor) -> Tensor:
    """Median squared distance between two particles / log(n + 1), a scalar.

    `squared` `[n, n]` holds all squared distances. The zeros on its diagonal are its smallest
    entries and do not count. A floor far below the distances under p0 avoids division by zero when
    all particles coincide.
    """
    n = len(squared)
    median = squared.flatten().kthvalue(n + n * (n - 1) // 2).values
    return (median / log(n + 1)).clamp(min=1e-3)


@dataclass(frozen=True)
class DiscreteSVGD(Sampler):
    """Particles moved together towards the target. Binary domains only.

    This is not a Markov chain that leaves pi invariant. Moves are deterministic (the generator is
    not used), and particles interact across chains. They converge to a fixed set of points, and the
    number of particles limits its accuracy. A single particle climbs to a mode of the surrogate.

    A step costs two evaluations: the model and its gradient at the softened position, and the model
    at the thresholded one.
    """

    exact = False
    interacting = True
    memory = ("position",)
    uses_gradient = True
    step_size: float = 0.2  # epsilon, in units of the position
    temperature: float = 1.0  # temperature of the surrogate's sigmoid
    bandwidth: float | None = None  # h; None is the median heuristic, med |z - z'|^2 / log(n + 1)

    def __post_init__(self) -> None:
        require_positive(step_size=self.step_size, temperature=self.temperature)
        if self.bandwidth is not None:
            require_positive(bandwidth=self.bandwidth)

    def at(self, x: Tensor, model: EnergyModel) -> ParticleState:
        """Particles that threshold to `x`."""
        return ParticleState(x, lift(x, binary_domain(self, model)))

    def refresh(self, state: ParticleState, model: EnergyModel) -> ParticleState:
        return state

    def step(
        self, state: ParticleState, model: EnergyModel, rng: Generator
    ) -> tuple[ParticleState, Info]:
        domain, z = binary_domain(self, model), state.position
        soft_log_prob, score = surrogate(z, self.temperature, model, domain)
        # p0 cancels in rho / p_c.
        log_weight = soft_log_prob - model.log_prob(state.x)
        weight = log_weight.softmax(0).to(z.dtype)  # a model may compute in another precision
        direction = stein_direction(z, score, weight, self.bandwidth)
        position = z + self.step_size * direction
        accept_prob = torch.ones_like(log_weight)
        return ParticleState(threshold(position, domain), position), Info(accept_prob)
