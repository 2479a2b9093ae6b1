"""Samplers compared on one target: each tuned and measured under an equal budget.

Each sampler may spend one half of the budget on the choice of its fields (conf/task/tune.yaml, by
Optuna's TPE) and the other half on fresh chains with the chosen fields, one run a seed. What it
learns before its first step, such as PAVG's matrix, it learns once, from the first half. Intervals
are t-intervals of the logarithm over seeds. An ESS says nothing of chains that have not met, so a
sampler whose R-hat is above `MIXED` has no rank. Nor does it say how far draws are from the target,
so a sampler that does not leave the target invariant has none either. If the others disagree about
the target (`tuning.agreement`), at least one of them is wrong, and none has a rank.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from latticework.experiments.config.errors import in_a_line
from latticework.experiments.results.ranking import MIXED, Interval, geometric, ranks
from latticework.experiments.sampling.starts import annealed
from latticework.experiments.tuning.agreement import Seen, disagreements
from latticework.experiments.tuning.course import (
    FEWEST,
    WARM_UP,
    Allowance,
    Course,
    Spent,
    Unit,
    fitted,
    quality,
    read,
)
from latticework.experiments.tuning.space import Space, replaced
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler, require_count

BIASED = "does not leave the target invariant"


def nothing() -> Spent:
    return {"seconds": 0.0, "evaluations": 0.0}


def priced(spent: Spent) -> str:
    return f"{spent['evaluations']:,.0f} evaluations by each chain ({spent['seconds']:.2g} s)"


@dataclass(frozen=True)
class Lap:
    """One run of a sampler with one seed."""

    seed: int
    steps: int
    ess: float  # of the worst quantity; 0 if one never changed
    seconds: float
    evaluations: float  # of all chains

    def rate(self, unit: Unit) -> float:
        """Effective samples per second, or per evaluation."""
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
    beforehand: Spent = field(default_factory=nothing)  # once, before the first step
    seen: Seen | None = None  # what the chains of all seeds saw of the target
    still: dict[str, float] = field(default_factory=dict)  # see `unchanged`

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

    All runs start at `x` `[chains, *domain.shape]`; without it at random states, or with
    `annealed` where each sampler leads its chains (`sampling.starts.annealed`), once. Raises
    ValueError with fewer than three seeds, whose intervals say nothing, and without chains or
    trials.
    """

    model: EnergyModel
    budget: Allowance
    chains: int = 8
    seeds: Sequence[int] = (0, 1, 2, 3)
    trials: int = 8
    x: torch.Tensor | None = None
    annealed: bool = False

    def __post_init__(self) -> None:
        require_count(chains=self.chains, trials=self.trials)
        if (count := len(self.seeds)) < 3:
            raise ValueError(f"a race needs three seeds or more for intervals, got {count}")

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
        course = Course(self.model, self.chains, x=self.x)
        sampler, space = fitted(sampler, space, self.model)
        seed = (self.seeds[0] - 1) % 2**31  # no seed of the laps
        learnt, spent = course.learnt(sampler)
        ready = replaced(sampler, learnt)
        if self.annealed:
            rng = torch.Generator().manual_seed(seed)
            x, more = course.spent_by(lambda x, model: annealed(model, ready, x, rng))
            course = replace(course, x=x)
            spent = {unit: spent[unit] + more[unit] for unit in spent}
        half = self.budget.part(0.5).without(spent)
        if not half.amount:
            note = f"half of the budget does not pay for {priced(spent)} before its first step"
            return Entrant(name, sampler, {}, [], note=note, beforehand=spent)
        fields: dict[str, Any] = {}
        if space:
            fields, _ = course.tuned(name, ready, space, [half], self.trials, seed)
        plain = replaced(sampler, fields)
        chosen = replaced(plain, learnt)
        steps = course.steps(chosen, [self.budget.part(0.5 / len(self.seeds))])
        if steps * (1 - WARM_UP) < FEWEST:
            note = f"the budget allows {steps} steps a run, too few to judge"
            return Entrant(name, plain, fields, [], note=note, beforehand=spent)
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
        results = [stint.result for stint, _ in runs]
        note = "" if chosen.exact else BIASED
        found = Entrant(name, plain, fields, laps, quality(*results).r_hat, note, spent)
        draws = self.entries(torch.cat([result.draws for result in results]))
        still = dict(zip(self.names(), unchanged(draws), strict=True))
        log_prob = torch.cat([result.log_prob for result in results])
        with torch.no_grad():
            start = -math.inf if course.x is None else float(self.model.log_prob(course.x).max())
        return replace(
            found,
            seen=seen(found, draws, log_prob, start),
            still={entry: value for entry, value in still.items() if value is not None},
        )

    def entries(self, x: torch.Tensor) -> torch.Tensor:
        """The entries of states that diagnostics read: `[..., *domain.shape]` -> `[..., n]`."""
        shape = self.model.domain.shape
        return x.index_select(-len(shape), read(shape[0])).flatten(-len(shape))

    def names(self) -> list[str]:
        """The name of each of `entries`: `x[3]`, or `x[3, 1]` of a site's value 1."""
        shape = self.model.domain.shape
        places = np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), -1)
        found = self.entries(torch.from_numpy(places).movedim(-1, 0).unflatten(-1, shape))
        return [f"x{list(map(int, place))}" for place in found.T]

    def disagreements(self, entrants: Sequence[Entrant]) -> list[str]:
        """On what exact samplers disagree, a sentence for each pair; none if they agree."""
        some = [each.seen for each in entrants if each.seen and each.sampler.exact]
        return disagreements(some, ["the log-probability", *self.names()])


def seen(entrant: Entrant, entries: torch.Tensor, log_prob: torch.Tensor, start: float) -> Seen:
    """What a sampler saw, from `entries` `[chains, draws, n]` and `log_prob` `[chains, draws]`."""
    means = torch.cat((log_prob.double().mean(1, keepdim=True), entries.double().mean(1)), -1)
    return Seen(
        entrant.name,
        entrant.mixed,
        means.numpy(),
        log_prob[:, -1].double().numpy(),
        float(log_prob.max()),
        min(sum(lap.ess for lap in entrant.laps), log_prob.numel()),
        start,
    )


def unchanged(entries: torch.Tensor) -> list[float | None]:
    """For each of `entries` `[chains, draws, n]`: the value if all draws are alike.

    NaN if it changed within no chain but differs between them; None if it changed.
    """
    first = entries[:, 0]
    still = (entries == first.unsqueeze(1)).all(0).all(0)
    alike = (first == first[:1]).all(0)
    values = torch.where(alike, first[0], math.nan).tolist()
    return [value if yes else None for value, yes in zip(values, still.tolist(), strict=True)]


def ranked(
    entrants: Sequence[Entrant], unit: Unit, *, withheld: bool = False
) -> list[tuple[str, Entrant]]:
    """Entrants with their ranks, best first; last those that are not `rankable`, with rank "-".

    All have the rank "-" if ranks are `withheld`.
    """
    able = [each for each in entrants if each.rankable]
    others = [each for each in entrants if not each.rankable]
    able.sort(key=lambda each: -each.interval(unit).middle)
    places = ["-"] * len(able) if withheld else ranks([each.interval(unit) for each in able])
    return [*zip(places, able, strict=True), *[("-", each) for each in others]]
