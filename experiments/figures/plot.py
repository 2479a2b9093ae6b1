"""Figures that are drawn from a table: panels of series, and the table of their points.

A figure function builds its panels, draws them, and returns a Plot:

    panels = [Panel([Series("DMALA", steps, errors)], xlabel="iterations")]
    figure, axes = style.new_figure(len(panels))
    return finish_plot(figure, axes, panels, "One run.")

The CSV file beside a figure is the table of its Plot.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

import latticework.experiments.figures.line_names as line_names
from latticework.experiments.figures.means import Means

COLUMNS = ("panel", "series", "x", "y", "low", "high")
MEAN_LINE: dict[str, Any] = {"linewidth": 1.4, "markersize": 4}
CROSS: dict[str, Any] = {
    "color": "black",
    "marker": "x",
    "linestyle": "none",
    "markeredgewidth": 1.6,
}
LEVEL: dict[str, Any] = {"color": "black", "linewidth": 0.8, "linestyle": "--"}


@dataclass(frozen=True)
class Plot:
    """A figure, and the table that it was drawn from; images and pages of text have none.

    `html` is the web page of a page of text, `provenance` the JSON that says which records and
    which command the figure was drawn from.
    """

    figure: Figure
    table: pd.DataFrame | None = None
    html: str = ""
    provenance: str = ""


class Series:
    """A line through points, with a band from `low` to `high` where these are given.

    `style` is passed to `Axes.plot`. A series that is not `named` has neither a name at its end nor
    a place in the legend.
    """

    def __init__(
        self,
        name: str,
        x: ArrayLike,
        y: ArrayLike,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        *,
        named: bool = True,
        **style: Any,
    ) -> None:
        self.name = name
        self.label = name if named else f"_{name}"
        self.style = style
        columns = {"x": x, "y": y, "low": low, "high": high}
        given = {key: np.ravel(value) for key, value in columns.items() if value is not None}
        self.points = pd.DataFrame(given)

    def drop_x(self) -> None:
        """Empty the column x, so that whole numbers of other series stay whole beside it."""
        self.points["x"] = pd.array([pd.NA] * len(self.points), dtype="Int64")

    def draw(self, ax: Axes) -> None:
        points = self.points
        (line,) = ax.plot(points["x"], points["y"], label=self.label, **self.style)
        if "low" in points:
            edges = points["x"], points["low"], points["high"]
            ax.fill_between(*edges, color=line.get_color(), alpha=0.2, lw=0)


class ErrorBars(Series):
    """Points with error bars from `low` to `high`."""

    def draw(self, ax: Axes) -> None:
        points = self.points
        reach = [points["y"] - points["low"], points["high"] - points["y"]]
        ax.errorbar(points["x"], points["y"], yerr=reach, label=self.label, **self.style)


class Level(Series):
    """A horizontal line across the panel; its point has no x."""

    def __init__(self, name: str, y: float, **style: Any) -> None:
        super().__init__(name, 0, y, **style)
        self.drop_x()

    def draw(self, ax: Axes) -> None:
        ax.axhline(self.points["y"][0], label=self.label, **self.style)


class Bars(Series):
    """Bars at the names `x`, from `base` to `y`; `style` is passed to `Axes.bar`."""

    def __init__(
        self, name: str, x: Sequence[str], y: ArrayLike, *, base: float = 0.0, **style: Any
    ) -> None:
        super().__init__(name, x, y, **style)
        self.base = base

    def draw(self, ax: Axes) -> None:
        heights = self.points["y"] - self.base
        ax.bar(self.points["x"], heights, bottom=self.base, label=self.label, **self.style)


class HorizontalBars(Bars):
    """Bars to the right of the names `x`, with `texts` at their ends, drawn by `Axes.barh`."""

    def __init__(
        self, name: str, x: Sequence[str], y: ArrayLike, *, texts: Sequence[str] = (), **style: Any
    ) -> None:
        super().__init__(name, x, y, **style)
        self.texts = texts

    def draw(self, ax: Axes) -> None:
        bars = ax.barh(self.points["x"], self.points["y"], label=self.label, **self.style)
        if self.texts:
            ax.bar_label(bars, self.texts, fontsize=7, padding=3)


class Panel:
    """The series of a panel; `axes` is passed to `Axes.set`, such as xlabel, yscale and title."""

    def __init__(self, series: Iterable[Series] = (), **axes: Any) -> None:
        self.series = list(series)
        self.axes = axes

    @property
    def heading(self) -> str:
        """The title, or else the label of the x axis, in one line."""
        text = str(self.axes.get("title") or self.axes.get("xlabel") or "")
        return text.replace("\n", " ").strip()

    def draw(self, ax: Axes) -> None:
        for series in self.series:
            series.draw(ax)
        ax.set(**self.axes)


def mean_line(name: str, means: Means, *, named: bool = True, **style: Any) -> Series:
    """The line of `means`, with a band of one standard deviation."""
    x, mean, spread = means
    look = {**MEAN_LINE, **style}
    return Series(name, x, mean, mean - spread, mean + spread, named=named, **look)


def published_point(
    x: float | None, y: float, name: str = "the paper", *, named: bool = True, **style: Any
) -> Series:
    """A number that a paper prints: a cross, or a dashed line where it has no `x`."""
    if x is None:
        return Level(name, y, named=named, **{**LEVEL, **style})
    return Series(name, x, y, named=named, **{**CROSS, **style})


def draw_panels(axes: Iterable[Axes], panels: Iterable[Panel]) -> None:
    """Draw each panel in its axes. Raises ValueError if their numbers differ."""
    for ax, panel in zip(axes, panels, strict=True):
        panel.draw(ax)


def points_table(panels: Iterable[Panel]) -> pd.DataFrame:
    """The points of all series: panel (its number and heading), series, x, y, and the band."""
    tables = [pd.DataFrame(columns=list(COLUMNS))]
    for number, panel in enumerate(panels, 1):
        heading = f"{number} {panel.heading}".strip()
        for series in panel.series:
            tables.append(series.points.assign(panel=heading, series=series.name))
    filled = [table for table in tables if len(table)] or tables
    table = pd.concat(filled, ignore_index=True)
    columns = [name for name in COLUMNS if name in table and table[name].notna().any()]
    return table[columns]


def finish_plot(
    figure: Figure,
    axes: Sequence[Axes],
    panels: Sequence[Panel],
    note: str,
    extra: Sequence[Artist] = (),
) -> Plot:
    """Name the drawn lines, write the note and the legend, and return the figure with its table.

    `extra` are further entries of the legend, such as `style.key_of_dashes`.
    """
    edges = []
    for ax, panel in zip(axes, panels, strict=True):
        edges += [(ax, series.points) for series in panel.series if "low" in series.points]
    if not any(line_names.is_band_visible(ax, points) for ax, points in edges):
        note = line_names.without_band(note)
    line_names.label_lines_and_legend(figure, note, extra)
    return Plot(figure, points_table(panels))
