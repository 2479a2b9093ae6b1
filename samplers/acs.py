"""Automatic cyclical sampler (ACS): DMALA whose step size and balance follow a cycle.

P. Pynadath, R. Bhattacharya, A. Hariharan and R. Zhang, "Gradient-based Discrete Sampling with
Automatic Cyclical Scheduling", NeurIPS 2024.

Step k of a cycle of K steps proposes all sites at once and independently, with

    logits    b_k d - |move|^2 / (2 a_k)                            d the first-order gain of a move
    step      a_k = max(a_min, a_max (cos(pi k / K) + 1) / 2)
    balance   b_k = 1/2 + (b_max - 1/2) (cos(pi k / K) + 1) / 2     or tuned, for each k

and corrects by Metropolis-Hastings. Large steps with b near 1 look for modes; small steps with
b = 1/2 explore them. Each step leaves the target invariant, and so does the cycle.
`sampling.adaptation` tunes a_max, a_min and b_k before anything is measured.
"""

from dataclasses import dataclass
from math import cos, pi
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.domains import Domain
from latticework.samplers.base import (
    Info,
    Sampler,
    metropolis,
    on_device,
    require_count,
    require_positive,
)


class CycleState(NamedTuple):
    x: Tensor  # [chains, *domain.shape]
    log_prob: Tensor  # [chains]
    gains: Tensor  # [chains, *moves]
    phase: Tensor  # [1], the k of the next step, the same for all chains


@dataclass(frozen=True)
class ACS(Sampler):
    """A step for each k of the cycle in turn, on every domain.

    `balances` lists b_k for all k; without it they follow from `largest_balance`.
    """

    uses_gradient = True
    memory = ("phase",)
    largest_step: float = 5.0  # a_max, in squared units of the domain's values
    smallest_step: float = 0.05  # a_min
    period: int = 8  # K, steps of a cycle
    largest_balance: float = 0.95  # b_max
    balances: list[float] | None = None  # b_k

    def __post_init__(self) -> None:
        require_positive(largest_step=self.largest_step, smallest_step=self.smallest_step)
        require_count(period=self.period)
        if self.largest_step < self.smallest_step:
            raise ValueError(
                f"largest_step must be at least smallest_step, got {self.largest_step} and "
                f"{self.smallest_step}"
            )
        if self.balances is not None and len(self.balances) != self.period:
            raise ValueError(
                f"balances must list one number for each of {self.period} steps, got "
                f"{len(self.balances)}"
            )
        for balance in (self.largest_balance, *self.cycle_of_balances()):
            if not 0.5 <= balance <= 1:
                raise ValueError(f"a balance must be between 0.5 and 1, got {balance}")

    def cycle_of_steps(self) -> tuple[float, ...]:
        """a_k for k = 0 .. period - 1."""
        return tuple(max(self.smallest_step, self.largest_step * c) for c in self._cosines())

    def cycle_of_balances(self) -> tuple[float, ...]:
        """b_k for k = 0 .. period - 1."""
        if self.balances is not None:
            return tuple(self.balances)
        return tuple(0.5 + (self.largest_balance - 0.5) * c for c in self._cosines())

    def _cosines(self) -> list[float]:
        return [(cos(pi * k / self.period) + 1) / 2 for k in range(self.period)]

    def at(self, x: Tensor, model: EnergyModel) -> CycleState:
        return self._at(x, x.new_zeros(1, dtype=torch.long), model)

    def _at(self, x: Tensor, phase: Tensor, model: EnergyModel) -> CycleState:
        log_prob, grad = model.log_prob_and_grad(x)
        return CycleState(x, log_prob, model.domain.gains(x, grad), phase)

    def refresh(self, state: CycleState, model: EnergyModel) -> CycleState:
        return self._at(state.x, state.phase, model)

    def relocate(self, x: Tensor, state: CycleState, model: EnergyModel) -> CycleState:
        return self._at(x, state.phase, model)

    def step(
        self, state: CycleState, model: EnergyModel, rng: Generator
    ) -> tuple[CycleState, Info]:
        domain, x = model.domain, state.x
        logits = self._logits(state, domain)
        y = domain.move_all(x, logits, rng)
        proposed = self._at(y, state.phase, model)
        back = self._logits(proposed, domain)
        log_ratio = proposed.log_prob - state.log_prob
        log_ratio += domain.log_weight_ratio(x, y, logits, back)
        log_ratio += domain.log_normaliser(logits) - domain.log_normaliser(back)
        state, info = metropolis(state, proposed, log_ratio, rng)
        return state._replace(phase=(state.phase + 1) % self.period), info

    def _logits(self, state: CycleState, domain: Domain) -> Tensor:
        prices = tuple(0.5 / step for step in self.cycle_of_steps())
        balance, price = (
            on_device(numbers, state.x.device, state.x.dtype).index_select(0, state.phase)
            for numbers in (self.cycle_of_balances(), prices)
        )
        return state.gains * balance - domain.distances(state.x) * price
