"""Lines of means over runs with a band of one standard deviation, which most figures draw."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from latticework.experiments.results.record import Record


class Means(NamedTuple):
    """Means and standard deviations over runs at the places `x`, each `[points]`."""

    x: NDArray
    mean: NDArray
    spread: NDArray


def at_readings(records: Sequence[Record], metric: str, axis: str, shown: slice) -> Means:
    """`metric` against `axis` (step, seconds ...) at the readings `shown` of each record.

    The places are medians over runs: a run that was slowed down shifts no line.
    """
    x = np.median([record.metrics[axis][shown] for record in records], axis=0)
    y = np.array([record.metrics[metric][shown] for record in records])
    return Means(x, y.mean(0), y.std(0))


def at_settings(values: Mapping[float, Sequence[float]]) -> Means:
    """One value a run by setting; settings may have different numbers of runs."""
    x = sorted(values)
    mean, spread = (np.array([f(values[place]) for place in x]) for f in (np.mean, np.std))
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
