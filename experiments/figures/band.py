"""Lines of means over runs with a band of one standard deviation, which most figures draw."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from latticework.experiments.records.record import Record


class Means(NamedTuple):
    """Means and standard deviations over runs at the places `x`, each `[points]`."""

    x: NDArray
    mean: NDArray
    spread: NDArray


EVERY = slice(None)


def deviation(values: ArrayLike) -> NDArray:
    """The standard deviation over runs, the first axis, as in tables; 0 for a single run."""
    found = np.asarray(values, dtype=float)
    return found.std(0, ddof=1) if len(found) > 1 else np.zeros(found.shape[1:])


def readings(records: Sequence[Record], column: str, shown: slice = EVERY) -> NDArray:
    """`column` at the readings `shown` of each record, `[runs, readings]`.

    Raises LookupError if the records have these readings at different steps.
    """
    steps = [record.metrics["step"][shown].tolist() for record in records]
    if other := next((one for one in zip(records, steps, strict=True) if one[1] != steps[0]), None):
        raise LookupError(
            f"{records[0].path} and {other[0].path} have readings at different steps; only runs "
            "with readings at the same steps are averaged step by step"
        )
    return np.array([record.metrics[column][shown] for record in records])


def at_readings(records: Sequence[Record], metric: str, axis: str, shown: slice = EVERY) -> Means:
    """`metric` against `axis` (step, seconds ...) at the readings `shown` of each record.

    The places are medians over runs: a run that was slowed down shifts no line. Raises LookupError
    if the records have these readings at different steps.
    """
    x = np.median(readings(records, axis, shown), axis=0)
    y = readings(records, metric, shown)
    return Means(x, y.mean(0), deviation(y))


def at_places(records: Sequence[Record], metric: str, axis: str) -> list[Means]:
    """`metric` against `axis`, for runs whose readings follow a clock and so differ in their steps.

    Each run is interpolated, linearly in the logarithm of `axis`, at the same places, which are
    evenly spaced in it over the range that all runs share. If they share none, because one was
    slowed down, there is no mean, and each run is returned on its own, at its readings.
    """
    tables = [record.metrics for record in records]
    low = max(table[axis].iloc[0] for table in tables)
    high = min(table[axis].iloc[-1] for table in tables)
    if low > high:
        return [one for record in records for one in at_places([record], metric, axis)]
    x = np.geomspace(low, high, min(len(table) for table in tables))
    y = np.array([np.interp(np.log(x), np.log(t[axis]), t[metric]) for t in tables])
    return [Means(x, y.mean(0), deviation(y))]


def at_settings(values: Mapping[float, Sequence[float]]) -> Means:
    """One value a run by setting; settings may have different numbers of runs."""
    x = sorted(values)
    mean, spread = (np.array([f(values[place]) for place in x]) for f in (np.mean, deviation))
    return Means(np.array(x), mean, spread)


def line_and_band(ax: Axes, means: Means, **line: Any) -> Line2D:
    """Draw the means as a line and one standard deviation as a band.

    `line` is passed to `Axes.plot`; the line is returned.
    """
    x, mean, spread = means
    (drawn,) = ax.plot(x, mean, **{"linewidth": 1.4, "markersize": 4, **line})
    band(ax, drawn, mean - spread, mean + spread)
    return drawn


def band(ax: Axes, line: Line2D, low: ArrayLike, high: ArrayLike) -> None:
    """Fill the area between `low` and `high`, at the places and in the colour of `line`."""
    ax.fill_between(line.get_xdata(), low, high, color=line.get_color(), alpha=0.2, lw=0)
    remember(line, low, high)


def remember(line: Line2D, low: ArrayLike, high: ArrayLike) -> None:
    """Keep the ends of the band or bars of `line` with it, for `edges`."""
    line.band = np.asarray(low), np.asarray(high)  # type: ignore[attr-defined]


def edges(line: Line2D) -> tuple[NDArray, NDArray]:
    """The ends of the band of `line`; empty if it has none."""
    return getattr(line, "band", (np.empty(0), np.empty(0)))
