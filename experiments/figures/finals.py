"""The final value of a metric against a setting: Figure 7 of Zhang et al. (2022)."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latticework.experiments.figures.band import Means, at_settings, line_and_band
from latticework.experiments.figures.style import explain, line, new_figure
from latticework.experiments.records.grouping import groups, holding, spread_over
from latticework.experiments.records.headline import last
from latticework.experiments.records.record import Record


def final(
    records: list[Record], metrics: dict[str, str], setting: str, axis: str, log: bool = False
) -> Figure:
    """The final value of each of `metrics` (name and title), one panel each.

    The x axis shows `setting`, a dotted key of the configuration, with the label `axis`, on a
    log scale if `log`. Lines are means over seeds and bands one standard deviation. Raises
    LookupError if no record has all metrics.
    """
    records = holding(records, *metrics)
    figure, panels = new_figure(len(metrics))
    for ax, (metric, title) in zip(np.atleast_1d(panels), metrics.items(), strict=True):
        lines(ax, records, setting, partial(last, name=metric))
        if log:
            ax.set_xscale("log")
        ax.set(xlabel=axis, ylabel=title)
    explain(figure, spread_over(records))
    return figure


def lines(
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
        drawn = line(group.key, group.place, group.of) | {"markevery": None}
        line_and_band(ax, along(group.records, setting, value), label=group.label, **drawn)


def along(records: Sequence[Record], setting: str, value: Callable[[Record], float]) -> Means:
    """Means of `value` at each value of `setting`."""
    values: dict[float, list[float]] = defaultdict(list)
    for record in records:
        values[value_of(record, setting)].append(value(record))
    return at_settings(values)


def value_of(record: Record, setting: str) -> float:
    """The value of the dotted key `setting`. Raises LookupError if the record has none."""
    if (value := record.setting(setting)) is None:
        raise LookupError(f"the record {record.path} has no setting {setting}")
    return value
