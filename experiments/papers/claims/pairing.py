"""Values of records by seed, for paired comparisons."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from latticework.experiments.papers.claims.verdict import Margin
from latticework.experiments.records.grouping import alone, groups
from latticework.experiments.records.labels import label
from latticework.experiments.records.pace import idle, pace, undisturbed
from latticework.experiments.records.record import Record

Value = Callable[[Record], float]
Seeds = Mapping[int, float]
T = TypeVar("T")


def labelled(
    records: list[Record], needed: Sequence[str], columns: Sequence[str] = ()
) -> dict[str, list[Record]]:
    """Records that have `columns`, by the label of their sampler.

    Raises LookupError if one of the samplers `needed` has none.
    """
    kept = [record for record in records if set(columns) <= set(record.metrics)]
    found: dict[str, list[Record]] = {}
    for group in groups(kept):
        found.setdefault(label(group.key), []).extend(group.records)
    if missing := [name for name in needed if name not in found]:
        raise LookupError(f"no record of {', '.join(missing)}")
    return found


def by_seed(
    records: list[Record], value: Callable[[Record], T], seed: str = "seed"
) -> dict[int, T]:
    """`value` of each record by its `seed` (or `model_seed`).

    A repeated run counts once. Raises LookupError if runs differ in more than their seeds, or if
    two have the same `seed`.
    """
    found: dict[int, T] = {}
    for record in alone(records):
        key = record.config[seed]
        if key in found:
            raise LookupError(f"two runs have {seed} {key} and differ in something else")
        found[key] = value(record)
    return found


def preferred(parts: Iterable[list[Record]], score: Value) -> list[Record]:
    """The part with the highest mean `score`, of those with the largest number of records."""
    return max(parts, key=lambda part: (len(part), np.mean([score(record) for record in part])))


def difference(what: str, larger: Seeds, smaller: Seeds) -> Margin:
    """`larger - smaller` at equal seeds. Raises LookupError if they share no seed."""
    return Margin(what, tuple(larger[key] - smaller[key] for key in common(larger, smaller)))


def common(*values: Mapping[int, object]) -> list[int]:
    """The seeds that all `values` share. Raises LookupError if there are none."""
    if not (seeds := sorted(set.intersection(*(set(one) for one in values)))):
        raise LookupError("the runs share no seed")
    return seeds


def within(what: str, seeds: Seeds, centre: float, reach: float) -> list[Margin]:
    """An equivalence test: two margins, both positive if the mean is within `centre` ± `reach`."""
    values = [seeds[key] for key in sorted(seeds)]
    low, high = centre - reach, centre + reach
    sign = "+" if low < 0 else "-"
    return [
        Margin(f"({what}) {sign} {abs(low):.4g}", tuple(v - low for v in values)),
        Margin(f"{high:.4g} - ({what})", tuple(high - v for v in values)),
    ]


def last(column: str) -> Value:
    """The final value of `column`."""
    return lambda record: float(record.metrics[column].iloc[-1])


def at(column: str, axis: str, place: float) -> Value:
    """The value of `column` at `place` on `axis` (step, seconds), by linear interpolation."""
    return lambda record: float(np.interp(place, record.metrics[axis], record.metrics[column]))


def seconds_per_step(groups: dict[str, list[Record]]) -> dict[str, float]:
    """Seconds per step of each sampler: the median of `pace` over its undisturbed runs.

    Only seeds that all samplers have count, because the others may have run on another machine.
    Raises LookupError if there are none.
    """
    found = quiet(groups)
    seeds = common(*found.values())
    return {name: float(np.median([one[seed] for seed in seeds])) for name, one in found.items()}


def quiet(groups: Mapping[str, list[Record]], seconds: Value = pace) -> dict[str, dict[int, float]]:
    """`seconds` of the undisturbed runs of each sampler by seed.

    Raises LookupError if other work took the core of all runs of a sampler.
    """
    return {
        name: by_seed(undisturbed(idle(group), seconds), seconds) for name, group in groups.items()
    }


def after(
    groups: dict[str, list[Record]], column: str, axis: str
) -> tuple[float, dict[str, dict[int, float]]]:
    """`column` of each group by seed, at the largest `axis` value that all runs reach.

    Returns that value and the values of `column`. `axis` is step or seconds. Seconds are converted
    to steps by `seconds_per_step`.
    """
    every = [record for group in groups.values() for record in group]
    if axis == "step":
        place = shortest(every, "step")
        return place, {n: by_seed(g, at(column, "step", place)) for n, g in groups.items()}
    cost = seconds_per_step(groups)
    place = min(shortest(group, "step") * cost[name] for name, group in groups.items())
    return place, {
        name: by_seed(group, at(column, "step", place / cost[name]))
        for name, group in groups.items()
    }


def shortest(records: list[Record], axis: str) -> float:
    """The largest value of `axis` that every record reaches."""
    return min(float(record.metrics[axis].iloc[-1]) for record in records)
