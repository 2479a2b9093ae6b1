"""Task: the exact bias of the Langevin proposal with a noisy gradient (Theorem 6.1).

R. Zhang, X. Liu and Q. Liu, "A Langevin-like Sampler for Discrete Distributions", ICML 2022.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from latticework.data.base import Dataset
from latticework.experiments.records.estimates import KeyNumber
from latticework.experiments.records.record import Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures import stationary
from latticework.models.base import EnergyModel
from latticework.models.domains import Binary
from latticework.samplers.base import Sampler


class Shifted(EnergyModel):
    """`model` with `shift` added to every entry of its gradient: one outcome of the noise."""

    def __init__(self, model: EnergyModel, shift: float) -> None:
        super().__init__()
        self.model, self.domain, self.shift = model, model.domain, shift

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.model(x), self.gradient(x)

    def gradient(self, x: Tensor) -> Tensor:
        return self.model.gradient(x) + self.shift


def stochastic_proposal(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    step_sizes: Sequence[float],
    deviations: Sequence[float],
    outcomes: Sequence[float],
    probabilities: Sequence[float],
) -> None:
    """Log the largest |E[q-hat_i] - q_i|_1 over all states and sites, for each alpha and sigma.

    The gradient's noise is sigma * `outcomes[k]` with probability `probabilities[k]`, so the
    expectation is a finite sum. L is the largest gradient entry over all states and outcomes. The
    column `theorem` is 2 sigma exp(-1 / (2 alpha) + L). Appendix G omits the factor 1/2 of the
    gradient in Eq. (2); with it, the same argument gives sigma exp(-1 / (2 alpha) + L / 2), the
    column `with_half`. Raises ValueError unless the domain is {0, 1}^dim and the outcomes have mean
    0 and variance 1.
    """
    if not (isinstance(model.domain, Binary) and model.domain.is_unit):
        raise ValueError(f"Theorem 6.1 is about {{0, 1}}^dim, got {model.domain}")
    weights = torch.tensor(probabilities, dtype=torch.float64)
    noise = torch.tensor(outcomes, dtype=torch.float64)
    moments = [float(weights @ noise**power) for power in (0, 1, 2)]
    if any(abs(m - e) > 1e-9 for m, e in zip(moments, (1, 0, 1), strict=True)):
        raise ValueError(f"noise must have total 1, mean 0 and variance 1, got {moments}")
    exact = stationary.in_double(model)
    states = exact.domain.enumerate().double()
    grads = exact.gradient(states)
    rows = [(alpha, sigma) for alpha in step_sizes for sigma in deviations]
    for row, (alpha, sigma) in enumerate(rows):
        kernel = replace(sampler, step_size=alpha)  # type: ignore[type-var]

        def flips(shift: float, kernel: Sampler = kernel) -> Tensor:
            return kernel.at(states, Shifted(exact, shift)).logits.sigmoid()

        expected = sum(p * flips(float(sigma * z)) for p, z in zip(weights, noise, strict=True))
        limit = max(float((grads + sigma * z).abs().max()) for z in (0.0, *noise))
        run.log(
            row,
            step_size=alpha,
            sigma=sigma,
            bias=2 * (expected - flips(0.0)).abs().max(),  # both values of the site
            theorem=2 * sigma * math.exp(-1 / (2 * alpha) + limit),
            with_half=sigma * math.exp(-1 / (2 * alpha) + limit / 2),
            largest_gradient=limit,
        )


def headline(record: Record) -> list[KeyNumber]:
    """The largest bias, and the largest share of its bound; Theorem 6.1 says at most 1."""
    rows = record.metrics
    return [
        KeyNumber("largest_bias", float(rows["bias"].max())),
        KeyNumber("largest_share_of_the_bound", float((rows["bias"] / rows["theorem"]).max())),
    ]
