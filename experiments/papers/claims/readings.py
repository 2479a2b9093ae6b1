"""Values of records by sampler and seed, from which claims make their margins.

A run at the same seed as another is its pair: their difference has less spread than either.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from latticework.experiments.records import estimates, grouping
from latticework.experiments.records.labels import sampler_label
from latticework.experiments.records.record import DATA_OF_VARIANT, Record

Value = Callable[[Record], float]
Seeds = dict[int, float]  # values by seed
T = TypeVar("T")


# Which records.


def records_by_sampler(
    records: list[Record], needed: Sequence[str], columns: Sequence[str] = ()
) -> dict[str, list[Record]]:
    """Records that have `columns`, by the label of their sampler, which is one of `needed`.

    Raises LookupError if one of them has none.
    """
    complete = [record for record in records if set(columns) <= set(record.metrics)]
    by_name: dict[str, list[Record]] = {}
    for group in grouping.groups(complete):
        by_name.setdefault(sampler_label(group.key), []).extend(group.records)
    return _select(by_name, needed)


def by_choice(
    records: Iterable[Record], needed: Sequence[str], where: str, key: Callable[[Record], str]
) -> dict[str, list[Record]]:
    """Records by `key`. Raises LookupError if one of `needed` has none; `where` says of which."""
    by_name = grouping.group_by(key, records)
    return _select(by_name, needed, where) | by_name


def _select(
    by_name: Mapping[str, list[Record]], needed: Sequence[str], where: str = ""
) -> dict[str, list[Record]]:
    """The records of the names that are `needed`. Raises LookupError if one has none."""
    missing = [name for name in needed if name not in by_name]
    if missing:
        raise LookupError(f"no record of {', '.join(missing)}{where}")
    return {name: by_name[name] for name in needed}


def with_choices(records: Iterable[Record], **choices: str) -> list[Record]:
    """The records in which each group of `choices` has that option."""
    return [record for record in records if choices.items() <= record.choices.items()]


def with_settings(records: Iterable[Record], settings: Mapping[str, object]) -> list[Record]:
    """The records whose configuration has the `settings`, values by dotted key."""
    matching = []
    for record in records:
        if all(record.setting(key) == value for key, value in settings.items()):
            matching.append(record)
    return matching


def variants_of(data: str) -> tuple[str, ...]:
    """`data`, and the variants of it that stand for it where it is missing."""
    names = [data]
    for variant, published in DATA_OF_VARIANT.items():
        if published == data:
            names.append(variant)
    return tuple(names)


def available_variant(records: Iterable[Record], data: str) -> str:
    """`data` if a record has it, else a variant of `data` that a record has, else `data`."""
    available = {record.choices.get("data") for record in records}
    for name in variants_of(data):
        if name in available:
            return name
    return data


def best_part(parts: Iterable[list[Record]], score: Value) -> list[Record]:
    """The part with the highest mean `score`, of those with the largest number of records."""
    return max(parts, key=lambda part: (len(part), np.mean(list(map(score, part)))))


# A value of a record.


def last_value(column: str) -> Value:
    """The final value of `column`."""
    return lambda record: float(record.metrics[column].iloc[-1])


def value_at(column: str, axis: str, place: float) -> Value:
    """The value of `column` at `place` on `axis` (step, seconds), by linear interpolation."""
    return lambda record: float(np.interp(place, record.metrics[axis], record.metrics[column]))


def run_json_value(name: str) -> Value:
    """An entry of run.json. Raises LookupError if a record has none."""

    def value(record: Record) -> float:
        if name not in record.document:
            raise LookupError(f"{record.path.name} has no {name}")
        return float(record.document[name])

    return value


# Values by seed, and by sampler and seed.


def by_seed(
    records: list[Record], value: Callable[[Record], T], seed: str = "seed"
) -> dict[int, T]:
    """`value` of each record by its `seed` (or `model_seed`), in ascending order.

    A repeated run counts once. Raises LookupError if runs differ in more than their seeds, or if
    two have the same `seed`.
    """
    values: dict[int, T] = {}
    for record in grouping.require_one_setting(records):
        key = record.config[seed]
        if key in values:
            raise LookupError(f"two runs have {seed} {key} and differ in something else")
        values[key] = value(record)
    return dict(sorted(values.items()))


def by_sampler_and_seed(
    groups: Mapping[str, list[Record]], value: Callable[[Record], T]
) -> dict[str, dict[int, T]]:
    """`value` of each record by the name of its group and by its seed."""
    return {name: by_seed(records, value) for name, records in groups.items()}


def final_values(
    records: list[Record], names: Sequence[str], column: str, value: Value | None = None
) -> dict[str, Seeds]:
    """The final value of `column`, or another `value`, of each sampler by seed."""
    groups = records_by_sampler(records, names, [column])
    return by_sampler_and_seed(groups, value or last_value(column))


def each_seed(function: Callable[[float], float], seeds: Seeds) -> Seeds:
    """`function` of the value of each seed."""
    return {seed: function(value) for seed, value in seeds.items()}


def logs(seeds: Seeds) -> Seeds:
    """The natural logarithm of the value of each seed."""
    return each_seed(math.log, seeds)


def common_seeds(*values: Mapping[int, object]) -> list[int]:
    """The seeds that all `values` share. Raises LookupError if there are none."""
    shared = set.intersection(*map(set, values))
    if not shared:
        raise LookupError("the runs share no seed")
    return sorted(shared)


def paired_differences(larger: Seeds, smaller: Seeds) -> Seeds:
    """`larger - smaller` at equal seeds. Raises LookupError if they share no seed."""
    return _at_common_seeds(operator.sub, larger, smaller)


def paired_ratios(above: Seeds, below: Seeds) -> Seeds:
    """`above / below` at equal seeds. Raises LookupError if they share no seed."""
    return _at_common_seeds(operator.truediv, above, below)


def paired_means(*values: Seeds) -> Seeds:
    """The mean of several values at equal seeds. Raises LookupError if they share no seed."""
    return _at_common_seeds(lambda *each: float(np.mean(each)), *values)


def paired_products(first: Seeds, second: Seeds) -> Seeds:
    """`first * second` at equal seeds. Raises LookupError if they share no seed."""
    return _at_common_seeds(operator.mul, first, second)


def _at_common_seeds(function: Callable[..., float], *values: Seeds) -> Seeds:
    """`function` of the values at each seed that all share."""
    results = {}
    for seed in common_seeds(*values):
        results[seed] = function(*(each[seed] for each in values))
    return results


# Seconds, and values at equal cost.


def undisturbed_seconds(
    groups: Mapping[str, list[Record]], seconds: Value = estimates.step_seconds
) -> dict[str, Seeds]:
    """`seconds` of the undisturbed runs of each sampler by seed.

    Raises LookupError if other work took the core of all runs of a sampler.
    """
    times = {}
    for name, group in groups.items():
        undisturbed = estimates.drop_slow_runs(estimates.drop_shared_core(group), seconds)
        times[name] = by_seed(undisturbed, seconds)
    return times


def seconds_per_step_of_samplers(groups: Mapping[str, list[Record]]) -> dict[str, float]:
    """Seconds per step of each sampler: the median of `step_seconds` over its undisturbed runs.

    Only seeds that all samplers have count, because the others may have run on another machine.
    Raises LookupError if there are none.
    """
    times = undisturbed_seconds(groups)
    seeds = common_seeds(*times.values())
    medians = {}
    for name, of_seed in times.items():
        medians[name] = float(np.median([of_seed[seed] for seed in seeds]))
    return medians


def values_at_common_end(
    groups: Mapping[str, list[Record]], column: str, axis: str, share: float = 1.0
) -> tuple[float, dict[str, Seeds]]:
    """`column` of each group by seed, at the largest `axis` value that all runs reach.

    Or at a `share` of it. Returns that value and the values of `column`. `axis` is step or seconds.
    Seconds are converted to steps by `seconds_per_step`.
    """
    cost = seconds_per_step_of_samplers(groups) if axis == "seconds" else dict.fromkeys(groups, 1.0)
    reached = {name: shortest(group, "step") * cost[name] for name, group in groups.items()}
    place, values = share * min(reached.values()), {}
    for name, group in groups.items():
        values[name] = by_seed(group, value_at(column, "step", place / cost[name]))
    return place, values


def shortest(records: list[Record], axis: str) -> float:
    """The largest value of `axis` that every record reaches."""
    return min(map(last_value(axis), records))
