"""Grids of sampled images, one a sampler: Figure 8 of Zhang et al. (2022)."""

import math

import numpy as np
from matplotlib.figure import Figure

from experiments.figures.style import by_sampler, label, new_figure
from experiments.record import Record


def samples(records: list[Record], rows: int = 8) -> Figure:
    """The last states of `rows * rows` chains of each sampler, first seed, square images."""
    groups = by_sampler([record for record in records if record.has("last")])
    if not groups:
        raise LookupError("no record holds the chains' last states")
    figure, panels = new_figure(len(groups), width=2.2, height=2.4)
    for ax, (key, group) in zip(np.atleast_1d(panels), groups.items(), strict=True):
        ax.imshow(tile(group[0].arrays("last")["x"], rows), cmap="gray", interpolation="nearest")
        ax.set_title(label(key), fontsize=9)
        ax.set_axis_off()
    return figure


def tile(x: np.ndarray, rows: int) -> np.ndarray:
    """`[n, side * side] -> [rows * (side + 1), columns * (side + 1)]`, thin lines between."""
    side = math.isqrt(x.shape[1])
    if side * side != x.shape[1]:
        raise LookupError(f"states of {x.shape[1]} sites are no square images")
    count = min(len(x), rows * rows)
    images = np.pad(x[:count].reshape(-1, side, side), ((0, 0), (0, 1), (0, 1)), constant_values=1)
    columns = min(rows, count)
    images = images[: count - count % columns]
    grid = images.reshape(-1, columns, side + 1, side + 1).transpose(0, 2, 1, 3)
    return grid.reshape(-1, columns * (side + 1))
