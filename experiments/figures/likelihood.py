"""Figures of task=ais and task=log_z: how chains come to the target, and how models improved."""

from collections import defaultdict
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latticework.experiments.figures.style import (
    DASHES,
    INKS,
    at_settings,
    explain,
    key_of_dashes,
    line,
    line_and_band,
    new_figure,
    series,
    spread_over,
    wrapped,
)
from latticework.experiments.figures.tables.likelihood import learning_rate
from latticework.experiments.records.grouping import (
    Group,
    alone,
    by,
    differing,
    groups,
    holding,
    in_order,
    label,
    named,
    sampler_key,
    seeds,
    words,
)
from latticework.experiments.records.record import Record

WALKS = 3  # replicas of a ladder that are drawn
DRAWS = 300  # of them, the last ones
DIRECTIONS = {"forward_AIS": "-", "reverse_AIS": "--"}


def progress(records: list[Record]) -> Figure:
    """The effective fraction of chains against beta: solid forward AIS, dashed reverse AIS.

    One panel per sampler, one line per run. Raises LookupError if no record is of task=ais.
    """
    records = holding(records, "beta", "forward", "ess", task="ais")
    keys = list(dict.fromkeys(group.key for group in groups(records)))
    figure, axes = wrapped(len(keys))
    order: dict[str, int] = {}  # of the settings, the same in all panels
    for ax, key in zip(axes, keys, strict=True):
        for group in groups(record for record in records if sampler_key(record) == key):
            _lines(ax, group, series(order.setdefault(group.differs, len(order))))
        ax.set(xlabel="beta", ylim=(0, 1.02))
        ax.set_title(label(key))
    axes[0].set_ylabel("effective fraction of chains")
    explain(figure, f"One line a run, {seeds(records)}.", key_of_dashes(**DIRECTIONS))
    return figure


def improvement(records: list[Record]) -> Figure:
    """Validation log-likelihood of the stored models against the sampling steps they learned from.

    One panel per data set, one colour per sampler, one dash per learning rate. The vertical axis is
    minus the log-likelihood in nats, on a log scale. The log-likelihoods are those by which
    task=ais chooses among the stored models: trial values of short AIS runs, which tend to be too
    high. Those above 0, which are impossible, are left out. A sampling step evaluates the model
    once. Lines are means over seeds and bands one standard deviation. Raises LookupError if no
    record chose among several models.
    """
    records = [r for r in records if r.document.get("validation_by_candidate")]
    if not records:
        raise LookupError("no record of task=ais chose among several stored models")

    def place(record: Record) -> tuple:
        key = sampler_key(record)
        return in_order(key), learning_rate(record), key, record.choices["data"]

    found = by(place, records)
    tables = list(dict.fromkeys(record.choices["data"] for record in records))
    figure, axes = wrapped(len(tables))
    panels = dict(zip(tables, axes, strict=True))
    rates = sorted({rate for _, rate, _, _ in found}, reverse=True)
    dashes = dict(zip(rates, DASHES, strict=False))
    for (_, rate, key, data), some in sorted(found.items()):
        drawn = line(key) | {"markevery": None, "linestyle": dashes[rate]}
        text = named(label(key), f"rate {rate:g}")
        line_and_band(panels[data], at_settings(_trials(alone(some))), label=text, **drawn)
    for data, ax in panels.items():
        ax.set(xlabel="sampling steps in learning", yscale="log", title=words(data))
    axes[0].set_ylabel("minus log-likelihood of\nvalidation rows, nats")
    betas = sorted({record.config["task"]["trial_steps"] for record in records})
    steps = " or ".join(f"{count:,}" for count in betas)
    note = f"Trial values: AIS of {steps} betas, often too high. A sampling step is one evaluation."
    explain(figure, f"{note} {spread_over(records)}")
    return figure


def _trials(records: list[Record]) -> dict[float, list[float]]:
    """Minus the validation log-likelihoods of the stored models, by sampling steps.

    Estimates above 0 are left out.
    """
    values: dict[float, list[float]] = defaultdict(list)
    for record in records:
        for name, value in record.document["validation_by_candidate"].items():
            updates = int(name.rpartition("_")[2])
            if value <= 0:
                values[updates * record.config["learning"]["steps"]].append(-value)
    return values


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


def ladders(records: list[Record]) -> Figure:
    """The local barrier along b, and the level of each replica of one ladder, a row a setting.

    The local barrier is the rejected share of swaps over the step of b (Syed et al. 2022, Section
    4); its integral is the barrier. Of several seeds the first is drawn. Raises LookupError if no
    record has ladders.
    """
    _, rows = differing(holding(records, "ladders", task="log_z"))
    figure, _ = new_figure(2, rows=len(rows), height=2.4)
    for row, (texts, (record, *_)) in enumerate(rows):
        barrier, walk = figure.axes[2 * row : 2 * row + 2]
        arrays = record.arrays("ladders")
        b, level = arrays["schedule"], arrays["level"][-DRAWS:, :, 0]
        rejected = 1 - np.exp(np.minimum(arrays["up"] + arrays["down"], 0)).mean((0, 2))
        barrier.stairs(rejected / np.diff(b), b, color=INKS[0])
        barrier.set(xlabel="b", ylabel="local barrier", ylim=(0, None))
        own = [text for text in texts if text] or [record.choices["model"]]
        barrier.set_title(f"{', '.join(own)}: barrier {rejected.sum():.1f}")
        for replica in range(min(WALKS, level.shape[1])):
            walk.plot(level[:, replica], color=series(replica)["color"], lw=0.9)
        walk.set(xlabel="draw", ylabel="level")
        walk.set_title(f"one ladder, {arrays['trips'].mean():.1f} round trips a ladder")
    explain(figure, "Level 0 is p0, the highest the target. Three of the replicas are drawn.")
    return figure
