"""Figures of the benchmark: which sampler for which target, errors over time, growth with size."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullFormatter

from latticework.experiments.figures.band import at_places, at_settings, line_and_band
from latticework.experiments.figures.style import explain, line, new_figure, wrapped
from latticework.experiments.figures.tables.benchmark import (
    QUANTITIES,
    Cell,
    by_target,
    cells,
    growths,
    placed,
)
from latticework.experiments.records.grouping import spread_over
from latticework.experiments.records.record import Record

AXES = {"seconds": "seconds", "evaluations": "evaluations by each chain", "step": "iterations"}
MIDDLE: dict[str, Any] = {"ha": "center", "va": "center"}
LIGHT = 0.4  # the share of the best above which text is white
WORST = -2.0  # log10 of the share of the best that the darkest colour stands for


def heat_map(records: list[Record], unit: str, quantity: str = "min") -> Figure:
    """Which sampler for which target: effective samples for a `unit`, as a share of the best.

    Numbers are ranks, with "=" for ties. A cell whose chains disagree is grey and shows R-hat; an
    empty cell was not measured.
    """
    found = cells(records)
    targets = list(dict.fromkeys(cell.target for cell in found))
    samplers = list(dict.fromkeys(cell.sampler for cell in found))
    shares = np.full((len(samplers), len(targets)), np.nan)
    figure, ax = new_figure(
        width=2.2 + 0.75 * len(targets), height=1.4 + 0.3 * max(3, len(samplers))
    )
    for column, target in enumerate(targets):
        some = [cell for cell in found if cell.target == target]
        places = placed(some, quantity, unit)
        best = max((cell.interval(quantity, unit).middle for cell in some if cell.mixed), default=0)
        for cell in some:
            row = samplers.index(cell.sampler)
            if cell.mixed and best:
                shares[row, column] = cell.interval(quantity, unit).middle / best
                ink = "white" if shares[row, column] > LIGHT else "black"
                ax.text(column, row, places[cell.sampler], color=ink, **MIDDLE, fontsize=7)
            elif not cell.absent:
                _disagree(ax, cell, row, column)
    with np.errstate(divide="ignore"):
        image = ax.imshow(np.log10(shares), cmap="YlGn", vmin=WORST, vmax=0, aspect="auto")
    ax.set_facecolor("white")
    labels = {cell.sampler: cell.label for cell in found}
    ax.set_yticks(range(len(samplers)), [labels[name] for name in samplers], fontsize=7)
    ax.set_xticks(range(len(targets)), targets, fontsize=7, rotation=35, ha="right")
    bar = figure.colorbar(image, ax=ax, shrink=0.8)
    bar.set_label("log10 of the share of the best", fontsize=7)
    bar.ax.tick_params(labelsize=7)
    ax.set_title(f"effective samples of the {QUANTITIES[quantity]} for each {unit}", fontsize=8)
    return figure


def _disagree(ax: Axes, cell: Cell, row: int, column: int) -> None:
    """R-hat on grey."""
    ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color="#dddddd", linewidth=0))
    text = "stuck" if math.isinf(cell.r_hat) else f"R-hat {cell.r_hat:.2f}"
    ax.text(column, row, text, **MIDDLE, fontsize=5)


def errors(records: list[Record], against: str) -> Figure:
    """Log RMSE of the means over sites against seconds or evaluations, one panel a target.

    Lines are means over seeds at equal cost, bands one standard deviation, over the range that the
    runs share, or single runs if they share none. The burn-in counts as cost. An error is shown for
    chains that disagree too: it tells what they cost.
    """
    parts = {
        target: [c for c in some if all("log_rmse" in r.metrics for r in c.records)]
        for target, some in by_target(records).items()
    }
    parts = {target: some for target, some in parts.items() if some}
    if not parts:
        raise LookupError("no record holds the metric log_rmse")
    figure, panels = wrapped(len(parts), across=3, width=2.6, height=2.3)
    for ax, (target, some) in zip(panels, parts.items(), strict=True):
        for cell in some:
            for means in at_places(cell.records, "log_rmse", against):
                line_and_band(ax, means, label=cell.label, **line((cell.sampler, 0)))
        ax.set_xscale("log")
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set_title(target, fontsize=8)
        ax.set_xlabel(AXES[against], fontsize=8)
        ax.set_ylabel("log RMSE of the means", fontsize=8)
    shown = [record for some in parts.values() for cell in some for record in cell.records]
    explain(figure, spread_over(shown))
    return figure


def scaling(records: list[Record], unit: str) -> Figure:
    """The cost of an effective sample of the worst site against the number of sites."""
    found = [one for one in growths(records, unit) if one.costs]
    if not found:
        raise LookupError("no chains of the benchmark agree")
    targets = list(dict.fromkeys(one.target for one in found))
    figure, panels = wrapped(len(targets), width=3.2)
    for ax, target in zip(panels, targets, strict=True):
        for one in (one for one in found if one.target == target):
            means = at_settings({n: list(c.values()) for n, c in one.costs.items()})
            drawn = line((one.sampler, 0)) | {"markevery": None}
            line_and_band(ax, means, label=one.label, **drawn)
        ax.set(xscale="log", yscale="log")
        ax.set_title(target, fontsize=8)
        ax.set_xlabel("sites", fontsize=8)
        ax.set_ylabel(f"{unit}s for an effective sample", fontsize=8)
    explain(figure, spread_over(record for one in found for record in one.records))
    return figure
