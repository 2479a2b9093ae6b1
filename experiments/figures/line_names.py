"""Names at the ends of lines, moved apart, and the legend with the note below the panels."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from numpy.typing import NDArray

from latticework.experiments.figures.style import BAND, GREY

LEGEND_LINE_INCHES = 0.15  # inches of a line of a legend
LABEL_CHARACTERS = 24  # characters of a line of a name
MIN_VISIBLE_BAND = 0.01  # share of the panel's height: a line hides a narrower band
ARROWS = "\N{UPWARDS ARROW}\N{DOWNWARDS ARROW}"
SPREAD_ROUNDS = 200  # rounds in which names are moved apart
LINE_POINTS = 500  # points of a line that a name may cover
MAX_HALF_LINES = 8  # half heights of a name, at most, by which it is moved off a line


def label_lines_and_legend(figure: Figure, note: str, extra: Sequence[Artist] = ()) -> None:
    """Name each line at its end, and write `note` and a legend of what has no end below the panels.

    Dots and bars have no end. `extra` are further entries of the legend, such as `key_of_dashes`.
    """
    lines: dict[tuple[Axes, str], Line2D] = {}
    legend: dict[str, Any] = {}
    for ax in figure.axes:
        ax.title.set_fontsize(9)
        for handle, text in zip(*ax.get_legend_handles_labels(), strict=True):
            if isinstance(handle, Line2D) and handle.get_linestyle() != "None":
                lines.setdefault((ax, text), handle)
            else:
                legend.setdefault(text, handle)
    for handle in extra:
        legend[str(handle.get_label())] = handle
    names, texts = [], ""
    for (ax, _), line in lines.items():
        name = _name_line(ax, line)
        names.append((ax, line, name))
        texts += name.get_text()
    if ARROWS[0] in texts or ARROWS[1] in texts:
        note += " An arrow: the line reaches this value beyond the panel."
    _add_legend(figure, note, legend)
    engine = figure.get_layout_engine()
    settings = engine.get() if engine else {}
    figure.set_layout_engine(NamesApart(names, **settings))


def without_band(note: str) -> str:
    """The note of a figure whose bands are all hidden by their lines."""
    return note.replace(BAND, "the standard deviation is less than a line's width")


def is_band_visible(ax: Axes, points: pd.DataFrame) -> bool:
    """Whether the band or the error bars of `points` reach beyond the width of a line."""
    x = np.asarray(ax.convert_xunits(points["x"].tolist()), float)  # categories have numbers, too
    low = _panel_shares(ax, np.column_stack((x, points["low"].to_numpy(float))))
    high = _panel_shares(ax, np.column_stack((x, points["high"].to_numpy(float))))
    return bool(len(low) and np.nanmax(high[:, 1] - low[:, 1]) > MIN_VISIBLE_BAND)


class NamesApart(ConstrainedLayoutEngine):
    """Constrained layout when a figure is drawn; then the names of lines are moved apart.

    A name in the panel is first moved off the other lines.
    """

    def __init__(self, names: Sequence[tuple[Axes, Line2D, Annotation]], **settings: Any) -> None:
        super().__init__(**settings)
        self._names = names

    def execute(self, fig: Figure) -> None:
        super().execute(fig)
        for ax in fig.axes:
            names, heights = [], []
            for panel, line, name in self._names:
                if panel is ax:
                    names.append(name)
                    heights.append(_height_off_lines(name, line, ax))
            _move_apart(names, heights, ax.bbox.y0, ax.bbox.y1)


def _add_legend(figure: Figure, note: str, handles: dict[str, Any]) -> None:
    """Add the legend below the panels, which keep their size."""
    wide = figure.get_figwidth()
    columns = max(1, int(wide / (0.55 + 0.062 * max(map(len, handles), default=1))))
    head = textwrap.wrap(note, int(wide / 0.056))
    legend = figure.legend(
        list(handles.values()), list(handles), loc="outside lower left", ncols=columns,
        title="\n".join(head), title_fontsize=7, fontsize=7.5, alignment="left", frameon=False,
        handlelength=2.4,
    )  # fmt: skip
    legend.get_title().set_color(GREY)
    lines = len(head) + math.ceil(len(handles) / columns)
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE_INCHES * (lines + 0.5))


def _panel_shares(ax: Axes, points: NDArray, line: Line2D | None = None) -> NDArray:
    """Points `[n, 2]` as shares of the panel's width and height; of `line`, in its own units."""
    ax.get_xlim(), ax.get_ylim()  # settles the limits
    place = line.get_transform() if line else ax.transData
    with np.errstate(invalid="ignore", divide="ignore"):
        return (place - ax.transAxes).transform(points)


def _name_line(ax: Axes, line: Line2D) -> Annotation:
    """Write the line's label at its last point in the panel, and how far it goes beyond it."""
    data = np.column_stack(line.get_data()).astype(float)
    shares = _panel_shares(ax, data, line)
    inside = np.isfinite(shares).all(1) & (shares[:, 0] <= 1 + 1e-9)
    last = np.flatnonzero(inside)[shares[inside, 0].argmax()]
    x, y = shares[last]
    text, heights = str(line.get_label()), shares[inside, 1]
    text = text if "$" in text else text.replace("_", " ")
    if heights.max() > 1 + MIN_VISIBLE_BAND:
        text += f" {ARROWS[0]} {data[inside, 1].max():.2g}"
    elif heights.min() < -MIN_VISIBLE_BAND:
        text += f" {ARROWS[1]} {data[inside, 1].min():.2g}"
    # A line that ends beyond the panel has no end to join its name to.
    leader = {"arrowstyle": "-", "color": line.get_color(), "lw": 0.5, "relpos": (0, 0.5),
              "shrinkA": 0, "shrinkB": 0} if 0 <= y <= 1 else None  # fmt: skip
    return ax.annotate(
        "\n".join(textwrap.wrap(text, LABEL_CHARACTERS)), (x, min(max(y, 0), 1)),
        xycoords="axes fraction", xytext=(6, 0), textcoords="offset points", va="center",
        fontsize=7.5, linespacing=0.9,
        color=line.get_color(), bbox={"fc": "white", "alpha": 0.7, "lw": 0, "pad": 0},
        arrowprops=leader,
    )  # fmt: skip


def _height_off_lines(name: Annotation, line: Line2D, ax: Axes) -> float:
    """How far to move the name of `line` up or down, in dots, to cover the least of other lines.

    A name beside the panel stays. Among heights that cover as little, the nearest is taken.
    """
    name.set_position((6, 0))
    box = name.get_window_extent()
    if box.x0 >= ax.bbox.x1:
        return 0.0
    points = [np.empty((0, 2))]
    for other_line in ax.get_lines():
        if other_line is not line:
            points.append(_points_between(other_line))
    x, y = np.concatenate(points).T
    y = y[(x > box.x0) & (x < box.x1)]
    nearest, fewest = 0.0, math.inf
    for steps in sorted(range(-MAX_HALF_LINES, MAX_HALF_LINES + 1), key=abs):
        height = steps * box.height / 2
        bottom, top = box.y0 + height, box.y1 + height
        covered = int(np.count_nonzero((y > bottom) & (y < top)))
        if bottom >= ax.bbox.y0 and top <= ax.bbox.y1 and covered < fewest:
            nearest, fewest = height, covered
    return nearest


def _points_between(line: Line2D) -> NDArray:
    """Points on a line in dots, `[n, 2]`, where its ends are finite."""
    data = np.column_stack(line.get_data()).astype(float)
    ends = line.get_transform().transform(data)
    ends = ends[np.isfinite(ends).all(1)]
    if len(ends) < 2:
        return ends
    numbers = np.linspace(0, len(ends) - 1, LINE_POINTS)
    return np.column_stack([np.interp(numbers, np.arange(len(ends)), axis) for axis in ends.T])


def _move_apart(
    names: Sequence[Annotation], heights: Sequence[float], bottom: float, top: float
) -> None:
    """Move the names up and down, between `bottom` and `top`, until none lies on another.

    They begin at `heights`, in dots above the ends of their lines.
    """
    dots = names[0].figure.dpi / 72 if names else 1.0  # a point
    boxes = []
    for name in names:
        name.set_position((6, 0))
        boxes.append(name.get_window_extent())
    middles = np.array([(box.y0 + box.y1) / 2 for box in boxes])
    half = np.array([box.height / 2 + 0.9 * dots for box in boxes])
    moved = middles + heights
    for _ in range(SPREAD_ROUNDS):
        moved = np.clip(moved, bottom + half, top - half)
        order = moved.argsort(kind="stable")
        for place, low in enumerate(order):
            for high in order[place + 1 :]:
                apart = half[low] + half[high] - (moved[high] - moved[low])
                beside = boxes[low].x1 < boxes[high].x0 or boxes[high].x1 < boxes[low].x0
                if apart > 0 and not beside:
                    moved[[low, high]] += -apart / 2, apart / 2
    for name, shift in zip(names, moved - middles, strict=True):
        name.set_position((6, shift / dots))
