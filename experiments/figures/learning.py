"""The accuracy of a model learned with each sampler: Figure 5 of Zhang et al. (2022)."""

from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure

from latticework.experiments.figures import curves, finals
from latticework.experiments.figures.style import explain, new_figure
from latticework.experiments.records.grouping import (
    LENGTH,
    groups,
    holding,
    longest,
    shared,
    spread_over,
)
from latticework.experiments.records.pace import timed
from latticework.experiments.records.published import comparable
from latticework.experiments.records.record import Record


def learning(
    records: list[Record],
    metric: str,
    title: str,
    setting: str,
    axis: str,
    shown: float | None = None,
    paper: str | None = None,
) -> Figure:
    """`metric` against iterations, against seconds, and its final value against `setting`.

    `setting` is a dotted key of the configuration, labelled `axis`. Its values are those that all
    samplers share (`records.grouping.shared`), with the seeds that all have there. The first two
    panels show the runs in which it equals `shown`; the default is the largest of these values.
    Runs are compared up to the number of iterations that all reach. The vertical axis is that of
    the first panel. Lines are means over seeds and bands one standard deviation. `paper` names an
    entry of published.yaml with a `log_rmse` and the `seconds` in which DMALA reaches it, which a
    cross shows. Raises LookupError if no record fits.
    """
    records = _shared(longest(holding(records, metric)), setting)
    if shown is None:
        shown = max(finals.value_of(record, setting) for record in records)
    chosen = [record for record in records if finals.value_of(record, setting) == shown]
    if not chosen:
        raise LookupError(f"no record where {setting} is {shown} holds the metric {metric}")
    figure, panels = new_figure(3, width=3.0, sharey=True)
    idle, without = timed(chosen)
    end = min(record.metrics["step"].iloc[-1] for record in chosen)
    for ax, against, some in zip(panels[:2], ("step", "seconds"), (chosen, idle), strict=True):
        curves.lines(ax, some, metric, against, until=end)
        ax.set(xlabel=curves.AXES[against], title=f"{shown:g} {axis}")
    panels[0].set_ylim(panels[0].get_ylim())  # the last panel has far larger values
    finals.lines(panels[2], records, setting, _at_equal(records, metric, setting), [LENGTH])
    panels[2].set(xlabel=axis, title=f"after {end:g} iterations")
    panels[0].set_ylabel(title)
    if paper is not None:
        seconds = comparable(records, paper, "seconds", "dmala")
        score = comparable(records, paper, "log_rmse")
        if seconds and score:
            cross = {"color": "black", "marker": "x", "linestyle": "none"}
            there = seconds.mean, score.mean
            panels[1].plot(*there, label="the paper: DULA, DMALA", **cross)
    explain(figure, spread_over(records, axes=[LENGTH]) + without)
    return figure


def _shared(records: list[Record], setting: str) -> list[Record]:
    """The records at the values of `setting` and the seeds that all samplers share."""

    def place(record: Record) -> tuple[float, int]:
        return finals.value_of(record, setting), record.config["seed"]

    parts = [group.records for group in groups(records, [setting, LENGTH])]
    values = shared(parts, lambda record: place(record)[0])
    common = set.intersection(*({place(record) for record in part} for part in parts))
    return [one for one in records if place(one) in common and place(one)[0] in values]


def _at_equal(records: list[Record], metric: str, setting: str) -> Callable[[Record], float]:
    """`metric` at the last iteration that all records with the same `setting` reach."""
    ends: dict[float, float] = {}
    for record in records:
        place, end = finals.value_of(record, setting), float(record.metrics["step"].iloc[-1])
        ends[place] = min(ends.get(place, end), end)

    def value(record: Record) -> float:
        end, readings = ends[finals.value_of(record, setting)], record.metrics
        return float(np.interp(end, readings["step"], readings[metric]))

    return value
