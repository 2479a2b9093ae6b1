"""Compare two records, and decide whether they should be identical.

The same code, configuration, seeds, versions, device and threads give the same bits. If two such
records differ, that is a fault.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from latticework.experiments.records.identity import SEEDS, identity, leaves
from latticework.experiments.records.record import RESULTS, Record, damage

CLOCK = "seconds"  # in the name of each column that is measured by a clock
ROUNDED = 2e-6  # relative; a bundle keeps 7 digits
MISSING = "(missing)"


@dataclass(frozen=True)
class Difference:
    """A fact that two records do not share, and whether it may change the numbers.

    Another commit changes them only if it changes code that the run executes: "perhaps".
    """

    what: str
    one: Any
    other: Any
    decides: Literal["yes", "no", "perhaps"]


@dataclass(frozen=True)
class Comparison:
    """Two records side by side."""

    differences: list[Difference]
    numbers: str  # how the results differ; "" if they are equal
    damaged: list[str]  # files that are not those that the run wrote

    @property
    def reasons(self) -> list[str]:
        """Why the numbers may differ."""
        return [each.what for each in self.differences if each.decides == "yes"]

    @property
    def doubts(self) -> list[str]:
        """What differs in the code."""
        return [each.what for each in self.differences if each.decides == "perhaps"]

    @property
    def same_expected(self) -> bool:
        """Whether the two must have the same bits."""
        return not (self.reasons or self.doubts)

    @property
    def is_fault(self) -> bool:
        """Whether the numbers differ without a reason, or a file was changed after its run."""
        return bool(self.damaged) or bool(self.numbers and self.same_expected)


def compare(one: Record, other: Record) -> Comparison:
    """Compare configuration, seeds, versions, code, machine, metrics and arrays."""
    differences = [*_settings(one, other), *_facts(one, other)]
    damaged = [
        f"{record.path}: {fault}"
        for record in (one, other)
        if isinstance(record.path, Path) and (fault := damage(record.path))
    ]
    return Comparison(differences, _numbers(one, other), damaged)


def _settings(one: Record, other: Record) -> Iterator[Difference]:
    """Keys of the resolved configurations; those of the identity decide."""
    mine, its = (leaves(identity(record.config)) for record in (one, other))
    for key in [key for key in {**mine, **its} if key in SEEDS] + sorted({*mine, *its} - {*SEEDS}):
        if mine.get(key, MISSING) != its.get(key, MISSING):
            yield Difference(key, mine.get(key, MISSING), its.get(key, MISSING), "yes")
    whole, theirs = (leaves(record.config) for record in (one, other))
    for key in sorted(({*whole} & {*theirs}) - {*mine} - {*its}):
        if whole[key] != theirs[key]:
            yield Difference(key, whole[key], theirs[key], "no")


def _facts(one: Record, other: Record) -> Iterator[Difference]:
    """Seeds are in the configuration; here are data, versions, code and machine.

    A fact that a record lacks is unknown: older records do not name the processor.
    """
    documents = one.document, other.document
    for key in ("data", "language"):
        mine, its = (leaves(document.get(key) or {}) for document in documents)
        for name in sorted({*mine, *its}):
            if mine.get(name) != its.get(name):
                yield Difference(f"{key}.{name}", mine.get(name), its.get(name), "yes")
    for key, what in (("versions", "version of "), ("inputs", "content of ")):
        mine, its = (document.get(key) or {} for document in documents)
        for name in sorted({*mine, *its}):
            yield from _fact(f"{what}{name}", mine.get(name, MISSING), its.get(name, MISSING))
    for key in ("loaded", "device", "processor", "threads"):
        yield from _fact(key, *(document.get(key, MISSING) for document in documents))
    mine, its = (document.get("sources") or {} for document in documents)
    for name in sorted({*mine} & {*its}):
        if mine[name] != its[name]:
            yield Difference(f"code of {name}", mine[name], its[name], "perhaps")
    first, second = (document.get("commit") for document in documents)
    if first != second:
        yield Difference("commit", first, second, "perhaps")
    for what, read in (("uncommitted changes", _dirty), ("parts made elsewhere", _elsewhere)):
        first, second = map(read, documents)
        if first or second:
            yield Difference(what, first, second, "perhaps")


def _fact(what: str, one: Any, other: Any) -> Iterator[Difference]:
    """A difference that may change the numbers, unless one record lacks the fact."""
    if one != other:
        yield Difference(what, one, other, "perhaps" if MISSING in (one, other) else "yes")


def _dirty(document: dict[str, Any]) -> bool | None:
    return document.get("dirty")


def _elsewhere(document: dict[str, Any]) -> str:
    """Facts in which an earlier part of a resumed run differs from its last part: `commit`."""
    parts = document.get("resumed_from") or ()
    return ", ".join(
        sorted({key for part in parts for key in part if part[key] != document.get(key)})
    )


def _numbers(one: Record, other: Record) -> str:
    """The first row of metrics.csv that differs, and in which columns; then the arrays."""
    packed = [not isinstance(record.path, Path) for record in (one, other)]
    found = [first_difference(one.metrics, other.metrics, any(packed))]
    if not any(packed):  # a bundle leaves arrays out
        known = [record.document.get("files") or {} for record in (one, other)]
        names = sorted(
            name
            for name in {*known[0], *known[1]}
            if name.endswith(RESULTS)
            and name not in ("metrics.csv", "tuned.yaml")
            and known[0].get(name) != known[1].get(name)
        )
        if names:
            found.append(f"files that differ: {', '.join(names)}")
    return "; ".join(filter(None, found))


def first_difference(one: pd.DataFrame, other: pd.DataFrame, rounded: bool = False) -> str:
    """Where two tables of metrics first differ; "" if they do not.

    Columns of seconds are left out. With `rounded`, values that agree to 6 digits are equal, and
    only steps that both tables have are compared.
    """
    columns = [[c for c in table.columns if CLOCK not in c] for table in (one, other)]
    if columns[0] != columns[1]:
        return f"columns of metrics.csv: {', '.join(columns[0])} and {', '.join(columns[1])}"
    if rounded and "step" in columns[0]:
        one, other = one[one.step.isin(other.step)], other[other.step.isin(one.step)]
    rows = min(len(one), len(other))
    for number in range(rows):
        mine, its = (table.iloc[number][columns[0]] for table in (one, other))
        differ = [c for c in columns[0] if not _equal(mine[c], its[c], rounded)]
        if differ:
            name = differ[0]
            at = f" (step {mine['step']:g})" if "step" in columns[0] else ""
            more = f", and {', '.join(differ[1:])}" if differ[1:] else ""
            return (
                f"metrics.csv first differs in row {number + 1}{at}, column {name}: "
                f"{mine[name]} and {its[name]}{more}"
            )
    if len(one) != len(other):
        return f"metrics.csv has {len(one)} and {len(other)} rows; the first {rows} are equal"
    return ""


def _equal(one: Any, other: Any, rounded: bool) -> bool:
    if pd.isna(one) and pd.isna(other):
        return True
    return bool(np.isclose(one, other, rtol=ROUNDED, atol=0)) if rounded else one == other
