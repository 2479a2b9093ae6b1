"""Values of records by seed, compared pair by pair. Imports no torch."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments.claims.verdict import Margin
from experiments.figures.style import label
from experiments.grouping import alone, groups
from experiments.record import Record

Value = Callable[[Record], float]
Seeds = Mapping[int, float]


def labelled(
    records: list[Record], needed: Sequence[str], columns: Sequence[str] = ()
) -> dict[str, list[Record]]:
    """Records that have `columns`, by the name of their sampler as legends write it.

    Raises LookupError when one of the samplers `needed` has none.
    """
    kept = [record for record in records if set(columns) <= set(record.metrics)]
    found: dict[str, list[Record]] = {}
    for group in groups(kept):
        found.setdefault(label(group.key), []).extend(group.records)
    if missing := [name for name in needed if name not in found]:
        raise LookupError(f"no record of {', '.join(missing)}")
    return found


def by_seed(records: list[Record], value: Value, seed: str = "seed") -> dict[int, float]:
    """`value` of each record by its `seed` (or `model_seed`).

    A run that was made twice counts once. Raises LookupError where runs differ in more than their
    seeds, or two have the same `seed`.
    """
    found: dict[int, float] = {}
    for record in alone(records):
        key = record.config[seed]
        if key in found:
            raise LookupError(f"two runs of {seed} {key} that differ in something else")
        found[key] = value(record)
    return found


def difference(what: str, larger: Seeds, smaller: Seeds) -> Margin:
    """`larger - smaller` at equal seeds. Raises LookupError when there is no seed of both."""
    return Margin(what, tuple(larger[key] - smaller[key] for key in common(larger, smaller)))


def common(*values: Seeds) -> list[int]:
    """The seeds of all. Raises LookupError when there is none."""
    if not (seeds := sorted(set.intersection(*(set(one) for one in values)))):
        raise LookupError("no seed was run by both")
    return seeds


def within(what: str, seeds: Seeds, centre: float, reach: float) -> list[Margin]:
    """Two margins, positive where the mean is within `reach` of `centre`: an equivalence test."""
    values = [seeds[key] for key in sorted(seeds)]
    return [
        Margin(f"{what} above {centre - reach:.4g}", tuple(v - centre + reach for v in values)),
        Margin(f"{what} below {centre + reach:.4g}", tuple(centre + reach - v for v in values)),
    ]


def last(column: str) -> Value:
    """The last reading."""
    return lambda record: float(record.metrics[column].iloc[-1])


def at(column: str, axis: str, place: float) -> Value:
    """The reading at `place` on `axis` (step, seconds), between two readings on a straight line."""
    return lambda record: float(np.interp(place, record.metrics[axis], record.metrics[column]))


def seconds_per_step(group: list[Record]) -> float:
    """Of a sampler: the median over its runs, as one that the machine disturbed tells nothing."""
    ends = [record.metrics.iloc[-1] for record in group]
    return float(np.median([end["seconds"] / end["step"] for end in ends]))


def after(
    groups: dict[str, list[Record]], column: str, axis: str
) -> tuple[float, dict[str, dict[int, float]]]:
    """`column` of each group by seed, after as many iterations or seconds as all have run.

    The place, and the values. `axis` is step or seconds; a second is as many steps as a sampler's
    `seconds_per_step` has it.
    """
    every = [record for group in groups.values() for record in group]
    if axis == "step":
        place = shortest(every, "step")
        return place, {n: by_seed(g, at(column, "step", place)) for n, g in groups.items()}
    pace = {name: seconds_per_step(group) for name, group in groups.items()}
    place = min(shortest(group, "step") * pace[name] for name, group in groups.items())
    return place, {
        name: by_seed(group, at(column, "step", place / pace[name]))
        for name, group in groups.items()
    }


def shortest(records: list[Record], axis: str) -> float:
    """How far every record goes on `axis`."""
    return min(float(record.metrics[axis].iloc[-1]) for record in records)
