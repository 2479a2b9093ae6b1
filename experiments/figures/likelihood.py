"""Diagnostics of annealed importance sampling: the effective sample size along the path."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latticework.experiments.results.grouping import Group, groups
from latticework.experiments.results.record import Record
from latticework.experiments.results.style import (
    explain,
    key_of_dashes,
    label,
    sampler_key,
    seeds,
    series,
    wrapped,
)

DIRECTIONS = {"forward_AIS": "-", "reverse_AIS": "--"}


def progress(records: list[Record]) -> Figure:
    """The effective fraction of chains against beta: solid forward AIS, dashed reverse AIS.

    One panel per sampler, one line per run. Raises LookupError if no record is of task=ais.
    """
    records = [r for r in records if {"beta", "forward", "ess"} <= set(r.metrics)]
    if not records:
        raise LookupError("no record has the effective number of chains; run task=ais")
    keys = list(dict.fromkeys(group.key for group in groups(records)))
    figure, axes = wrapped(len(keys))
    order: dict[str, int] = {}  # of the settings, the same in all panels
    for ax, key in zip(axes, keys, strict=True):
        for group in groups(record for record in records if sampler_key(record) == key):
            _lines(ax, group, series(order.setdefault(group.differs, len(order))))
        ax.set_title(label(key), fontsize=9)
        ax.set_xlabel("beta", fontsize=9)
        ax.set_ylim(0, 1.02)
    axes[0].set_ylabel("effective fraction of chains", fontsize=9)
    explain(figure, f"One line a run, {seeds(records)}.", key_of_dashes(**DIRECTIONS))
    return figure


def _lines(ax: Axes, group: Group, style: dict[str, Any]) -> None:
    points = style | {"markersize": 4, "linewidth": 1.2}
    forth, back = DIRECTIONS.values()
    for record in group.records:
        directions = ((1, forth, record.budget.chains), (0, back, record.config["task"]["back"]))
        for forward, dash, chains in directions:
            part = record.metrics[record.metrics["forward"] == forward]
            first = forward and record is group.records[0]
            way = "forward" if forward else "reverse"
            name = group.differs if first else f"_{group.differs} {way} {record.config['seed']}"
            ax.plot(part["beta"], part["ess"] / chains, linestyle=dash, label=name, **points)
