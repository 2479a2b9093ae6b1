"""Colours, markers and dashes of lines, empty figures with panels, and notes about their runs.

Colours have a contrast of at least 3 to white (WCAG 2.1, success criterion 1.4.11). Samplers that
are drawn together differ for colour-blind readers too, and markers tell them apart in grey.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from latticework.experiments.records.grouping import Group, by_setting, drop_repeated_runs
from latticework.experiments.records.identity import SEEDS
from latticework.experiments.records.labels import SAMPLERS, format_seeds, sampler_style, spell_name
from latticework.experiments.records.record import Record

# Colours and markers of lines that are no samplers, such as step sizes.
INKS = ("#0072B2", "#C44E00", "#00785A", "#A8457F", "#555555", "#7A6A00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")
SPACING = 0.15  # between the markers of a line, as a share of the panel's diagonal
PAGE_INCHES = 7.2  # inches: the width of two panels and of a page
GREY = "#666666"
BAND = "band: one standard deviation"  # the text of `describe_band`


def colour(key: tuple[str, int], place: int = 0, of: int = 1) -> Any:
    """The sampler's colour. Several lines of one sampler get shades of it, from dark to its own."""
    brightest = sampler_style(key[0]).colour
    share = 1 - 0.6 * (of - 1 - place) / max(1, of - 1)
    return brightest if share == 1 else tuple(part * share for part in to_rgb(brightest))


def group_colour(group: Group) -> Any:
    """The shade of the line of `group` among the lines of its sampler."""
    return colour(group.key, group.line_index, group.line_count)


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


def group_line_style(group: Group) -> dict[str, Any]:
    """`sampler_line_style` of the line of `group` among the lines of its sampler."""
    return sampler_line_style(group.key, group.line_index, group.line_count)


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


def describe_runs(records: Iterable[Record], axes: Sequence[str] = ()) -> str:
    """The runs that a figure of `records` averages: `seeds 0-4`, or `3 to 5 runs, seeds 0-4`.

    Records that differ only in seed and `axes` are averaged. The numbers of runs are given unless
    every average includes all seeds.
    """
    runs = drop_repeated_runs(records)
    sizes = sorted({len(part) for part in by_setting(runs, axes)})
    seeds = set()
    for record in runs:
        seeds.add(tuple(record.config.get(key) for key in SEEDS))
    if sizes in ([1], [len(seeds)]):
        return format_seeds(runs)
    count = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return f"{count} runs, {format_seeds(runs)}"


def describe_band(
    records: Iterable[Record], band: str = "one standard deviation", axes: Sequence[str] = ()
) -> str:
    """A sentence that explains lines and bands of means over the runs of `records`.

    `axes` are those of `describe_runs`.
    """
    runs = drop_repeated_runs(records)
    if len(by_setting(runs, axes)) == len(runs):
        return f"One run a line, {format_seeds(runs)}."
    return f"Mean over {describe_runs(runs, axes)}; band: {band}."


def mark_substitute(figure: Figure, records: list[Record]) -> None:
    """Mark the figure if any record was made with substitute data."""
    names = sorted({record.substitute for record in records if record.substitute})
    if names:
        figure.text(
            0.5, 0.5, "SUBSTITUTE DATA\n" + "\n".join(names), color="crimson", alpha=0.35,
            fontsize=13, ha="center", va="center", rotation=20, weight="bold",
        )  # fmt: skip
