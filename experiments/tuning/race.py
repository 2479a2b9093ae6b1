"""Samplers compared on one target: each tuned and measured under an equal budget.

Each sampler may spend one half of the budget on the choice of its fields (conf/task/tune.yaml, by
Optuna's TPE) and the other half on fresh chains with the chosen fields, one run a seed. Its score
is the effective sample size of the worst entry of x, or of the log-probability if that is worse, of
all chains together. Intervals are t-intervals of the logarithm over seeds. An ESS says nothing of
chains that have not met, so a sampler whose R-hat is above `MIXED` has no rank.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import optuna
import torch
from scipy import stats
from torch import Generator

from latticework.experiments.measures.diagnostics import convergence
from latticework.experiments.sampling.chain import LOCAL, WHOLE, seconds_per_step
from latticework.experiments.sampling.sample import SampleResult, sample
from latticework.experiments.tuning.space import Space, replaced, suggest
from latticework.experiments.tuning.study import alone
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler, UnsupportedModelError

MIXED = 1.05  # the largest R-hat of chains that agree
KEPT = 1000  # draws of a chain that diagnostics read, at most
FEWEST = 40  # draws of a chain, at least
PATTERNS = 1024  # joint values of a block that Gibbs evaluates, at most
WARM_UP = 0.2  # the part of a run that is left out at its start
Unit = Literal["seconds", "evaluations"]


@dataclass(frozen=True)
class Allowance:
    """What a sampler may spend: seconds, or evaluations of the target by each chain."""

    amount: float
    unit: Unit

    @classmethod
    def read(cls, text: str) -> "Allowance":
        """From `5seconds`, `5s`, `20000evaluations` or `20000e`. Raises ValueError otherwise."""
        found = re.fullmatch(r"([\d.]+(?:e\d+)?)\s*(s|seconds?|e|evaluations?)", text)
        if not found or not float(found[1]) > 0:
            raise ValueError(f"budget {text!r} is not known; write 10seconds or 20000evaluations")
        return cls(float(found[1]), "seconds" if found[2].startswith("s") else "evaluations")

    def part(self, share: float) -> "Allowance":
        return Allowance(self.amount * share, self.unit)

    def __str__(self) -> str:
        return f"{self.amount:g} {self.unit}"


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
    """A sampler with its chosen fields, and its runs; `note` says why there are none."""

    name: str
    sampler: Sampler
    fields: dict[str, Any]
    laps: list[Lap]
    r_hat: float = math.nan  # of the worst quantity, over the chains of all seeds
    note: str = ""

    @property
    def mixed(self) -> bool:
        return bool(self.laps) and self.r_hat <= MIXED and all(lap.ess > 0 for lap in self.laps)

    def interval(self, unit: Unit) -> tuple[float, float, float]:
        """The mean rate and its 95 % interval over seeds; geometric."""
        rates = np.array([lap.rate(unit) for lap in self.laps])
        if not len(rates) or not (rates > 0).all():
            return 0.0, 0.0, 0.0
        logs = np.log(rates)
        half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
        low, middle, high = np.exp([logs.mean() - half, logs.mean(), logs.mean() + half])
        return float(middle), float(low), float(high)


@dataclass(frozen=True)
class Race:
    """The target, and what each sampler may spend in how many chains and with which seeds."""

    model: EnergyModel
    budget: Allowance
    chains: int = 8
    seeds: Sequence[int] = (0, 1, 2, 3)
    trials: int = 8

    def run(
        self, samplers: dict[str, Sampler], spaces: dict[str, Space], tell: Callable[[str], None]
    ) -> list[Entrant]:
        """Tune and measure each sampler in turn; `tell` hears about the progress.

        Raises ValueError with fewer than two seeds, which give no interval.
        """
        if len(self.seeds) < 2:
            raise ValueError(f"a race needs two seeds or more for intervals, got {len(self.seeds)}")
        found = []
        for name, sampler in samplers.items():
            entrant = self.enter(name, sampler, spaces.get(name, {}))
            told = entrant.note or ", ".join(f"{k}={v}" for k, v in entrant.fields.items())
            tell(f"{name}: {told or 'nothing to tune'}")
            found.append(entrant)
        return found

    def enter(self, name: str, sampler: Sampler, space: Space) -> Entrant:
        """Choose the fields of one sampler, then measure it with fresh chains."""
        sampler, space = fitted(sampler, space, self.model)
        fields = self.tuned(name, sampler, space) if space else {}
        chosen = replaced(sampler, fields)
        each = self.budget.part(0.5 / len(self.seeds))
        steps, evaluations = self.steps(chosen, each)
        if steps * (1 - WARM_UP) < FEWEST:
            note = f"the budget allows {steps} steps a run, too few to judge"
            return Entrant(name, chosen, fields, [], note=note)
        runs = [self.drawn(chosen, steps, seed) for seed in self.seeds]
        laps = [run.lap(seed, evaluations) for seed, run in zip(self.seeds, runs, strict=True)]
        return Entrant(name, chosen, fields, laps, quality(*[run.result for run in runs])[1])

    def tuned(self, name: str, sampler: Sampler, space: Space) -> dict[str, Any]:
        """The fields with the best rate; none, if every trial was stuck or too short."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study, trials = alone(name, self.trials, seed=self.seeds[0], direction="maximize")
        study.enqueue_trial(own(sampler, space))
        best: float = 0.0
        fields: dict[str, Any] = {}
        each = self.budget.part(0.5 / self.trials)
        for trial in trials:
            candidate = suggest(trial, sampler, space)
            rate = self.rate(replaced(sampler, candidate), each)
            study.tell(trial, rate)
            if rate > best:
                best, fields = rate, candidate
        return fields

    def rate(self, candidate: Sampler, allowed: Allowance) -> float:
        """The rate of one run within `allowed`; 0 if it is stuck, too short or not supported."""
        try:
            steps, evaluations = self.steps(candidate, allowed)
            if steps * (1 - WARM_UP) < FEWEST / 2:
                return 0.0
            run = self.drawn(candidate, steps, self.seeds[0] - 1)  # no seed of the measured runs
        except (UnsupportedModelError, ValueError):
            return 0.0
        return run.lap(0, evaluations).rate(self.budget.unit)

    def steps(self, sampler: Sampler, allowed: Allowance) -> tuple[int, float]:
        """The steps that `allowed` pays for, and the evaluations of a step of all chains."""
        rng = Generator().manual_seed(0)
        x = self.model.domain.uniform(self.chains, rng)
        evaluations = evaluations_of_step(sampler, self.model, x, rng)
        if allowed.unit == "evaluations":
            return int(allowed.amount * self.chains / evaluations), evaluations
        per_step = seconds_per_step(sampler, self.model, x, rng, steps=10, blocks=3)
        return int(allowed.amount / per_step), evaluations

    def drawn(self, sampler: Sampler, steps: int, seed: int) -> "Stint":
        """A run of at most `steps` steps, of which at most KEPT are kept."""
        burn_in = int(steps * WARM_UP)
        thin = max(1, (steps - burn_in) // KEPT)
        kept = (steps - burn_in) // thin * thin
        seed %= 2**31  # the seed of the search is one before the first
        result = sample(
            self.model, sampler, chains=self.chains, steps=kept, burn_in=burn_in, thin=thin,
            seed=seed,
        )  # fmt: skip
        return Stint(result, burn_in + kept)


@dataclass(frozen=True)
class Stint:
    """The draws of a run, and all its steps."""

    result: SampleResult
    steps: int  # with the burn-in

    def lap(self, seed: int, evaluations: float) -> Lap:
        """The measurement of this run, whose steps cost `evaluations` each."""
        ess, _ = quality(self.result)
        return Lap(seed, self.steps, ess, self.result.seconds, evaluations * self.steps)


def own(sampler: Sampler, space: Space) -> dict[str, Any]:
    """The sampler's own values of the fields in `space`, where in range: the first trial."""

    def within(value: Any, bounds: dict[str, Any]) -> bool:
        if "choices" in bounds:
            return value in bounds["choices"]
        return bounds["low"] <= value <= bounds["high"]

    values = {name: getattr(sampler, name) for name in space}
    return {name: value for name, value in values.items() if within(value, space[name])}


def fitted(sampler: Sampler, space: Space, model: EnergyModel) -> tuple[Sampler, Space]:
    """The sampler and its search space with blocks that fit the target.

    A block has at most all sites; Gibbs, which evaluates every joint value of a block, has at most
    PATTERNS of them.
    """
    sites = getattr(sampler, "sites", None)
    if sites is None:
        return sampler, space
    most = model.domain.dim
    if not hasattr(sampler, "radius"):
        most = min(most, max(1, int(math.log(PATTERNS, len(model.domain.values())))))
    sampler = replaced(sampler, {"sites": min(sites, most)})
    if "sites" in space:
        bounds = space["sites"]
        low, high = min(bounds["low"], most), min(bounds["high"], most)
        space = {**space, "sites": {**bounds, "low": low, "high": high}}
    return sampler, space


def quality(*results: SampleResult) -> tuple[float, float]:
    """ESS and R-hat of the worst quantity over the chains of all results; 0 and inf if stuck.

    The quantities are the entries of x, and the log-probability unless the target is flat.
    """
    draws = torch.cat([result.draws.flatten(2) for result in results])
    log_prob = torch.cat([result.log_prob for result in results]).unsqueeze(-1)
    if log_prob.min() < log_prob.max():
        draws = torch.cat((draws, log_prob), -1)
    found = convergence(draws.transpose(0, 1).numpy())
    if np.isnan(found["ess"]).any():
        return 0.0, math.inf
    return float(found["ess"].min()), float(found["r_hat"].max())


def evaluations_of_step(
    sampler: Sampler, model: EnergyModel, x: torch.Tensor, rng: Generator
) -> float:
    """States whose log-probability a step of all chains evaluates, counted on the second step.

    Each row passed to the model's `forward` counts. A call of another method that needs none, such
    as a closed form or a local change, counts one a chain.
    """
    with torch.no_grad():
        state, _ = sampler.step(sampler.init(x, model), model, rng)
        with _counted(model, len(x)) as total:
            sampler.step(state, model, rng)
    return max(1.0, total[0])


@contextmanager
def _counted(model: EnergyModel, chains: int) -> Iterator[list[float]]:
    total, depth, rows = [0.0], 0, 0

    def counting(name: str) -> Callable:
        method = getattr(model, name)

        def wrapper(*words: Any) -> Any:
            nonlocal depth, rows
            if name == "forward":
                rows += len(words[0])
            depth += 1
            try:
                return method(*words)
            finally:
                depth -= 1
                if depth == 0:
                    total[0] += rows or chains
                    rows = 0

        return wrapper

    names = (*WHOLE, *LOCAL)
    wrappers = {name: counting(name) for name in names}
    try:
        for name, wrapper in wrappers.items():
            setattr(model, name, wrapper)
        yield total
    finally:
        for name in names:
            model.__dict__.pop(name, None)


def ranked(entrants: Sequence[Entrant], unit: Unit) -> list[tuple[str, Entrant]]:
    """Entrants with their ranks, best first; those that did not mix come last, with rank "-".

    A rank is one more than the number of entrants whose whole interval is above one's own. Equal
    ranks are ties, marked "=".
    """
    mixed = [each for each in entrants if each.mixed]
    others = [each for each in entrants if not each.mixed]
    mixed.sort(key=lambda each: -each.interval(unit)[0])
    above = [
        1 + sum(other.interval(unit)[1] > each.interval(unit)[2] for other in mixed)
        for each in mixed
    ]
    ranks = [f"{'=' * (above.count(rank) > 1)}{rank}" for rank in above]
    return [*zip(ranks, mixed, strict=True), *[("-", each) for each in others]]
