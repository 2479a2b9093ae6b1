"""Decide whether a claim holds, from numbers over seeds.

Each claim becomes numbers, such as the error of GWG minus that of DMALA, positive if the claim is
true. These are its margins. A margin has one value per seed, so its mean has a confidence interval
by Student's t. Most values are differences of two samplers at equal seeds; this is the paired t
test. A claim

    holds           if the 95 % interval of every margin lies above 0;
    does not hold   if the interval of some margin lies below 0 (Bonferroni-corrected level);
    is not decided  otherwise; the finding then says what would decide it.

The second half of this file makes margins from the values of records by sampler and seed.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import numpy as np
from scipy import stats

from latticework.experiments.records.estimates import (
    Estimate,
    drop_shared_core,
    drop_slow_runs,
    estimate,
    step_seconds,
)
from latticework.experiments.records.grouping import group_by, groups, require_one_setting
from latticework.experiments.records.labels import sampler_label
from latticework.experiments.records.record import DATA_OF_VARIANT, Record

Value = Callable[[Record], float]
Ends = Sequence[tuple[float, float]]  # of a value that is known between two ends, one pair a run
Seeds = dict[int, float]  # values by seed
T = TypeVar("T")
LEVEL = 0.95  # of an interval; not corrected for the number of claims
MAX_ADVISED_SEEDS = 1000  # the largest number of seeds to recommend


class Verdict(StrEnum):
    """The ledger's verdict on a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "not decided"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Margin:
    """A quantity that is positive if the claim is true.

    `values` has one entry per seed, or a single one that is `exact`, that is, free of randomness.
    Where a run knows its value only between two ends, `ends` gives them at a level and `basis` says
    where they come from; the interval then reaches from that of the mean lower end to that of the
    mean upper end. A claim that a quantity is above or below a `line` has its distance as margin;
    `expected` is the side ("above", "below"), and the text shows the quantity. With `at_least`, the
    values are lower bounds, which can support a claim but never refute it.
    """

    what: str
    values: tuple[float, ...]
    exact: bool = False
    ends: Callable[[float], Ends] | None = None
    basis: str = "chains of one run"
    at_least: bool = False
    expected: str = ""
    threshold: float = 0.0

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Confidence interval of the mean; infinite for a single run or an undefined value."""
        if self.ends is not None:
            low, high = self.sides(level)
            return low.interval(level)[0], high.interval(level)[1]
        values, count = np.asarray(self.values, dtype=float), len(self.values)
        if not np.isfinite(values).all() or (count < 2 and not self.exact):
            return -math.inf, math.inf
        if count < 2:
            return self.mean, self.mean
        reach = stats.t.ppf((1 + level) / 2, count - 1) * values.std(ddof=1) / math.sqrt(count)
        return self.mean - float(reach), self.mean + float(reach)

    def sides(self, level: float = LEVEL) -> list["Margin"]:
        """The lower and the upper ends at `level`, each as a margin. Needs `ends`."""
        assert self.ends is not None
        both = zip(*self.ends(level), strict=True)
        return [Margin(self.what, side, exact=len(side) == 1) for side in both]

    def seeds_needed(self, margins: int) -> int | None:
        """Seeds that would decide if mean and spread stayed the same; None for very many.

        `margins` is their number in the claim: one below 0 has to be so at the corrected level.
        None too for a single run, and if 0 lies between the mean `ends`.
        """
        if len(self.values) < 2:
            return None
        if self.ends is not None:
            low, high = self.sides()
            side = low if low.mean > 0 else high if high.mean < 0 else None
            return side.seeds_needed(margins) if side else None
        spread = float(np.std(self.values, ddof=1))
        level = LEVEL if self.mean > 0 else corrected(margins)
        for count in range(max(2, len(self.values)), MAX_ADVISED_SEEDS + 1):
            if stats.t.ppf((1 + level) / 2, count - 1) * spread / math.sqrt(count) < abs(self.mean):
                return count
        return None

    def text(self) -> str:
        """`DULA - DMALA: 1.77 [1.73, 1.81], 5 runs`. With ends, the interval alone."""
        low, high = self.interval()
        sign = "at least " if self.at_least else ""
        if self.expected:
            return self._of_the_quantity()
        if self.exact:
            return f"{self.what}: {self.mean:.3g} (exact)"
        if self.ends is not None:
            return f"{self.what}: {low:.3g} to {high:.3g}, {self.basis}"
        runs = f"{len(self.values)} run{'s' * (len(self.values) != 1)}"
        spread = "" if math.isinf(low) else f" [{low:.3g}, {high:.3g}]"
        return f"{self.what}: {sign}{self.mean:.3g}{spread}, {runs}"

    def _of_the_quantity(self) -> str:
        """`acceptance of DMALA: 0.5398 [0.5388, 0.5408], expected above 0.49, 5 runs`."""
        sign = 1 if self.expected == "above" else -1
        found = (self.threshold + sign * value for value in (self.mean, *self.interval()))
        # what is left of a quantity of 0 is rounding
        mean, *ends = (0.0 if abs(one) < 1e-12 * abs(self.threshold) else one for one in found)
        low, high = sorted(ends)
        spread = "" if math.isinf(low) or self.exact else f" [{low:.4g}, {high:.4g}]"
        runs = f", {len(self.values)} run{'s' * (len(self.values) != 1)}"
        asked = f"expected {self.expected} {self.threshold:.4g}"
        return f"{self.what}: {mean:.4g}{spread}, {asked}{' (exact)' if self.exact else runs}"


@dataclass(frozen=True)
class Number:
    """A quantity as measured here, and as printed in the paper (None if it is not)."""

    what: str
    here: Estimate | None
    paper: Estimate | None = None


@dataclass(frozen=True)
class Finding:
    """The evidence for a claim.

    `note` says what was measured and explains choices that the paper leaves open. `indicative`
    names data that cannot decide the claim, such as a part of the paper's; empty if they can.
    """

    margins: Sequence[Margin]
    numbers: Sequence[Number] = ()
    note: str = ""
    indicative: str = ""

    @property
    def weakest_margin(self) -> Margin:
        """The margin that is closest to failing, relative to its uncertainty."""

        def strength(margin: Margin) -> float:
            low, high = margin.interval()
            half = (high - low) / 2
            if math.isinf(half):
                return 0.0  # nothing is known of it
            return margin.mean / half if half else math.copysign(math.inf, margin.mean)

        return min(self.margins, key=lambda margin: (strength(margin), margin.mean))

    def verdict(self) -> tuple[Verdict, str]:
        """The verdict; if it is not decided, also what would decide it."""
        intervals = [margin.interval() for margin in self.margins]
        if all(low > 0 for low, _ in intervals):
            return Verdict.HOLDS, ""
        shared = corrected(len(self.margins))
        for margin in self.margins:
            below = margin.interval(shared)[1] < 0 or (margin.exact and margin.mean <= 0)
            if below and not margin.at_least:
                return Verdict.FAILS, ""
        return Verdict.OPEN, _needs(self.margins)


def corrected(margins: int) -> float:
    """The Bonferroni-corrected level of each of `margins` intervals."""
    return 1 - (1 - LEVEL) / margins


def _needs(margins: Sequence[Margin]) -> str:
    reasons = []
    for margin in (m for m in margins if not m.interval()[0] > 0):
        if not np.isfinite(margin.values).all():
            reasons.append(f"{margin.what} is undefined in some runs")
        elif margin.at_least and margin.mean <= 0:
            reasons.append(f"{margin.what} has only a lower bound: longer runs")
        elif len(margin.values) < 2 and not margin.ends:
            reasons.append(f"{margin.what} has a single run: more seeds")
        else:
            seeds = margin.seeds_needed(len(margins))
            none = "closer ends" if margin.ends else f"more than {MAX_ADVISED_SEEDS} seeds"
            count = f"about {seeds} seeds" if seeds else none
            reasons.append(f"{margin.text()}: {count}")
    reasons = list(dict.fromkeys(reasons))
    rest = len(reasons) - 2
    more = f"; and {rest} similar one{'s' * (rest > 1)}" if rest > 0 else ""
    return "; ".join(reasons[:2]) + more


# Values of records by sampler and seed, and margins from them.


def records_by_sampler(
    records: list[Record], needed: Sequence[str], columns: Sequence[str] = ()
) -> dict[str, list[Record]]:
    """Records that have `columns`, by the label of their sampler, which is one of `needed`.

    Raises LookupError if one of them has none.
    """
    kept = [record for record in records if set(columns) <= set(record.metrics)]
    found: dict[str, list[Record]] = {name: [] for name in needed}
    for group in groups(kept):
        if (name := sampler_label(group.key)) in found:
            found[name] += group.records
    return require_records(found)


def by_choice(
    records: Iterable[Record], needed: Sequence[str], where: str, key: Callable[[Record], str]
) -> dict[str, list[Record]]:
    """Records by `key`. Raises LookupError if one of `needed` has none; `where` says of which."""
    return require_records({name: [] for name in needed} | group_by(key, records), where)


def require_records(found: dict[str, list[Record]], where: str = "") -> dict[str, list[Record]]:
    """Return `found`. Raises LookupError if a list is empty."""
    if missing := [name for name, some in found.items() if not some]:
        raise LookupError(f"no record of {', '.join(missing)}{where}")
    return found


def available_variant(records: Iterable[Record], data: str) -> str:
    """`data` if a record has it, else a variant of `data` that a record has, else `data`."""
    there = {record.choices.get("data") for record in records}
    options = (data, *(variant for variant, of in DATA_OF_VARIANT.items() if of == data))
    return next((name for name in options if name in there), data)


def by_seed(
    records: list[Record], value: Callable[[Record], T], seed: str = "seed"
) -> dict[int, T]:
    """`value` of each record by its `seed` (or `model_seed`), in ascending order.

    A repeated run counts once. Raises LookupError if runs differ in more than their seeds, or if
    two have the same `seed`.
    """
    found: dict[int, T] = {}
    for record in require_one_setting(records):
        key = record.config[seed]
        if key in found:
            raise LookupError(f"two runs have {seed} {key} and differ in something else")
        found[key] = value(record)
    return dict(sorted(found.items()))


def final_values(
    records: list[Record], names: Sequence[str], column: str, value: Value | None = None
) -> dict[str, Seeds]:
    """The final value of `column`, or another `value`, of each sampler by seed."""
    found = records_by_sampler(records, names, [column])
    return {name: by_seed(some, value or last_value(column)) for name, some in found.items()}


def best_part(parts: Iterable[list[Record]], score: Value) -> list[Record]:
    """The part with the highest mean `score`, of those with the largest number of records."""
    return max(parts, key=lambda part: (len(part), np.mean([score(record) for record in part])))


def common_seeds(*values: Mapping[int, object]) -> list[int]:
    """The seeds that all `values` share. Raises LookupError if there are none."""
    if not (seeds := sorted(set.intersection(*(set(one) for one in values)))):
        raise LookupError("the runs share no seed")
    return seeds


def paired_differences(larger: Seeds, smaller: Seeds) -> Seeds:
    """`larger - smaller` at equal seeds. Raises LookupError if they share no seed."""
    return {key: larger[key] - smaller[key] for key in common_seeds(larger, smaller)}


def paired_ratios(above: Seeds, below: Seeds) -> Seeds:
    """`above / below` at equal seeds. Raises LookupError if they share no seed."""
    return {key: above[key] / below[key] for key in common_seeds(above, below)}


def logs(seeds: Seeds) -> Seeds:
    return {key: math.log(value) for key, value in seeds.items()}


def margin_above(what: str, seeds: Seeds, least: float) -> Margin:
    """The claim that `what`, whose values are `seeds`, is larger than `least`."""
    values = tuple(value - least for value in seeds.values())
    return Margin(what, values, expected="above", threshold=least)


def margin_below(what: str, seeds: Seeds, most: float) -> Margin:
    """The claim that `what`, whose values are `seeds`, is smaller than `most`."""
    values = tuple(most - value for value in seeds.values())
    return Margin(what, values, expected="below", threshold=most)


def margin_positive(what: str, seeds: Seeds) -> Margin:
    """The claim that `seeds` are larger than 0."""
    return Margin(what, tuple(seeds.values()))


def margin_of_difference(what: str, larger: Seeds, smaller: Seeds) -> Margin:
    """The claim that `larger` exceeds `smaller` at equal seeds."""
    return margin_positive(what, paired_differences(larger, smaller))


def differences(
    what: str, found: Mapping[str, Seeds], pairs: Iterable[tuple[str, str]]
) -> list[Margin]:
    """The claims that the first sampler of each of `pairs` exceeds the second."""
    return [margin_of_difference(f"{what}, {a} - {b}", found[a], found[b]) for a, b in pairs]


def equivalence_margins(what: str, seeds: Seeds, centre: float, reach: float) -> list[Margin]:
    """An equivalence test: two margins, both positive if the mean is within `centre` ± `reach`."""
    return [margin_above(what, seeds, centre - reach), margin_below(what, seeds, centre + reach)]


def numbers(
    what: str,
    found: Mapping[str, Seeds],
    paper: Callable[[str], Estimate | None] = lambda name: None,
) -> list[Number]:
    """The values of each sampler beside the paper's; its name replaces `{}` in `what`."""
    return [Number(what.format(n), estimate(s.values()), paper(n)) for n, s in found.items()]


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


def undisturbed_seconds(
    groups: Mapping[str, list[Record]], seconds: Value = step_seconds
) -> dict[str, Seeds]:
    """`seconds` of the undisturbed runs of each sampler by seed.

    Raises LookupError if other work took the core of all runs of a sampler.
    """
    return {
        name: by_seed(drop_slow_runs(drop_shared_core(group), seconds), seconds)
        for name, group in groups.items()
    }


def seconds_per_step(groups: Mapping[str, list[Record]]) -> dict[str, float]:
    """Seconds per step of each sampler: the median of `step_seconds` over its undisturbed runs.

    Only seeds that all samplers have count, because the others may have run on another machine.
    Raises LookupError if there are none.
    """
    found = undisturbed_seconds(groups)
    seeds = common_seeds(*found.values())
    return {name: float(np.median([one[seed] for seed in seeds])) for name, one in found.items()}


def values_at_common_end(
    groups: Mapping[str, list[Record]], column: str, axis: str
) -> tuple[float, dict[str, Seeds]]:
    """`column` of each group by seed, at the largest `axis` value that all runs reach.

    Returns that value and the values of `column`. `axis` is step or seconds. Seconds are converted
    to steps by `seconds_per_step`.
    """
    cost = seconds_per_step(groups) if axis == "seconds" else dict.fromkeys(groups, 1.0)
    place = min(shortest(group, "step") * cost[name] for name, group in groups.items())
    return place, {
        name: by_seed(group, value_at(column, "step", place / cost[name]))
        for name, group in groups.items()
    }


def shortest(records: list[Record], axis: str) -> float:
    """The largest value of `axis` that every record reaches."""
    return min(float(record.metrics[axis].iloc[-1]) for record in records)
