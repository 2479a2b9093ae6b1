"""Claims of Zhang et al. (2022), Section 7.3.1: learning an Ising model."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from latticework.experiments.papers.claims import compare, readings
from latticework.experiments.papers.claims.langevin_ising import step_cost
from latticework.experiments.papers.claims.verdict import Finding, Number, numbers
from latticework.experiments.records import estimates, grouping
from latticework.experiments.records.estimates import Estimate, published_mean
from latticework.experiments.records.record import Record

LANGEVIN = ("DULA", "DMALA")
BASELINES = ("GWG-1", "Gibbs-1")


def fig5(records: list[Record], axis: str) -> Finding:
    """DULA and DMALA end below GWG-1, at the largest number of sampling steps that all have."""
    size = _common_sizes(records)[-1]
    place, values = _log_rmse_at_end(records, size, axis)
    unit = "iterations" if axis == "step" else "seconds"
    note = f"log RMSE after {place:,.4g} {unit}, {size:g} sampling steps each"
    margins = compare.differences("log RMSE", values, [("GWG-1", name) for name in LANGEVIN])
    return Finding(margins, numbers(f"{note}: {{}}", values), note)


def fig5_fewer(records: list[Record], every: bool = True) -> Finding:
    """The lead in log RMSE over GWG-1 with fewer sampling steps, minus that with more.

    Compares `every` number of sampling steps with the next, or else the fewest with the most.
    """
    sizes = _common_sizes(records)
    if len(sizes) < 2:
        raise LookupError("the samplers have no two numbers of sampling steps in common")
    margins: list[compare.Margin] = []
    shown: dict[str, Number] = {}
    for name in LANGEVIN:
        for few, many in pairwise(sizes if every else (sizes[0], sizes[-1])):
            leads = {}
            for size in (few, many):
                values = _log_rmse_at_end(records, size, "step", (name,))[1]
                leads[size] = readings.paired_differences(values["GWG-1"], values[name])
                text = f"log RMSE, GWG-1 - {name}, {size:g} sampling steps"
                shown[text] = Number(text, estimates.estimate(leads[size].values()))
            quantity = f"(log RMSE, GWG-1 - {name}) at {few:g} steps - at {many:g} steps"
            margins.append(compare.difference(quantity, leads[few], leads[many]))
    compared = "each number of sampling steps and the next"
    note = compared if every else "the fewest and the most sampling steps only"
    return Finding(margins, list(shown.values()), f"log RMSE after equal iterations; {note}")


def fig5_ratio(records: list[Record]) -> Finding:
    """DULA and DMALA reach the paper's log RMSE, and the baselines take longer by its ratio.

    Judged with the sampling steps that Gibbs needs, because the paper compares with Gibbs. A run
    that never reaches the level has the distance to its lowest log RMSE as a negative margin.
    Iterations are those of the longest run of a seed. Seconds per iteration are those of its idle
    runs (`_seconds_per_iteration`), so that the interval includes the spread of the timing.
    Raises LookupError if a sampler reaches the level with some of its seeds only.
    """
    level, needs = published_mean("fig5", "log_rmse"), published_mean("fig5", "gibbs_needs")
    slowest = published_mean("fig5", "seconds", "baselines_more_than")
    paper = slowest / published_mean("fig5", "seconds", "dmala")
    size = _common_sizes(records)[-1]
    if size < needs:
        raise LookupError(
            f"no {grouping.MIN_COMMON_SEEDS} seeds of DULA, DMALA and GWG-1 with {needs:g} "
            "sampling steps"
        )
    names = (*LANGEVIN, *BASELINES)
    longest = grouping.keep_longest_runs(_with_size(records, size))
    groups = readings.records_by_sampler(longest, names, ["log_rmse"])
    paces = _seconds_per_iteration(records, size, names)
    times, whole = {}, {}
    for name, group in groups.items():
        reached = readings.by_seed(group, lambda record: _iterations_to(record, level))
        times[name] = _seconds(paces[name], reached)
        whole[name] = _seconds(paces[name], readings.by_seed(group, readings.last_value("step")))
    minima = readings.by_sampler_and_seed(groups, lambda r: float(r.metrics["log_rmse"].min()))
    margins, shown = [], numbers("lowest log RMSE of {}", minima)
    for name in LANGEVIN:
        margins.append(compare.margin_below(f"lowest log RMSE of {name}", minima[name], level))
        if not _all_reach(times[name], name, level):
            continue
        for rival in BASELINES:
            seeds = readings.common_seeds(times[name], times[rival])
            censored, ratios = False, []
            for seed in seeds:
                censored |= math.isinf(times[rival][seed])
                ratios.append(min(times[rival][seed], whole[rival][seed]) / times[name][seed])
            quantity = f"log({rival}'s seconds / {name}'s) - log {paper:g}"
            values = tuple(math.log(ratio / paper) for ratio in ratios)
            margins.append(compare.Margin(quantity, values, at_least=censored))
            text = f"seconds to log RMSE {level:g}: {rival} over {name}"
            text += ", at least" if censored else ""
            shown.append(Number(text, estimates.estimate(ratios), Estimate(paper)))
    note = (
        f"ratio of the seconds to log RMSE {level:g}, at most those of the longest run of a "
        "baseline that never reaches it; seconds are iterations times the seconds of one in an "
        f"idle run; {size:g} sampling steps each"
    )
    return Finding(margins, shown, note)


def _all_reach(times: readings.Seeds, name: str, level: float) -> bool:
    """Whether all runs reach the level. Raises LookupError if only some of them do."""
    reached = sum(map(math.isfinite, times.values()))
    if 0 < reached < len(times):
        raise LookupError(
            f"{name} reaches log RMSE {level:g} with {reached} of {len(times)} seeds, so the "
            "ratio of the times is not known"
        )
    return reached > 0


def _iterations_to(record: Record, level: float) -> float:
    """Iterations until log RMSE is first at most `level`; infinity if it never is."""
    below = record.metrics["log_rmse"] <= level
    return float(record.metrics["step"][below.idxmax()]) if below.any() else math.inf


def _seconds_per_iteration(
    records: list[Record], size: float, names: Sequence[str]
) -> dict[str, readings.Seeds]:
    """Seconds per iteration by sampler and seed: of several idle runs, those of the fastest.

    Other work only adds time, and runs that differ in their length have the same iteration.
    """
    timed = estimates.drop_shared_core(_with_size(records, size))
    paces: dict[str, readings.Seeds] = {}
    for name, group in readings.records_by_sampler(timed, names, ["log_rmse"]).items():
        paces[name] = {}
        for seed, runs in grouping.group_by(lambda r: r.config["seed"], group).items():
            paces[name][seed] = min(map(estimates.step_seconds, runs))
    return paces


def _seconds(paces: readings.Seeds, iterations: readings.Seeds) -> readings.Seeds:
    """Seconds of so many iterations, by seed."""
    return readings.paired_products(paces, iterations)


def fig5_gibbs(records: list[Record]) -> Finding:
    """Gibbs ends with a larger error than it started with, with fewer sampling steps than needed.

    If the final log RMSE is not finite, the largest finite one is used.
    """

    def rise(record: Record) -> float:
        curve = record.metrics["log_rmse"].to_numpy(float)
        finite = curve[np.isfinite(curve)]
        if not finite.size:
            raise LookupError(f"{record.path.name} has no finite log RMSE")
        end = curve[-1] if np.isfinite(curve[-1]) else finite.max()
        return float(end - finite[0])

    margins = _margins_of_gibbs(records, "log RMSE, end - start", rise, enough=False)
    return Finding(margins, note="diverges: ends with a larger log RMSE than it started with")


def fig5_gibbs_settles(records: list[Record]) -> Finding:
    """With 100 sampling steps the error of Gibbs does not rise over the second half of learning.

    The paper says only that Gibbs diverges with fewer, so it implies that it does not with 100.
    """

    def fall(record: Record) -> float:
        middle = readings.last_value("step")(record) / 2
        at_middle = readings.value_at("log_rmse", "step", middle)(record)
        return at_middle - readings.last_value("log_rmse")(record)

    margins = _margins_of_gibbs(records, "log RMSE, middle of learning - end", fall, enough=True)
    return Finding(margins, note="log RMSE at half of the iterations and at the end")


def _margins_of_gibbs(
    records: list[Record], quantity: str, value: readings.Value, *, enough: bool
) -> list[compare.Margin]:
    """`value` of Gibbs-1 with each number of sampling steps that is `enough`, or is not."""
    needs = published_mean("fig5", "gibbs_needs")
    runs = readings.records_by_sampler(records, ["Gibbs-1"], ["log_rmse"])["Gibbs-1"]
    margins = []
    for size in sorted({record.config["task"]["steps"] for record in runs}):
        if (size >= needs) == enough:
            longest = grouping.keep_longest_runs(_with_size(runs, size))
            seeds = readings.by_seed(longest, value)
            margins.append(compare.positive(f"{size:g} steps: {quantity}", seeds))
    if not margins:
        which = f"{needs:g} steps or more" if enough else f"fewer than {needs:g} steps"
        raise LookupError(f"no records of Gibbs-1 with {which}")
    return margins


def _log_rmse_at_end(
    records: list[Record], size: float, axis: str, ours: tuple[str, ...] = LANGEVIN
) -> tuple[float, dict[str, readings.Seeds]]:
    """Log RMSE of `ours` and GWG-1 with `size` sampling steps, at the common end on `axis`."""
    longest = grouping.keep_longest_runs(_with_size(records, size))
    groups = readings.records_by_sampler(longest, [*ours, "GWG-1"], ["log_rmse"])
    return readings.values_at_common_end(groups, "log_rmse", axis)


def _common_sizes(records: list[Record]) -> list[float]:
    """Numbers of sampling steps that DULA, DMALA and GWG-1 were all run with, ascending."""
    groups = readings.records_by_sampler(records, [*LANGEVIN, "GWG-1"], ["log_rmse"])
    return grouping.common_values(groups.values(), lambda record: record.config["task"]["steps"])


def _with_size(records: list[Record], size: float) -> list[Record]:
    """The records with `size` sampling steps."""
    return [record for record in records if record.setting("task.steps") == size]


def fig5_cost(records: list[Record]) -> Finding:
    """`step_cost` by the pace of the runs with the sampling steps that Gibbs needs.

    Their sampling takes most of the time.
    """
    timed = estimates.drop_shared_core(_with_size(records, published_mean("fig5", "gibbs_needs")))
    return step_cost(grouping.keep_longest_runs(timed), estimates.step_seconds)
