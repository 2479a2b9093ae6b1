"""A metric against steps, seconds or evaluations, and its last value against a setting.

Lines are means over seeds, one for each setting, and bands one standard deviation: Figures 3, 4, 5
and 7 of Zhang et al. (2022).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latticework.experiments.figures.style import (
    Means,
    describe_band,
    draw_published,
    label_lines_and_legend,
    line_and_band,
    means_by_reading,
    means_by_setting,
    new_figure,
    sampler_line_style,
)
from latticework.experiments.records.estimates import (
    drop_slow_runs,
    last_reading,
    published_if_same_data,
    timed_runs_and_note,
)
from latticework.experiments.records.grouping import (
    ITERATIONS_KEY,
    by_setting,
    common_values,
    groups,
    keep_longest_runs,
    require_records_with,
)
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
    paper: str | None = None,
) -> Figure:
    """`metric` against each of `against`, one panel each.

    Lines are means over seeds and bands one standard deviation. `floor` names a column that is
    drawn as a dotted line for each target. `ensemble` names a `sampler` and a `metric` of its
    current particles, which is drawn as an additional dotted line if records have it. The vertical
    axis ends at `top`; the name of a line above it says where the line ends. `paper` names an entry
    of published.yaml with values after so many `steps`, which crosses show against steps. Raises
    LookupError if no record has `metric`.
    """
    records = require_records_with(records, metric)
    figure, panels = new_figure(len(against))
    idle, without = timed_runs_and_note(records) if "seconds" in against else (records, "")
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
        if paper and axis == "step":
            for group in groups(shown):
                size, value = (
                    published_if_same_data(shown, paper, key) for key in ("steps", group.key[0])
                )
                if size and value:
                    draw_published(ax, size.mean, value.mean, f"the paper: {group.label}")
        ax.set_xlabel(AXES[axis])
        ax.set_ylim(top=top)
        if log_x:
            ax.set_xscale("log")
    np.atleast_1d(panels)[0].set_ylabel(title)
    label_lines_and_legend(figure, describe_band(records) + without)
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
        some = drop_slow_runs(group.records) if axis == "seconds" else group.records
        if all((record.metrics[axis] == 0).all() for record in some):
            continue  # such evaluations are not counted for this sampler
        rows = min((record.metrics["step"] <= until).sum() for record in some)
        shown = slice(1 if log_x else 0, rows)  # the start is at 0
        drawn = sampler_line_style(group.key, group.line_index, group.line_count)
        drawn |= {"linestyle": style} if style else {}
        means = means_by_reading(some, metric, axis, shown)
        line_and_band(ax, means, label=group.label + suffix, **drawn)


def final(
    records: list[Record], metrics: dict[str, str], setting: str, axis: str, log: bool = False
) -> Figure:
    """The final value of each of `metrics` (name and title), one panel each.

    The x axis shows `setting`, a dotted key of the configuration, with the label `axis`, on a
    log scale if `log`. Lines are means over seeds and bands one standard deviation. Raises
    LookupError if no record has all metrics.
    """
    records = require_records_with(records, *metrics)
    figure, panels = new_figure(len(metrics))
    for ax, (metric, title) in zip(np.atleast_1d(panels), metrics.items(), strict=True):
        final_lines(ax, records, setting, partial(last_reading, name=metric))
        if log:
            ax.set_xscale("log")
        ax.set(xlabel=axis, ylabel=title)
    label_lines_and_legend(figure, describe_band(records))
    return figure


def final_lines(
    ax: Axes,
    records: list[Record],
    setting: str,
    value: Callable[[Record], float],
    axes: Sequence[str] = (),
) -> None:
    """One line per sampler and setting: means of `value` over seeds, with standard deviations.

    Records that differ in `axes` as well are in one line.
    """
    for group in groups(records, [setting, *axes]):
        drawn = sampler_line_style(group.key, group.line_index, group.line_count) | {
            "markevery": None
        }
        line_and_band(ax, along(group.records, setting, value), label=group.label, **drawn)


def along(records: Sequence[Record], setting: str, value: Callable[[Record], float]) -> Means:
    """Means of `value` at each value of `setting`."""
    values: dict[float, list[float]] = defaultdict(list)
    for record in records:
        values[value_of(record, setting)].append(value(record))
    return means_by_setting(values)


def value_of(record: Record, setting: str) -> float:
    """The value of the dotted key `setting`. Raises LookupError if the record has none."""
    if (value := record.setting(setting)) is None:
        raise LookupError(f"the record {record.path} has no setting {setting}")
    return value


def learning(
    records: list[Record],
    metric: str,
    title: str,
    setting: str,
    axis: str,
    paper: str | None = None,
) -> Figure:
    """`metric` against iterations, against seconds, and its final value against `setting`.

    `setting` is a dotted key of the configuration, labelled `axis`. Its values are those that all
    samplers share (`records.grouping.shared`), with the seeds that all have there. The first two
    panels show the runs with the largest of these values. Runs are compared up to the number of
    iterations that all reach. The vertical axis is that of the first panel. Lines are means over
    seeds and bands one standard deviation. `paper` names an entry of published.yaml with a
    `log_rmse` and the `seconds` in which DMALA reaches it, which a cross shows. Raises LookupError
    if no record fits.
    """
    every = _shared(require_records_with(records, metric), setting)  # of several lengths
    records = keep_longest_runs(every)
    shown = max(value_of(record, setting) for record in records)
    largest = [record for record in every if value_of(record, setting) == shown]
    chosen, (idle, without) = keep_longest_runs(largest), timed_runs_and_note(largest)
    figure, panels = new_figure(3, width=3.0, sharey=True)
    end = min(record.metrics["step"].iloc[-1] for record in chosen)
    parts = chosen, keep_longest_runs(idle)  # a longer run may not be idle
    for ax, against, some in zip(panels[:2], ("step", "seconds"), parts, strict=True):
        lines(ax, some, metric, against, until=end)
        ax.set(xlabel=AXES[against], title=f"{shown:g} {axis}")
    panels[0].set_ylim(panels[0].get_ylim())  # the last panel has far larger values
    final_lines(panels[2], records, setting, _at_equal(records, metric, setting), [ITERATIONS_KEY])
    panels[2].set(xlabel=axis, title=f"after {end:g} iterations")
    panels[0].set_ylabel(title)
    if paper is not None:
        seconds = published_if_same_data(records, paper, "seconds", "dmala")
        score = published_if_same_data(records, paper, "log_rmse")
        if seconds and score:
            draw_published(panels[1], seconds.mean, score.mean, "the paper: DULA, DMALA")
    label_lines_and_legend(figure, describe_band(records, axes=[ITERATIONS_KEY]) + without)
    return figure


def _shared(records: list[Record], setting: str) -> list[Record]:
    """The records at the values of `setting` and the seeds that all samplers share."""

    def place(record: Record) -> tuple[float, int]:
        return value_of(record, setting), record.config["seed"]

    parts = [group.records for group in groups(records, [setting, ITERATIONS_KEY])]
    values = common_values(parts, lambda record: place(record)[0])
    common = set.intersection(*({place(record) for record in part} for part in parts))
    return [one for one in records if place(one) in common and place(one)[0] in values]


def _at_equal(records: list[Record], metric: str, setting: str) -> Callable[[Record], float]:
    """`metric` at the last iteration that all records with the same `setting` reach."""
    ends: dict[float, float] = {}
    for record in records:
        place, end = value_of(record, setting), float(record.metrics["step"].iloc[-1])
        ends[place] = min(ends.get(place, end), end)

    def value(record: Record) -> float:
        end, readings = ends[value_of(record, setting)], record.metrics
        return float(np.interp(end, readings["step"], readings[metric]))

    return value
