"""Breuleux et al. (2011): ISL curves and scores, sequences of samples, the cost of a sample."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from latticework.experiments.figures import means, plot, style
from latticework.experiments.figures.images import draw_image, tile
from latticework.experiments.figures.line_names import label_lines_and_legend
from latticework.experiments.records import estimates, grouping, labels
from latticework.experiments.records.record import Record

PHRASES = {"negatives": "trained by {}", "start": "{} start"}  # phrases for options, by their group
OWN_BETA = ", own beta"  # the end of the name of a line whose beta changes along it
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
    sizes, mean_scores = _mean_curve_of_rates_fpcd(records)
    aim = float(np.interp(few, sizes, mean_scores))
    rows = []
    for group in grouping.groups(records):
        finals, shares, sizes_here, sizes_there, reached = [], [], [], [], 0
        for record in group.records:
            size, has_reached = _first_size(*_curve(record), aim)
            reached += has_reached
            sizes_here.append(size)
            finals.append(record.document["isl"])
            shares.append(record.document["commonest_share"])
            sizes_there.append(_first_size(sizes, mean_scores, finals[-1])[0])
        printed = estimates.published_if_same_data(group.records, "rates_fig2", data, group.key[0])
        rows.append(
            {
                "samples of": group.label,
                "ISL": estimates.estimate(finals),
                "paper": printed,
                f"samples as good as {few} of rates-FPCD": estimates.estimate(sizes_here),
                "reached": f"{reached} of {len(group.records)}",
                "samples of rates-FPCD as good as all": estimates.estimate(sizes_there),
                "share of commonest state": estimates.estimate(shares),
                "variant": group.records[0].variant,
            }
        )
    training = {
        "samples of": "training set",
        "ISL": estimates.Estimate(records[0].document["parzen"]),
        "variant": records[0].variant,
        "paper": estimates.published_if_same_data(records, "rates_fig2", data, "training_set"),
    }
    return pd.DataFrame([*rows, training]).astype(object)


def _mean_curve_of_rates_fpcd(records: list[Record]) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of samples and the mean scores there. Raises LookupError without such records."""
    runs = [record for record in records if labels.sampler_key(record) == ("rates_fpcd", 0)]
    if not runs:
        raise LookupError("the table compares with rates-FPCD, but it has no record")
    alike = grouping.require_one_setting(runs)
    rows_read = _common_rows(alike)
    scores = means.readings(alike, "isl", slice(0, rows_read)).mean(0)
    return alike[0].metrics["step"].to_numpy()[:rows_read], scores


def _common_rows(records: Sequence[Record]) -> int:
    """The number of readings that all records have."""
    return min(len(record.metrics) for record in records)


def _curve(record: Record) -> tuple[np.ndarray, np.ndarray]:
    return record.metrics["step"].to_numpy(), record.metrics["isl"].to_numpy()


def _first_size(steps: np.ndarray, scores: np.ndarray, aim: float) -> tuple[int, bool]:
    """The first recorded number of samples with an ISL of `aim` or more, and whether it exists."""
    there = scores >= aim
    return (int(steps[there.argmax()]), True) if there.any() else (int(steps[-1]), False)


def models(records: list[Record]) -> pd.DataFrame:
    """The final validation ISL of each trained model, over training seeds, best first.

    A row has the training method, learning rates and number of hidden units. If these do not
    identify a model, further columns name the settings in which models differ. Raises LookupError
    if no record is of task=train_rbm.
    """
    trained = [r for r in records if "isl" in r.metrics and r.choices.get("negatives")]
    if not trained:
        raise LookupError("no record holds the validation ISL of a training; run task=train_rbm")
    rows = []
    for (method, hidden, rate, fast), alike in grouping.group_by(_training, trained).items():
        headings, settings = grouping.settings_table(alike)
        for texts, runs in settings:
            scores = [estimates.last_reading(record, "isl") for record in runs]
            rows.append(
                {
                    "training": method,
                    "hidden units": hidden,
                    "learning rate": rate,
                    "fast rate": "" if fast is None else f"{fast:g}",
                    **dict(zip(headings, texts, strict=True)),
                    "validation ISL": estimates.estimate(scores),
                }
            )
    rows.sort(key=lambda row: row["validation ISL"].mean, reverse=True)
    return pd.DataFrame(rows).astype(object)


def _training(record: Record) -> tuple:
    """The method of a training, the number of hidden units, and the two learning rates."""
    settings = ("model.hidden", "task.learning_rate", "negatives.fast_step_size")
    return record.choices["negatives"], *map(record.setting, settings)


def curves(
    records: list[Record],
    panels: str | None = None,
    lines: str | None = None,
    around: float | None = None,
    paper: list[str] | None = None,
    apart: list[str] | None = None,
) -> plot.Plot:
    """ISL against the number of samples on a log axis: Figures 2 and 3.

    One panel for each value of the setting `panels`, or a second panel for the samplers `apart`,
    such as `["gwg", "dmala"]`. One line style for each value of `lines`. A setting is a group (such
    as `negatives`) or a dotted key of the configuration. Lines are means over seeds (of chains and
    models); bands show the range. Without `lines`, a thin line shows one chain, with its jumps. For
    a thin dotted line, beta is chosen
    separately for each number of samples. Black lines use the training rows as centres. The
    vertical axis is widened within `around` nats of all training rows (`_widen`). `paper` are the
    keys of final values in published.yaml, which dashed lines show. Raises LookupError if no record
    has an ISL curve.
    """
    records = grouping.require_records_with(records, "isl", "parzen", task="isl")
    drawn = []
    levels = []  # the ISL of all training rows, by panel
    parts = _records_by_setting(records, panels)
    if apart:
        parts = _split_by_sampler(records, apart)
    for title, part in parts.items():
        series = []
        for (value, alike), dash in zip(
            _records_by_setting(part, lines).items(), cycle(style.DASHES), strict=False
        ):
            look = {} if lines is None else {"linestyle": dash}
            for group in grouping.groups(alike):
                series += _isl_lines(group, value, look, paper)
                if lines is None and len(group.records) > 1:
                    series.append(_line_of_one_chain(group))
        for alike in grouping.by_setting(part, ["sampler", "task.pretrain", "task.start"]):
            series += _training_set_lines(alike, paper)
            level = alike[0].arrays("parzen")["isl"][-1]
        levels.append(level)
        drawn.append(plot.Panel(series, xscale="log", xlabel="samples", title=title))
    beyond = "" if around is None else "minus\nthat of all training rows "
    drawn[0].axes["ylabel"] = f"ISL of the test set {beyond}(nats)"
    figure, axes = style.new_panel_grid(len(drawn))
    plot.draw_panels(axes, drawn)
    if around is not None:
        for ax, level in zip(axes, levels, strict=True):
            _widen(ax, level, around)
    extra = []
    if plot.points_table(drawn)["series"].str.endswith(OWN_BETA).any():
        extra = style.key_of_dashes(**{"beta chosen for each number of samples": ":"})
    note = style.describe_band(records, "smallest to largest")
    return plot.finish_plot(figure, axes, drawn, note, extra)


def _isl_lines(
    group: grouping.Group, value: str, look: dict[str, Any], paper: list[str] | None
) -> list[plot.Series]:
    """The ISL of the runs of a group, the paper's final value, and the ISL with a beta for each.

    `value` is the value of the setting that the dashes of `look` show.
    """
    runs, ink = group.records, style.group_colour(group)
    text = grouping.join_label(labels.sampler_label(group.key), value)
    text = grouping.join_label(text, group.differs)
    rows = _common_rows(runs)
    size = runs[0].metrics["step"][:rows]
    score = means.readings(runs, "isl", slice(0, rows))
    drawn = plot.MEAN_LINE | style.group_line_style(group) | look
    series = [plot.Series(text, size, score.mean(0), score.min(0), score.max(0), **drawn)]
    if paper and (printed := estimates.published_if_same_data(runs, *paper, group.key[0])):
        series.append(plot.published_point(None, printed.mean, f"the paper: {text}", color=ink))
    if all("isl_own_beta" in run.metrics for run in runs):
        score = means.readings(runs, "isl_own_beta", slice(0, rows)).mean(0)
        thin = {"color": ink, "linestyle": ":", "linewidth": 0.8}
        series.append(plot.Series(text + OWN_BETA, size, score, named=False, **thin))
    return series


def _line_of_one_chain(group: grouping.Group) -> plot.Series:
    """The ISL of the first run of a group, as a thin line."""
    run = group.records[0]
    thin = {"color": style.group_colour(group), "linewidth": 0.6, "alpha": 0.8}
    name = f"{group.label}, one chain"
    return plot.Series(name, run.metrics["step"], run.metrics["isl"], named=False, **thin)


def _split_by_sampler(records: list[Record], apart: list[str]) -> dict[str, list[Record]]:
    """The records of other samplers than `apart`, and those of `apart`, by the panel's title."""
    parts: dict[str, list[Record]] = {"samplers of the paper": [], "other samplers": []}
    for record in records:
        is_apart = labels.sampler_key(record)[0] in apart
        parts["other samplers" if is_apart else "samplers of the paper"].append(record)
    return {title: part for title, part in parts.items() if part}


def _training_set_lines(records: list[Record], paper: list[str] | None) -> list[plot.Series]:
    """The ISL with so many training rows as centres, with all of them, and as the paper prints."""
    parzen = records[0].arrays("parzen")
    thin: dict[str, Any] = {"color": "black", "linewidth": 0.8}
    series = [
        plot.Series("training set", parzen["size"], parzen["isl"], **thin),
        plot.Level("all training rows", parzen["isl"][-1], linestyle=":", **thin),
    ]
    if paper and (printed := estimates.published_if_same_data(records, *paper, "training_set")):
        series.append(plot.published_point(None, printed.mean, "the paper: training set"))
    return series


def training(records: list[Record], lines: str, panels: str | None = None) -> plot.Plot:
    """Validation ISL after each epoch of training, one line for each value of `lines`.

    Lines are means over seeds. Records that differ in other settings form separate lines. Raises
    LookupError if no record has an ISL.
    """
    records = grouping.require_records_with(records, "isl", task="train_rbm")
    drawn = []
    line_numbers: dict[str, int] = {}  # by name, the same in all panels
    for title, part in _records_by_setting(records, panels).items():
        series = []
        for value, alike in _records_by_setting(part, lines).items():
            for group in grouping.groups(alike):
                score = means.readings(group.records, "isl").mean(0)
                text = grouping.join_label(value, group.differs)
                number = line_numbers.setdefault(text, len(line_numbers))
                look = plot.MEAN_LINE | style.numbered_style(number)
                step = group.records[0].metrics["step"]
                series.append(plot.Series(text, step, score, **look))
        drawn.append(plot.Panel(series, xlabel="epochs", title=title))
    drawn[0].axes["ylabel"] = "ISL of the validation set (nats)"
    figure, axes = style.new_panel_grid(len(drawn))
    plot.draw_panels(axes, drawn)
    note = f"Mean over {style.describe_runs(records)}; no band."
    return plot.finish_plot(figure, axes, drawn, note)


def sequences(
    records: list[Record],
    rows: int = 5,
    columns: int = 20,
    where: Mapping[str, Any] | None = None,
) -> plot.Plot:
    """Consecutive samples of one chain per sampler, in reading order, below test rows: Figure 1.

    `where` selects records by options of groups and by settings, `{"negatives": "sml"}`. Raises
    LookupError if no record has a sequence of samples, or they are not square images.
    """
    for key, value in (where or {}).items():
        records = [r for r in records if r.choices.get(key, r.setting(key)) == value]
    groups = grouping.groups(grouping.require_records_with(records, "sequence", task="isl"))
    panels = {group.label: group.records[0].arrays("sequence")["x"] for group in groups}
    shown = [group.records[0] for group in groups]
    if shown[0].has_array("test_rows"):
        panels = {"test rows of the data": shown[0].arrays("test_rows")["x"]} | panels
    height = style.PAGE_INCHES * rows / columns + 0.2
    figure, _ = style.new_figure(rows=len(panels), width=style.PAGE_INCHES, height=height)
    for ax, (title, x) in zip(figure.axes, panels.items(), strict=True):
        wide = min(columns, len(x))
        last = x[-min(rows, len(x) // wide) * wide :]
        draw_image(ax, tile(last, wide), "gray_r")
        ax.set_title(title, loc="left", fontsize=9)
    label_lines_and_legend(figure, f"One chain, {labels.format_seeds(shown)}.")
    return plot.Plot(figure)


def cost(records: list[Record], panels: str | None = None) -> plot.Plot:
    """Seconds per sample relative to block Gibbs, median over seeds (Section 5.1).

    Raises LookupError unless there are records of block Gibbs, with a single setting.
    """
    measured = [r for r in records if "seconds_per_step" in r.document]
    records, without = estimates.timed_runs_and_note(measured)
    label = "time per sample / block Gibbs"
    drawn = []
    for title, part in _records_by_setting(records, panels).items():
        base = [r for r in part if labels.sampler_key(r)[0] == "block_gibbs"]
        if not base:
            raise LookupError("the cost is relative to block Gibbs, but it has no record")
        unit = _median_seconds(grouping.require_one_setting(base))
        names, times, colours, bar_texts = [], [], [], []
        for group in grouping.groups(part):
            seconds = _median_seconds(group.records)
            names.append(group.label)
            times.append(seconds / unit)
            colours.append(style.group_colour(group))
            bar_texts.append(f"{seconds / unit:.1f}x, {1e6 * seconds:.0f} µs")
        look = {"named": False, "color": colours}
        bars = plot.HorizontalBars(label, names, times, texts=bar_texts, **look)
        drawn.append(plot.Panel([bars], xlabel=label, title=title))
    if not drawn:
        raise LookupError("no record holds the seconds of a sample of block Gibbs")
    figure, axes = style.new_panel_grid(len(drawn))
    plot.draw_panels(axes, drawn)
    for ax in axes:
        ax.margins(x=0.4)
    note = f"Median over {style.describe_runs(records)}." + without
    return plot.finish_plot(figure, axes, drawn, note)


def _median_seconds(records: Sequence[Record]) -> float:
    return float(np.median([record.document["seconds_per_step"] for record in records]))


def _widen(ax: Axes, level: float, around: float) -> None:
    """Distances from `level` beyond `around` are compressed; ticks show the distances."""
    low, high = ax.get_ylim()[0], max(level, ax.dataLim.y1) + around
    scale = (
        lambda y: np.arcsinh((y - level) / around),
        lambda place: level + around * np.sinh(place),
    )
    ax.set_yscale("function", functions=scale)
    steps = around * np.concatenate([-np.array(TICKS), [0], TICKS])
    shown = steps[(low <= level + steps) & (level + steps <= high)]
    ax.set_yticks(level + shown, [f"{step:+g}" if step else "0" for step in shown])
    ax.set_yticks([], minor=True)
    ax.set_ylim(low, high)


def _records_by_setting(records: list[Record], setting: str | None) -> dict[str, list[Record]]:
    """The records by the text of their `setting`, in the order of the texts."""
    parts = grouping.group_by(lambda record: _setting_text(record, setting), records)
    return dict(sorted(parts.items()))


def _setting_text(record: Record, path: str | None) -> str:
    """The option chosen for the group `path`, else the last key of `path` and its value."""
    if path is None:
        return ""
    if path in record.choices:
        return PHRASES.get(path, "{}").format(labels.spell_name(record.choices[path]))
    return f"{labels.spell_name(path.rpartition('.')[-1])} {record.setting(path)}"
