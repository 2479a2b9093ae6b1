"""How a sampler is tuned and measured on one target: the code that races and the benchmark share.

The score of a setting is the ESS of the worst site or of the log-probability, of all chains
together, for each second or evaluation by each chain. Where it is 0 in every setting, the average
over sites decides.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import optuna
import torch
from torch import Generator

from latticework.models.base import EnergyModel
from latticework.models.domains import Integer, Moves
from latticework.samplers.base import Sampler, UnsupportedModelError
from latticework.samplers.sums import MultiStepSampler
from latticework.sampling.budget import Allowance, Spent, Unit
from latticework.sampling.chain import seconds_per_step
from latticework.sampling.diagnostics import mixing
from latticework.sampling.drawing import ChainAcceptance
from latticework.sampling.engine import Engine, engine_for_adaptation, select_kernel
from latticework.sampling.evaluations import EvaluationCounter, evaluations_of_step
from latticework.sampling.result import SampleResult
from latticework.sampling.sample import sample
from latticework.sampling.starts import draw_possible
from latticework.sampling.tuning.space import Space, round_fields, suggest, with_fields
from latticework.sampling.tuning.study import best_trial, new_study, run_trials
from latticework.sampling.watch import part_of_other_work

MAX_DRAWS = 1000  # draws of a chain that diagnostics read, at most, unless a course says otherwise
MIN_DRAWS = 40  # draws of a chain, at least
MAX_DIAGNOSED_SITES = 512  # sites that diagnostics read, at most
PATTERNS = 1024  # joint values of a block that Gibbs evaluates, at most
WARM_UP = 0.2  # the part of a run that is left out at its start
TIMED = 0.05  # seconds of a block of steps whose time is taken, so that a call's own time is small
# Above this ESS a draw, the steps between draws are worth keeping.
MAX_ESS_PER_DRAW = 0.25
PAID = 2  # evaluations of steps for one of a draw's log-probability, at least, where draws are paid
# Between the seeds of a run and of its shorter run, which no other run then has.
SEED_OFFSET = 2**20
MEAN_ESS_WEIGHT = 1e-6  # weight of the average site in a score
Found = TypeVar("Found")


class Quality(NamedTuple):
    """Rank-normalised diagnostics over the chains of a run (Vehtari et al. 2021)."""

    ess: float  # ESS of the worst site; 0 if chains are stuck at different values
    ess_median: float  # ESS of the median site
    ess_mean: float  # averaged over sites; a stuck site counts 0
    ess_energy: float  # ESS of the log-probability; NaN if the target is flat
    r_hat: float  # the largest
    still: int  # sites at which all draws of all chains are alike, which say nothing
    by_quantity: tuple[float | None, ...]  # ESS of the log-probability, then of each entry of x;
    #                                        None where all draws of all chains are alike

    @property
    def worst(self) -> float:
        """The ESS of the worst quantity."""
        return self.ess if math.isnan(self.ess_energy) else min(self.ess, self.ess_energy)

    @property
    def score(self) -> float:
        """Score that a search maximises: the worst quantity, and between equals the mean site."""
        return self.worst + MEAN_ESS_WEIGHT * self.ess_mean


ESS = tuple(name for name in Quality._fields if name.startswith("ess"))


@dataclass(frozen=True)
class SampledRun:
    """The draws of a run, and all its steps."""

    result: SampleResult
    burn_in: int
    thin: int
    steps: int  # with the burn-in

    @property
    def measuring(self) -> int:
        """The steps after the burn-in."""
        return self.steps - self.burn_in


class Spacing(NamedTuple):
    """The steps of a run: those before its first draw, between draws, and how many draws."""

    burn_in: int
    thin: int
    draws: int


@dataclass(frozen=True)
class TuningSetup:
    """A target, how many chains run on it, and by which engine."""

    model: EnergyModel
    chains: int
    engine: Engine = "eager"
    max_draws: int = MAX_DRAWS  # the draws of a chain that are kept; a search keeps MAX_DRAWS
    x: torch.Tensor | None = None  # where all runs start; random states without it
    pays_for_draws: bool = False  # whether allowances pay for the log-probabilities of draws

    def learn_fields(self, sampler: Sampler) -> tuple[dict[str, torch.Tensor], Spent]:
        """The fields that the sampler learns before its first step, and what this costs."""
        kernel, _ = select_kernel(sampler, self.model, engine_for_adaptation(self.engine))
        fields, spent = self.measure_cost(kernel.learn_fields)
        if isinstance(kernel, MultiStepSampler) and fields:  # it calls no method that is counted
            each = self.cost(with_fields(sampler, fields), "evaluations")
            spent["evaluations"] = each * kernel.learning_steps / self.chains
        return fields, spent

    def measure_cost(
        self, work: Callable[[torch.Tensor, EnergyModel], Found]
    ) -> tuple[Found, Spent]:
        """The result of `work` from starts and the model, and its cost."""
        x, count = (
            self.draw_starts(Generator().manual_seed(0)),
            EvaluationCounter(self.model, self.chains),
        )
        began = time.perf_counter()
        with torch.no_grad():
            result = work(x, count.model)
        seconds, evaluations = time.perf_counter() - began, count.evaluations / self.chains
        return result, {"seconds": seconds if evaluations else 0.0, "evaluations": evaluations}

    def draw_starts(self, rng: Generator) -> torch.Tensor:
        """The given starts, or random ones."""
        return draw_possible(self.model, self.chains, rng) if self.x is None else self.x

    def tune_fields(
        self,
        name: str,
        sampler: Sampler,
        space: Space,
        allowed: Sequence[Allowance],
        trials: int,
        seed: int,
    ) -> tuple[dict[str, Any], float]:
        """The fields with the best rate in `trials` runs that share `allowed`, and that rate.

        The sampler's own values come first, then Optuna's. No fields and 0 if nothing moved.
        """
        part_of_trial = [allowance.part(1 / trials) for allowance in allowed]

        def objective(trial: optuna.Trial) -> float:
            candidate = with_fields(sampler, suggest(trial, sampler, space))
            rate = self.rate(candidate, part_of_trial, seed)
            return 0.0 if math.isnan(rate) else rate

        study = new_study(name, trials, seed=seed, direction="maximize")
        study.enqueue_trial(default_trial(sampler, space))
        for _ in run_trials(study, objective, trials):
            pass
        best = best_trial(study, trials)
        rate = best.values[0]
        return (round_fields(best.params, space), rate) if rate > 0 else ({}, 0.0)

    def rate(self, candidate: Sampler, allowed: Sequence[Allowance], seed: int) -> float:
        """The score for each unit of the first allowance; 0 if nothing moves or it is too short."""
        try:
            steps = self.steps(candidate, allowed)
            if steps * (1 - WARM_UP) < MIN_DRAWS / 2:
                return 0.0
            trial = dataclasses.replace(self, max_draws=MAX_DRAWS)
            run, diagnosis = trial.measure_run(candidate, steps, seed)
        except (UnsupportedModelError, ValueError):
            return 0.0
        return diagnosis.score / (run.steps * self.cost(candidate, allowed[0].unit))

    def steps(self, sampler: Sampler, allowed: Sequence[Allowance]) -> int:
        """The steps that every allowance pays for, with the log-probabilities of their draws."""
        return min(self.steps_for(sampler, each) for each in allowed)

    def steps_for(self, sampler: Sampler, allowed: Allowance) -> int:
        """The steps that one allowance pays for."""
        each = self.cost(sampler, allowed.unit)
        steps = int(allowed.amount / each)
        if allowed.unit == "seconds":
            return steps
        draw, gap = self.cost_of_draw(sampler), self.gap(sampler)
        many, few = steps + 1, 0  # a number of steps that costs too much, and one that does not
        while draw and many - few > 1:
            middle = (many + few) // 2
            if middle * each + self.spacing(middle, gap).draws * draw > allowed.amount:
                many = middle
            else:
                few = middle
        return few if draw else steps

    def cost_of_draw(self, sampler: Sampler) -> float:
        """Evaluations by each chain for the log-probability of a draw; 0 if they are not paid."""
        if not self.pays_for_draws:
            return 0.0
        count = EvaluationCounter(self.model, self.chains)
        state = sampler.init(self.draw_starts(Generator().manual_seed(0)), self.model)
        with torch.no_grad():
            sampler.log_prob(state, count.model)
        return count.evaluations / self.chains

    def gap(self, sampler: Sampler) -> int:
        """The fewest steps between draws, so that paid ones cost at most half of the steps."""
        draw = self.cost_of_draw(sampler)
        return math.ceil(PAID * draw / self.cost(sampler, "evaluations")) if draw else 1

    def spacing(self, steps: int, gap: int) -> "Spacing":
        """How a run of at most `steps` steps divides them into burn-in and even gaps."""
        thin = max(gap, int(steps * (1 - WARM_UP)) // self.max_draws)
        burn_in = int(steps * WARM_UP) // thin * thin  # a compiled kernel makes `thin` a call
        return Spacing(burn_in, thin, (steps - burn_in) // thin)

    def cost(self, sampler: Sampler, unit: Unit) -> float:
        """Seconds of a step of all chains, without diagnostics; or evaluations by each chain."""
        rng = Generator().manual_seed(0)
        x = self.draw_starts(rng)
        if unit == "evaluations":
            return evaluations_of_step(sampler, self.model, x, rng) / self.chains
        kernel, _ = select_kernel(sampler, self.model, self.engine, [ChainAcceptance()], x)
        about = seconds_per_step(kernel, self.model, x, rng, steps=5, blocks=1)
        steps = max(5, int(TIMED / about))
        return seconds_per_step(kernel, self.model, x, rng, steps=steps, blocks=5)

    def measure_run(self, sampler: Sampler, steps: int, seed: int) -> tuple[SampledRun, Quality]:
        """A run of at most `steps` steps and its diagnostics; those of an ESS count all its steps.

        A run keeps few of its draws, and has at most about one effective sample for each. Where a
        quantity comes near this, its ESS is that of a shorter run with finer thinning, which starts
        at the last draws, times the ratio of their lengths.
        """
        run = self.sample_run(sampler, steps, seed)
        diagnosis = quality(run.result)
        near, close, names = run, diagnosis, set(ESS)
        by_quantity = list(diagnosis.by_quantity)
        crowded = list(range(len(by_quantity)))
        while near.thin > 1:
            most = MAX_ESS_PER_DRAW * near.result.log_prob.numel()
            names = {name for name in names if getattr(close, name) > most}
            crowded = [place for place in crowded if (close.by_quantity[place] or 0) > most]
            if not names:
                break
            fewer = math.ceil(self.max_draws * (near.thin // 4 or 1) / (1 - WARM_UP))
            seed = (seed + SEED_OFFSET) % 2**31
            near = self.sample_run(sampler, fewer, seed, near.result.draws[:, -1].contiguous())
            close, longer = quality(near.result), run.measuring / near.measuring
            changes = {name: longer * getattr(close, name) for name in names}
            diagnosis = diagnosis._replace(**changes)
            for place in crowded:
                if (ess := close.by_quantity[place]) is not None:
                    by_quantity[place] = longer * ess
        return run, diagnosis._replace(by_quantity=tuple(by_quantity))

    def sample_run(
        self, sampler: Sampler, steps: int, seed: int, x: torch.Tensor | None = None
    ) -> SampledRun:
        """A run of at most `steps` steps from `x`, or the setup's starts, with even spacing."""
        gap = self.gap(sampler) if x is None else 1  # a shorter run that refines is not paid
        burn_in, thin, draws = self.spacing(steps, gap)
        steps_kept = draws * thin
        given = self.x if x is None else x
        with part_of_other_work():
            result = sample(
                self.model, sampler, x=given, chains=self.chains, steps=steps_kept,
                burn_in=burn_in, thin=thin, seed=seed, engine=self.engine, diagnose=False,
                threads=torch.get_num_threads(),
            )  # fmt: skip
        return SampledRun(result, burn_in, thin, burn_in + steps_kept)


def default_trial(sampler: Sampler, space: Space) -> dict[str, Any]:
    """The sampler's own values of the fields in `space`, where in range: the first trial."""
    values = {name: getattr(sampler, name) for name in space}
    return {
        name: values[name]
        for name, bounds in space.items()
        if (
            values[name] in bounds["choices"]
            if "choices" in bounds
            else bounds["low"] <= values[name] <= bounds["high"]
        )
    }


def fit_blocks(sampler: Sampler, space: Space, model: EnergyModel) -> tuple[Sampler, Space]:
    """The sampler and its search space with blocks that fit the target.

    A block has at most all sites, and where every joint value is evaluated at most PATTERNS of
    them.
    """
    sites = getattr(sampler, "sites", None)
    if sites is None:
        return sampler, space
    max_sites = model.domain.dim
    if not hasattr(sampler, "radius") and not isinstance(model.domain, Integer | Moves):
        max_sites = min(max_sites, max(1, int(math.log(PATTERNS, len(model.domain.values())))))
    sampler = with_fields(sampler, {"sites": min(sites, max_sites)})
    if "sites" in space:
        bounds = space["sites"]
        low, high = min(bounds["low"], max_sites), min(bounds["high"], max_sites)
        space = {**space, "sites": {**bounds, "low": low, "high": high}}
    return sampler, space


def quality(*results: SampleResult) -> Quality:
    """The diagnostics over the chains of all `results`, of some sites evenly spaced if many.

    A site at which all draws of all chains are alike is left out: its law may be that narrow, and
    chains that start at random states are not stuck at one value. R-hat is infinite and the ESS 0
    if a site or the log-probability is constant within every chain and differs between chains.
    R-hat is infinite too if a chain never moved while others did. A result with more draws than
    another one counts with as many, evenly spaced.
    """
    length = min(result.log_prob.shape[1] for result in results)
    chosen_rows = [evenly_spaced(result.log_prob.shape[1], length) for result in results]
    draws = torch.cat(
        [result.draws[:, rows] for result, rows in zip(results, chosen_rows, strict=True)]
    )
    draws = draws[:, :, evenly_spaced(draws.shape[2], MAX_DIAGNOSED_SITES)].flatten(2)
    still = (draws == draws[:1, :1]).all(0).all(0)
    log_prob = torch.cat(
        [result.log_prob[:, rows] for result, rows in zip(results, chosen_rows, strict=True)]
    ).unsqueeze(-1)
    site_mixing = mixing(draws[:, :, ~still].numpy())
    energy = mixing(log_prob.numpy())
    flat = bool(log_prob.min() == log_prob.max())
    r_hat = np.append(site_mixing["r_hat"], [] if flat else energy["r_hat"])
    ess = np.nan_to_num(site_mixing["ess"]) if len(site_mixing["ess"]) else np.zeros(1)
    moved = (draws != draws[:, :1]).flatten(1).any(1) | (log_prob != log_prob[:, :1]).flatten(
        1
    ).any(1)
    by_quantity: list[float | None] = [None] * (1 + len(still))
    if not flat:
        by_quantity[0] = float(np.nan_to_num(energy["ess"][0]))
    for place, value in zip(np.flatnonzero(~still), np.nan_to_num(site_mixing["ess"]), strict=True):
        by_quantity[1 + place] = float(value)
    stuck = not len(site_mixing["ess"]) or bool(np.isnan(r_hat).any()) or not bool(moved.all())
    return Quality(
        ess=float(ess.min()),
        ess_median=float(np.median(ess)),
        ess_mean=float(ess.mean()),
        ess_energy=math.nan if flat else float(np.nan_to_num(energy["ess"][0])),
        r_hat=math.inf if stuck else float(r_hat.max()),
        still=int(still.sum()),
        by_quantity=tuple(by_quantity),
    )


def ess_of_worst(runs: Sequence[Quality]) -> list[float]:
    """The ESS of each run, of the quantity that is worst in the mean over all runs.

    Were it the worst of each run, it would be too low, because errors choose the smallest of many
    estimates, and intervals over runs would not tell. It is 0 for a run in which one is stuck.
    """
    ess = np.array([run.by_quantity for run in runs], dtype=float)  # [runs, quantities], None: NaN
    counts = (~np.isnan(ess)).sum(0)
    means = np.where(counts > 0, np.nansum(ess, 0) / np.maximum(counts, 1), np.inf)
    chosen = ess[:, means.argmin()]
    worst = np.array([run.worst for run in runs])
    return np.where(np.isnan(chosen) | (worst == 0), worst, chosen).tolist()


def evenly_spaced(size: int, most: int) -> torch.Tensor:
    """The numbers below `size`: all, or `most` of them evenly spaced."""
    return torch.arange(size) if size <= most else torch.linspace(0, size - 1, most).long()
