"""Claims of Zhang et al. (2022), Section 7.3.1: learning an Ising model. Imports no torch."""

import math
from functools import partial

import numpy as np

from latticework.experiments.claims.pairing import (
    after,
    by_seed,
    common,
    difference,
    labelled,
    pace,
)
from latticework.experiments.claims.verdict import Finding, Margin, Number
from latticework.experiments.results.estimate import Estimate, estimate
from latticework.experiments.results.grouping import ENOUGH, longest, shared
from latticework.experiments.results.published import printed
from latticework.experiments.results.record import Record

LANGEVIN = ("DULA", "DMALA")


def fig5_iterations(records: list[Record]) -> Finding:
    """DULA and DMALA end below GWG after equal iterations, at the largest common sampling steps."""
    return _ahead(records, "step")


def fig5_seconds(records: list[Record]) -> Finding:
    """DULA and DMALA end below GWG after equal seconds, at the largest common sampling steps."""
    return _ahead(records, "seconds")


def fig5_fewer(records: list[Record]) -> Finding:
    """DULA's and DMALA's lead over GWG is larger with few sampling steps than with many."""
    sizes = _sizes(records)
    few, many = sizes[0], sizes[-1]
    if few == many:
        raise LookupError("the samplers have no two numbers of sampling steps in common")
    margins = []
    for name in LANGEVIN:
        gaps = [_gap(records, size, name) for size in (few, many)]
        what = f"(log RMSE, GWG-1 - {name}) at {few:g} steps - at {many:g} steps"
        margins.append(difference(what, *gaps))
    return Finding(tuple(margins))


def fig5_ratio(records: list[Record]) -> Finding:
    """DULA and DMALA reach the paper's log RMSE, and GWG takes longer by at least its ratio.

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
    names = [*LANGEVIN, "GWG-1"]
    found = labelled(_with(records, size), names, ["log_rmse"])
    groups = {name: found[name] for name in names}
    times = {name: by_seed(some, partial(_reached, level=level)) for name, some in groups.items()}
    ends = by_seed(groups["GWG-1"], lambda r: pace(r) * float(r.metrics["step"].iloc[-1]))
    margins, numbers = [], []
    for name in LANGEVIN:
        lowest = by_seed(groups[name], lambda record: float(record.metrics["log_rmse"].min()))
        what = f"{level:g} - lowest log RMSE of {name}"
        margins.append(Margin(what, tuple(level - lowest[seed] for seed in sorted(lowest))))
        seeds = common(times[name], times["GWG-1"])
        reached = sum(math.isfinite(times[name][seed]) for seed in seeds)
        if not reached:
            continue
        if reached < len(seeds):
            raise LookupError(
                f"{name} reaches log RMSE {level:g} with {reached} of {len(seeds)} seeds, so the "
                "ratio of the times is not known"
            )
        censored = any(math.isinf(times["GWG-1"][seed]) for seed in seeds)
        ratios = [min(times["GWG-1"][seed], ends[seed]) / times[name][seed] for seed in seeds]
        what = f"log(GWG-1's seconds / {name}'s) - log {baseline / ours:g}"
        values = tuple(math.log(ratio * ours / baseline) for ratio in ratios)
        margins.append(Margin(what, values, at_least=censored))
        text = f"seconds to log RMSE {level:g}: GWG-1 over {name}"
        here = estimate(ratios)
        numbers.append(Number(text + ", at least" * censored, here, Estimate(baseline / ours)))
    return Finding(tuple(margins), tuple(numbers), f"{size:g} sampling steps each")


def fig5_gibbs(records: list[Record]) -> Finding:
    """Gibbs ends worse than it started with fewer than 100 sampling steps, but not with 100."""
    enough = printed("fig5", "gibbs_needs")
    groups = labelled(records, ["Gibbs-1"], ["log_rmse"])
    margins = []
    sizes = sorted({record.config["task"]["steps"] for record in groups["Gibbs-1"]})
    if not (any(size < enough for size in sizes) and any(size >= enough for size in sizes)):
        raise LookupError(f"no records of Gibbs-1 with fewer than {enough:g} steps and with more")
    for size in sizes:
        rise = by_seed(_with(groups["Gibbs-1"], size), _rise)
        if size < enough:
            what = f"{size:g} steps: log RMSE, end - start"
            margins.append(Margin(what, tuple(rise[seed] for seed in sorted(rise))))
        else:
            what = f"{size:g} steps: log RMSE, start - end"
            margins.append(Margin(what, tuple(-rise[seed] for seed in sorted(rise))))
    return Finding(tuple(margins), note="diverges: ends with a larger error than it started with")


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
    note = f"after {place:,.4g} {unit}, {size:g} sampling steps each"
    numbers = tuple(
        Number(f"log RMSE {note}: {name}", estimate(seeds.values())) for name, seeds in ends.items()
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
