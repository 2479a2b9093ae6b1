"""Samplers compared on one target: each tuned and measured under an equal budget.

Half of the budget goes to the choice of a sampler's fields (conf/task/tune.yaml, by Optuna's TPE)
and to what it learns before its first step, half to fresh chains, one run a seed. A sampler with
nothing to tune spends all on what it learns and on fresh chains. The log-probabilities of draws
are paid too. Rates are those after the warm-up, of the quantity that is worst in the mean over
seeds, and their intervals t-intervals of the logarithm over seeds. A sampler whose R-hat is above
`largest_r_hat` of all chains, or that does not leave the target invariant, has no rank. If the
others disagree about the target (`tuning.agreement`), at least one of them is wrong, and none has
a rank.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

import numpy as np
import torch
from torch import nn

from latticework.models.abilities import KnownTarget
from latticework.models.base import EnergyModel
from latticework.samplers import NAMES
from latticework.samplers.base import Sampler, require_count
from latticework.sampling import comparisons
from latticework.sampling.budget import Allowance, Spent, Unit
from latticework.sampling.devices import on_threads
from latticework.sampling.diagnostics import largest_r_hat
from latticework.sampling.intervals import Interval, geometric_interval
from latticework.sampling.messages import in_a_line
from latticework.sampling.naming import short_repr
from latticework.sampling.sample_arguments import sampler_of
from latticework.sampling.starts import anneal_starts, draw_possible, require_start
from latticework.sampling.targets import States, as_model, check_target, why_unsupported
from latticework.sampling.tuning.agreement import ChainSummary, disagreements
from latticework.sampling.tuning.ranking import ranks
from latticework.sampling.tuning.setup import (
    MAX_DIAGNOSED_SITES,
    MIN_DRAWS,
    WARM_UP,
    TuningSetup,
    ess_of_worst,
    evenly_spaced,
    fit_blocks,
    quality,
)
from latticework.sampling.tuning.space import Space, spaces, with_fields

if TYPE_CHECKING:
    from latticework.sampling.tuning.race_table import RaceTable

BIASED = "does not leave the target invariant"


@dataclass(frozen=True)
class RaceRun:
    """One run of a sampler with one seed."""

    seed: int
    steps: int
    ess: float  # ESS of the quantity that is worst in all runs together; 0 if one is stuck
    seconds: float  # after the warm-up
    evaluations: float  # all chains' evaluations after the warm-up, without those of draws
    spent: float = 0.0  # evaluations of the whole run, with the log-probabilities of draws

    def rate(self, unit: Unit) -> float:
        """Effective samples per second, or per evaluation."""
        return self.ess / (self.seconds if unit == "seconds" else self.evaluations)


@dataclass(frozen=True)
class Entrant:
    """A sampler with its chosen fields, and its runs; `note` says why it has none, or no rank."""

    name: str
    sampler: Sampler
    fields: dict[str, Any]
    laps: list[RaceRun]
    r_hat: float = math.nan  # R-hat of the worst quantity, over the chains of all seeds
    note: str = ""
    # What it spent once, before the first step.
    beforehand: Spent = field(default_factory=lambda: {"seconds": 0.0, "evaluations": 0.0})
    seen: ChainSummary | None = None  # what the chains of all seeds saw of the target
    still: dict[str, float] = field(default_factory=dict)  # see `unchanged`
    chains: int = 0  # chains of all runs, which R-hat compares
    error: float = math.nan  # largest error in standard errors, where the truth is known
    off: str = ""  # which mean is wrong by the truth, where it is known

    @property
    def mixed(self) -> bool:
        agree = self.r_hat <= largest_r_hat(self.chains)
        if not math.isnan(self.error):  # the truth is surer than R-hat
            agree = not self.off
        return bool(self.laps) and agree and all(lap.ess > 0 for lap in self.laps)

    @property
    def rankable(self) -> bool:
        return self.mixed and self.sampler.exact

    def interval(self, unit: Unit) -> Interval:
        """The mean rate and its 95 % interval over seeds; geometric."""
        return geometric_interval(lap.rate(unit) for lap in self.laps)


@dataclass(frozen=True)
class Race:
    """The target, and what each sampler may spend in how many chains and with which seeds.

    All runs start at `x` `[chains, *domain.shape]`; without it at random states, or with `annealed`
    where each sampler leads its chains, once. Raises ValueError with fewer than three seeds, whose
    intervals say nothing, and without chains or trials.
    """

    model: EnergyModel
    budget: Allowance
    chains: int = 8
    seeds: Sequence[int] = (0, 1, 2, 3)
    trials: int = 8
    x: torch.Tensor | None = None
    annealed: bool = False
    threads: int = 1  # threads of the processor, which the seconds belong to
    reference: KnownTarget | None = None  # the target's truth, in place of R-hat

    def __post_init__(self) -> None:
        require_count(chains=self.chains, trials=self.trials, threads=self.threads)
        if (count := len(self.seeds)) < 3:
            raise ValueError(f"a race needs three seeds or more for intervals, got {count}")

    def run(
        self, samplers: dict[str, Sampler], spaces: dict[str, Space], tell: Callable[[str], None]
    ) -> list[Entrant]:
        """Tune and measure each sampler in turn. A failed one has no laps; its note says why."""
        entrants = []
        for name, sampler in samplers.items():
            try:
                with on_threads(self.threads):
                    entrant = self.enter(name, sampler, spaces.get(name, {}))
            except Exception as error:  # noqa: BLE001 - whatever a user's sampler raises
                entrant = Entrant(name, sampler, {}, [], note=in_a_line(error))
            fields = ", ".join(f"{k}={v}" for k, v in entrant.fields.items())
            tell(f"{name}: {entrant.note or fields or 'nothing to tune'}")
            entrants.append(entrant)
        return entrants

    def enter(self, name: str, sampler: Sampler, space: Space) -> Entrant:
        """Choose the fields of one sampler, then measure it with fresh chains."""
        course = TuningSetup(self.model, self.chains, x=self.x, pays_for_draws=True)
        sampler, space = fit_blocks(sampler, space, self.model)
        seed = (self.seeds[0] - 1) % 2**31  # no seed of the laps
        learnt, spent = course.learn_fields(sampler)
        ready = with_fields(sampler, learnt)
        if self.annealed:
            rng = torch.Generator().manual_seed(seed)
            x, more = course.measure_cost(lambda x, model: anneal_starts(model, ready, x, rng))
            course = replace(course, x=x)
            spent = {unit: spent[unit] + more[unit] for unit in spent}
        tuning = self.budget.part(0.5 if space else 1.0)
        left = tuning.subtract(spent)
        if not left.amount:
            part = "half of the budget" if space else "the budget"
            note = (
                f"{part} does not pay for {spent['evaluations']:,.0f} evaluations by "
                f"each chain ({spent['seconds']:.2g} s) before its first step"
            )
            return Entrant(name, sampler, {}, [], note=note, beforehand=spent)
        fields: dict[str, Any] = {}
        if space:
            fields, _ = course.tune_fields(name, ready, space, [left], self.trials, seed)
            left = self.budget.part(0.5)
        plain = with_fields(sampler, fields)
        chosen = with_fields(plain, learnt)
        steps = course.steps(chosen, [left.part(1 / len(self.seeds))])
        if steps * (1 - WARM_UP) < MIN_DRAWS:
            note = f"the budget allows {steps} steps a run, too few to judge"
            return Entrant(name, plain, fields, [], note=note, beforehand=spent)
        each = course.cost(chosen, "evaluations") * self.chains
        draw = course.cost_of_draw(chosen) * self.chains
        runs = [course.measure_run(chosen, steps, seed) for seed in self.seeds]
        results = [stint.result for stint, _ in runs]
        laps = []
        ess_of_runs = ess_of_worst([each_quality for _, each_quality in runs])
        for seed, (stint, _), ess in zip(self.seeds, runs, ess_of_runs, strict=True):
            seconds = stint.result.seconds * stint.measuring / stint.steps
            spent_here = each * stint.steps + draw * stint.result.log_prob.shape[1]
            laps.append(
                RaceRun(seed, stint.steps, ess, seconds, each * stint.measuring, spent_here)
            )
        note = "" if chosen.exact else BIASED
        entrant = Entrant(
            name, plain, fields, laps, quality(*results).r_hat, note, spent,
            chains=self.chains * len(self.seeds),
        )  # fmt: skip
        draws = self.entries(torch.cat([result.draws for result in results]))
        log_prob = torch.cat([result.log_prob for result in results])
        with torch.no_grad():
            start = -math.inf if course.x is None else float(self.model.log_prob(course.x).max())
        means = torch.cat((log_prob.double().mean(1, keepdim=True), draws.double().mean(1)), -1)
        if self.reference is not None:
            truth = comparisons.true_means(self.reference, self.entries)
            names = ["the log-probability", *self.names()]
            error, off = comparisons.chains_off_reference(means.numpy(), truth, names)
            entrant = replace(entrant, error=error, off=off, note=note or off)
        seen = ChainSummary(
            name,
            entrant.mixed,
            means.numpy(),
            log_prob[:, -1].double().numpy(),
            float(log_prob.max()),
            min(sum(lap.ess for lap in laps), log_prob.numel()),
            start,
        )
        still = zip(self.names(), constant_values(draws), strict=True)
        return replace(entrant, seen=seen, still={k: v for k, v in still if v is not None})

    def entries(self, x: torch.Tensor) -> torch.Tensor:
        """The entries of states that diagnostics read: `[..., *domain.shape]` -> `[..., n]`."""
        shape = self.model.domain.shape
        sites = evenly_spaced(shape[0], MAX_DIAGNOSED_SITES)
        return x.index_select(-len(shape), sites).flatten(-len(shape))

    def names(self) -> list[str]:
        """The name of each of `entries`: `x[3]`, or `x[3, 1]` of a site's value 1."""
        shape = self.model.domain.shape
        places = np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), -1)
        places_of_entries = self.entries(
            torch.from_numpy(places).movedim(-1, 0).unflatten(-1, shape)
        )
        return [f"x{list(map(int, place))}" for place in places_of_entries.T]

    def disagreements(self, entrants: Sequence[Entrant]) -> list[str]:
        """On what exact samplers disagree, a sentence for each pair; none if they agree."""
        summaries = [each.seen for each in entrants if each.seen and each.sampler.exact]
        return disagreements(summaries, ["the log-probability", *self.names()])


def constant_values(entries: torch.Tensor) -> list[float | None]:
    """The value of each of `entries` `[chains, draws, n]` if all draws are alike, else None.

    NaN if it changed within no chain but differs between them.
    """
    first = entries[:, 0]
    still = (entries == first.unsqueeze(1)).all(0).all(0)
    alike = (first == first[:1]).all(0)
    values = torch.where(alike, first[0], math.nan).tolist()
    return [value if yes else None for value, yes in zip(values, still.tolist(), strict=True)]


def rank_entrants(
    entrants: Sequence[Entrant], unit: Unit, *, withheld: bool = False
) -> list[tuple[str, Entrant]]:
    """Entrants with their ranks, best first; "-" if not `rankable`, or if ranks are `withheld`."""
    able = [each for each in entrants if each.rankable]
    unranked = [each for each in entrants if not each.rankable]
    able.sort(key=lambda each: -each.interval(unit).middle)
    places = ["-"] * len(able) if withheld else ranks([each.interval(unit) for each in able])
    return [*zip(places, able, strict=True), *[("-", each) for each in unranked]]


def race_table(entrants: list[Entrant], budget: Allowance, *, withheld: bool) -> "RaceTable":
    """One row a sampler, best first."""
    # Importing pandas takes a second.
    from latticework.sampling.tuning.race_table import RaceTable

    rows = []
    for rank, each in rank_entrants(entrants, budget.unit, withheld=withheld):
        settings = ", ".join(f"{key}={value}" for key, value in each.fields.items())
        row: dict[str, Any] = {"rank": rank, "sampler": each.name, "settings": settings}
        for unit in get_args(Unit):
            for part, value in zip(("", "_low", "_high"), each.interval(unit), strict=True):
                row[f"ess_per_{unit.removesuffix('s')}{part}"] = value
        row["r_hat"] = each.r_hat
        if not math.isnan(each.error):
            row["largest_error"] = each.error
        row |= {f"beforehand_{unit}": each.beforehand[unit] for unit in get_args(Unit)}
        rows.append({**row, "note": each.note})
    table = RaceTable(rows)
    table.attrs["unit"] = budget.unit
    return table


def select_entrants(
    offered: Sequence[Sampler | str] | None, model: EnergyModel
) -> tuple[dict[str, Sampler], dict[str, str]]:
    """The samplers that take part, by name, and why others do not.

    If none are offered: all exact ones of `samplers.NAMES`, without variants, which tuning covers.
    """
    every = [name for name, entry in NAMES.items() if isinstance(entry, str)]
    taken: dict[str, Sampler] = {}
    left = {}
    for each in every if offered is None else offered:
        name = each if isinstance(each, str) else type(each).__name__
        sampler, _ = fit_blocks(sampler_of(each), {}, model)
        short = name.rpartition(":")[2]
        if short in taken:  # another file, or other settings
            short = name if name not in taken else short_repr(sampler)
        if short in taken:
            raise ValueError(f"{short} is given twice; give each sampler once")
        if not sampler.exact and offered is None:
            left[short] = BIASED
        elif reason := why_unsupported(sampler, model):
            left[short] = reason
        else:
            taken[short] = sampler
    return taken, left


def race(
    target: EnergyModel | nn.Module | Callable[[torch.Tensor], torch.Tensor],
    samplers: Sequence[Sampler | str] | None = None,
    *,
    x: torch.Tensor | None = None,
    start: Literal["uniform", "annealed"] = "uniform",
    budget: str = "20seconds",
    chains: int = 8,
    seeds: int = 4,
    trials: int = 8,
    threads: int = 1,
    reference: KnownTarget | None = None,
    **states: Unpack[States],
) -> "RaceTable":
    """Compare samplers on `target`, tuned and measured under an equal budget.

    Args:
        target: what `latticework.sample` takes, with the same `x` and `start`.
        samplers: names in `samplers.NAMES`, which are tuned, or samplers and names with settings,
            which are measured as they are; without them, every exact sampler that supports the
            target, tuned.
        x: where all chains start, `[chains, *domain.shape]`.
        start: where they start without `x`.
        budget: what each sampler may spend: `"20seconds"`, or `"50000evaluations"` by each chain.
        chains: the number of chains of a run; `x` has its own.
        seeds: runs of each sampler, at least 3.
        trials: settings that tuning tries.
        threads: of the processor; the effective samples for each second are those of so many.
        reference: the target's truth (`latticework.reference`). A sampler has a rank if no mean of
            its chains is wrong by it, in place of R-hat; `largest_error` is in standard errors.
        states: `domain`, `sites` and `values` of a function, as in `latticework.sample`.

    Returns:
        One row a sampler, best first: its rank, chosen settings, effective samples for each second
        and evaluation with 95 % intervals, and R-hat. `attrs["left_out"]` says why samplers do not
        take part, and `attrs["disagreements"]` in what exact samplers disagree: then none has a
        rank. `plot()` shows them.

    Raises:
        ValueError: if an argument is invalid, or no sampler supports the target.
    """
    require_start(start, x)
    model = as_model(target, **states)
    check_target(
        model, draw_possible(model, 4, torch.Generator().manual_seed(0)) if x is None else x
    )
    chains = chains if x is None else len(x)
    allowed = Allowance.read(budget)
    if reference is not None:
        comparisons.require_same_domain(reference, model)
    contest = Race(
        model, allowed, chains, range(seeds), trials, x, start == "annealed", threads, reference
    )
    taking, left = select_entrants(samplers, model)
    if not taking:
        raise ValueError(f"no sampler supports {model.domain}: {'; '.join(left.values())}")
    entrants = contest.run(taking, spaces(), lambda line: None)
    apart = contest.disagreements(entrants)
    table = race_table(entrants, allowed, withheld=bool(apart))
    table.attrs.update(left_out=left, disagreements=apart)
    return table
