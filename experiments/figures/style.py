"""How samplers look in every figure, and how lines, panels and notes are named.

Colours have a contrast of at least 3 to white (WCAG 2.1, success criterion 1.4.11). Samplers that
are drawn together differ for colour-blind readers too, and markers tell them apart in grey.
"""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from numpy.typing import NDArray

from latticework.experiments.figures.band import edges
from latticework.experiments.records.labels import SAMPLERS, look, words
from latticework.experiments.records.record import Record

# Colours and markers of lines that are no samplers, such as step sizes.
INKS = ("#0072B2", "#C44E00", "#00785A", "#A8457F", "#555555", "#7A6A00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")
SPACING = 0.15  # between the markers of a line, as a share of the panel's diagonal
PAGE = 7.2  # inches: the width of two panels and of a page
LINE = 0.15  # inches of a line of a legend
NARROW = 24  # characters of a line of a name
SEEN = 0.01  # of the panel's height: a narrower band is hidden by its line
GREY = "#666666"
ARROWS = "\N{UPWARDS ARROW}\N{DOWNWARDS ARROW}"
BAND = "band: one standard deviation"  # of `grouping.spread_over`


def colour(key: tuple[str, int], place: int = 0, of: int = 1) -> Any:
    """The sampler's colour. Several lines of one sampler get shades of it, from dark to its own."""
    own = look(key[0]).colour
    share = 1 - 0.6 * (of - 1 - place) / max(1, of - 1)
    return own if share == 1 else tuple(part * share for part in to_rgb(own))


def line(key: tuple[str, int], place: int = 0, of: int = 1) -> dict[str, Any]:
    """Colour, marker and dashes of a sampler's line, for `Axes.plot`.

    Lines of larger blocks or more flips are dashed. Several lines of one sampler alternate in their
    dashes. Markers have different places on different samplers' lines, which shows lines that
    coincide.
    """
    name, size = key
    larger = name in ("gibbs", "gwg") and size > 1
    number = list(SAMPLERS).index(name) if name in SAMPLERS else len(SAMPLERS)
    return {
        "color": colour(key, place, of),
        "linestyle": DASHES[larger + 2 * (place % 2)],
        "marker": look(name).marker,
        "markevery": (SPACING * (number % 5) / 5, SPACING),
    }


def series(number: int) -> dict[str, Any]:
    """Colour and marker of line `number` of a figure whose lines are no samplers."""
    return {
        "color": INKS[number % len(INKS)],
        "marker": MARKERS[number % len(MARKERS)],
        "markevery": (SPACING * (number % 5) / 5, SPACING),
    }


def new_figure(
    columns: int = 1, width: float = PAGE / 2, height: float = 2.8, rows: int = 1, **more: Any
) -> tuple[Figure, Any]:
    """A figure with `rows` and `columns` of panels. `width` and `height` of a panel in inches.

    `more` is passed to `matplotlib.pyplot.subplots`, such as `sharey`.
    """
    size = (width * columns, height * rows)
    with plt.rc_context({"axes.labelsize": 9}):
        figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", **more)
    for ax in figure.axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(which="both", labelsize=8)
    return figure, axes


def wrapped(count: int, across: int = 2, **size: float) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels, at most `across` side by side."""
    figure, _ = new_figure(min(across, count), rows=math.ceil(count / across), **size)
    for ax in figure.axes[count:]:
        ax.set_axis_off()
    return figure, figure.axes[:count]


def key_of_dashes(**names: str) -> list[Line2D]:
    """Entries of a legend that say what dashes mean: `key_of_dashes(forward="-", reverse="--")`."""
    return [Line2D([], [], color=GREY, ls=dash, label=words(text)) for text, dash in names.items()]


def printed(ax: Axes, x: float | None, y: float, text: str = "the paper", **style: Any) -> None:
    """Show a number that a paper prints: a cross, or a dashed line where it has no `x`."""
    if x is None:
        ax.axhline(
            y, label=text, **{"color": "black", "linewidth": 0.8, "linestyle": "--", **style}
        )
    else:
        cross = {"color": "black", "marker": "x", "linestyle": "none", "markeredgewidth": 1.6}
        ax.plot(x, y, label=text, **{**cross, **style})


def explain(figure: Figure, note: str, extra: Sequence[Artist] = ()) -> None:
    """Name each line at its end, and write `note` and a legend of what has no end below the panels.

    Dots and bars have no end. `extra` are further entries of the legend, such as `key_of_dashes`.
    """
    lines: dict[tuple[Axes, str], Line2D] = {}
    rest: dict[str, Any] = {}
    for ax in figure.axes:
        ax.title.set_fontsize(9)
        for handle, text in zip(*ax.get_legend_handles_labels(), strict=True):
            if isinstance(handle, Line2D) and handle.get_linestyle() != "None":
                lines.setdefault((ax, text), handle)
            else:
                rest.setdefault(text, handle)
    if lines and not any(_has_band(ax, one) for ax in figure.axes for one in ax.lines):
        note = note.replace(BAND, "the standard deviation is less than a line's width")
    rest |= {str(handle.get_label()): handle for handle in extra}
    names = [(ax, _name(ax, one)) for (ax, _), one in lines.items()]
    if any(ARROWS[0] in name.get_text() or ARROWS[1] in name.get_text() for _, name in names):
        note += " An arrow: the line reaches this value beyond the panel."
    _legend(figure, note, rest)
    figure.draw_without_rendering()  # settles where the panels are
    for ax in figure.axes:
        _spread([name for own, name in names if own is ax], ax.bbox.y0, ax.bbox.y1)


def _legend(figure: Figure, note: str, handles: dict[str, Any]) -> None:
    """The legend below the panels, which keep their size."""
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
    figure.set_figheight(figure.get_figheight() + LINE * (lines + 0.5))


def _has_band(ax: Axes, line: Line2D) -> bool:
    """Whether the line has a band or bars that reach beyond its width."""
    x = np.asarray(line.get_xdata(), float)
    low, high = (_shares(ax, line, np.column_stack([x[: len(y)], y])) for y in edges(line))
    return bool(low.size and np.nanmax(high[:, 1] - low[:, 1]) > SEEN)


def _shares(ax: Axes, line: Line2D, points: NDArray) -> NDArray:
    """Points `[n, 2]` of the line as shares of the panel's width and height."""
    ax.get_xlim(), ax.get_ylim()  # settles the limits
    with np.errstate(invalid="ignore", divide="ignore"):
        return (line.get_transform() - ax.transAxes).transform(points)


def _name(ax: Axes, line: Line2D) -> Annotation:
    """The line's label at its last point in the panel, and how far it goes beyond the panel."""
    data = np.column_stack([np.asarray(part, float) for part in line.get_data()])
    shares = _shares(ax, line, data)
    inside = np.isfinite(shares).all(1) & (shares[:, 0] <= 1 + 1e-9)
    last = np.flatnonzero(inside)[shares[inside, 0].argmax()]
    x, y = shares[last]
    text, heights = str(line.get_label()), shares[inside, 1]
    text = text if "$" in text else text.replace("_", " ")
    if heights.max() > 1 + SEEN:
        text += f" {ARROWS[0]} {data[inside, 1].max():.2g}"
    elif heights.min() < -SEEN:
        text += f" {ARROWS[1]} {data[inside, 1].min():.2g}"
    return ax.annotate(
        "\n".join(textwrap.wrap(text, NARROW)), (x, min(max(y, 0), 1)), xycoords="axes fraction",
        xytext=(6, 0), textcoords="offset points", va="center", fontsize=7.5, linespacing=0.9,
        color=line.get_color(), bbox={"fc": "white", "alpha": 0.7, "lw": 0, "pad": 0},
        arrowprops={"arrowstyle": "-", "color": line.get_color(), "lw": 0.5, "relpos": (0, 0.5),
                    "shrinkA": 0, "shrinkB": 0},
    )  # fmt: skip


def _spread(names: Sequence[Annotation], bottom: float, top: float, rounds: int = 200) -> None:
    """Move the names up and down, between `bottom` and `top`, until none lies on another."""
    boxes = [name.get_window_extent() for name in names]
    middles = np.array([(box.y0 + box.y1) / 2 for box in boxes])
    half = np.array([box.height / 2 + 1 for box in boxes])
    moved = middles.copy()
    for _ in range(rounds):
        moved = np.clip(moved, bottom + half, top - half)
        order = moved.argsort(kind="stable")
        for place, low in enumerate(order):
            for high in order[place + 1 :]:
                apart = half[low] + half[high] - (moved[high] - moved[low])
                beside = boxes[low].x1 < boxes[high].x0 or boxes[high].x1 < boxes[low].x0
                if apart > 0 and not beside:
                    moved[[low, high]] += -apart / 2, apart / 2
    for name, shift in zip(names, moved - middles, strict=True):
        name.set_position((6, shift * 72 / name.figure.dpi))


def mark_substitute(figure: Figure, records: list[Record]) -> None:
    """Mark the figure if any record was made with substitute data."""
    names = sorted({record.substitute for record in records if record.substitute})
    if names:
        figure.text(
            0.5, 0.5, "SUBSTITUTE DATA\n" + "\n".join(names), color="crimson", alpha=0.35,
            fontsize=13, ha="center", va="center", rotation=20, weight="bold",
        )  # fmt: skip
