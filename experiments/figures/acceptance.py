"""Acceptance rates and effective samples: Figure 2 and Appendix D of Zhang et al. (2022)."""

from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from latticework.experiments.figures import style
from latticework.experiments.figures.means import means_along
from latticework.experiments.figures.plot import (
    Bars,
    Panel,
    Plot,
    Series,
    draw_panels,
    finish_plot,
    mean_line,
    published_point,
)
from latticework.experiments.records import estimates, grouping, labels
from latticework.experiments.records.record import Record

FLOOR = 5e-7  # lower end of the axis; a bar below it is not visible, but its number is written
NAMES = {"alpha": r"step size $\alpha$"}


def against_size(records: list[Record], settings: dict[str, list[str]]) -> Plot:
    """Acceptance rate and sites changed per step, against the parameter that sets the move size.

    One column per sampler. `settings` gives that parameter's field and symbol for each sampler.
    "sites proposed" counts all proposals; "sites changed" counts a rejected step as 0. Lines are
    means over seeds, bands one standard deviation, crosses the paper's numbers. Raises LookupError
    if a sampler has no record.
    """
    needed = {"acceptance", "changed", "proposed"}
    measured = grouping.group_by(
        lambda record: labels.sampler_key(record)[0],
        (record for record in records if needed <= set(record.metrics)),
    )
    if missing := [name for name in settings if name not in measured]:
        raise LookupError(f"no record of {', '.join(missing)} holds acceptance, changed, proposed")
    upper, lower, shown = [], [], []
    for name, (field, symbol) in settings.items():
        rate_lines, site_lines = _size_lines(measured[name], name, field)
        shown += measured[name]
        upper.append(Panel(rate_lines, ylim=(0, 1.05)))
        size_label = f"{labels.sampler_style(name).label}, {NAMES.get(symbol, f'${symbol}$')}"
        lower.append(Panel(site_lines, xlabel=size_label))
    upper[0].axes["ylabel"] = "acceptance rate"
    lower[0].axes["ylabel"] = "sites a step"
    figure, _ = style.new_figure(len(settings), rows=2, height=2.2, sharey="row", squeeze=False)
    panels = [*upper, *lower]
    draw_panels(figure.axes, panels)
    figure.axes[len(upper)].set_ylim(bottom=0)  # after all panels of the row, which share it
    return finish_plot(figure, figure.axes, panels, style.describe_band(shown))


def _size_lines(records: list[Record], name: str, field: str) -> tuple[list[Series], list[Series]]:
    """The lines of the acceptance rate, and of sites proposed and changed, of one sampler."""
    rate_lines, site_lines = [], []
    look = labels.sampler_style(name)
    # The size is also a setting of the metric Proposed.
    for group in grouping.groups(records, [f"sampler.{field}", "task.metrics"]):
        ink = style.group_colour(group)
        grey = style.GREY if group.line_count == 1 else ink
        rates_of_group = _final_line(group, field, "acceptance", look.label)
        rates_of_group.style |= {"color": ink, "marker": look.marker}
        rate_lines.append(rates_of_group)
        for metric, dash in (("proposed", "--"), ("changed", ":")):
            sites = _final_line(group, field, metric, f"sites {metric}")
            sites.style |= {"color": grey, "linestyle": dash}
            site_lines.append(sites)
    size = estimates.published_if_same_data(records, "fig2", name, "size")
    rate = estimates.published_if_same_data(records, "fig2", name, "acceptance")
    moved = estimates.published_if_same_data(records, "fig2", name, "changed")
    if size and rate:
        rate_lines.append(published_point(size.mean, rate.mean))
        if moved:
            site_lines.append(published_point(size.mean, moved.mean))
    return rate_lines, site_lines


def _final_line(group: grouping.Group, field: str, metric: str, label: str) -> Series:
    """The final `metric` of the runs of a group against `config.sampler.<field>`."""
    value = partial(estimates.last_reading, name=metric)
    values = means_along(group.records, f"sampler.{field}", value)
    return mean_line(grouping.join_label(label, group.differs), values)


def step_term(records: list[Record]) -> Plot:
    """DMALA's acceptance rate with and without its step-size term, on a log axis.

    Bars are means over steps and seeds; crosses are the paper's numbers, which are left out beside
    substitute data. Raises LookupError unless there are records of both, each with a single
    setting.
    """
    runs: dict[str, list[Record]] = {"with": [], "without": []}
    for record in records:
        if "acceptance" in record.metrics and labels.sampler_key(record)[0] == "dmala":
            infinite = np.isinf(record.config["sampler"]["step_size"])
            runs["without" if infinite else "with"].append(record)
    if missing := [name for name, alike in runs.items() if not alike]:
        raise LookupError(f"no record of DMALA {' or '.join(missing)} the step-size term")
    shown = [*runs["with"], *runs["without"]]
    rates_here, rates_published = {}, {}
    for name, alike in runs.items():
        rates = [r.metrics["acceptance"].iloc[-1] for r in grouping.require_one_setting(alike)]
        rates_here[name] = float(np.mean(rates))
        if printed := estimates.published_if_same_data(shown, "appD", name):
            rates_published[name] = printed.mean
    heights = np.maximum(list(rates_here.values()), FLOOR)
    ink = style.colour(("dmala", 0))
    series: list[Series] = [
        Bars("here", list(rates_here), heights, base=FLOOR, color=ink, width=0.5)
    ]
    if rates_published:
        names, values = list(rates_published), list(rates_published.values())
        series.append(
            Series("the paper", names, values, color="black", marker="x", linestyle="none")
        )
    panel = Panel(
        series,
        yscale="log",
        ylim=(FLOOR, 1.5),
        xlim=(-0.4, 1.9),
        xlabel="the step-size term",
        ylabel="acceptance rate of DMALA",
    )
    figure, ax = style.new_figure(width=4.2)
    panel.draw(ax)
    for place, (name, here) in enumerate(rates_here.items()):
        text = f"here {100 * here:.3g} %"
        if name in rates_published:
            text += f"\npaper {100 * rates_published[name]:.3g} %"
        height = max(here, rates_published.get(name, FLOOR))
        ax.annotate(text, (place + 0.28, height), fontsize=8, va="top")
    note = f"Mean over steps and {style.describe_runs(shown)}."
    return finish_plot(figure, [ax], [panel], note)


class Boxes(Series):
    """A box of the values `y` at the number `place`, with the values as dots beside it."""

    def __init__(self, name: str, y: NDArray, place: int, **style: Any) -> None:
        super().__init__(name, np.zeros(len(y)), y, named=False, **style)
        self.drop_x()
        self.place = place

    def draw(self, ax: Axes) -> None:
        values = self.points["y"].to_numpy()
        look: dict[str, Any] = {
            "patch_artist": True,
            "flierprops": {"markersize": 3},
            "widths": 0.6,
        }
        box = ax.boxplot(values, positions=[self.place], **look)
        box["boxes"][0].set(facecolor="white", edgecolor=self.style["color"])
        box["medians"][0].set_color("black")
        beside = np.full(len(values), self.place + 0.4)
        ax.plot(beside, values, label=self.label, linestyle="none", markersize=3, **self.style)


def ess_per_second(records: list[Record], samplers: list[str]) -> Plot:
    """One box per sampler and setting; it shows coordinates, each by its median over seeds.

    `samplers` are the choices of `sampler` to show. The rate is that of all chains of a run
    together (see `rates`), so all runs must have the same number of chains. A coordinate that is
    constant in a run has no ESS: it is left out for that run, and counted below the name. Raises
    LookupError if no record has a trace, or if the numbers of chains differ.
    """
    traced = [r for r in records if r.choices["sampler"] in samplers and r.has_array("convergence")]
    if not traced:
        raise LookupError(f"no record of {', '.join(samplers)} holds a trace (metrics.Trace)")
    shown, without = estimates.timed_runs_and_note(traced)
    if len(chains := {record.budget.chains for record in shown}) > 1:
        raise LookupError(f"the runs differ in their number of chains: {sorted(chains)}")
    names, boxes = [], []
    for place, group in enumerate(grouping.groups(shown)):
        by_seed = np.array([rates(record) for record in group.records])  # [seeds, coordinates]
        undefined = np.isnan(by_seed)
        middle = np.nanmedian(by_seed[:, ~undefined.all(0)], axis=0)
        look = {
            "color": style.group_colour(group),
            "marker": labels.sampler_style(group.key[0]).marker,
        }
        boxes.append(Boxes(group.label, middle, place, **look))
        name = group.label.replace(", ", ",\n")
        names.append(name + (f"\n{undefined.sum()} constant" if undefined.any() else ""))
    panel = Panel(boxes, ylabel=f"ESS per second, {chains.pop()} chains")
    figure, ax = style.new_figure(width=4.6)
    panel.draw(ax)
    ax.set_xticks(range(len(names)), names)
    ax.set_ylim(bottom=0)
    runs = style.describe_runs(shown)
    note = f"One value a coordinate, the median over {runs}; boxes: quartiles."
    return finish_plot(figure, [ax], [panel], note + without)


def rates(record: Record) -> NDArray:
    """ESS per second of each coordinate, for all chains of the run; NaN for constant coordinates.

    Seconds per step are for all chains, without metrics. If only some chains were traced, the
    others are assumed to have the same ESS per chain.
    """
    stored = record.arrays("convergence")
    share = stored["chains"] / record.budget.chains
    seconds = record.document["seconds_per_step"] * stored.get("steps", stored["draws"]) * share
    return stored["ess"].ravel() / seconds
