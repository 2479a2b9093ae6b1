"""Binary networks: Tables 2 and 4 of Zhang et al. (2022), and the same measures against steps.

The paper has no such figure; its tables print the final values, which crosses show. A part of a
data set has none.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from latticework.experiments.figures.style import (
    GREY,
    describe_band,
    draw_published,
    label_lines_and_legend,
    line_and_band,
    means_by_reading,
    new_figure,
    numbered_style,
    sampler_line_style,
)
from latticework.experiments.records.estimates import (
    Estimate,
    estimate,
    last_reading,
    published_estimate,
    published_if_same_data,
    timed_runs_and_note,
)
from latticework.experiments.records.grouping import (
    group_by,
    groups,
    join_label,
    require_records_with,
)
from latticework.experiments.records.labels import SAMPLERS, sampler_key, sampler_label, spell_name
from latticework.experiments.records.record import Record

DATA = ("compas", "news", "news_partial", "adult", "blog")  # in the papers' order
HEADINGS = {"train_log_likelihood": "train log-likelihood", "test_rmse": "test RMSE"}
COVERAGE = ("coverage of 90 %", "largest coverage")  # headings
AXES = {"step": "steps", "seconds": "seconds"}


def predictions(records: list[Record], name: str) -> pd.DataFrame:
    """Training log-likelihood and test RMSE of the final states, beside the numbers of `name`.

    One row per data set, method and setting; means and standard deviations are over seeds. Rows
    made with substitute data have no published numbers. Raises LookupError if no record fits.
    """
    rows = []
    for (data, key, text), group in grouped(records).items():
        row: dict[str, object] = {"data": data, "method": text}
        for metric, heading in HEADINGS.items():
            row[heading] = estimate(last_reading(record, metric) for record in group)
            theirs = published_if_same_data(group, name, metric, data.removesuffix("_partial"), key)
            row[f"published {heading}"] = theirs
        rows.append({**row, **budget_columns(group[0])})
    return pd.DataFrame(rows)


def extras(records: list[Record]) -> pd.DataFrame:
    """Averages over the chain, calibration, convergence and time of the same runs.

    Averages are over chains and over the readings since `burn_in`. For targets 0 and 1, the square
    of an RMSE is the Brier score. For other targets, coverage is the fraction between the chains'
    5 % and 95 % quantiles, beside the largest possible one (`covered`). R-hat and effective sample
    size (of all chains) are medians over the predictions of some test rows.
    """
    rows = []
    for (data, _, text), group in grouped(records).items():
        row: dict[str, object] = {"data": data, "method": text}
        for heading, metric in {
            "test log-likelihood": "test_log_likelihood",
            "test RMSE, last states": "test_rmse",
            "test RMSE, averaged": "test_rmse_averaged",
            "calibration error, last states": "calibration_error",
            "calibration error, averaged": "calibration_error_averaged",
        }.items():
            row[heading] = estimate(last_reading(record, metric) for record in group)
        row |= covered(group)
        row["R-hat"], row["ESS"] = (diagnosis(group, which) for which in ("r_hat", "ess"))
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
    for group in grouped(records).values():
        config = group[0].config
        scale = config["model"]["scale"]
        row: dict[str, object] = {
            "features": "in [0, 1]" if config["data"].get("normalise") else "standardised",
            "U": "-sum" if scale is None else f"-{scale:g} mean",
            "method": method(group[0])[1],
        }
        for metric, heading in HEADINGS.items():
            row[heading] = estimate(last_reading(record, metric) for record in group)
        rows.append({**row, **budget_columns(group[0])})
    return pd.DataFrame(rows).sort_values(["features", "U"], ascending=[False, True], kind="stable")


def covered(group: list[Record]) -> dict[str, Estimate | float | None]:
    """The coverage of the chains' intervals, and the largest one that the targets allow.

    No prediction is equal to a target of 0 or 1. Records that do not count the targets between have
    no coverage here, because theirs counts predictions that float32 rounded to 1.
    """
    counted = [record for record in group if record.document["rows"].get("between")]
    mean, most = None, None
    if counted:
        rows = counted[0].document["rows"]
        mean = estimate(last_reading(record, "coverage") for record in counted)
        most = rows["between"] / rows["test"]
    return dict(zip(COVERAGE, (mean, most), strict=True))


def grouped(records: list[Record]) -> dict[tuple[str, str, str], list[Record]]:
    """The runs of task=regression by data set, method, and the method's label; seeds are grouped.

    In the paper's order. Raises LookupError if there are none.
    """
    kept = require_records_with(records, "train_log_likelihood")
    parts = group_by(lambda record: (record.choices["data"], method(record)[0]), kept)

    def place(key: tuple[str, str]) -> tuple[int, int]:
        data, name = key
        methods = [*SAMPLERS, *sorted((m for _, m in parts if m.isdigit()), key=int)]
        return (
            DATA.index(data) if data in DATA else len(DATA),
            methods.index(name) if name in methods else len(methods),
        )

    return {
        (*key, join_label(method(group.records[0])[1], group.differs)): group.records
        for key in sorted(parts, key=place)
        for group in groups(parts[key])
    }


def method(record: Record) -> tuple[str, str]:
    """The method's key in `published.yaml`, and its label: a sampler, or a batch size."""
    settings = record.config["sampler"]
    if "batch" in settings:
        rows = settings["batch"]
        return ("full", "all rows") if rows is None else (str(rows), f"batch {rows}")
    key = sampler_key(record)
    return key[0], sampler_label(key)


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
    stored = [
        record.arrays("convergence")[name] for record in group if record.has_array("convergence")
    ]
    known = [values[~np.isnan(values)] for values in stored]
    medians = [float(np.median(values)) for values in known if len(values)]
    return estimate(medians) if medians else None


def curves(records: list[Record], against: str = "step", paper: str | None = None) -> Figure:
    """Means over seeds, with a band of one standard deviation. `against` is a key of AXES.

    `paper` names an entry of published.yaml with values after so many `steps`. Raises LookupError
    if no record has the metrics.
    """
    steps = published_estimate(paper, "steps") if paper else None
    records, without = timed_runs_and_note(records) if against == "seconds" else (records, "")
    groups = grouped(records)
    tables = list(dict.fromkeys(data for data, _, _ in groups))
    names = list(dict.fromkeys(text for _, _, text in groups))
    figure, axes = new_figure(len(HEADINGS), height=2.0, rows=len(tables))
    for row, data in zip(axes.reshape(len(tables), -1), tables, strict=True):
        chosen = {key: group for key, group in groups.items() if key[0] == data}
        for ax, (metric, heading) in zip(row, HEADINGS.items(), strict=True):
            for (_, name, text), group in chosen.items():
                of = [key for key in chosen if key[1] == name]  # the settings of this method
                style = _style(group[0], names.index(text), of.index((data, name, text)), len(of))
                shown = slice(1 if against == "seconds" else 0, None)  # the start is at 0
                means = means_by_reading(group, metric, against, shown)
                line_and_band(ax, means, label=text, **style)
                theirs = published_if_same_data(group, paper, metric, data, name) if paper else None
                if steps and theirs:
                    ink = style["color"]
                    draw_published(ax, steps.mean, theirs.mean, f"_{text}, the paper", color=ink)
            ax.set_title(f"{spell_name(data)}: {heading}")
            ax.set_xlabel(AXES[against])
            if against == "seconds":
                ax.set_xscale("log")
    cross = Line2D([], [], color=GREY, marker="x", linestyle="none", label="the paper, at the end")
    label_lines_and_legend(figure, describe_band(records) + without, [cross] if paper else [])
    return figure


def _style(record: Record, place: int, own: int, of: int) -> dict[str, Any]:
    """The sampler's style; for stochastic DULA, one for each batch size."""
    if "batch" in record.config["sampler"]:
        return numbered_style(place)
    return sampler_line_style(sampler_key(record), own, of)
