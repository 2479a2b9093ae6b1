"""Adaptation: a sampler's fields are chosen in burn-in from its acceptance, and then frozen.

A rule is a pure function of the sampler as given and of the acceptances of the blocks so far, so a
resumed run repeats it bit for bit, and nothing adapts after the last block.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, NamedTuple, get_type_hints

import numpy as np
import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.moved import RenamedMethods
from latticework.samplers.acs import ACS
from latticework.samplers.base import Sampler, require_count
from latticework.samplers.scale import RANGE, change_of_log
from latticework.samplers.tempered import Tempered
from latticework.sampling.chain import make_block
from latticework.sampling.engine import engine_for_adaptation, select_kernel
from latticework.sampling.loop_state import LoopState
from latticework.sampling.metrics import Acceptance, Reference

# Acceptance rates that are optimal on product targets as the number of sites grows: H. Sun, H. Dai
# and D. Schuurmans, "Optimal Scaling for Locally Balanced Proposals in Discrete Spaces", NeurIPS
# 2022.
OPTIMAL = {"locally_balanced": 0.574, "random_walk": 0.234}
# A rule warns if the acceptance reached is further from that aimed at.
MAX_ACCEPTANCE_ERROR = 0.05


class AdaptationWarning(UserWarning):
    """An adaptation that has not reached the acceptance it aims at."""


class AdaptationResult(NamedTuple):
    """The choices of a burn-in."""

    sampler: Sampler  # frozen
    x: Tensor  # [chains, *domain.shape], where the chains are after the last block
    fields: dict[str, Any]  # the chosen fields, as they are frozen
    trajectory: dict[str, list[float]]  # a number for each block: the acceptance, and the fields
    aimed: float | None  # the acceptance that the rule drives to, if it has one
    reached: float  # the mean acceptance of the last half of the blocks


class Adaptation(RenamedMethods, ABC):
    """A rule that chooses the fields of a sampler from the acceptances of `blocks` blocks."""

    old_names: ClassVar = {
        "aim": "aimed_acceptance",
        "chosen": "field_names",
        "frozen": "freeze",
    }
    steps: int  # steps of a block

    @abstractmethod
    def blocks(self, sampler: Sampler) -> int:
        """The number of blocks. Raises ValueError if the rule does not support the sampler."""

    @abstractmethod
    def field_names(self, sampler: Sampler) -> tuple[str, ...]:
        """The names of the fields that the rule chooses."""

    def aimed_acceptance(self, sampler: Sampler) -> float | None:
        """The acceptance that the last blocks should have; None if there is no such number."""
        return None

    @abstractmethod
    def trial(self, sampler: Sampler, model: EnergyModel, acceptances: Sequence[float]) -> Sampler:
        """The sampler of the block that follows `acceptances`, one of each block before."""

    @abstractmethod
    def freeze(self, sampler: Sampler, model: EnergyModel, acceptances: Sequence[float]) -> Sampler:
        """The sampler after all blocks."""


@dataclass(frozen=True)
class AcceptanceControl(Adaptation):
    """Drive the mean acceptance to `target` by the sampler's scale, the field `Sampler.scale`.

    After block n the logarithm of the scale moves by 2 n^-0.6 (acceptance - target), from the
    sampler's own value (Robbins and Monro 1951). The frozen scale is the geometric mean over the
    last half of the blocks (Polyak and Juditsky 1992). A scale that counts sites keeps a real
    value between 1 and the number of sites, and is rounded where it is used. Any other scale stays
    within a factor of `RANGE` of the sampler's own, because on some targets no scale brings the
    acceptance down to `target`.

    `target` is an acceptance, a name of OPTIMAL, or None for the optimum of the sampler's kind.
    """

    target: float | str | None = None
    rounds: int = 60  # blocks
    steps: int = 20

    def __post_init__(self) -> None:
        require_count(rounds=self.rounds, steps=self.steps)
        if self.target is None or isinstance(self.target, str) and self.target in OPTIMAL:
            return
        if not isinstance(self.target, Real):
            raise ValueError(
                f"target must be a number or one of {', '.join(OPTIMAL)}, got {self.target!r}"
            )
        if not 0 < self.target < 1:
            raise ValueError(f"target must be between 0 and 1, got {self.target}")

    def blocks(self, sampler: Sampler) -> int:
        if sampler.scale is None:
            raise ValueError(
                f"{type(sampler).__name__} has no scale that its acceptance could choose; "
                "leave adapt out, or choose a sampler with one"
            )
        if not math.isfinite(value := getattr(sampler, sampler.scale)):
            raise ValueError(f"adaptation starts from a finite {sampler.scale}, got {value}")
        return self.rounds

    def field_names(self, sampler: Sampler) -> tuple[str, ...]:
        return (str(sampler.scale),)

    def trial(self, sampler: Sampler, model: EnergyModel, acceptances: Sequence[float]) -> Sampler:
        return self._with_log_scale(sampler, model, self._logs(sampler, model, acceptances)[-1])

    def freeze(self, sampler: Sampler, model: EnergyModel, acceptances: Sequence[float]) -> Sampler:
        logs = self._logs(sampler, model, acceptances)[1:]
        late = logs[len(logs) // 2 :]
        return self._with_log_scale(sampler, model, sum(late) / len(late))

    def aimed_acceptance(self, sampler: Sampler) -> float:
        target = sampler.target_acceptance if self.target is None else self.target
        return OPTIMAL[target] if isinstance(target, str) else float(target)

    def _logs(
        self, sampler: Sampler, model: EnergyModel, acceptances: Sequence[float]
    ) -> list[float]:
        """Logarithms of the scale: the sampler's own, then that after each block."""
        goal, first = self.aimed_acceptance(sampler), math.log(getattr(sampler, str(sampler.scale)))
        low, high = first - math.log(RANGE), first + math.log(RANGE)
        if _counts_sites(sampler):
            low, high = 0.0, math.log(model.domain.dim)
        logs = [first]
        for number, acceptance in enumerate(acceptances, 1):
            value = logs[-1] + change_of_log(number, acceptance, goal)
            logs.append(min(max(value, low), high))
        return logs

    def _with_log_scale(self, sampler: Sampler, model: EnergyModel, value: float) -> Sampler:
        """The sampler with this logarithm of its scale."""
        scale = math.exp(value)
        chosen = round(scale) if _counts_sites(sampler) else scale
        return replace(sampler, **{str(sampler.scale): chosen})  # type: ignore[type-var]


def by_level(rule: Adaptation, sampler: Sampler) -> Tempered | None:
    """A tempered sampler that drives its kernel's acceptance at each level to the aim of `rule`.

    It does so in the rounds that learn its schedule; the blocks of the rule are not run. None if
    `sampler` is not tempered, if its kernel cannot have a scale for each level, or if the rule is
    not AcceptanceControl.
    """
    if not (isinstance(rule, AcceptanceControl) and isinstance(sampler, Tempered)):
        return None
    if not sampler.inner.scale_by_chain:
        return None
    return replace(sampler, acceptance=rule.aimed_acceptance(sampler.inner))


def _counts_sites(sampler: Sampler) -> bool:
    """Whether the scale is a whole number, by its annotation: `DMALA(1)` has a real one."""
    return get_type_hints(type(sampler))[str(sampler.scale)] is int


@dataclass(eq=False)
class BurnIn(LoopState):
    """The numbers that blocks change."""

    state: Any  # the sampler's state
    rng: Generator
    acceptances: list[float]  # one of each block


def run_adaptation(
    rule: Adaptation,
    sampler: Sampler,
    model: EnergyModel,
    x: Tensor,
    rng: Generator,
    engine: str = "eager",
    resumable: Callable[..., Iterable[int]] = lambda memory, total: range(total),
) -> AdaptationResult:
    """Run the blocks of `rule` from `x` `[chains, *shape]`, and freeze the sampler.

    `resumable(memory, total=blocks)` yields once for each block. Warns (AdaptationWarning) if the
    acceptance that was reached is further than `MAX_ACCEPTANCE_ERROR` from that aimed at. Raises
    ValueError if the rule does not support the sampler or `x` is no start.
    """
    blocks, metric = rule.blocks(sampler), Acceptance()

    def kernel(acceptances: Sequence[float]) -> Sampler:
        return select_kernel(
            rule.trial(sampler, model, acceptances), model, engine_for_adaptation(engine), [metric]
        )[0]

    with torch.no_grad():
        memory = BurnIn(kernel([]).init(x, model), rng, [])
        for _ in resumable(memory, total=blocks):
            current = kernel(memory.acceptances)
            state = current.refresh(memory.state, model)
            carry = metric.init(model, state, Reference())
            advance = make_block(current, model, memory.rng, rule.steps, [metric])
            memory.state, (carry,) = advance(state, [carry])
            memory.acceptances.append(float(metric.read(carry)["acceptance"]))
    frozen = rule.freeze(sampler, model, memory.acceptances)
    fields = {name: getattr(frozen, name) for name in rule.field_names(sampler)}
    trajectory = {"acceptance": memory.acceptances}
    trials = [rule.trial(sampler, model, memory.acceptances[:n]) for n in range(blocks)]
    for name in fields:
        values = [getattr(trial, name) for trial in trials]
        if all(isinstance(value, int | float) for value in values):
            trajectory[name] = values
    late = memory.acceptances[blocks // 2 :]
    reached, aimed = sum(late) / len(late), rule.aimed_acceptance(sampler)
    if aimed is not None and abs(reached - aimed) > MAX_ACCEPTANCE_ERROR:
        chosen = ", ".join(f"{name}={value:.4g}" for name, value in fields.items())
        warnings.warn(
            f"the adaptation reached an acceptance of {reached:.3f} and aimed at {aimed:.3f} "
            f"({chosen}); choose the scale by a search, or adapt for more blocks",
            AdaptationWarning,
            3,
        )
    return AdaptationResult(frozen, memory.state.x, fields, trajectory, aimed, reached)


@dataclass(frozen=True)
class CycleControl(Adaptation):
    """Choose the fields of `ACS` in burn-in; each block measures one step size with one balance.

    P. Pynadath, R. Bhattacharya, A. Hariharan and R. Zhang, "Gradient-based Discrete Sampling with
    Automatic Cyclical Scheduling", NeurIPS 2024. Step sizes are tried on a grid, from the sampler's
    own largest step downwards and from its smallest one upwards.

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

    def field_names(self, sampler: Sampler) -> tuple[str, ...]:
        return ("largest_step", "smallest_step", "largest_balance", "balances")

    def trial(self, sampler: Sampler, model: EnergyModel, acceptances: Sequence[float]) -> ACS:
        cycle, number = self._cyclical(sampler), len(acceptances)
        grid, balances = self._grid(cycle), self._balances(cycle)
        if number < self.sizes:
            return constant(cycle, grid[-1 - number], cycle.largest_balance)
        if number < 2 * self.sizes:
            return constant(cycle, grid[number - self.sizes], 0.5)
        step, balance = divmod(number - 2 * self.sizes, self.balances)
        sizes = self._with_bounds(cycle, acceptances).cycle_of_steps()
        return constant(cycle, sizes[step], balances[balance])

    def freeze(self, sampler: Sampler, model: EnergyModel, acceptances: Sequence[float]) -> ACS:
        cycle = self._cyclical(sampler)
        by_step = np.reshape(acceptances[2 * self.sizes :], (cycle.period, self.balances))
        best = [self._balances(cycle)[choice] for choice in by_step.argmax(1)]
        return replace(self._with_bounds(cycle, acceptances), balances=best)

    def _with_bounds(self, sampler: ACS, acceptances: Sequence[float]) -> ACS:
        """The sampler with the bounds of its steps that the first two phases have found."""
        grid = self._grid(sampler)
        down, up = acceptances[: self.sizes], acceptances[self.sizes : 2 * self.sizes]
        shrunk = next((n for n, a in enumerate(down) if a >= self.target), self.sizes - 1)
        grown = next((n for n, a in enumerate(up) if a < self.target), self.sizes)
        bounds = grid[-1 - shrunk], grid[max(grown - 1, 0)]
        return replace(sampler, largest_step=max(bounds), smallest_step=min(bounds))

    def _grid(self, sampler: ACS) -> list[float]:
        return np.geomspace(sampler.smallest_step, sampler.largest_step, self.sizes).tolist()

    def _balances(self, sampler: ACS) -> list[float]:
        return np.linspace(0.5, sampler.largest_balance, self.balances).tolist()

    def _cyclical(self, sampler: Sampler) -> ACS:
        if not isinstance(sampler, ACS):
            raise ValueError(
                f"CycleControl chooses the cycle of ACS, got {type(sampler).__name__}; use "
                "adapt=acceptance for a sampler with a scale"
            )
        return sampler


def constant(sampler: ACS, step: float, balance: float) -> ACS:
    """The sampler with one step size and one balance for all steps."""
    bounds = {"largest_step": step, "smallest_step": step, "largest_balance": balance}
    return replace(sampler, **bounds, period=1, balances=[balance])
