"""Values of records by sampler and seed, for paired comparisons."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from latticework.experiments.papers.claims.verdict import Margin, Number
from latticework.experiments.records.grouping import alone, by, groups, label
from latticework.experiments.records.numbers import Estimate, estimate, idle, pace, undisturbed
from latticework.experiments.records.record import VARIANTS, Record

Value = Callable[[Record], float]
Seeds = dict[int, float]  # values by seed
T = TypeVar("T")


def labelled(
    records: list[Record], needed: Sequence[str], columns: Sequence[str] = ()
) -> dict[str, list[Record]]:
    """Records that have `columns`, by the label of their sampler, which is one of `needed`.

    Raises LookupError if one of them has none.
    """
    kept = [record for record in records if set(columns) <= set(record.metrics)]
    found: dict[str, list[Record]] = {name: [] for name in needed}
    for group in groups(kept):
        if (name := label(group.key)) in found:
            found[name] += group.records
    return complete(found)


def by_choice(
    records: Iterable[Record], needed: Sequence[str], where: str, key: Callable[[Record], str]
) -> dict[str, list[Record]]:
    """Records by `key`. Raises LookupError if one of `needed` has none; `where` says of which."""
    return complete({name: [] for name in needed} | by(key, records), where)


def complete(found: dict[str, list[Record]], where: str = "") -> dict[str, list[Record]]:
    """Return `found`. Raises LookupError if a list is empty."""
    if missing := [name for name, some in found.items() if not some]:
        raise LookupError(f"no record of {', '.join(missing)}{where}")
    return found


def available(records: Iterable[Record], data: str) -> str:
    """`data` if a record has it, else a variant of `data` that a record has, else `data`."""
    there = {record.choices.get("data") for record in records}
    options = (data, *(variant for variant, of in VARIANTS.items() if of == data))
    return next((name for name in options if name in there), data)


def by_seed(
    records: list[Record], value: Callable[[Record], T], seed: str = "seed"
) -> dict[int, T]:
    """`value` of each record by its `seed` (or `model_seed`), in ascending order.

    A repeated run counts once. Raises LookupError if runs differ in more than their seeds, or if
    two have the same `seed`.
    """
    found: dict[int, T] = {}
    for record in alone(records):
        key = record.config[seed]
        if key in found:
            raise LookupError(f"two runs have {seed} {key} and differ in something else")
        found[key] = value(record)
    return dict(sorted(found.items()))


def ends(
    records: list[Record], names: Sequence[str], column: str, value: Value | None = None
) -> dict[str, Seeds]:
    """The final value of `column`, or another `value`, of each sampler by seed."""
    found = labelled(records, names, [column])
    return {name: by_seed(some, value or last(column)) for name, some in found.items()}


def preferred(parts: Iterable[list[Record]], score: Value) -> list[Record]:
    """The part with the highest mean `score`, of those with the largest number of records."""
    return max(parts, key=lambda part: (len(part), np.mean([score(record) for record in part])))


def common(*values: Mapping[int, object]) -> list[int]:
    """The seeds that all `values` share. Raises LookupError if there are none."""
    if not (seeds := sorted(set.intersection(*(set(one) for one in values)))):
        raise LookupError("the runs share no seed")
    return seeds


def gap(larger: Seeds, smaller: Seeds) -> Seeds:
    """`larger - smaller` at equal seeds. Raises LookupError if they share no seed."""
    return {key: larger[key] - smaller[key] for key in common(larger, smaller)}


def ratio(above: Seeds, below: Seeds) -> Seeds:
    """`above / below` at equal seeds. Raises LookupError if they share no seed."""
    return {key: above[key] / below[key] for key in common(above, below)}


def logs(seeds: Seeds) -> Seeds:
    return {key: math.log(value) for key, value in seeds.items()}


def above(what: str, seeds: Seeds, least: float) -> Margin:
    """The claim that `what`, whose values are `seeds`, is larger than `least`."""
    values = tuple(value - least for value in seeds.values())
    return Margin(what, values, expected="above", line=least)


def below(what: str, seeds: Seeds, most: float) -> Margin:
    """The claim that `what`, whose values are `seeds`, is smaller than `most`."""
    values = tuple(most - value for value in seeds.values())
    return Margin(what, values, expected="below", line=most)


def positive(what: str, seeds: Seeds) -> Margin:
    """The claim that `seeds` are larger than 0."""
    return Margin(what, tuple(seeds.values()))


def difference(what: str, larger: Seeds, smaller: Seeds) -> Margin:
    """The claim that `larger` exceeds `smaller` at equal seeds."""
    return positive(what, gap(larger, smaller))


def differences(
    what: str, found: Mapping[str, Seeds], pairs: Iterable[tuple[str, str]]
) -> list[Margin]:
    """The claims that the first sampler of each of `pairs` exceeds the second."""
    return [difference(f"{what}, {a} - {b}", found[a], found[b]) for a, b in pairs]


def within(what: str, seeds: Seeds, centre: float, reach: float) -> list[Margin]:
    """An equivalence test: two margins, both positive if the mean is within `centre` ± `reach`."""
    return [above(what, seeds, centre - reach), below(what, seeds, centre + reach)]


def numbers(
    what: str,
    found: Mapping[str, Seeds],
    paper: Callable[[str], Estimate | None] = lambda name: None,
) -> list[Number]:
    """The values of each sampler beside the paper's; its name replaces `{}` in `what`."""
    return [Number(what.format(n), estimate(s.values()), paper(n)) for n, s in found.items()]


def last(column: str) -> Value:
    """The final value of `column`."""
    return lambda record: float(record.metrics[column].iloc[-1])


def at(column: str, axis: str, place: float) -> Value:
    """The value of `column` at `place` on `axis` (step, seconds), by linear interpolation."""
    return lambda record: float(np.interp(place, record.metrics[axis], record.metrics[column]))


def entry(name: str) -> Value:
    """An entry of run.json. Raises LookupError if a record has none."""

    def value(record: Record) -> float:
        if name not in record.document:
            raise LookupError(f"{record.path.name} has no {name}")
        return float(record.document[name])

    return value


def quiet(groups: Mapping[str, list[Record]], seconds: Value = pace) -> dict[str, Seeds]:
    """`seconds` of the undisturbed runs of each sampler by seed.

    Raises LookupError if other work took the core of all runs of a sampler.
    """
    return {
        name: by_seed(undisturbed(idle(group), seconds), seconds) for name, group in groups.items()
    }


def seconds_per_step(groups: Mapping[str, list[Record]]) -> dict[str, float]:
    """Seconds per step of each sampler: the median of `pace` over its undisturbed runs.

    Only seeds that all samplers have count, because the others may have run on another machine.
    Raises LookupError if there are none.
    """
    found = quiet(groups)
    seeds = common(*found.values())
    return {name: float(np.median([one[seed] for seed in seeds])) for name, one in found.items()}


def after(
    groups: Mapping[str, list[Record]], column: str, axis: str
) -> tuple[float, dict[str, Seeds]]:
    """`column` of each group by seed, at the largest `axis` value that all runs reach.

    Returns that value and the values of `column`. `axis` is step or seconds. Seconds are converted
    to steps by `seconds_per_step`.
    """
    cost = seconds_per_step(groups) if axis == "seconds" else dict.fromkeys(groups, 1.0)
    place = min(shortest(group, "step") * cost[name] for name, group in groups.items())
    return place, {
        name: by_seed(group, at(column, "step", place / cost[name]))
        for name, group in groups.items()
    }


def shortest(records: list[Record], axis: str) -> float:
    """The largest value of `axis` that every record reaches."""
    return min(float(record.metrics[axis].iloc[-1]) for record in records)
