"""Acceptance rates and effective samples: Figure 2 and Appendix D of Zhang et al. (2022)."""

from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from latticework.experiments.figures.curves import along
from latticework.experiments.figures.style import (
    GREY,
    colour,
    describe_band,
    describe_runs,
    draw_published,
    label_lines_and_legend,
    line_and_band,
    new_figure,
)
from latticework.experiments.records.estimates import (
    last_reading,
    published_if_same_data,
    timed_runs_and_note,
)
from latticework.experiments.records.grouping import Group, groups, join_label, require_one_setting
from latticework.experiments.records.labels import sampler_key, sampler_style
from latticework.experiments.records.record import Record

FLOOR = 5e-7  # lower end of the axis; a bar below it is not visible, but its number is written
NAMES = {"alpha": r"step size $\alpha$"}


def against_size(records: list[Record], settings: dict[str, list[str]]) -> Figure:
    """Acceptance rate and sites changed per step, against the parameter that sets the move size.

    One column per sampler. `settings` gives that parameter's field and symbol for each sampler.
    "sites proposed" counts all proposals; "sites changed" counts a rejected step as 0. Lines are
    means over seeds, bands one standard deviation, crosses the paper's numbers. Raises LookupError
    if a sampler has no record.
    """
    records = [r for r in records if {"acceptance", "changed", "proposed"} <= set(r.metrics)]
    of = {name: [r for r in records if sampler_key(r)[0] == name] for name in settings}
    if missing := [name for name, some in of.items() if not some]:
        raise LookupError(f"no record of {', '.join(missing)} holds acceptance, changed, proposed")
    figure, panels = new_figure(len(settings), rows=2, height=2.2, sharey="row", squeeze=False)
    for (ax, sites), (name, (field, symbol)) in zip(panels.T, settings.items(), strict=True):
        # The size is also a setting of the metric Proposed.
        for group in groups(of[name], [f"sampler.{field}", "task.metrics"]):
            ink = colour((name, 0), group.line_index, group.line_count)
            grey = GREY if group.line_count == 1 else ink
            own = sampler_style(name)
            _line(ax, group, field, "acceptance", own.label, color=ink, marker=own.marker)
            _line(sites, group, field, "proposed", "sites proposed", color=grey, linestyle="--")
            _line(sites, group, field, "changed", "sites changed", color=grey, linestyle=":")
        size, rate, moved = (
            published_if_same_data(of[name], "fig2", name, key)
            for key in ("size", "acceptance", "changed")
        )
        if size and rate:
            draw_published(ax, size.mean, rate.mean)
            if moved:
                draw_published(sites, size.mean, moved.mean)
        sites.set_xlabel(f"{sampler_style(name).label}, {NAMES.get(symbol, f'${symbol}$')}")
        ax.set(ylim=(0, 1.05))
    panels[0, 0].set_ylabel("acceptance rate")
    panels[1, 0].set(ylabel="sites a step", ylim=(0, None))
    label_lines_and_legend(
        figure, describe_band([record for some in of.values() for record in some])
    )
    return figure


def _line(ax: Any, group: Group, field: str, metric: str, label: str, **style: Any) -> None:
    """Plot the final `metric` of one group against `config.sampler.<field>`, with its band."""
    means = along(group.records, f"sampler.{field}", partial(last_reading, name=metric))
    line_and_band(ax, means, label=join_label(label, group.differs), **style)


def step_term(records: list[Record]) -> Figure:
    """DMALA's acceptance rate with and without its step-size term, on a log axis.

    Bars are means over steps and seeds; crosses are the paper's numbers, which are left out beside
    substitute data. Raises LookupError unless there are records of both, each with a single
    setting.
    """
    of: dict[str, list[Record]] = {"with": [], "without": []}
    for record in records:
        if "acceptance" in record.metrics and sampler_key(record)[0] == "dmala":
            infinite = np.isinf(record.config["sampler"]["step_size"])
            of["without" if infinite else "with"].append(record)
    if missing := [name for name, some in of.items() if not some]:
        raise LookupError(f"no record of DMALA {' or '.join(missing)} the step-size term")
    rates = [
        [r.metrics["acceptance"].iloc[-1] for r in require_one_setting(some)]
        for some in of.values()
    ]
    figure, ax = new_figure(width=4.2)
    names, mean = list(of), np.array([np.mean(values) for values in rates])
    drawn = [record for some in of.values() for record in some]
    paper = {name: e.mean for name in names if (e := published_if_same_data(drawn, "appD", name))}
    ink = colour(("dmala", 0))
    ax.bar(names, np.maximum(mean, FLOOR) - FLOOR, 0.5, FLOOR, color=ink, label="here")
    if paper:
        ax.plot(list(paper), list(paper.values()), "x", color="black", label="the paper")
    for place, (name, ours) in enumerate(zip(names, mean, strict=True)):
        theirs = f"\npaper {100 * paper[name]:.3g} %" if name in paper else ""
        height = max(ours, paper.get(name, FLOOR))
        text = f"here {100 * ours:.3g} %{theirs}"
        ax.annotate(text, (place + 0.28, height), fontsize=8, va="top")
    ax.set(
        yscale="log",
        ylim=(FLOOR, 1.5),
        xlim=(-0.4, 1.9),
        xlabel="the step-size term",
        ylabel="acceptance rate of DMALA",
    )
    label_lines_and_legend(figure, f"Mean over steps and {describe_runs(drawn)}.")
    return figure


def ess_per_second(records: list[Record], samplers: list[str]) -> Figure:
    """One box per sampler and setting; it shows coordinates, each by its median over seeds.

    `samplers` are the choices of `sampler` to show. The rate is that of all chains of a run
    together (see `rates`), so all runs must have the same number of chains. A coordinate that is
    constant in a run has no ESS: it is left out for that run, and counted below the name. Raises
    LookupError if no record has a trace, or if the numbers of chains differ.
    """
    kept = [r for r in records if r.choices["sampler"] in samplers and r.has_array("convergence")]
    if not kept:
        raise LookupError(f"no record of {', '.join(samplers)} holds a trace (metrics.Trace)")
    kept, without = timed_runs_and_note(kept)
    if len(chains := {record.budget.chains for record in kept}) > 1:
        raise LookupError(f"the runs differ in their number of chains: {sorted(chains)}")
    figure, ax = new_figure(width=4.6)
    names = []
    budget = f"{chains.pop()} chains"
    for place, group in enumerate(groups(kept)):
        by_seed = np.array([rates(record) for record in group.records])  # [seeds, coordinates]
        undefined = np.isnan(by_seed)
        middle = np.nanmedian(by_seed[:, ~undefined.all(0)], axis=0)
        name = group.label.replace(", ", ",\n")
        names.append(name + (f"\n{undefined.sum()} constant" if undefined.any() else ""))
        box = ax.boxplot(
            middle, positions=[place], widths=0.6, patch_artist=True, flierprops={"markersize": 3}
        )
        ink = colour(group.key, group.line_index, group.line_count)
        box["boxes"][0].set(facecolor="white", edgecolor=ink)
        box["medians"][0].set_color("black")
        side = np.full(len(middle), place + 0.4)
        dots = {"color": ink, "marker": sampler_style(group.key[0]).marker, "linestyle": "none"}
        ax.plot(side, middle, markersize=3, label=f"_{group.label}", **dots)
    ax.set_xticks(range(len(names)), names)
    ax.set_ylim(bottom=0)
    ax.set_ylabel(f"ESS per second, {budget}")
    note = f"One value a coordinate, the median over {describe_runs(kept)}; boxes: quartiles."
    label_lines_and_legend(figure, note + without)
    return figure


def rates(record: Record) -> NDArray:
    """ESS per second of each coordinate, for all chains of the run; NaN for constant coordinates.

    Seconds per step are for all chains, without metrics. If only some chains were traced, the
    others are assumed to have the same ESS per chain.
    """
    stored = record.arrays("convergence")
    share = stored["chains"] / record.budget.chains
    seconds = record.document["seconds_per_step"] * stored.get("steps", stored["draws"]) * share
    return stored["ess"].ravel() / seconds
