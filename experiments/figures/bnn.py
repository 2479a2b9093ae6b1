"""Binary networks: Tables 2 and 4 of Zhang et al. (2022), and the same measures against steps.

The paper has no such figure; its tables print the final values, which crosses show. A part of a
data set has none.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from latticework.experiments.figures import style
from latticework.experiments.figures.means import means_by_reading
from latticework.experiments.figures.plot import (
    Panel,
    Plot,
    Series,
    draw_panels,
    finish_plot,
    mean_line,
    published_point,
)
from latticework.experiments.records import estimates, grouping, labels
from latticework.experiments.records.estimates import Estimate
from latticework.experiments.records.record import Record

DATA = ("compas", "news", "news_partial", "adult", "blog")  # in the papers' order
HEADINGS = {"train_log_likelihood": "train log-likelihood", "test_rmse": "test RMSE"}
EXTRAS = {  # by heading, metrics that the paper does not print
    "test log-likelihood": "test_log_likelihood",
    "test RMSE, last states": "test_rmse",
    "test RMSE, averaged": "test_rmse_averaged",
    "calibration error, last states": "calibration_error",
    "calibration error, averaged": "calibration_error_averaged",
}
COVERAGE = ("coverage of 90 %", "largest coverage")  # headings
AXES = {"step": "steps", "seconds": "seconds"}


def predictions(records: list[Record], name: str) -> pd.DataFrame:
    """Training log-likelihood and test RMSE of the final states, beside the numbers of `name`.

    One row per data set, method and setting; means and standard deviations are over seeds. Rows
    made with substitute data have no published numbers. Raises LookupError if no record fits.
    """
    rows = []
    for (data, key, text), group in records_by_method(records).items():
        row: dict[str, object] = {"data": data, "method": text}
        paper_data = data.removesuffix("_partial")
        for metric, heading in HEADINGS.items():
            row[heading] = last_estimate(group, metric)
            printed = estimates.published_if_same_data(group, name, metric, paper_data, key)
            row[f"published {heading}"] = printed
        rows.append({**row, **budget_columns(group[0])})
    return pd.DataFrame(rows)


def last_estimate(records: Sequence[Record], metric: str) -> Estimate:
    """The last reading of `metric`, over the seeds of `records`."""
    return estimates.estimate([estimates.last_reading(record, metric) for record in records])


def extras(records: list[Record]) -> pd.DataFrame:
    """Averages over the chain, calibration, convergence and time of the same runs.

    Averages are over chains and over the readings since `burn_in`. For targets 0 and 1, the square
    of an RMSE is the Brier score. For other targets, coverage is the fraction between the chains'
    5 % and 95 % quantiles, beside the largest possible one (`coverage_columns`). R-hat and
    effective sample size (of all chains) are medians over the predictions of some test rows.
    """
    rows = []
    for (data, _, text), group in records_by_method(records).items():
        row: dict[str, object] = {"data": data, "method": text}
        for heading, metric in EXTRAS.items():
            row[heading] = last_estimate(group, metric)
        row |= coverage_columns(group)
        row["R-hat"], row["ESS"] = diagnosis(group, "r_hat"), diagnosis(group, "ess")
        row["draws"] = int(group[0].arrays("convergence")["draws"]) if row["ESS"] else None
        row["seconds a step"] = float(np.median([r.document["seconds_per_step"] for r in group]))
        rows.append({**row, **budget_columns(group[0])})
    table = pd.DataFrame(rows)
    return table.drop(columns=[name for name in COVERAGE if table[name].isna().all()])


def written(records: list[Record]) -> pd.DataFrame:
    """The measures of Table 2 by the target and the features: as the paper writes them, and ours.

    The paper's U is minus the sum of squares, and its features are in (0, 1). Ours are the released
    scripts': 100 times the mean, and standardised features.
    """
    rows = []
    for group in records_by_method(records).values():
        config = group[0].config
        scale = config["model"]["scale"]
        row: dict[str, object] = {
            "features": "in [0, 1]" if config["data"].get("normalise") else "standardised",
            "U": "-sum" if scale is None else f"-{scale:g} mean",
            "method": method(group[0])[1],
        }
        for metric, heading in HEADINGS.items():
            row[heading] = last_estimate(group, metric)
        rows.append({**row, **budget_columns(group[0])})
    return pd.DataFrame(rows).sort_values(["features", "U"], ascending=[False, True], kind="stable")


def coverage_columns(group: list[Record]) -> dict[str, Estimate | float | None]:
    """The coverage of the chains' intervals, and the largest one that the targets allow.

    No prediction is equal to a target of 0 or 1. Records that do not count the targets between have
    no coverage here, because theirs counts predictions that float32 rounded to 1.
    """
    counted = []
    for record in group:
        if record.document["rows"].get("between"):
            counted.append(record)
    if not counted:
        return dict.fromkeys(COVERAGE)
    rows = counted[0].document["rows"]
    largest = rows["between"] / rows["test"]
    return dict(zip(COVERAGE, (last_estimate(counted, "coverage"), largest), strict=True))


def records_by_method(records: list[Record]) -> dict[tuple[str, str, str], list[Record]]:
    """The runs of task=regression by data set, method, and the method's label; seeds are grouped.

    In the paper's order. Raises LookupError if there are none.
    """
    runs = grouping.require_records_with(records, "train_log_likelihood")
    parts = grouping.group_by(lambda record: (record.choices["data"], method(record)[0]), runs)
    batch_sizes = sorted({int(name) for _, name in parts if name.isdigit()})
    order = [*labels.SAMPLERS, *map(str, batch_sizes)]

    def place(key: tuple[str, str]) -> tuple[int, int]:
        data, name = key
        return (
            DATA.index(data) if data in DATA else len(DATA),
            order.index(name) if name in order else len(order),
        )

    by_label = {}
    for key in sorted(parts, key=place):
        for group in grouping.groups(parts[key]):
            label = grouping.join_label(method(group.records[0])[1], group.differs)
            by_label[*key, label] = group.records
    return by_label


def method(record: Record) -> tuple[str, str]:
    """The method's key in `published.yaml`, and its label: a sampler, or a batch size."""
    settings = record.config["sampler"]
    if "batch" in settings:
        rows = settings["batch"]
        return ("full", "all rows") if rows is None else (str(rows), f"batch {rows}")
    key = labels.sampler_key(record)
    return key[0], labels.sampler_label(key)


def budget_columns(record: Record) -> dict[str, object]:
    """The data and the budget of a row."""
    budget, hidden = record.budget, record.config["model"]["hidden"]
    rows = record.document["rows"]["train"]
    return {
        "variant": record.variant,
        "budget": f"{budget.chains} chains, {budget.steps} steps, {hidden} hidden, {rows} rows",
    }


def diagnosis(group: list[Record], name: str) -> Estimate | None:
    """R-hat or ESS: the median over predictions, averaged over seeds; None if not recorded."""
    medians = []
    for record in group:
        if record.has_array("convergence"):
            values = record.arrays("convergence")[name]
            known = values[~np.isnan(values)]
            if len(known):
                medians.append(float(np.median(known)))
    return estimates.estimate(medians) if medians else None


def curves(records: list[Record], against: str = "step", paper: str | None = None) -> Plot:
    """Means over seeds, with a band of one standard deviation. `against` is a key of AXES.

    `paper` names an entry of published.yaml with values after so many `steps`. Raises LookupError
    if no record has the metrics.
    """
    without = ""
    if against == "seconds":
        records, without = estimates.timed_runs_and_note(records)
    groups = records_by_method(records)
    by_data: dict[str, dict[tuple[str, str, str], list[Record]]] = {}
    texts: list[str] = []
    for key, group in groups.items():
        by_data.setdefault(key[0], {})[key] = group
        if key[2] not in texts:
            texts.append(key[2])
    panels = []
    for data, chosen in by_data.items():
        looks = _line_styles(chosen, texts)
        for metric, heading in HEADINGS.items():
            lines = []
            for key, group in chosen.items():
                lines += _metric_lines(group, metric, against, key, looks[key], paper)
            title = f"{labels.spell_name(data)}: {heading}"
            panels.append(Panel(lines, title=title, xlabel=AXES[against]))
    figure, _ = style.new_figure(len(HEADINGS), height=2.0, rows=len(by_data))
    draw_panels(figure.axes, panels)
    if against == "seconds":
        for ax in figure.axes:
            ax.set_xscale("log")
    cross: dict[str, Any] = {"color": style.GREY, "marker": "x", "linestyle": "none"}
    extra = [Line2D([], [], label="the paper, at the end", **cross)] if paper else []
    note = style.describe_band(records) + without
    return finish_plot(figure, figure.axes, panels, note, extra)


def _metric_lines(
    group: list[Record],
    metric: str,
    against: str,
    key: tuple[str, str, str],
    look: dict[str, Any],
    paper: str | None,
) -> list[Series]:
    """The line of `metric` of one method on one data set, and the paper's value at the end."""
    data, name, text = key
    shown = slice(1 if against == "seconds" else 0, None)  # the start is at 0
    lines = [mean_line(text, means_by_reading(group, metric, against, shown), **look)]
    if paper:
        steps = estimates.published_estimate(paper, "steps")
        printed = estimates.published_if_same_data(group, paper, metric, data, name)
        if steps and printed:
            place = steps.mean, printed.mean
            ink = look["color"]
            lines.append(published_point(*place, f"{text}, the paper", named=False, color=ink))
    return lines


def _line_styles(
    groups: dict[tuple[str, str, str], list[Record]], texts: Sequence[str]
) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The line style of each group: the sampler's; for stochastic DULA, one for each batch size.

    Several settings of a method get shades of its colour. `texts` numbers the batch sizes.
    """
    looks = {}
    for key, group in groups.items():
        if "batch" in group[0].config["sampler"]:
            looks[key] = style.numbered_style(texts.index(key[2]))
        else:
            settings = [each for each in groups if each[1] == key[1]]
            place = settings.index(key), len(settings)
            looks[key] = style.sampler_line_style(labels.sampler_key(group[0]), *place)
    return looks
