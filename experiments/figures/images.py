"""Grids of sampled images per sampler: Figures 8 and 9 of Zhang et al. (2022)."""

import math
from collections.abc import Iterable

import numpy as np
from matplotlib.figure import Figure

from latticework.experiments.figures.style import label_lines_and_legend, new_figure, new_panel_grid
from latticework.experiments.records.grouping import Group, groups, require_records_with
from latticework.experiments.records.labels import format_seeds, sampler_order, spell_name
from latticework.experiments.records.record import Record


def samples(records: list[Record], rows: int = 8) -> Figure:
    """The final states of `rows * rows` chains of each sampler and setting, as square images.

    Shows the first seed. Raises LookupError if no record has final states.
    """
    found = groups(require_records_with(records, "last"))
    figure, panels = new_panel_grid(len(found), across=3, width=2.2, height=2.4)
    for ax, group in zip(panels, found, strict=True):
        image = tile(group.records[0].arrays("last")["x"][: rows * rows], rows)
        ax.imshow(image, cmap="gray", interpolation="nearest")
        ax.set_title(group.label.replace(", ", ",\n"))
        ax.set_axis_off()
    label_lines_and_legend(
        figure, f"Last states of {rows * rows} chains, {format_seeds(_first(found))}."
    )
    return figure


def grid(records: list[Record], rows: str, side: int = 6) -> Figure:
    """The final states of `side * side` chains, one row of panels per option of the group `rows`.

    With `rows="data"`, Figure 9 of Zhang et al. (2022). Shows the first seed. Raises LookupError if
    no record has final states.
    """
    records = require_records_with(records, "last")
    names = sorted({record.choices[rows] for record in records})
    found = {
        name: {
            group.label: group
            for group in groups(record for record in records if record.choices[rows] == name)
        }
        for name in names
    }
    order = {label: group for line in found.values() for label, group in line.items()}
    columns = sorted(order, key=lambda label: (sampler_order(order[label].key), label))
    wide, tall = len(columns), len(names)
    size = {"width": 1.6 + 0.3 / wide, "height": 1.65 + 0.3 / tall}
    figure, _ = new_figure(wide, rows=tall, **size)
    panels = np.array(figure.axes, dtype=object).reshape(tall, wide)
    for line, name in zip(panels, names, strict=True):
        line[0].set_ylabel(spell_name(name), fontsize=8)
        for ax, label in zip(line, columns, strict=True):
            ax.set_xticks([])
            ax.set_yticks([])
            ax.spines[:].set_visible(False)
            if label in found[name]:
                states = found[name][label].records[0].arrays("last")["x"]
                image = tile(states[: side * side], side)
                ax.imshow(image, cmap="gray", interpolation="nearest")
    for ax, label in zip(panels[0], columns, strict=True):
        ax.set_title(label.replace(", ", ",\n"))
    shown = _first(group for line in found.values() for group in line.values())
    label_lines_and_legend(figure, f"Last states of {side * side} chains, {format_seeds(shown)}.")
    return figure


def _first(found: Iterable[Group]) -> list[Record]:
    """The record of each group that is shown."""
    return [group.records[0] for group in found]


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
