"""Figures of the benchmark: which sampler for which target, errors over time, growth with size."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import NullFormatter

from latticework.experiments.figures.style import (
    PAGE,
    at_places,
    at_settings,
    explain,
    line,
    line_and_band,
    new_figure,
    spread_over,
    wrapped,
)
from latticework.experiments.figures.tables.benchmark import (
    QUANTITIES,
    by_target,
    cells,
    growths,
    placed,
)
from latticework.experiments.records.grouping import words
from latticework.experiments.records.record import Record

AXES = {"seconds": "seconds", "evaluations": "evaluations by each chain", "step": "iterations"}
MIDDLE: dict[str, Any] = {"ha": "center", "va": "center"}
LIGHT = 0.25  # the share of the best above which text is white
PER_CENT = (1, 3, 10, 30, 100)  # ticks of the shares; smaller ones have the colour of the first
OTHERS: dict[str, Any] = {"color": "#C4C4C4", "linewidth": 0.8}
NO_CHAINS: dict[str, Any] = {"facecolor": "#DDDDDD", "linewidth": 0}
NO_SUPPORT: dict[str, Any] = {"facecolor": "none", "edgecolor": "#BBBBBB", "hatch": "////"}
TARGETS = {  # the warmest of each family first
    "product": "independent sites",
    "ising_5x5": "Ising 5x5",
    "ising_50x50_below": "Ising 50x50, warm",
    "ising_50x50_at": "Ising 50x50, critical",
    "ising_50x50_above": "Ising 50x50, cold",
    "potts_30x30": "Potts 30x30, critical",
    "sk_16": "spin glass, 16 spins",
    "sk_200": "spin glass, 200 spins",
    "rbm_mnist_25": "RBM of MNIST",
    "rbm_mnist_500": "RBM of MNIST, 500 units",
    "fhmm": "hidden Markov model",
}


def ordered(targets: Iterable[str]) -> dict[str, str]:
    """The targets in words, in the order of TARGETS; others come last."""
    given = list(targets)
    names = TARGETS | {one: words(one) for one in given if one not in TARGETS}
    return {one: name for one, name in names.items() if one in given}


def heat_map(records: list[Record], unit: str) -> Figure:
    """Which sampler for which target: effective samples of the worst site for a `unit`.

    A cell shows its rank, with "=" for ties, above its share of the best in per cent. A cell whose
    chains disagree is grey and shows R-hat. Hatched cells are of samplers without support for the
    target.
    """
    found = cells(records)
    targets = ordered(cell.target for cell in found)
    samplers = list(dict.fromkeys(cell.sampler for cell in found))
    shares = np.full((len(samplers), len(targets)), np.nan)
    width = max(3.6, PAGE * min(1, (3 + len(targets)) / 12))
    figure, ax = new_figure(width=width, height=1.4 + 0.3 * max(3, len(samplers)))
    for column, target in enumerate(targets):
        some = [cell for cell in found if cell.target == target]
        places = placed(some, "min", unit)
        best = max((cell.interval("min", unit).middle for cell in some if cell.mixed), default=0)
        for cell in some:
            row = samplers.index(cell.sampler)
            if cell.mixed and best:
                shares[row, column] = cell.interval("min", unit).middle / best
                ink = "white" if shares[row, column] > LIGHT else "black"
                text = f"{places[cell.sampler]}\n{_per_cent(shares[row, column])}"
                ax.text(column, row, text, color=ink, **MIDDLE, fontsize=6, linespacing=0.9)
                continue
            kind = NO_SUPPORT if cell.absent else NO_CHAINS
            ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **kind | {"linewidth": 0}))
            stuck = "stuck" if cell.absent or math.isinf(cell.r_hat) else f"R-hat\n{cell.r_hat:.2f}"
            ax.text(column, row, "" if cell.absent else stuck, **MIDDLE, fontsize=5)
    scale = LogNorm(PER_CENT[0], PER_CENT[-1])
    image = ax.imshow(100 * shares, cmap="YlGn", norm=scale, aspect="auto")
    ax.set_facecolor("white")
    labels = {cell.sampler: cell.label for cell in found}
    ax.set_yticks(range(len(samplers)), [labels[name] for name in samplers], fontsize=7)
    ax.set_xticks(range(len(targets)), targets.values(), fontsize=7, rotation=35, ha="right")
    bar = figure.colorbar(image, ax=ax, shrink=0.6, ticks=PER_CENT, format="%g %%")
    bar.ax.tick_params(labelsize=7)
    ax.set_title(f"effective samples of the {QUANTITIES['min']} for each {unit}")
    kinds = Patch(label="chains disagree", **NO_CHAINS), Patch(label="not supported", **NO_SUPPORT)
    explain(figure, "Rank, and share of the best; = is a tie: the intervals overlap.", kinds)
    return figure


def _per_cent(share: float) -> str:
    """`47 %`, or one digit of less than one."""
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1g} %"


def errors(records: list[Record], against: str, coloured: Sequence[str]) -> Figure:
    """Log RMSE of the means over sites against seconds or evaluations, one panel a target.

    Samplers that are not `coloured` are grey and have no name. Lines are means over seeds at equal
    cost, bands one standard deviation, over the range that the runs share, or single runs if they
    share none. The burn-in counts as cost. An error is shown for chains that disagree too: it tells
    what they cost.
    """
    parts = {
        target: [c for c in some if all("log_rmse" in r.metrics for r in c.records)]
        for target, some in by_target(records).items()
    }
    parts = {target: some for target, some in parts.items() if some}
    if not parts:
        raise LookupError("no record holds the metric log_rmse")
    figure, panels = wrapped(len(parts), across=3, width=3.2, height=2.4)
    for ax, (target, name) in zip(panels, ordered(parts).items(), strict=True):
        for cell in parts[target]:
            drawn = {"label": cell.label, **line((cell.sampler, 0))}
            if cell.sampler not in coloured:
                drawn = {"label": f"_{cell.label}", "zorder": 1, **OTHERS}
            for means in at_places(cell.records, "log_rmse", against):
                line_and_band(ax, means, **drawn)
        ax.set(xscale="log", xlabel=AXES[against], ylabel="ln RMSE of the means", title=name)
        ax.xaxis.set_minor_formatter(NullFormatter())
    shown = [record for some in parts.values() for cell in some for record in cell.records]
    explain(figure, spread_over(shown), [Line2D([], [], label="other samplers", **OTHERS)])
    return figure


def scaling(records: list[Record], unit: str) -> Figure:
    """The cost of an effective sample of the worst site against the number of sites."""
    found = [one for one in growths(records, unit) if one.costs]
    if not found:
        raise LookupError("no chains of the benchmark agree")
    targets = ordered(one.target for one in found)
    figure, panels = wrapped(len(targets), width=4.4, height=3.6)
    for ax, (target, name) in zip(panels, targets.items(), strict=True):
        for one in (one for one in found if one.target == target):
            means = at_settings({n: list(c.values()) for n, c in one.costs.items()})
            drawn = line((one.sampler, 0)) | {"markevery": None}
            line_and_band(ax, means, label=one.label, **drawn)
        ax.set(xscale="log", yscale="log", xlabel="sites", title=name)
        ax.set_ylabel(f"{unit}s for an effective sample")
    explain(figure, spread_over(record for one in found for record in one.records))
    return figure
