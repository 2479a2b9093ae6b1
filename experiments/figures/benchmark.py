"""The benchmark of all samplers: which one for which target, errors over time, growth with size.

A cell is a target and a sampler. Chains that disagree have no effective sample size. Their cells
show R-hat in its place.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import NullFormatter

from latticework.experiments.figures.style import (
    PAGE_INCHES,
    describe_band,
    label_lines_and_legend,
    line_and_band,
    means_by_setting,
    means_on_common_grid,
    new_figure,
    new_panel_grid,
    sampler_line_style,
)
from latticework.experiments.records.grouping import group_by, require_one_setting
from latticework.experiments.records.labels import sampler_order, sampler_style, spell_name
from latticework.experiments.records.record import Record
from latticework.sampling.diagnostics import largest_r_hat
from latticework.sampling.intervals import Interval, geometric_interval, mean_interval
from latticework.sampling.tuning.ranking import ranks

QUANTITIES = {"min": "worst site", "median": "median site", "energy": "energy"}
UNITS = ("iteration", "evaluation", "second")
FEWEST_SIZES = 3  # numbers of sites that an exponent is fitted to
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


@dataclass(frozen=True)
class Cell:
    """The runs of one sampler on one target, which differ in their seed."""

    target: str
    sampler: str  # its name in conf/sampler
    records: list[Record]

    @property
    def label(self) -> str:
        return sampler_style(self.sampler).label

    @property
    def absent(self) -> str:
        """Why nothing was measured; "" if it was."""
        return next((str(r.document["absent"]) for r in self.records if was_skipped(r)), "")

    @property
    def r_hat(self) -> float:
        """The largest R-hat of any run; infinite if chains are stuck."""
        return max(r_hat(record) for record in self.records)

    @property
    def mixed(self) -> bool:
        if self.absent:
            return False
        return self.r_hat <= min(largest_r_hat(r.config["task"]["chains"]) for r in self.records)

    def interval(self, quantity: str, unit: str) -> Interval:
        """Effective samples of `quantity` for each `unit`: geometric mean over seeds."""
        return geometric_interval(rate(record, quantity, unit) for record in self.records)

    def text(self, quantity: str, unit: str) -> str:
        """`0.276 [0.233, 0.327]`, or why there is no such number."""
        if self.absent:
            return "not measured"
        if not self.mixed:
            return f"R-hat {self.r_hat:.3g}"
        if self.records[0].document["ess"][quantity] is None:
            return "flat"
        middle, low, high = self.interval(quantity, unit)
        return f"{middle:.3g} [{low:.3g}, {high:.3g}]"


def was_skipped(record: Record) -> bool:
    return "absent" in record.document


def r_hat(record: Record) -> float:
    found = record.document["r_hat"]
    return math.inf if found is None else float(found)


def rate(record: Record, quantity: str, unit: str) -> float:
    """Effective samples of all chains, per step or evaluation of one chain, or per second.

    0 for the energy of a flat target. Costs include the burn-in.
    """
    document = record.document
    chains = record.config["task"]["chains"]
    per_step = {
        "iteration": chains,
        "evaluation": chains * document["evaluations_per_step"],
        "second": document["seconds_per_step"],
    }[unit]
    return (document["ess"][quantity] or 0.0) / (document["steps"] * per_step)


def cells(records: Sequence[Record]) -> list[Cell]:
    """One cell for each target and sampler, in the order of targets as they come.

    Raises LookupError if there are no records of the benchmark, or if those of a cell differ in
    more than their seed.
    """
    found = _runs(records)
    targets = list(dict.fromkeys(target for target, _ in found))
    keys = sorted(
        found, key=lambda key: (targets.index(key[0]), sampler_order((key[1], 0)), key[1])
    )
    return [Cell(*key, require_one_setting(found[key])) for key in keys]


def _runs(records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    """The records of the benchmark by target and sampler. Raises LookupError if there are none."""
    some = (record for record in records if "target" in record.choices)
    found = group_by(lambda record: (record.choices["target"], record.choices["sampler"]), some)
    if not found:
        raise LookupError("no record of the benchmark")
    return found


def by_target(records: Sequence[Record]) -> dict[str, list[Cell]]:
    """The cells of each target, without samplers that do not support it."""
    return group_by(lambda cell: cell.target, (cell for cell in cells(records) if not cell.absent))


def rank_cells(some: Sequence[Cell], quantity: str, unit: str) -> dict[str, str]:
    """The rank of each sampler whose chains agree, with "=" for ties."""
    mixed = [cell for cell in some if cell.mixed]
    places = ranks([cell.interval(quantity, unit) for cell in mixed])
    return {cell.sampler: place for cell, place in zip(mixed, places, strict=True)}


def efficiency(records: list[Record]) -> pd.DataFrame:
    """Effective samples per iteration, per evaluation and per second, with 95 % intervals.

    One row for each target and sampler that supports it. Ranks are those of the worst site.
    """
    rows = []
    for target, some in by_target(records).items():
        places = {unit: rank_cells(some, "min", unit) for unit in ("evaluation", "second")}
        for cell in some:
            document = cell.records[0].document
            row = {"target": target, "sampler": cell.label}
            row |= {f"rank/{unit}": places[unit].get(cell.sampler, "-") for unit in places}
            row |= {
                f"{words}, ESS/{unit}": cell.text(quantity, unit)
                for unit in UNITS
                for quantity, words in QUANTITIES.items()
            }
            row["R-hat"] = f"{cell.r_hat:.3f}"
            row["settings"] = ", ".join(f"{k}={v}" for k, v in document["tuned"].items())
            rows.append({**row, "engine": document["engine"], "seeds": len(cell.records)})
    return pd.DataFrame(rows)


def winners(records: list[Record]) -> pd.DataFrame:
    """Which sampler for which target: those of rank 1 per evaluation and per second.

    `chains agree` counts the samplers that can be ranked, of those that support the target.
    """
    rows = []
    for target, some in by_target(records).items():
        row: dict[str, object] = {"target": target}
        for unit in ("evaluation", "second"):
            places = rank_cells(some, "min", unit)
            first = [one.label for one in some if places.get(one.sampler, "").strip("=") == "1"]
            row[f"most effective samples/{unit}"] = ", ".join(first) or "none"
        row["chains agree"] = f"{sum(one.mixed for one in some)} of {len(some)}"
        rows.append(row)
    return pd.DataFrame(rows)


def left_out(records: list[Record]) -> pd.DataFrame:
    """Samplers that were not measured on a target, and why."""
    some = [cell for cell in cells(records) if cell.absent]
    return pd.DataFrame(
        {"target": cell.target, "sampler": cell.label, "reason": cell.absent} for cell in some
    )


@dataclass(frozen=True)
class Growth:
    """How the cost of an effective sample of one sampler grows with the number of sites."""

    target: str
    sampler: str
    costs: dict[int, dict[int, float]]  # by number of sites and seed
    records: list[Record]  # of `costs`
    note: str = ""  # why no exponent is fitted

    @property
    def label(self) -> str:
        return sampler_style(self.sampler).label

    def exponents(self) -> dict[int, float]:
        """The slope of log cost against log sites, by least squares, for each seed."""
        seeds = sorted(set.intersection(*(set(one) for one in self.costs.values())))
        logs = np.log(list(self.costs))
        return {
            seed: float(np.polyfit(logs, np.log([c[seed] for c in self.costs.values()]), 1)[0])
            for seed in seeds
        }


def growths(records: Sequence[Record], unit: str) -> list[Growth]:
    """The growth of `unit`s for an effective sample of the worst site, by target and sampler.

    Sizes at which chains disagree are left out; fewer than FEWEST_SIZES give no exponent.
    """
    result = []
    for (target, sampler), some in _runs(r for r in records if not was_skipped(r)).items():
        sizes = sorted(group_by(lambda record: record.document["sites"], some).items())
        kept = {size: Cell(target, sampler, require_one_setting(part)) for size, part in sizes}
        mixed = {size: cell.records for size, cell in kept.items() if cell.mixed}
        costs = {
            size: {record.config["seed"]: 1 / rate(record, "min", unit) for record in part}
            for size, part in mixed.items()
        }
        few = len(costs) < FEWEST_SIZES
        note = f"chains agree at {len(costs)} of {len(kept)} sizes" if few else ""
        used = [record for part in mixed.values() for record in part]
        result.append(Growth(target, sampler, costs, used, note))
    return sorted(
        result, key=lambda one: (one.target, sampler_order((one.sampler, 0)), one.sampler)
    )


def exponents(records: list[Record]) -> pd.DataFrame:
    """Exponents of the cost of an effective sample in the number of sites, with 95 % intervals.

    The cost is in iterations, evaluations and seconds; an exponent of 1 means as many per site.
    """
    parts = {unit: growths(records, unit) for unit in UNITS}
    rows = []
    for grown in zip(*parts.values(), strict=True):
        row = {"target": grown[0].target, "sampler": grown[0].label}
        for unit, one in zip(parts, grown, strict=True):
            exponents = list(one.exponents().values())
            row[f"{unit}s"] = one.note or format_interval(mean_interval(exponents))
        row["sizes"] = ", ".join(map(str, grown[0].costs))
        rows.append(row)
    return pd.DataFrame(rows)


def format_interval(interval: Interval) -> str:
    """`0.34 [0.29, 0.39]`; the mean alone if there is a single run."""
    if math.isinf(interval.high):
        return f"{interval.middle:.2f}"
    return f"{interval.middle:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def target_titles(targets: Iterable[str]) -> dict[str, str]:
    """The targets in words, in the order of TARGETS; others come last."""
    given = list(targets)
    names = TARGETS | {one: spell_name(one) for one in given if one not in TARGETS}
    return {one: name for one, name in names.items() if one in given}


def heat_map(records: list[Record], unit: str) -> Figure:
    """Which sampler for which target: effective samples of the worst site for a `unit`.

    A cell shows its rank, with "=" for ties, above its share of the best in per cent. A cell whose
    chains disagree is grey and shows R-hat. Hatched cells are of samplers without support for the
    target.
    """
    found = cells(records)
    targets = target_titles(cell.target for cell in found)
    samplers = list(dict.fromkeys(cell.sampler for cell in found))
    shares = np.full((len(samplers), len(targets)), np.nan)
    width = max(3.6, PAGE_INCHES * min(1, (3 + len(targets)) / 12))
    figure, ax = new_figure(width=width, height=1.4 + 0.3 * max(3, len(samplers)))
    for column, target in enumerate(targets):
        some = [cell for cell in found if cell.target == target]
        places = rank_cells(some, "min", unit)
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
    label_lines_and_legend(
        figure, "Rank, and share of the best; = is a tie: the intervals overlap.", kinds
    )
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
    figure, panels = new_panel_grid(len(parts), across=3, width=3.2, height=2.4)
    for ax, (target, name) in zip(panels, target_titles(parts).items(), strict=True):
        for cell in parts[target]:
            drawn = {"label": cell.label, **sampler_line_style((cell.sampler, 0))}
            if cell.sampler not in coloured:
                drawn = {"label": f"_{cell.label}", "zorder": 1, **OTHERS}
            for means in means_on_common_grid(cell.records, "log_rmse", against):
                line_and_band(ax, means, **drawn)
        ax.set(xscale="log", xlabel=AXES[against], ylabel="ln RMSE of the means", title=name)
        ax.xaxis.set_minor_formatter(NullFormatter())
    shown = [record for some in parts.values() for cell in some for record in cell.records]
    label_lines_and_legend(
        figure, describe_band(shown), [Line2D([], [], label="other samplers", **OTHERS)]
    )
    return figure


def scaling(records: list[Record], unit: str) -> Figure:
    """The cost of an effective sample of the worst site against the number of sites."""
    found = [one for one in growths(records, unit) if one.costs]
    if not found:
        raise LookupError("no chains of the benchmark agree")
    targets = target_titles(one.target for one in found)
    figure, panels = new_panel_grid(len(targets), width=4.4, height=3.6)
    for ax, (target, name) in zip(panels, targets.items(), strict=True):
        for one in (one for one in found if one.target == target):
            means = means_by_setting({n: list(c.values()) for n, c in one.costs.items()})
            drawn = sampler_line_style((one.sampler, 0)) | {"markevery": None}
            line_and_band(ax, means, label=one.label, **drawn)
        ax.set(xscale="log", yscale="log", xlabel="sites", title=name)
        ax.set_ylabel(f"{unit}s for an effective sample")
    label_lines_and_legend(figure, describe_band(record for one in found for record in one.records))
    return figure
