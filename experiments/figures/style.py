"""What most figures draw: lines of means with bands, in a sampler's style, with names and notes.

Colours have a contrast of at least 3 to white (WCAG 2.1, success criterion 1.4.11). Samplers that
are drawn together differ for colour-blind readers too, and markers tell them apart in grey.
"""

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from numpy.typing import ArrayLike, NDArray

from latticework.experiments.records.grouping import by_setting, drop_repeated_runs
from latticework.experiments.records.identity import SEEDS
from latticework.experiments.records.labels import SAMPLERS, format_seeds, sampler_style, spell_name
from latticework.experiments.records.record import Record

# Colours and markers of lines that are no samplers, such as step sizes.
INKS = ("#0072B2", "#C44E00", "#00785A", "#A8457F", "#555555", "#7A6A00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")
SPACING = 0.15  # between the markers of a line, as a share of the panel's diagonal
PAGE_INCHES = 7.2  # inches: the width of two panels and of a page
LEGEND_LINE_INCHES = 0.15  # inches of a line of a legend
LABEL_CHARACTERS = 24  # characters of a line of a name
MIN_VISIBLE_BAND = 0.01  # of the panel's height: a narrower band is hidden by its line
GREY = "#666666"
ARROWS = "\N{UPWARDS ARROW}\N{DOWNWARDS ARROW}"
BAND = "band: one standard deviation"  # of `describe_band`
EVERY = slice(None)


class Means(NamedTuple):
    """Means and standard deviations over runs at the places `x`, each `[points]`."""

    x: NDArray
    mean: NDArray
    spread: NDArray


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


def means_by_reading(
    records: Sequence[Record], metric: str, axis: str, shown: slice = EVERY
) -> Means:
    """`metric` against `axis` (step, seconds ...) at the readings `shown` of each record.

    The places are medians over runs: a run that was slowed down shifts no line. Raises LookupError
    if the records have these readings at different steps.
    """
    x = np.median(readings(records, axis, shown), axis=0)
    y = readings(records, metric, shown)
    return Means(x, y.mean(0), deviation(y))


def means_on_common_grid(records: Sequence[Record], metric: str, axis: str) -> list[Means]:
    """`metric` against `axis`, for runs whose readings follow a clock and so differ in their steps.

    Each run is interpolated, linearly in the logarithm of `axis`, at the same places, which are
    evenly spaced in it over the range that all runs share. If they share none, because one was
    slowed down, there is no mean, and each run is returned on its own, at its readings.
    """
    tables = [record.metrics for record in records]
    low = max(table[axis].iloc[0] for table in tables)
    high = min(table[axis].iloc[-1] for table in tables)
    if low > high:
        return [one for record in records for one in means_on_common_grid([record], metric, axis)]
    x = np.geomspace(low, high, min(len(table) for table in tables))
    y = np.array([np.interp(np.log(x), np.log(t[axis]), t[metric]) for t in tables])
    return [Means(x, y.mean(0), deviation(y))]


def means_by_setting(values: Mapping[float, Sequence[float]]) -> Means:
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
    attach_band(line, low, high)


def attach_band(line: Line2D, low: ArrayLike, high: ArrayLike) -> None:
    """Keep the ends of the band or bars of `line` with it, for `band_of_line`."""
    line.band = np.asarray(low), np.asarray(high)  # type: ignore[attr-defined]


def band_of_line(line: Line2D) -> tuple[NDArray, NDArray]:
    """The ends of the band of `line`; empty if it has none."""
    return getattr(line, "band", (np.empty(0), np.empty(0)))


def colour(key: tuple[str, int], place: int = 0, of: int = 1) -> Any:
    """The sampler's colour. Several lines of one sampler get shades of it, from dark to its own."""
    own = sampler_style(key[0]).colour
    share = 1 - 0.6 * (of - 1 - place) / max(1, of - 1)
    return own if share == 1 else tuple(part * share for part in to_rgb(own))


def sampler_line_style(key: tuple[str, int], place: int = 0, of: int = 1) -> dict[str, Any]:
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
        "marker": sampler_style(name).marker,
        "markevery": (SPACING * (number % 5) / 5, SPACING),
    }


def numbered_style(number: int) -> dict[str, Any]:
    """Colour and marker of line `number` of a figure whose lines are no samplers."""
    return {
        "color": INKS[number % len(INKS)],
        "marker": MARKERS[number % len(MARKERS)],
        "markevery": (SPACING * (number % 5) / 5, SPACING),
    }


def new_figure(
    columns: int = 1,
    width: float = PAGE_INCHES / 2,
    height: float = 2.8,
    rows: int = 1,
    **more: Any,
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


def new_panel_grid(count: int, across: int = 2, **size: float) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels, at most `across` side by side."""
    figure, _ = new_figure(min(across, count), rows=math.ceil(count / across), **size)
    for ax in figure.axes[count:]:
        ax.set_axis_off()
    return figure, figure.axes[:count]


def key_of_dashes(**names: str) -> list[Line2D]:
    """Entries of a legend that say what dashes mean: `key_of_dashes(forward="-", reverse="--")`."""
    return [
        Line2D([], [], color=GREY, ls=dash, label=spell_name(text)) for text, dash in names.items()
    ]


def draw_published(
    ax: Axes, x: float | None, y: float, text: str = "the paper", **style: Any
) -> None:
    """Show a number that a paper prints: a cross, or a dashed line where it has no `x`."""
    if x is None:
        ax.axhline(
            y, label=text, **{"color": "black", "linewidth": 0.8, "linestyle": "--", **style}
        )
    else:
        cross = {"color": "black", "marker": "x", "linestyle": "none", "markeredgewidth": 1.6}
        ax.plot(x, y, label=text, **{**cross, **style})


def label_lines_and_legend(figure: Figure, note: str, extra: Sequence[Artist] = ()) -> None:
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
    engine = figure.get_layout_engine()
    figure.set_layout_engine(NamesApart(names, **(engine.get() if engine else {})))


class NamesApart(ConstrainedLayoutEngine):
    """Constrained layout when a figure is drawn; then the names of lines are moved apart."""

    def __init__(self, names: Sequence[tuple[Axes, Annotation]], **settings: Any) -> None:
        super().__init__(**settings)
        self._names = names

    def execute(self, fig: Figure) -> None:
        super().execute(fig)
        for ax in fig.axes:
            _spread([name for own, name in self._names if own is ax], ax.bbox.y0, ax.bbox.y1)


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
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE_INCHES * (lines + 0.5))


def _has_band(ax: Axes, line: Line2D) -> bool:
    """Whether the line has a band or bars that reach beyond its width."""
    x = np.asarray(line.get_xdata(), float)
    low, high = (_shares(ax, line, np.column_stack([x[: len(y)], y])) for y in band_of_line(line))
    return bool(low.size and np.nanmax(high[:, 1] - low[:, 1]) > MIN_VISIBLE_BAND)


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
    if heights.max() > 1 + MIN_VISIBLE_BAND:
        text += f" {ARROWS[0]} {data[inside, 1].max():.2g}"
    elif heights.min() < -MIN_VISIBLE_BAND:
        text += f" {ARROWS[1]} {data[inside, 1].min():.2g}"
    return ax.annotate(
        "\n".join(textwrap.wrap(text, LABEL_CHARACTERS)), (x, min(max(y, 0), 1)),
        xycoords="axes fraction", xytext=(6, 0), textcoords="offset points", va="center",
        fontsize=7.5, linespacing=0.9,
        color=line.get_color(), bbox={"fc": "white", "alpha": 0.7, "lw": 0, "pad": 0},
        arrowprops={"arrowstyle": "-", "color": line.get_color(), "lw": 0.5, "relpos": (0, 0.5),
                    "shrinkA": 0, "shrinkB": 0},
    )  # fmt: skip


def _spread(names: Sequence[Annotation], bottom: float, top: float, rounds: int = 200) -> None:
    """Move the names up and down, between `bottom` and `top`, until none lies on another."""
    dots = names[0].figure.dpi / 72 if names else 1.0  # a point
    for name in names:
        name.set_position((6, 0))
    boxes = [name.get_window_extent() for name in names]
    middles = np.array([(box.y0 + box.y1) / 2 for box in boxes])
    half = np.array([box.height / 2 + 0.9 * dots for box in boxes])
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
        name.set_position((6, shift / dots))


def describe_runs(records: Iterable[Record], axes: Sequence[str] = ()) -> str:
    """The runs that a figure of `records` averages: `seeds 0-4`, or `3 to 5 runs, seeds 0-4`.

    Records that differ only in seed and `axes` are averaged. The numbers of runs are given unless
    every average includes all seeds.
    """
    kept = drop_repeated_runs(records)
    sizes = sorted({len(part) for part in by_setting(kept, axes)})
    every = {tuple(record.config.get(key) for key in SEEDS) for record in kept}
    if sizes in ([1], [len(every)]):
        return format_seeds(kept)
    count = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return f"{count} runs, {format_seeds(kept)}"


def describe_band(
    records: Iterable[Record], band: str = "one standard deviation", axes: Sequence[str] = ()
) -> str:
    """A sentence that explains lines and bands of means over the runs of `records`.

    `axes` are those of `describe_runs`.
    """
    kept = drop_repeated_runs(records)
    if len(by_setting(kept, axes)) == len(kept):
        return f"One run a line, {format_seeds(kept)}."
    return f"Mean over {describe_runs(kept, axes)}; band: {band}."


def mark_substitute(figure: Figure, records: list[Record]) -> None:
    """Mark the figure if any record was made with substitute data."""
    names = sorted({record.substitute for record in records if record.substitute})
    if names:
        figure.text(
            0.5, 0.5, "SUBSTITUTE DATA\n" + "\n".join(names), color="crimson", alpha=0.35,
            fontsize=13, ha="center", va="center", rotation=20, weight="bold",
        )  # fmt: skip
