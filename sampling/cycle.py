"""The burn-in of the automatic cyclical sampler: its largest and smallest step, and its balances.

P. Pynadath, R. Bhattacharya, A. Hariharan and R. Zhang, "Gradient-based Discrete Sampling with
Automatic Cyclical Scheduling", NeurIPS 2024. Step sizes are tried on a grid, from the sampler's own
largest step downwards and from its smallest one upwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from latticework.models.base import EnergyModel
from latticework.samplers.acs import ACS
from latticework.samplers.base import Sampler, require_count
from latticework.sampling.adaptation import Adaptation


@dataclass(frozen=True)
class CycleControl(Adaptation):
    """Choose the fields of `ACS` in burn-in; each block measures one step size with one balance.

    1. With balance b_max, the step size shrinks from `largest_step` until the acceptance is at
       least `target`. This is the largest step of the cycle.
    2. With balance 1/2, the step size grows from `smallest_step` as long as the acceptance is at
       least `target`. This is the smallest step (the two are exchanged if it is the larger one).
    3. For each step size of that cycle, the balance with the highest acceptance is chosen.
    """

    target: float = 0.5
    sizes: int = 12  # step sizes on the grid
    balances: int = 6  # from 1/2 to b_max
    steps: int = 20

    def __post_init__(self) -> None:
        require_count(sizes=self.sizes, balances=self.balances, steps=self.steps)
        if not 0 < self.target < 1:
            raise ValueError(f"target must be between 0 and 1, got {self.target}")

    def blocks(self, sampler: Sampler) -> int:
        return 2 * self.sizes + self._cyclical(sampler).period * self.balances

    def chosen(self, sampler: Sampler) -> tuple[str, ...]:
        return ("largest_step", "smallest_step", "largest_balance", "balances")

    def trial(self, sampler: Sampler, model: EnergyModel, acceptances: Sequence[float]) -> ACS:
        cycle, number = self._cyclical(sampler), len(acceptances)
        grid, balances = self._grid(cycle), self._balances(cycle)
        if number < self.sizes:
            return constant(cycle, grid[-1 - number], cycle.largest_balance)
        if number < 2 * self.sizes:
            return constant(cycle, grid[number - self.sizes], 0.5)
        step, balance = divmod(number - 2 * self.sizes, self.balances)
        sizes = self._bounded(cycle, acceptances).cycle_of_steps()
        return constant(cycle, sizes[step], balances[balance])

    def frozen(self, sampler: Sampler, model: EnergyModel, acceptances: Sequence[float]) -> ACS:
        cycle = self._cyclical(sampler)
        found = np.reshape(acceptances[2 * self.sizes :], (cycle.period, self.balances))
        best = [self._balances(cycle)[choice] for choice in found.argmax(1)]
        return replace(self._bounded(cycle, acceptances), balances=best)

    def _bounded(self, sampler: ACS, acceptances: Sequence[float]) -> ACS:
        """The sampler with the bounds of its steps that the first two phases have found."""
        grid = self._grid(sampler)
        down, up = acceptances[: self.sizes], acceptances[self.sizes : 2 * self.sizes]
        shrunk = next((n for n, a in enumerate(down) if a >= self.target), self.sizes - 1)
        grown = next((n for n, a in enumerate(up) if a < self.target), self.sizes)
        bounds = grid[-1 - shrunk], grid[max(grown - 1, 0)]
        return replace(sampler, largest_step=max(bounds), smallest_step=min(bounds))

    def _grid(self, sampler: ACS) -> list[float]:
        return list(
            map(float, np.geomspace(sampler.smallest_step, sampler.largest_step, self.sizes))
        )

    def _balances(self, sampler: ACS) -> list[float]:
        return list(map(float, np.linspace(0.5, sampler.largest_balance, self.balances)))

    def _cyclical(self, sampler: Sampler) -> ACS:
        if not isinstance(sampler, ACS):
            raise ValueError(
                f"CycleControl chooses the cycle of ACS, got {type(sampler).__name__}; use "
                "adapt=acceptance for a sampler with a scale"
            )
        return sampler


def constant(sampler: ACS, step: float, balance: float) -> ACS:
    """The sampler with one step size and one balance for all steps."""
    return replace(
        sampler,
        largest_step=step,
        smallest_step=step,
        period=1,
        largest_balance=balance,
        balances=[balance],
    )
