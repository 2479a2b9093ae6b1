"""Curves of a metric against steps, seconds or evaluations: a line per setting, bands over seeds.

Figures 3 and 4 of Zhang et al. (2022).
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latticework.experiments.figures.band import at_readings, line_and_band
from latticework.experiments.figures.style import explain, line, new_figure
from latticework.experiments.records.grouping import by_setting, groups, holding, spread_over
from latticework.experiments.records.pace import timed, undisturbed
from latticework.experiments.records.record import Record

AXES = {
    "step": "iterations",
    "seconds": "seconds",
    "evaluations": "value-and-gradient evaluations",
}


def curve(
    records: list[Record],
    metric: str,
    title: str,
    against: list[str],
    floor: str | None = None,
    log_x: bool = False,
    ensemble: dict[str, str] | None = None,
    top: float | None = None,
) -> Figure:
    """`metric` against each of `against`, one panel each.

    Lines are means over seeds and bands one standard deviation. `floor` names a column that is
    drawn as a dotted line for each target. `ensemble` names a `sampler` and a `metric` of its
    current particles, which is drawn as an additional dotted line if records have it. The vertical
    axis ends at `top`; the name of a line above it says where the line ends. Raises LookupError if
    no record has `metric`.
    """
    records = holding(records, metric)
    figure, panels = new_figure(len(against))
    idle, without = timed(records) if "seconds" in against else (records, "")
    for ax, axis in zip(np.atleast_1d(panels), against, strict=True):
        shown = idle if axis == "seconds" else records
        lines(ax, shown, metric, axis, log_x)
        if ensemble is not None:
            some = [r for r in shown if r.choices["sampler"] == ensemble["sampler"]]
            some = [r for r in some if ensemble["metric"] in r.metrics]
            lines(ax, some, ensemble["metric"], axis, log_x, suffix=", ensemble", style=":")
        if floor is not None:
            for some in by_setting(records, axes=["sampler"]):
                level = np.mean([record.metrics[floor].iloc[-1] for record in some])
                ax.axhline(level, color="black", linewidth=0.8, linestyle=":", label="floor")
        ax.set_xlabel(AXES[axis])
        ax.set_ylim(top=top)
        if log_x:
            ax.set_xscale("log")
    np.atleast_1d(panels)[0].set_ylabel(title)
    explain(figure, spread_over(records) + without)
    return figure


def lines(
    ax: Axes,
    records: list[Record],
    metric: str,
    axis: str,
    log_x: bool = False,
    *,
    suffix: str = "",
    style: str | None = None,
    until: float = np.inf,
) -> None:
    """One line per sampler and setting: means over seeds, with bands of one standard deviation.

    Against seconds only runs that had the processor to themselves count. `suffix` is appended to
    the labels; `style` replaces the sampler's line style. Readings after step `until` are left out.
    """
    for group in groups(records):
        some = undisturbed(group.records) if axis == "seconds" else group.records
        if all((record.metrics[axis] == 0).all() for record in some):
            continue  # such evaluations are not counted for this sampler
        rows = min((record.metrics["step"] <= until).sum() for record in some)
        shown = slice(1 if log_x else 0, rows)  # the start is at 0
        drawn = line(group.key, group.place, group.of)
        drawn |= {"linestyle": style} if style else {}
        means = at_readings(some, metric, axis, shown)
        line_and_band(ax, means, label=group.label + suffix, **drawn)
