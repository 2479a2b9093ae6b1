"""The table of a sweep: a row for each setting, with its headline and costs over seeds."""

from collections.abc import Sequence

import pandas as pd

from latticework.experiments.records import estimates, grouping
from latticework.experiments.records.record import Record


def sweep_table(records: Sequence[Record]) -> pd.DataFrame:
    """A row for each setting of the records: how it differs, its headline, and what a run costs.

    Numbers are means over seeds with their standard deviation. Texts are listed.
    """
    headings, settings = grouping.settings_table(records)
    rows = []
    for texts, runs in settings:
        row: dict[str, object] = dict(zip(headings, texts, strict=True))
        values: dict[str, list[float | str]] = {}
        for record in runs:
            for number in estimates.headline(record):
                heading = f"{number.label}, {number.unit}" if number.unit else number.label
                values.setdefault(heading, []).append(number.value)
            for name, cost in estimates.costs(record).items():
                values.setdefault(name.replace("_", " "), []).append(cost)
        for heading, over_seeds in values.items():
            row[heading] = _summarise(over_seeds)
        rows.append({**row, "runs": len(runs)})
    return pd.DataFrame(rows)


def _summarise(values: Sequence[float | str]) -> estimates.Estimate | str:
    """The mean and standard deviation of numbers; the different texts, in their order."""
    numbers = [value for value in values if not isinstance(value, str)]
    if len(numbers) == len(values):
        return estimates.estimate(numbers)
    return ", ".join(dict.fromkeys(map(str, values)))
