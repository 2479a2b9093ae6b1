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


def grid(records: list[Record], rows: str, side: int = 6) -> Figure:
    """The same, `side * side` images a panel, with a row of panels for each choice of group `rows`.

    Figure 9 of Zhang et al. (2022) with `rows="data"`. First seed. Raises LookupError when no
    record has images.
    """
    records = [record for record in records if record.has("last")]
    if not records:
        raise LookupError("no record holds the chains' last states")
    keys, names = list(by_sampler(records)), sorted({record.choices[rows] for record in records})
    figure = new_figure(1, width=1.6 * len(keys) + 0.3, height=1.65 * len(names) + 0.3)[0]
    figure.clear()
    panels = figure.subplots(len(names), len(keys), squeeze=False)
    for line, name in zip(panels, names, strict=True):
        found = by_sampler([record for record in records if record.choices[rows] == name])
        line[0].set_ylabel(name, fontsize=8)
        for ax, key in zip(line, keys, strict=True):
            ax.set_xticks([])
            ax.set_yticks([])
            ax.spines[:].set_visible(False)
            if key in found:
                image = tile(found[key][0].arrays("last")["x"], side)
                ax.imshow(image, cmap="gray", interpolation="nearest")
    for ax, key in zip(panels[0], keys, strict=True):
        ax.set_title(label(key), fontsize=9)
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
