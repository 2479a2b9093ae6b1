"""The benchmark of all samplers: which one for which target, errors over time, growth with size.

Cells and their ranks are those of `benchmark_cells`.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from matplotlib.colors import LogNorm
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import NullFormatter

from latticework.experiments.figures import means, plot, style
from latticework.experiments.figures.benchmark_cells import (
    Cell,
    Growth,
    by_target,
    cells,
    growths,
    rank_cells,
)
from latticework.experiments.figures.line_names import label_lines_and_legend
from latticework.experiments.records import grouping, labels
from latticework.experiments.records.record import Record
from latticework.sampling.intervals import Interval, mean_interval

QUANTITIES = {"min": "worst site", "median": "median site", "energy": "energy"}
UNITS = ("iteration", "evaluation", "second")
AXES = {"seconds": "seconds", "evaluations": "evaluations by each chain", "step": "iterations"}
MIDDLE: dict[str, Any] = {"ha": "center", "va": "center"}
MAX_SHARE_ON_LIGHT = 0.25  # the share of the best above which text is white
PER_CENT = (1, 3, 10, 30, 100)  # ticks of the shares; smaller ones have the colour of the first
GREY_LINE: dict[str, Any] = {"color": "#C4C4C4", "linewidth": 0.8}
DISAGREE, NOT_SUPPORTED = "chains disagree", "not supported"  # states of cells without a rank
CELL_FACES: dict[str, dict[str, Any]] = {
    DISAGREE: {"facecolor": "#DDDDDD", "linewidth": 0},
    NOT_SUPPORTED: {"facecolor": "none", "edgecolor": "#BBBBBB", "hatch": "////"},
}
TARGETS = {  # the weakest coupling of each family first
    "product": "independent sites",
    "ising_5x5": "Ising 5x5",
    "ising_50x50_below": "Ising 50x50, below critical",
    "ising_50x50_at": "Ising 50x50, at critical",
    "ising_50x50_above": "Ising 50x50, above critical",
    "potts_30x30": "Potts 30x30, at critical",
    "sk_16": "spin glass, 16 spins",
    "sk_200": "spin glass, 200 spins",
    "rbm_mnist_25": "RBM of MNIST",
    "rbm_mnist_500": "RBM of MNIST, 500 units",
    "fhmm": "hidden Markov model",
}


# Tables.


def efficiency(records: list[Record]) -> pd.DataFrame:
    """Effective samples per iteration, per evaluation and per second, with 95 % intervals.

    One row for each target and sampler that supports it. Ranks are those of the worst site.
    """
    rows = []
    for target, measured in by_target(records).items():
        places = {unit: rank_cells(measured, "min", unit) for unit in ("evaluation", "second")}
        for cell in measured:
            document = cell.records[0].document
            row: dict[str, object] = {"target": target, "sampler": cell.label}
            for unit, ranks in places.items():
                row[f"rank/{unit}"] = ranks.get(cell.sampler, "-")
            for unit in UNITS:
                for quantity, words in QUANTITIES.items():
                    row[f"{words}, ESS/{unit}"] = cell.text(quantity, unit)
            row["R-hat"] = f"{cell.r_hat:.3f}"
            row["settings"] = ", ".join(f"{k}={v}" for k, v in document["tuned"].items())
            rows.append({**row, "engine": document["engine"], "seeds": len(cell.records)})
    return pd.DataFrame(rows)


def winners(records: list[Record]) -> pd.DataFrame:
    """Which sampler for which target: those of rank 1 per evaluation and per second.

    `chains agree` counts the samplers that can be ranked, of those that support the target.
    """
    rows = []
    for target, measured in by_target(records).items():
        row: dict[str, object] = {"target": target}
        for unit in ("evaluation", "second"):
            ranks = rank_cells(measured, "min", unit)
            first = []
            for cell in measured:
                if ranks.get(cell.sampler, "").strip("=") == "1":
                    first.append(cell.label)
            row[f"most effective samples/{unit}"] = ", ".join(first) or "none"
        row["chains agree"] = f"{sum(cell.has_mixed for cell in measured)} of {len(measured)}"
        rows.append(row)
    return pd.DataFrame(rows)


def left_out(records: list[Record]) -> pd.DataFrame:
    """Samplers that were not measured on a target, and why."""
    rows = []
    for cell in cells(records):
        if cell.absent:
            rows.append({"target": cell.target, "sampler": cell.label, "reason": cell.absent})
    return pd.DataFrame(rows)


def exponents(records: list[Record]) -> pd.DataFrame:
    """Exponents of the cost of an effective sample in the number of sites, with 95 % intervals.

    The cost is in iterations, evaluations and seconds; an exponent of 1 means as many per site.
    """
    rows = []
    for growth_by_unit in zip(*(growths(records, unit) for unit in UNITS), strict=True):
        first = growth_by_unit[0]
        row = {"target": first.target, "sampler": first.label}
        for unit, growth in zip(UNITS, growth_by_unit, strict=True):
            row[f"{unit}s"] = _exponent_text(growth)
        row["sizes"] = ", ".join(map(str, first.costs))
        rows.append(row)
    return pd.DataFrame(rows)


def _exponent_text(growth: Growth) -> str:
    return growth.note or format_interval(mean_interval(list(growth.exponents().values())))


def format_interval(interval: Interval) -> str:
    """`0.34 [0.29, 0.39]`; the mean alone if there is a single run."""
    if math.isinf(interval.high):
        return f"{interval.middle:.2f}"
    return f"{interval.middle:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


# Figures.


def target_titles(targets: Iterable[str]) -> dict[str, str]:
    """The targets in words, in the order of TARGETS; others come last."""
    given = list(dict.fromkeys(targets))
    titles: dict[str, str] = {}
    for name in [*TARGETS, *given]:
        if name in given:
            titles.setdefault(name, TARGETS.get(name, labels.spell_name(name)))
    return titles


def heat_map(records: list[Record], unit: str) -> plot.Plot:
    """Which sampler for which target: effective samples of the worst site for a `unit`.

    A cell shows its rank, with "=" for ties, above its share of the best in per cent. A cell whose
    chains disagree is grey and shows R-hat. Hatched cells are of samplers without support for the
    target.
    """
    measured = cells(records)
    table = heat_table(measured, unit)
    targets = list(table["target"].unique())
    samplers = list(dict.fromkeys(cell.label for cell in measured))
    width = max(3.6, style.PAGE_INCHES * min(1, (3 + len(targets)) / 12))
    figure, ax = style.new_figure(width=width, height=1.4 + 0.3 * max(3, len(samplers)))
    grid = table.pivot(index="sampler", columns="target", values="share of the best")
    shares = 100 * grid.loc[samplers, targets].to_numpy(float)
    scale = LogNorm(PER_CENT[0], PER_CENT[-1])
    image = ax.imshow(shares, cmap="YlGn", norm=scale, aspect="auto")
    for row in table.to_dict("records"):
        column, line = targets.index(row["target"]), samplers.index(row["sampler"])
        if row["state"] in CELL_FACES:
            face = CELL_FACES[row["state"]] | {"linewidth": 0}
            ax.add_patch(Rectangle((column - 0.5, line - 0.5), 1, 1, **face))
        text, look = _cell_text(row)
        ax.text(column, line, text, **MIDDLE, **look)
    ax.set_facecolor("white")
    ax.set_yticks(range(len(samplers)), samplers, fontsize=7)
    ax.set_xticks(range(len(targets)), targets, fontsize=7, rotation=35, ha="right")
    bar = figure.colorbar(image, ax=ax, shrink=0.6, ticks=PER_CENT, format="%g %%")
    bar.ax.tick_params(labelsize=7)
    ax.set_title(f"effective samples of the {QUANTITIES['min']} for each {unit}")
    faces = []
    for state, look in CELL_FACES.items():
        faces.append(Patch(label=state, **look))
    note = "Rank, and share of the best; = is a tie: the intervals overlap."
    label_lines_and_legend(figure, note, faces)
    return plot.Plot(figure, table)


def heat_table(measured: Sequence[Cell], unit: str) -> pd.DataFrame:
    """A row for each cell: its state, its rank and share of the best, and R-hat."""
    rows = []
    by_name = grouping.group_by(lambda cell: cell.target, measured)
    for target, title in target_titles(by_name).items():
        rank_of = rank_cells(by_name[target], "min", unit)
        best = 0.0
        for cell in by_name[target]:
            if cell.has_mixed:
                best = max(best, cell.interval("min", unit).middle)
        for cell in by_name[target]:
            row: dict[str, object] = {"target": title, "sampler": cell.label}
            if cell.absent:
                row["state"] = NOT_SUPPORTED
            elif cell.has_mixed and best:
                share = cell.interval("min", unit).middle / best
                rank = rank_of[cell.sampler]
                row |= {"state": "ranked", "rank": rank, "share of the best": share}
                row["R-hat"] = cell.r_hat
            else:
                row |= {"state": DISAGREE, "R-hat": cell.r_hat}
            rows.append(row)
    columns = ["target", "sampler", "state", "rank", "share of the best", "R-hat"]
    return pd.DataFrame(rows, columns=columns)


def _cell_text(row: dict[Any, Any]) -> tuple[str, dict[str, Any]]:
    """The text in a cell of the heat map, and how it is written."""
    if row["state"] == "ranked":
        share = row["share of the best"]
        ink = "white" if share > MAX_SHARE_ON_LIGHT else "black"
        text = f"{row['rank']}\n{_format_per_cent(share)}"
        return text, {"color": ink, "fontsize": 6, "linespacing": 0.9}
    if row["state"] == NOT_SUPPORTED:
        return "", {}
    return "stuck" if math.isinf(row["R-hat"]) else f"R-hat\n{row['R-hat']:.2f}", {"fontsize": 5}


def _format_per_cent(share: float) -> str:
    """`47 %`, or one digit of less than one."""
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1g} %"


def errors(records: list[Record], against: str, coloured: Sequence[str]) -> plot.Plot:
    """Log RMSE of the means over sites against seconds or evaluations, one panel a target.

    Samplers that are not `coloured` are grey and have no name. Lines are means over seeds at equal
    cost, bands one standard deviation, over the range that the runs share, or single runs if they
    share none. The burn-in counts as cost. An error is shown for chains that disagree too: it tells
    what they cost.
    """
    scored: dict[str, list[Cell]] = {}  # by target
    for cell in cells(records):
        if not cell.absent and all("log_rmse" in r.metrics for r in cell.records):
            scored.setdefault(cell.target, []).append(cell)
    if not scored:
        raise LookupError("no record holds the metric log_rmse")
    panels, shown = [], []
    for target, title in target_titles(scored).items():
        lines = []
        for cell in scored[target]:
            shown += cell.records
            look = style.sampler_line_style((cell.sampler, 0))
            is_coloured = cell.sampler in coloured
            if not is_coloured:
                look = {"zorder": 1, **GREY_LINE}
            for values in means.means_on_common_grid(cell.records, "log_rmse", against):
                lines.append(plot.mean_line(cell.label, values, named=is_coloured, **look))
        axes = {"xscale": "log", "xlabel": AXES[against], "ylabel": "ln RMSE of the means"}
        panels.append(plot.Panel(lines, title=title, **axes))
    figure, axes_of_panels = style.new_panel_grid(len(panels), across=3, width=3.2, height=2.4)
    plot.draw_panels(axes_of_panels, panels)
    for ax in axes_of_panels:
        ax.xaxis.set_minor_formatter(NullFormatter())
    extra = [Line2D([], [], label="other samplers", **GREY_LINE)]
    return plot.finish_plot(figure, axes_of_panels, panels, style.describe_band(shown), extra)


def scaling(records: list[Record], unit: str) -> plot.Plot:
    """The cost of an effective sample of the worst site against the number of sites."""
    by_name: dict[str, list[Growth]] = {}
    for growth in growths(records, unit):
        if growth.costs:
            by_name.setdefault(growth.target, []).append(growth)
    if not by_name:
        raise LookupError("no chains of the benchmark agree")
    panels, shown = [], []
    for target, title in target_titles(by_name).items():
        lines = []
        for growth in by_name[target]:
            shown += growth.records
            values: dict[float, list[float]] = {}
            for size, costs in growth.costs.items():
                values[size] = list(costs.values())
            look = style.sampler_line_style((growth.sampler, 0)) | {"markevery": None}
            lines.append(plot.mean_line(growth.label, means.means_by_setting(values), **look))
        axes = {"xscale": "log", "yscale": "log", "xlabel": "sites"}
        label = f"{unit}s for an effective sample"
        panels.append(plot.Panel(lines, title=title, ylabel=label, **axes))
    figure, axes_of_panels = style.new_panel_grid(len(panels), width=4.4, height=3.6)
    plot.draw_panels(axes_of_panels, panels)
    return plot.finish_plot(figure, axes_of_panels, panels, style.describe_band(shown))
