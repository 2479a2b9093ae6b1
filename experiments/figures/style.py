"""How each sampler looks in every figure, and the legend below the panels.

Colours have a contrast of at least 3 to white (WCAG 2.1, success criterion 1.4.11). Markers
distinguish samplers in grey and for colour-blind readers.
"""

import math
import textwrap
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from latticework.experiments.records.labels import SAMPLERS, look
from latticework.experiments.records.record import Record

# Colours and markers of lines that are no samplers, such as step sizes.
INKS = ("#0072B2", "#C44E00", "#00785A", "#A8457F", "#555555", "#7A6A00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")
SPACING = 0.15  # between the markers of a line, as a share of the panel's diagonal
COINCIDE = 0.01  # mean distance of two lines, as a share of the panel's height: a line's width
PAIRS = 4  # of lines that coincide, which a caption names
PHONE = 4.4  # inches of a figure that a phone shows; a legend is not wider
LINE = 0.15  # inches of a line of a legend
GREY = "#666666"


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
    columns: int = 1, width: float = 3.6, height: float = 2.8, rows: int = 1
) -> tuple[Figure, Any]:
    """A figure with `rows` and `columns` of panels. `width` and `height` of a panel in inches."""
    size = (width * columns, height * rows)
    with plt.rc_context({"axes.labelsize": 9}):
        figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained")
    for ax in figure.axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8)
    return figure, axes


def wrapped(count: int, across: int = 2, **size: float) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels, at most `across` side by side."""
    figure, _ = new_figure(min(across, count), rows=math.ceil(count / across), **size)
    for ax in figure.axes[count:]:
        ax.set_axis_off()
    return figure, figure.axes[:count]


def key_of_dashes(**names: str) -> list[Line2D]:
    """Entries of a legend that say what dashes mean: `key_of_dashes(forward="-", reverse="--")`."""
    return [
        Line2D([], [], color=GREY, ls=dash, label=text.replace("_", " "))
        for text, dash in names.items()
    ]


def explain(figure: Figure, note: str, extra: Sequence[Artist] = ()) -> None:
    """Write a legend of all lines below the panels, headed by `note`, which explains them.

    The heading also names lines that lie under others. `extra` are further entries. The legend is
    at the left and at most `PHONE` wide, so that a phone shows it without scrolling.
    """
    handles: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, text in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(text, handle)
    handles |= {str(handle.get_label()): handle for handle in extra}
    wide = min(PHONE, figure.get_figwidth())
    columns = max(1, int(wide / (0.55 + 0.062 * max(map(len, handles), default=1))))
    head = textwrap.wrap(" ".join([note, *covered(figure)]), int(wide / 0.056))
    legend = figure.legend(
        list(handles.values()), list(handles), loc="outside lower left", ncols=columns,
        title="\n".join(head), title_fontsize=7, fontsize=7.5, alignment="left", frameon=False,
        handlelength=2.4,
    )  # fmt: skip
    legend.get_title().set_color(GREY)
    lines = len(head) + math.ceil(len(handles) / columns)
    figure.set_figheight(figure.get_figheight() + LINE * (lines + 0.5))  # panels keep their size


def covered(figure: Figure) -> list[str]:
    """`LB-1 lies under GWG-1.` for each pair of named lines that coincide in some panel.

    More than `PAIRS` of them are summed up in one sentence.
    """
    found = []
    for ax in figure.axes:
        named = [one for one in ax.lines if not str(one.get_label()).startswith("_")]
        for below, above in combinations(named, 2):
            if _distance(ax, below, above) < COINCIDE and below.get_label() != above.get_label():
                found.append(f"{below.get_label()} lies under {above.get_label()}.")
    pairs = list(dict.fromkeys(found))
    return pairs if len(pairs) <= PAIRS else ["Some lines lie under others."]


def _distance(ax: Axes, one: Line2D, other: Line2D) -> float:
    """Mean vertical distance as a share of the panel's height; infinite for different ranges."""
    (x, y), (its_x, its_y) = _points(ax, one), _points(ax, other)
    if min(len(x), len(its_x)) < 3 or max(abs(x[0] - its_x[0]), abs(x[-1] - its_x[-1])) > 0.02:
        return np.inf
    return float(np.abs(y - np.interp(x, its_x, its_y)).mean())


def _points(ax: Axes, line: Line2D) -> NDArray:
    """The line's finite points as shares of the panel, `[2, points]`, in order of x."""
    ax.get_xlim(), ax.get_ylim()  # settles the limits
    data = np.column_stack([np.asarray(part, float) for part in line.get_data()])
    with np.errstate(invalid="ignore", divide="ignore"):
        points = (ax.transData - ax.transAxes).transform(data[np.isfinite(data).all(1)])
    points = points[np.isfinite(points).all(1)]
    return points[points[:, 0].argsort()].T


def mark_substitute(figure: Figure, records: list[Record]) -> None:
    """Mark the figure if any record was made with substitute data."""
    names = sorted({record.substitute for record in records if record.substitute})
    if names:
        figure.text(
            0.5, 0.5, "SUBSTITUTE DATA\n" + "\n".join(names), color="crimson", alpha=0.35,
            fontsize=13, ha="center", va="center", rotation=20, weight="bold",
        )  # fmt: skip
