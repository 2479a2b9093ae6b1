"""Means and standard deviations over runs, at equal readings, at equal costs, or by setting."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latticework.experiments.records.record import Record

EVERY = slice(None)


class Means(NamedTuple):
    """Means and standard deviations over runs at the places `x`, each `[points]`."""

    x: NDArray
    mean: NDArray
    spread: NDArray


def deviation_over_runs(values: ArrayLike) -> NDArray:
    """The standard deviation over runs, the first axis, as in tables; 0 for a single run."""
    by_run = np.asarray(values, dtype=float)
    return by_run.std(0, ddof=1) if len(by_run) > 1 else np.zeros(by_run.shape[1:])


def readings(records: Sequence[Record], column: str, shown: slice = EVERY) -> NDArray:
    """`column` at the readings `shown` of each record, `[runs, readings]`.

    Raises LookupError if the records have these readings at different steps.
    """
    first_steps = records[0].metrics["step"][shown].tolist()
    values = []
    for record in records:
        if record.metrics["step"][shown].tolist() != first_steps:
            raise LookupError(
                f"{records[0].path} and {record.path} have readings at different steps; only runs "
                "with readings at the same steps are averaged step by step"
            )
        values.append(record.metrics[column][shown])
    return np.array(values)


def means_by_reading(
    records: Sequence[Record], metric: str, axis: str, shown: slice = EVERY
) -> Means:
    """`metric` against `axis` (step, seconds ...) at the readings `shown` of each record.

    The places are medians over runs, so a run that was slowed down does not move the line. Raises
    LookupError if the records have these readings at different steps.
    """
    x = np.median(readings(records, axis, shown), axis=0)
    y = readings(records, metric, shown)
    return Means(x, y.mean(0), deviation_over_runs(y))


def means_on_common_grid(records: Sequence[Record], metric: str, axis: str) -> list[Means]:
    """`metric` against `axis`, for runs whose readings follow a clock and so differ in their steps.

    Each run is interpolated, linearly in the logarithm of `axis`, at the same places, which are
    evenly spaced in it over the range that all runs share. If they share none, because one was
    slowed down, there is no mean, and each run is returned on its own, at its readings.
    """
    low, high, rows = -np.inf, np.inf, len(records[0].metrics)
    for record in records:
        places = record.metrics[axis]
        low, high = max(low, places.iloc[0]), min(high, places.iloc[-1])
        rows = min(rows, len(places))
    if low > high:
        alone = []
        for record in records:
            alone += means_on_common_grid([record], metric, axis)
        return alone
    x = np.geomspace(low, high, rows)
    values = []
    for record in records:
        places = np.log(record.metrics[axis])
        values.append(np.interp(np.log(x), places, record.metrics[metric]))
    y = np.array(values)
    return [Means(x, y.mean(0), deviation_over_runs(y))]


def means_by_setting(values: Mapping[float, Sequence[float]]) -> Means:
    """One value a run by setting; settings may have different numbers of runs."""
    x = sorted(values)
    mean, spread = [], []
    for setting in x:
        mean.append(np.mean(values[setting]))
        spread.append(deviation_over_runs(values[setting]))
    return Means(np.array(x), np.array(mean), np.array(spread))


def means_along(records: Sequence[Record], setting: str, value: Callable[[Record], float]) -> Means:
    """Means of `value` at each value of the dotted key `setting`."""
    values: dict[float, list[float]] = defaultdict(list)
    for record in records:
        values[setting_of(record, setting)].append(value(record))
    return means_by_setting(values)


def setting_of(record: Record, setting: str) -> float:
    """The value of the dotted key `setting`. Raises LookupError if the record has none."""
    if (value := record.setting(setting)) is None:
        raise LookupError(f"the record {record.path} has no setting {setting}")
    return value
