"""Grids of sampled images per sampler: Figures 8 and 9 of Zhang et al. (2022)."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from latticework.experiments.figures import style
from latticework.experiments.figures.line_names import label_lines_and_legend
from latticework.experiments.figures.plot import Plot
from latticework.experiments.records import grouping, labels
from latticework.experiments.records.record import Record


def samples(records: list[Record], rows: int = 8) -> Plot:
    """The final states of `rows * rows` chains of each sampler and setting, as square images.

    Shows the first seed. Raises LookupError if no record has final states.
    """
    groups = grouping.groups(grouping.require_records_with(records, "last"))
    figure, axes = style.new_panel_grid(len(groups), across=3, width=2.2, height=2.4)
    for ax, group in zip(axes, groups, strict=True):
        draw_image(ax, tile(group.records[0].arrays("last")["x"][: rows * rows], rows))
        ax.set_title(group.label.replace(", ", ",\n"))
    return _note_seeds(Plot(figure), rows, groups)


def grid(records: list[Record], rows: str, side: int = 6) -> Plot:
    """The final states of `side * side` chains, one row of panels per option of the group `rows`.

    With `rows="data"`, Figure 9 of Zhang et al. (2022). Shows the first seed. Raises LookupError if
    no record has final states.
    """
    holding = grouping.require_records_with(records, "last")
    by_option = grouping.group_by(lambda record: record.choices[rows], holding)
    names = sorted(by_option)
    groups: dict[tuple[str, str], grouping.Group] = {}  # by option and label
    column_order: dict[str, tuple] = {}
    for name in names:
        for group in grouping.groups(by_option[name]):
            groups[name, group.label] = group
            column_order[group.label] = (labels.sampler_order(group.key), group.label)
    columns = sorted(column_order, key=column_order.__getitem__)
    wide, tall = len(columns), len(names)
    size = {"width": 1.6 + 0.3 / wide, "height": 1.65 + 0.3 / tall}
    figure, axes = style.new_figure(wide, rows=tall, squeeze=False, **size)
    for line, name in zip(axes, names, strict=True):
        for ax, label in zip(line, columns, strict=True):
            ax.set_xticks([])
            ax.set_yticks([])
            ax.spines[:].set_visible(False)
            if (name, label) in groups:
                states = groups[name, label].records[0].arrays("last")["x"]
                image = tile(states[: side * side], side)
                ax.imshow(image, cmap="gray", interpolation="nearest")
        line[0].set_ylabel(labels.spell_name(name), fontsize=8)
    for ax, label in zip(axes[0], columns, strict=True):
        ax.set_title(label.replace(", ", ",\n"))
    return _note_seeds(Plot(figure), side, list(groups.values()))


def draw_image(ax: Axes, image: np.ndarray, colours: str = "gray") -> None:
    """Show an image without axes; its pixels stay sharp."""
    ax.imshow(image, cmap=colours, interpolation="nearest")
    ax.set_axis_off()


def _note_seeds(plot: Plot, rows: int, groups: Sequence[grouping.Group]) -> Plot:
    """The figure with a note of how many chains of which seeds it shows."""
    seeds = labels.format_seeds([group.records[0] for group in groups])
    label_lines_and_legend(plot.figure, f"Last states of {rows * rows} chains, {seeds}.")
    return plot


def tile(x: np.ndarray, across: int) -> np.ndarray:
    """One image with thin lines between: `[n, side * side] -> [rows * (side + 1), across * ...]`.

    States that fill no row are left out. Raises LookupError if they are not square images.
    """
    side = math.isqrt(x.shape[1])
    if side * side != x.shape[1]:
        raise LookupError(f"states of {x.shape[1]} sites are not square images")
    across = min(across, len(x))
    images = x[: len(x) - len(x) % across].reshape(-1, side, side)
    images = np.pad(images, ((0, 0), (0, 1), (0, 1)), constant_values=1)
    grid = images.reshape(-1, across, side + 1, side + 1).transpose(0, 2, 1, 3)
    return grid.reshape(-1, across * (side + 1))
