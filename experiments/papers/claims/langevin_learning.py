"""Claims of Zhang et al. (2022), Section 7.3.1: learning an Ising model."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from latticework.experiments.papers.claims.pairing import (
    after,
    at,
    by_seed,
    common,
    difference,
    labelled,
    last,
)
from latticework.experiments.papers.claims.verdict import Finding, Margin, Number
from latticework.experiments.records.estimate import Estimate, estimate
from latticework.experiments.records.grouping import ENOUGH, longest, shared
from latticework.experiments.records.pace import idle, pace
from latticework.experiments.records.published import printed
from latticework.experiments.records.record import Record

LANGEVIN = ("DULA", "DMALA")
BASELINES = ("GWG-1", "Gibbs-1")


def fig5_iterations(records: list[Record]) -> Finding:
    """DULA and DMALA end below GWG after equal iterations, at the largest common sampling steps."""
    return _ahead(records, "step")


def fig5_seconds(records: list[Record]) -> Finding:
    """DULA and DMALA end below GWG after equal seconds, at the largest common sampling steps."""
    return _ahead(records, "seconds")


def fig5_fewer(records: list[Record]) -> Finding:
    """DULA's and DMALA's lead over GWG grows whenever the number of sampling steps falls."""
    sizes = _sizes(records)
    return _leads(records, list(pairwise(sizes)), "each number of sampling steps and the next")


def fig5_fewest(records: list[Record]) -> Finding:
    """DULA's and DMALA's lead over GWG is larger with the fewest sampling steps than the most."""
    sizes = _sizes(records)
    return _leads(records, [(sizes[0], sizes[-1])], "the fewest and the most sampling steps only")


def _leads(records: list[Record], pairs: Sequence[tuple[float, float]], what: str) -> Finding:
    """The lead in log RMSE with fewer sampling steps minus that with more, for each of `pairs`."""
    if not pairs or any(few == many for few, many in pairs):
        raise LookupError("the samplers have no two numbers of sampling steps in common")
    margins, numbers = [], {}
    for name in LANGEVIN:
        for few, many in pairs:
            gaps = {size: _gap(records, size, name) for size in (few, many)}
            between = f"(log RMSE, GWG-1 - {name}) at {few:g} steps - at {many:g} steps"
            margins.append(difference(between, gaps[few], gaps[many]))
            for size, gap in gaps.items():
                text = f"log RMSE, GWG-1 - {name}, {size:g} sampling steps"
                numbers[text] = Number(text, estimate(gap.values()))
    note = f"log RMSE after equal iterations; {what}"
    return Finding(tuple(margins), tuple(numbers.values()), note)


def fig5_ratio(records: list[Record]) -> Finding:
    """DULA and DMALA reach the paper's log RMSE, and the baselines take longer by its ratio.

    Judged with the sampling steps that Gibbs needs, because the paper compares with Gibbs. A run
    that never reaches the level has the distance to its lowest log RMSE as a negative margin. Each
    run counts with its own `pace`, so that the interval includes the spread of the timing.
    Raises LookupError if a sampler reaches the level with some of its seeds only.
    """
    level, needs, baseline, ours = (
        printed("fig5", *keys)
        for keys in (
            ("log_rmse",),
            ("gibbs_needs",),
            ("seconds", "baselines_more_than"),
            ("seconds", "dmala"),
        )
    )
    size = _sizes(records)[-1]
    if size < needs:
        raise LookupError(
            f"no {ENOUGH} seeds of DULA, DMALA and GWG-1 with {needs:g} sampling steps"
        )
    names = [*LANGEVIN, *BASELINES]
    found = labelled(idle(_with(records, size)), names, ["log_rmse"])
    times = {name: by_seed(found[name], partial(_reached, level=level)) for name in names}
    lowest = {
        name: by_seed(found[name], lambda record: float(record.metrics["log_rmse"].min()))
        for name in names
    }
    margins = []
    numbers = [
        Number(f"lowest log RMSE of {name}", estimate(seeds.values()))
        for name, seeds in lowest.items()
    ]
    for name in LANGEVIN:
        what = f"{level:g} - lowest log RMSE of {name}"
        seeds = lowest[name]
        margins.append(Margin(what, tuple(level - seeds[seed] for seed in sorted(seeds))))
        if not _known(times[name], name, level):
            continue
        for rival in BASELINES:
            ends = by_seed(found[rival], lambda r: pace(r) * float(r.metrics["step"].iloc[-1]))
            shared = common(times[name], times[rival])
            censored = any(math.isinf(times[rival][seed]) for seed in shared)
            ratios = [min(times[rival][seed], ends[seed]) / times[name][seed] for seed in shared]
            what = f"log({rival}'s seconds / {name}'s) - log {baseline / ours:g}"
            values = tuple(math.log(ratio * ours / baseline) for ratio in ratios)
            margins.append(Margin(what, values, at_least=censored))
            text = f"seconds to log RMSE {level:g}: {rival} over {name}"
            here = estimate(ratios)
            numbers.append(Number(text + ", at least" * censored, here, Estimate(baseline / ours)))
    note = (
        f"ratio of the seconds to log RMSE {level:g}, at most those of the whole run of a baseline "
        f"that never reaches it; {size:g} sampling steps each"
    )
    return Finding(tuple(margins), tuple(numbers), note)


def _known(times: Mapping[int, float], name: str, level: float) -> bool:
    """Whether all runs reach the level. Raises LookupError if only some of them do."""
    reached = sum(map(math.isfinite, times.values()))
    if 0 < reached < len(times):
        raise LookupError(
            f"{name} reaches log RMSE {level:g} with {reached} of {len(times)} seeds, so the "
            "ratio of the times is not known"
        )
    return reached > 0


def fig5_gibbs(records: list[Record]) -> Finding:
    """Gibbs ends with a larger error than it started with, with fewer than 100 sampling steps."""
    enough = printed("fig5", "gibbs_needs")
    margins = []
    for size, runs in _gibbs(records).items():
        rise = by_seed(runs, _rise)
        if size < enough:
            what = f"{size:g} steps: log RMSE, end - start"
            margins.append(Margin(what, tuple(rise[seed] for seed in sorted(rise))))
    if not margins:
        raise LookupError(f"no records of Gibbs-1 with fewer than {enough:g} steps")
    return Finding(
        tuple(margins), note="diverges: ends with a larger log RMSE than it started with"
    )


def fig5_gibbs_settles(records: list[Record]) -> Finding:
    """With 100 sampling steps the error of Gibbs does not rise over the second half of learning.

    The paper says only that Gibbs diverges with fewer, so it implies that it does not with 100.
    """
    enough = printed("fig5", "gibbs_needs")
    margins = []
    for size, runs in _gibbs(records).items():
        if size >= enough:
            fall = by_seed(runs, _late_fall)
            what = f"{size:g} steps: log RMSE, middle of learning - end"
            margins.append(Margin(what, tuple(fall[seed] for seed in sorted(fall))))
    if not margins:
        raise LookupError(f"no records of Gibbs-1 with {enough:g} steps or more")
    return Finding(tuple(margins), note="log RMSE at half of the iterations and at the end")


def _gibbs(records: list[Record]) -> dict[float, list[Record]]:
    """Records of Gibbs-1 by the number of its sampling steps."""
    some = labelled(records, ["Gibbs-1"], ["log_rmse"])["Gibbs-1"]
    sizes = sorted({record.config["task"]["steps"] for record in some})
    return {size: _with(some, size) for size in sizes}


def _late_fall(record: Record) -> float:
    """Log RMSE at half of the iterations, minus the final one."""
    steps = record.metrics["step"].to_numpy(float)
    return at("log_rmse", "step", steps[-1] / 2)(record) - last("log_rmse")(record)


def _rise(record: Record) -> float:
    """Final - initial log RMSE. If the final one is not finite, the largest finite one is used."""
    readings = record.metrics["log_rmse"].to_numpy(float)
    finite = readings[np.isfinite(readings)]
    if not finite.size:
        raise LookupError(f"{record.path.name} has no finite log RMSE")
    end = readings[-1] if np.isfinite(readings[-1]) else finite.max()
    return float(end - finite[0])


def _ahead(records: list[Record], axis: str) -> Finding:
    size = _sizes(records)[-1]
    groups = labelled(_with(records, size), [*LANGEVIN, "GWG-1"], ["log_rmse"])
    place, ends = after({name: groups[name] for name in (*LANGEVIN, "GWG-1")}, "log_rmse", axis)
    margins = tuple(
        difference(f"log RMSE, GWG-1 - {name}", ends["GWG-1"], ends[name]) for name in LANGEVIN
    )
    unit = "iterations" if axis == "step" else "seconds"
    note = f"log RMSE after {place:,.4g} {unit}, {size:g} sampling steps each"
    numbers = tuple(
        Number(f"{note}: {name}", estimate(seeds.values())) for name, seeds in ends.items()
    )
    return Finding(margins, numbers, note)


def _gap(records: list[Record], size: float, name: str) -> dict[int, float]:
    groups = labelled(_with(records, size), [name, "GWG-1"], ["log_rmse"])
    _, ends = after({n: groups[n] for n in (name, "GWG-1")}, "log_rmse", "step")
    ours, theirs = ends[name], ends["GWG-1"]
    return {seed: theirs[seed] - ours[seed] for seed in common(ours, theirs)}


def _sizes(records: list[Record]) -> list[float]:
    """Numbers of sampling steps that DULA, DMALA and GWG-1 were all run with, ascending."""
    groups = labelled(records, [*LANGEVIN, "GWG-1"], ["log_rmse"])
    ours = [groups[name] for name in (*LANGEVIN, "GWG-1")]
    return shared(ours, lambda record: record.config["task"]["steps"])


def _with(records: list[Record], size: float) -> list[Record]:
    """The records with `size` sampling steps; of runs of several lengths the longest."""
    return longest(r for r in records if (r.config["task"] or {}).get("steps") == size)


def _reached(record: Record, level: float) -> float:
    """Seconds until log RMSE is first at most `level`; infinity if it never is."""
    there = record.metrics["log_rmse"] <= level
    return pace(record) * float(record.metrics["step"][there.idxmax()]) if there.any() else math.inf


def most_steps(records: list[Record]) -> list[Record]:
    """The runs with the sampling steps that Gibbs needs, of which a step takes most of the time."""
    return _with(records, printed("fig5", "gibbs_needs"))
