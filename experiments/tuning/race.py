"""Samplers compared on one target: each tuned and measured under an equal budget.

Each sampler may spend one half of the budget on the choice of its fields (conf/task/tune.yaml, by
Optuna's TPE) and the other half on fresh chains with the chosen fields, one run a seed. Intervals
are t-intervals of the logarithm over seeds. An ESS says nothing of chains that have not met, so a
sampler whose R-hat is above `MIXED` has no rank. Nor does it say how far draws are from the target,
so a sampler that does not leave the target invariant has none either.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from latticework.experiments.config.errors import in_a_line
from latticework.experiments.results.ranking import MIXED, Interval, geometric, ranks
from latticework.experiments.tuning.course import (
    FEWEST,
    WARM_UP,
    Allowance,
    Course,
    Unit,
    fitted,
    quality,
)
from latticework.experiments.tuning.space import Space, replaced
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler, require_count

BIASED = "does not leave the target invariant"


@dataclass(frozen=True)
class Lap:
    """One run of a sampler with one seed."""

    seed: int
    steps: int
    ess: float  # of the worst quantity; 0 if one never changed
    seconds: float
    evaluations: float  # of all chains

    def rate(self, unit: Unit) -> float:
        """Effective samples a second, or an evaluation."""
        return self.ess / (self.seconds if unit == "seconds" else self.evaluations)


@dataclass(frozen=True)
class Entrant:
    """A sampler with its chosen fields, and its runs; `note` says why it has none, or no rank."""

    name: str
    sampler: Sampler
    fields: dict[str, Any]
    laps: list[Lap]
    r_hat: float = math.nan  # of the worst quantity, over the chains of all seeds
    note: str = ""

    @property
    def mixed(self) -> bool:
        return bool(self.laps) and self.r_hat <= MIXED and all(lap.ess > 0 for lap in self.laps)

    @property
    def rankable(self) -> bool:
        return self.mixed and self.sampler.exact

    def interval(self, unit: Unit) -> Interval:
        """The mean rate and its 95 % interval over seeds; geometric."""
        return geometric(lap.rate(unit) for lap in self.laps)


@dataclass(frozen=True)
class Race:
    """The target, and what each sampler may spend in how many chains and with which seeds.

    Raises ValueError with fewer than two seeds, which give no interval, and without chains or
    trials.
    """

    model: EnergyModel
    budget: Allowance
    chains: int = 8
    seeds: Sequence[int] = (0, 1, 2, 3)
    trials: int = 8

    def __post_init__(self) -> None:
        require_count(chains=self.chains, trials=self.trials)
        if len(self.seeds) < 2:
            raise ValueError(f"a race needs two seeds or more for intervals, got {len(self.seeds)}")

    def run(
        self, samplers: dict[str, Sampler], spaces: dict[str, Space], tell: Callable[[str], None]
    ) -> list[Entrant]:
        """Tune and measure each sampler in turn; `tell` hears about the progress.

        A sampler that fails on the target has no laps; its note says why.
        """
        found = []
        for name, sampler in samplers.items():
            try:
                entrant = self.enter(name, sampler, spaces.get(name, {}))
            except Exception as error:  # noqa: BLE001 - whatever a user's sampler raises
                entrant = Entrant(name, sampler, {}, [], note=in_a_line(error))
            told = entrant.note or ", ".join(f"{k}={v}" for k, v in entrant.fields.items())
            tell(f"{name}: {told or 'nothing to tune'}")
            found.append(entrant)
        return found

    def enter(self, name: str, sampler: Sampler, space: Space) -> Entrant:
        """Choose the fields of one sampler, then measure it with fresh chains."""
        course = Course(self.model, self.chains)
        sampler, space = fitted(sampler, space, self.model)
        fields: dict[str, Any] = {}
        if space:
            half, seed = [self.budget.part(0.5)], (self.seeds[0] - 1) % 2**31  # no seed of the laps
            fields, _ = course.tuned(name, sampler, space, half, self.trials, seed)
        chosen = replaced(sampler, fields)
        steps = course.steps(chosen, [self.budget.part(0.5 / len(self.seeds))])
        if steps * (1 - WARM_UP) < FEWEST:
            note = f"the budget allows {steps} steps a run, too few to judge"
            return Entrant(name, chosen, fields, [], note=note)
        evaluations = course.cost(chosen, "evaluations") * self.chains
        runs = [course.measured(chosen, steps, seed) for seed in self.seeds]
        laps = [
            Lap(
                seed,
                stint.steps,
                found.worst,
                stint.result.seconds,
                evaluations * stint.steps,
            )
            for seed, (stint, found) in zip(self.seeds, runs, strict=True)
        ]
        r_hat = quality(*[stint.result for stint, _ in runs]).r_hat
        return Entrant(name, chosen, fields, laps, r_hat, "" if chosen.exact else BIASED)


def ranked(entrants: Sequence[Entrant], unit: Unit) -> list[tuple[str, Entrant]]:
    """Entrants with their ranks, best first; last those that are not `rankable`, with rank "-"."""
    able = [each for each in entrants if each.rankable]
    others = [each for each in entrants if not each.rankable]
    able.sort(key=lambda each: -each.interval(unit).middle)
    places = ranks([each.interval(unit) for each in able])
    return [*zip(places, able, strict=True), *[("-", each) for each in others]]
