"""The numbers of a figure's lines and bars, as a table for its CSV file."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure

from latticework.experiments.figures.style import edges

COLUMNS = ("panel", "series", "x", "y", "low", "high")


def points(figure: Figure) -> pd.DataFrame:
    """One row per point: panel, series, x, y, and the ends of its band or error bar.

    A panel is identified by its number and title, or x axis. Series are named lines, including
    those that a leading underscore keeps out of the legend. Empty for images and pages of text.
    """
    rows = [
        (f"{number} {ax.get_title() or ax.get_xlabel()}".replace("\n", " ").strip(), *row)
        for number, ax in enumerate(figure.axes, 1)
        for row in (*_bars(ax), *_lines(ax))
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).dropna(axis="columns", how="all")


def csv(figure: Figure) -> str:
    """`points` as CSV text with five digits; empty if there are no numbers."""
    table = points(figure)
    return "" if table.empty else table.to_csv(index=False, float_format="%.5g")


def _lines(ax: Axes) -> Iterator[tuple[Any, ...]]:
    of_bars = {c.lines[0]: c for c in ax.containers if isinstance(c, ErrorbarContainer)}
    for line in ax.lines:
        name = str(of_bars.get(line, line).get_label())
        if name.startswith(("_child", "_nolegend")):
            continue
        low, high = edges(line)
        x, y = (np.asarray(part) for part in line.get_data())
        for place in range(len(x)):
            ends = (part[place] if len(part) else None for part in (low, high))
            yield name.lstrip("_"), x[place], y[place], *ends


def _bars(ax: Axes) -> Iterator[tuple[Any, ...]]:
    for bars in ax.containers:
        if not isinstance(bars, BarContainer):
            continue
        upright = bars.orientation == "vertical"
        name = (ax.xaxis if upright else ax.yaxis).get_major_formatter()
        for bar in bars:
            middle = bar.get_center()[0 if upright else 1]
            end = bar.get_y() + bar.get_height() if upright else bar.get_x() + bar.get_width()
            yield str(bars.get_label()).lstrip("_"), name(middle), end, None, None
