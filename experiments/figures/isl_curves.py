"""Breuleux et al. (2011): ISL curves and scores, sequences of samples, the cost of a sample."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latticework.experiments.figures.images import tile
from latticework.experiments.figures.style import (
    DASHES,
    PAGE_INCHES,
    band,
    colour,
    describe_band,
    describe_runs,
    draw_published,
    key_of_dashes,
    label_lines_and_legend,
    new_figure,
    new_panel_grid,
    numbered_style,
    readings,
    sampler_line_style,
)
from latticework.experiments.records.estimates import (
    Estimate,
    estimate,
    last_reading,
    published_if_same_data,
    timed_runs_and_note,
)
from latticework.experiments.records.grouping import (
    by_setting,
    group_by,
    groups,
    join_label,
    require_one_setting,
    require_records_with,
    settings_table,
)
from latticework.experiments.records.labels import (
    format_seeds,
    sampler_key,
    sampler_label,
    spell_name,
)
from latticework.experiments.records.record import Record

PHRASES = {"negatives": "trained by {}", "start": "{} start"}  # of options, by their group
TICKS = (1, 2, 4, 10, 40, 200)  # times the nats around the level of the training rows


def final_isl(records: list[Record], data: str, few: int = 100) -> pd.DataFrame:
    """The ISL of each sampler, and its efficiency compared with rates-FPCD.

    Two columns compare numbers of samples: how many samples reach the ISL of `few` samples of
    rates-FPCD, and how many samples of rates-FPCD reach the ISL of all samples. The reference is
    the mean curve of rates-FPCD. A run that never reaches the level counts with all its samples;
    the column `reached` says how many runs did. `data` is the key of the published numbers, which
    are left out beside substitute data. Raises LookupError unless there are records of rates-FPCD,
    with a single setting.
    """
    records = [
        record for record in records if "isl" in record.metrics and record.has_array("parzen")
    ]
    found = groups(records)
    rivals = [record for g in found if g.key == ("rates_fpcd", 0) for record in g.records]
    curves = [_curve(record) for record in require_one_setting(rivals)]
    if not curves:
        raise LookupError("the table compares with rates-FPCD, but it has no record")
    rows_read = min(len(steps) for steps, _ in curves)
    sizes = curves[0][0][:rows_read]
    mean = np.mean([scores[:rows_read] for _, scores in curves], axis=0)
    aim = float(np.interp(few, sizes, mean))
    rows = []
    for group in found:
        counts = [_first(*_curve(record), aim) for record in group.records]
        finals = [record.document["isl"] for record in group.records]
        rows.append(
            {
                "samples of": group.label,
                "ISL": estimate(finals),
                "paper": published_if_same_data(group.records, "rates_fig2", data, group.key[0]),
                f"samples as good as {few} of rates-FPCD": estimate(c for c, _ in counts),
                "reached": f"{sum(there for _, there in counts)} of {len(counts)}",
                "samples of rates-FPCD as good as all": estimate(
                    _first(sizes, mean, score)[0] for score in finals
                ),
                "share of commonest state": estimate(
                    record.document["commonest_share"] for record in group.records
                ),
                "variant": group.records[0].variant,
            }
        )
    training = {
        "samples of": "training set",
        "ISL": Estimate(records[0].document["parzen"]),
        "variant": records[0].variant,
        "paper": published_if_same_data(records, "rates_fig2", data, "training_set"),
    }
    return pd.DataFrame([*rows, training]).astype(object)


def _curve(record: Record) -> tuple[np.ndarray, np.ndarray]:
    return record.metrics["step"].to_numpy(), record.metrics["isl"].to_numpy()


def _first(steps: np.ndarray, scores: np.ndarray, aim: float) -> tuple[int, bool]:
    """The first recorded number of samples with an ISL of `aim` or more, and whether it exists."""
    there = scores >= aim
    return (int(steps[there.argmax()]), True) if there.any() else (int(steps[-1]), False)


def models(records: list[Record]) -> pd.DataFrame:
    """The final validation ISL of each trained model, over training seeds, best first.

    A row has the training method, learning rates and number of hidden units. If these do not
    identify a model, further columns name the settings in which models differ. Raises LookupError
    if no record is of task=train_rbm.
    """

    def key(record: Record) -> tuple:
        settings = ("model.hidden", "task.learning_rate", "negatives.fast_step_size")
        return record.choices["negatives"], *map(record.setting, settings)

    found = group_by(key, (r for r in records if "isl" in r.metrics and r.choices.get("negatives")))
    if not found:
        raise LookupError("no record holds the validation ISL of a training; run task=train_rbm")
    rows = []
    for (method, hidden, rate, fast), some in found.items():
        headings, parts = settings_table(some)
        rows += [
            {
                "training": method,
                "hidden units": hidden,
                "learning rate": rate,
                "fast rate": "" if fast is None else f"{fast:g}",
                **dict(zip(headings, texts, strict=True)),
                "validation ISL": estimate(last_reading(record, "isl") for record in runs),
            }
            for texts, runs in parts
        ]
    rows.sort(key=lambda row: row["validation ISL"].mean, reverse=True)
    return pd.DataFrame(rows).astype(object)


def curves(
    records: list[Record],
    panels: str | None = None,
    lines: str | None = None,
    around: float | None = None,
    paper: list[str] | None = None,
) -> Figure:
    """ISL against the number of samples on a log axis: Figures 2 and 3.

    One panel for each value of the setting `panels`, one line style for each value of `lines`. A
    setting is a group (such as `negatives`) or a dotted key of the configuration. Lines are means
    over seeds (of chains and models); bands show the range. For a thin dotted line, beta is chosen
    separately for each number of samples. Black lines use the training rows as centres. The
    vertical axis is widened within `around` nats of all training rows (`_widen`). `paper` are the
    keys of final values in published.yaml, which dashed lines show. Raises LookupError if no record
    has an ISL curve.
    """
    records = require_records_with(records, "isl", "parzen", task="isl")
    split = _grouped(records, panels)
    own_beta = False
    figure, axes = new_panel_grid(len(split))
    for ax, (title, part) in zip(axes, split.items(), strict=True):
        for (value, some), dash in zip(_grouped(part, lines).items(), cycle(DASHES), strict=False):
            for group in groups(some):
                ink, runs = colour(group.key, group.line_index, group.line_count), group.records
                style = sampler_line_style(group.key, group.line_index, group.line_count) | {
                    "markersize": 4
                }
                style |= {} if lines is None else {"linestyle": dash}
                text = join_label(join_label(sampler_label(group.key), value), group.differs)
                rows = min(len(run.metrics) for run in runs)
                size = runs[0].metrics["step"][:rows]
                score = readings(runs, "isl", slice(0, rows))
                (drawn,) = ax.plot(size, score.mean(0), label=text, linewidth=1.4, **style)
                band(ax, drawn, score.min(0), score.max(0))
                if paper and (theirs := published_if_same_data(runs, *paper, group.key[0])):
                    draw_published(ax, None, theirs.mean, f"the paper: {text}", color=ink)
                if all("isl_own_beta" in run.metrics for run in runs):
                    own = readings(runs, "isl_own_beta", slice(0, rows)).mean(0)
                    ax.plot(size, own, ":", color=ink, linewidth=0.8, label=f"_{text}, own beta")
                    own_beta = True
        for some in by_setting(part, ["sampler", "task.pretrain", "task.start"]):
            parzen = some[0].arrays("parzen")
            centres: dict[str, Any] = {"color": "black", "linewidth": 0.8}
            ax.plot(parzen["size"], parzen["isl"], label="training set", **centres)
            ax.axhline(parzen["isl"][-1], linestyle=":", label="all training rows", **centres)
            if paper and (theirs := published_if_same_data(some, *paper, "training_set")):
                draw_published(ax, None, theirs.mean, "the paper: training set")
        ax.set(xscale="log", xlabel="samples", title=title)
        if around is not None:
            _widen(ax, parzen["isl"][-1], around)
    beyond = "" if around is None else "minus\nthat of all training rows "
    axes[0].set_ylabel(f"ISL of the test set {beyond}(nats)")
    thin = {"beta chosen for each number of samples": ":"} if own_beta else {}
    label_lines_and_legend(
        figure, describe_band(records, "smallest to largest"), key_of_dashes(**thin)
    )
    return figure


def training(records: list[Record], lines: str, panels: str | None = None) -> Figure:
    """Validation ISL after each epoch of training, one line for each value of `lines`.

    Lines are means over seeds. Records that differ in other settings form separate lines. Raises
    LookupError if no record has an ISL.
    """
    records = require_records_with(records, "isl", task="train_rbm")
    split = _grouped(records, panels)
    figure, axes = new_panel_grid(len(split))
    order: dict[str, int] = {}  # of the names, the same in all panels
    for ax, (title, part) in zip(axes, split.items(), strict=True):
        values = [(v, group) for v, some in _grouped(part, lines).items() for group in groups(some)]
        for value, group in values:
            score = readings(group.records, "isl").mean(0)
            text, step = join_label(value, group.differs), group.records[0].metrics["step"]
            number = order.setdefault(text, len(order))
            style = {"linewidth": 1.4, "markersize": 4, **numbered_style(number)}
            ax.plot(step, score, label=text, **style)
        ax.set(xlabel="epochs", title=title)
    axes[0].set_ylabel("ISL of the validation set (nats)")
    label_lines_and_legend(figure, f"Mean over {describe_runs(records)}; no band.")
    return figure


def sequences(
    records: list[Record],
    rows: int = 5,
    columns: int = 20,
    where: Mapping[str, Any] | None = None,
) -> Figure:
    """Consecutive samples of one chain per sampler, in reading order: Figure 1.

    `where` selects records by options of groups and by settings, `{"negatives": "sml"}`. Raises
    LookupError if no record has a sequence of samples, or they are not square images.
    """
    some = [
        record
        for record in records
        if all(record.choices.get(k, record.setting(k)) == v for k, v in (where or {}).items())
    ]
    found = groups(require_records_with(some, "sequence", task="isl"))
    figure, _ = new_figure(
        rows=len(found), width=PAGE_INCHES, height=PAGE_INCHES * rows / columns + 0.2
    )
    for ax, group in zip(figure.axes, found, strict=True):
        x = group.records[0].arrays("sequence")["x"]
        wide = min(columns, len(x))
        shown = x[-min(rows, len(x) // wide) * wide :]
        ax.imshow(tile(shown, wide), cmap="gray_r", interpolation="nearest")
        ax.set_title(group.label, loc="left", fontsize=9)
        ax.set_axis_off()
    label_lines_and_legend(
        figure, f"One chain, {format_seeds([group.records[0] for group in found])}."
    )
    return figure


def cost(records: list[Record], panels: str | None = None) -> Figure:
    """Seconds per sample relative to block Gibbs, median over seeds (Section 5.1).

    Raises LookupError unless there are records of block Gibbs, with a single setting.
    """
    records, without = timed_runs_and_note([r for r in records if "seconds_per_step" in r.document])
    split = _grouped(records, panels)
    figure, axes = new_panel_grid(max(len(split), 1))
    for ax, (title, part) in zip(axes, split.items(), strict=len(split) > 0):
        found = groups(part)
        seconds = [
            float(np.median([record.document["seconds_per_step"] for record in group.records]))
            for group in found
        ]
        base = [record for record in part if sampler_key(record)[0] == "block_gibbs"]
        if not base:
            raise LookupError("the cost is relative to block Gibbs, but it has no record")
        require_one_setting(base)
        keys = [group.key[0] for group in found]
        times = np.array(seconds) / seconds[keys.index("block_gibbs")]
        colours = [colour(group.key, group.line_index, group.line_count) for group in found]
        bars = ax.barh([group.label for group in found], times, color=colours)
        texts = [f"{t:.1f}x, {1e6 * s:.0f} µs" for t, s in zip(times, seconds, strict=True)]
        ax.bar_label(bars, texts, fontsize=7, padding=3)
        ax.margins(x=0.4)
        ax.set(xlabel="time per sample / block Gibbs", title=title)
    label_lines_and_legend(figure, f"Median over {describe_runs(records)}." + without)
    return figure


def _widen(ax: Axes, level: float, around: float) -> None:
    """Distances from `level` beyond `around` are compressed; ticks show the distances."""
    low, high = ax.get_ylim()[0], max(level, ax.dataLim.y1) + around
    scale = (
        lambda y: np.arcsinh((y - level) / around),
        lambda place: level + around * np.sinh(place),
    )
    ax.set_yscale("function", functions=scale)
    steps = around * np.array([*(-tick for tick in TICKS), 0, *TICKS])
    shown = [step for step in steps if low <= level + step <= high]
    ax.set_yticks(
        [level + step for step in shown], [f"{step:+g}" if step else "0" for step in shown]
    )
    ax.set_yticks([], minor=True)
    ax.set_ylim(low, high)


def _grouped(records: list[Record], setting: str | None) -> dict[str, list[Record]]:
    return dict(sorted(group_by(lambda one: _setting(one, setting), records).items()))


def _setting(record: Record, path: str | None) -> str:
    """The option chosen for the group `path`, else the last key of `path` and its value."""
    if path is None:
        return ""
    if path in record.choices:
        return PHRASES.get(path, "{}").format(spell_name(record.choices[path]))
    return f"{spell_name(path.rpartition('.')[-1])} {record.setting(path)}"
