"""Diagnostics of annealed importance sampling: the effective sample size along the path."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latticework.experiments.results.grouping import Group, groups
from latticework.experiments.results.record import Record
from latticework.experiments.results.style import colour, label, new_figure, sampler_key


def progress(records: list[Record]) -> Figure:
    """The effective fraction of chains against beta: solid forward AIS, dashed reverse AIS.

    One panel per sampler, one line per run. Raises LookupError if no record is of task=ais.
    """
    records = [r for r in records if {"beta", "forward", "ess"} <= set(r.metrics)]
    if not records:
        raise LookupError("no record has the effective number of chains; run task=ais")
    keys = list(dict.fromkeys(group.key for group in groups(records)))
    figure, axes = new_figure(len(keys))
    for ax, key in zip(np.atleast_1d(axes), keys, strict=True):
        found = groups(record for record in records if sampler_key(record) == key)
        for group in found:
            _lines(ax, group)
        if len(found) > 1:
            ax.legend(frameon=False, fontsize=7)
        ax.set_title(label(key), fontsize=9)
        ax.set_xlabel("beta", fontsize=9)
        ax.set_ylim(0, 1.02)
    np.atleast_1d(axes)[0].set_ylabel("effective fraction of chains", fontsize=9)
    return figure


def _lines(ax: Axes, group: Group) -> None:
    ink, text = colour(group.key, group.place, group.of), group.differs
    for record in group.records:
        directions = ((1, "-", record.budget.chains), (0, "--", record.config["task"]["back"]))
        for forward, style, chains in directions:
            part = record.metrics[record.metrics["forward"] == forward]
            name = text if forward and record is group.records[0] else None
            ax.plot(part["beta"], part["ess"] / chains, style, color=ink, label=name, linewidth=1.2)
