"""A metric against steps, seconds or evaluations, and its last value against a setting.

Lines are means over seeds, one for each setting, and bands one standard deviation: Figures 3, 4, 5
and 7 of Zhang et al. (2022).
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from latticework.experiments.figures import means, style
from latticework.experiments.figures.plot import (
    Level,
    Panel,
    Plot,
    Series,
    draw_panels,
    finish_plot,
    mean_line,
    published_point,
)
from latticework.experiments.records import estimates, grouping
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
    until: float = np.inf,
    paper: str | None = None,
) -> Plot:
    """`metric` against each of `against`, one panel each.

    Lines are means over seeds and bands one standard deviation. `floor` names a column that is
    drawn as a dotted line for each target. `ensemble` names a `sampler` and a `metric` of its
    current particles, which is drawn as an additional dotted line if records have it. The vertical
    axis ends at `top`; the name of a line above it says where the line ends. Readings after step
    `until` are shown against seconds alone, where cheap steps make longer runs. `paper` names an
    entry of published.yaml with values after so many `steps`, which crosses show against steps.
    Raises LookupError if no record has `metric`.
    """
    records = grouping.require_records_with(records, metric)
    idle, without = records, ""
    if "seconds" in against:
        idle, without = estimates.timed_runs_and_note(records)
    panels = []
    for axis in against:
        shown = idle if axis == "seconds" else records
        last = until if axis == "step" else np.inf
        lines = metric_lines(shown, metric, axis, log_x, until=last)
        if ensemble is not None:
            lines += _ensemble_lines(shown, axis, log_x, **ensemble)
        if floor is not None:
            lines += _floor_levels(shown, floor)
        if paper and axis == "step":
            lines += _published_values(shown, paper)
        panels.append(Panel(lines, xlabel=AXES[axis], ylim=(None, top)))
    panels[0].axes["ylabel"] = title
    figure, _ = style.new_figure(len(panels))
    draw_panels(figure.axes, panels)
    if log_x:
        for ax in figure.axes:
            ax.set_xscale("log")
    return finish_plot(figure, figure.axes, panels, style.describe_band(records) + without)


def _ensemble_lines(
    records: list[Record], axis: str, log_x: bool, sampler: str, metric: str
) -> list[Series]:
    """Dotted lines of `metric`, for the records of `sampler` that have it."""
    holding = [r for r in records if r.choices["sampler"] == sampler and metric in r.metrics]
    return metric_lines(holding, metric, axis, log_x, suffix=", ensemble", linestyle=":")


def _floor_levels(records: list[Record], column: str) -> list[Series]:
    """The mean of the last values of `column`, for each target."""
    levels: list[Series] = []
    for runs in grouping.by_setting(records, axes=["sampler"]):
        level = float(np.mean([record.metrics[column].iloc[-1] for record in runs]))
        levels.append(Level("floor", level, color="black", linewidth=0.8, linestyle=":"))
    return levels


def _published_values(records: list[Record], paper: str) -> list[Series]:
    """A cross for each sampler with a value in the entry `paper` of published.yaml."""
    crosses = []
    for group in grouping.groups(records):
        steps = estimates.published_if_same_data(records, paper, "steps")
        value = estimates.published_if_same_data(records, paper, group.key[0])
        if steps and value:
            crosses.append(published_point(steps.mean, value.mean, f"the paper: {group.label}"))
    return crosses


def metric_lines(
    records: list[Record],
    metric: str,
    axis: str,
    log_x: bool = False,
    *,
    suffix: str = "",
    until: float = np.inf,
    **look: str,
) -> list[Series]:
    """One line per sampler and setting: means over seeds, with bands of one standard deviation.

    Against seconds only runs that had the processor to themselves count. `suffix` is appended to
    the labels; `look` replaces parts of the sampler's line style. Readings after step `until` are
    left out.
    """
    lines = []
    for group in grouping.groups(records):
        runs = group.records
        if axis == "seconds":
            runs = estimates.drop_slow_runs(runs)
        if all((record.metrics[axis] == 0).all() for record in runs):
            continue  # such evaluations are not counted for this sampler
        rows = min((record.metrics["step"] <= until).sum() for record in runs)
        shown = slice(1 if log_x else 0, rows)  # the start is at 0
        values = means.means_by_reading(runs, metric, axis, shown)
        line_style = style.group_line_style(group) | look
        lines.append(mean_line(group.label + suffix, values, **line_style))
    return lines


def final(
    records: list[Record], metrics: dict[str, str], setting: str, axis: str, log: bool = False
) -> Plot:
    """The final value of each of `metrics` (name and title), one panel each.

    The x axis shows `setting`, a dotted key of the configuration, with the label `axis`, on a
    log scale if `log`. Lines are means over seeds and bands one standard deviation. Raises
    LookupError if no record has all metrics.
    """
    records = grouping.require_records_with(records, *metrics)
    panels = []
    for metric, title in metrics.items():
        value = partial(estimates.last_reading, name=metric)
        panels.append(Panel(final_lines(records, setting, value), xlabel=axis, ylabel=title))
        if log:
            panels[-1].axes["xscale"] = "log"
    figure, _ = style.new_figure(len(panels))
    draw_panels(figure.axes, panels)
    return finish_plot(figure, figure.axes, panels, style.describe_band(records))


def final_lines(
    records: list[Record],
    setting: str,
    value: Callable[[Record], float],
    axes: Sequence[str] = (),
) -> list[Series]:
    """One line per sampler and setting: means of `value` over seeds, with standard deviations.

    Records that differ in `axes` as well are in one line.
    """
    lines = []
    for group in grouping.groups(records, [setting, *axes]):
        look = style.group_line_style(group) | {"markevery": None}
        lines.append(
            mean_line(group.label, means.means_along(group.records, setting, value), **look)
        )
    return lines


def learning(
    records: list[Record],
    metric: str,
    title: str,
    setting: str,
    axis: str,
    paper: str | None = None,
) -> Plot:
    """`metric` against iterations, against seconds, and its final value against `setting`.

    `setting` is a dotted key of the configuration, labelled `axis`. Its values are those that all
    samplers share (`records.grouping.common_values`), with the seeds that all have there. The first
    two panels show the runs with the largest of these values. Runs are compared up to the number of
    iterations that all reach. The vertical axis is that of the first two panels. Lines are means
    over seeds and bands one standard deviation. `paper` names an entry of published.yaml with a
    `log_rmse` and the `seconds` in which DMALA reaches it, which a cross shows. Raises LookupError
    if no record fits.
    """
    of_all_lengths = _records_in_common(grouping.require_records_with(records, metric), setting)
    records = grouping.keep_longest_runs(of_all_lengths)
    largest = max(means.setting_of(record, setting) for record in records)
    at_largest = [r for r in of_all_lengths if means.setting_of(r, setting) == largest]
    idle, without = estimates.timed_runs_and_note(at_largest)
    longest = grouping.keep_longest_runs(at_largest)
    end = min(record.metrics["step"].iloc[-1] for record in longest)
    by_step = metric_lines(longest, metric, "step", until=end)
    # A run that is longer may have shared its core: its seconds do not count.
    timed = grouping.keep_longest_runs(idle)
    by_second = metric_lines(timed, metric, "seconds", until=end)
    if paper is not None:
        seconds = estimates.published_if_same_data(records, paper, "seconds", "dmala")
        score = estimates.published_if_same_data(records, paper, "log_rmse")
        if seconds and score:
            name = "the paper: DULA, DMALA"
            by_second.append(published_point(seconds.mean, score.mean, name))
    value = _value_at_common_end(records, metric, setting)
    by_setting = final_lines(records, setting, value, [grouping.ITERATIONS_KEY])
    size = f"{largest:g} {axis}"
    panels = [
        Panel(by_step, xlabel=AXES["step"], title=size, ylabel=title),
        Panel(by_second, xlabel=AXES["seconds"], title=size),
        Panel(by_setting, xlabel=axis, title=f"after {end:g} iterations"),
    ]
    figure, axes = style.new_figure(3, width=3.0, sharey=True)
    draw_panels(axes[:2], panels[:2])
    axes[0].set_ylim(axes[0].get_ylim())  # the last panel has far larger values
    panels[2].draw(axes[2])
    note = style.describe_band(records, axes=[grouping.ITERATIONS_KEY]) + without
    return finish_plot(figure, axes, panels, note)


def _records_in_common(records: list[Record], setting: str) -> list[Record]:
    """The records at the values of `setting` and the seeds that all samplers share."""

    def place(record: Record) -> tuple[float, int]:
        return means.setting_of(record, setting), record.config["seed"]

    parts = [g.records for g in grouping.groups(records, [setting, grouping.ITERATIONS_KEY])]
    values = grouping.common_values(parts, lambda record: place(record)[0])
    shared = set(map(place, records))
    for part in parts:
        shared &= set(map(place, part))
    return [r for r in records if place(r) in shared and place(r)[0] in values]


def _value_at_common_end(
    records: list[Record], metric: str, setting: str
) -> Callable[[Record], float]:
    """`metric` at the last iteration that all records with the same `setting` reach."""
    ends: dict[float, float] = {}
    for record in records:
        place, end = means.setting_of(record, setting), float(record.metrics["step"].iloc[-1])
        ends[place] = min(ends.get(place, end), end)

    def value(record: Record) -> float:
        end, readings = ends[means.setting_of(record, setting)], record.metrics
        return float(np.interp(end, readings["step"], readings[metric]))

    return value
