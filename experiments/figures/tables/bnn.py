"""Tables 2 and 4 of Zhang et al. (2022), and further measures of the same runs."""

import numpy as np
import pandas as pd

from latticework.experiments.records.grouping import (
    SAMPLERS,
    by,
    groups,
    holding,
    label,
    named,
    sampler_key,
)
from latticework.experiments.records.numbers import Estimate, comparable, estimate, last
from latticework.experiments.records.record import Record

DATA = ("compas", "news", "news_partial", "adult", "blog")  # in the papers' order
TWO_VALUED = ("compas", "adult")  # data sets with targets 0 and 1
HEADINGS = {"train_log_likelihood": "train log-likelihood", "test_rmse": "test RMSE"}


def predictions(records: list[Record], name: str) -> pd.DataFrame:
    """Training log-likelihood and test RMSE of the final states, beside the numbers of `name`.

    One row per data set, method and setting; means and standard deviations are over seeds. Rows
    made with substitute data have no published numbers. Raises LookupError if no record fits.
    """
    rows = []
    for (data, key, text), group in grouped(records).items():
        row: dict[str, object] = {"data": data, "method": text}
        for metric, heading in HEADINGS.items():
            row[heading] = estimate(last(record, metric) for record in group)
            theirs = comparable(group, name, metric, data.removesuffix("_partial"), key)
            row[f"published {heading}"] = theirs
        rows.append({**row, **described(group[0])})
    return pd.DataFrame(rows)


def extras(records: list[Record]) -> pd.DataFrame:
    """Averages over the chain, calibration, convergence and time of the same runs.

    Averages are over chains and over the readings since `burn_in`. For targets 0 and 1, the square
    of an RMSE is the Brier score. For other targets, coverage is the fraction between the chains'
    5 % and 95 % quantiles. R-hat and effective sample size (of all chains) are medians over the
    predictions of some test rows.
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
            row[heading] = estimate(last(record, metric) for record in group)
        row["coverage of 90 %"] = (
            None if data in TWO_VALUED else estimate(last(record, "coverage") for record in group)
        )
        row["R-hat"], row["ESS"] = (diagnosis(group, which) for which in ("r_hat", "ess"))
        row["draws"] = int(group[0].arrays("convergence")["draws"]) if row["ESS"] else None
        row["seconds a step"] = float(np.median([r.document["seconds_per_step"] for r in group]))
        rows.append({**row, **described(group[0])})
    return pd.DataFrame(rows)


def grouped(records: list[Record]) -> dict[tuple[str, str, str], list[Record]]:
    """The runs of task=regression by data set, method, and the method's label; seeds are grouped.

    In the paper's order. Raises LookupError if there are none.
    """
    kept = holding(records, "train_log_likelihood")
    parts = by(lambda record: (record.choices["data"], method(record)[0]), kept)

    def place(key: tuple[str, str]) -> tuple[int, int]:
        data, name = key
        methods = [*SAMPLERS, *sorted((m for _, m in parts if m.isdigit()), key=int)]
        return (
            DATA.index(data) if data in DATA else len(DATA),
            methods.index(name) if name in methods else len(methods),
        )

    return {
        (*key, named(method(group.records[0])[1], group.differs)): group.records
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
    return key[0], label(key)


def described(record: Record) -> dict[str, object]:
    """The data and the budget of a row."""
    budget, hidden = record.budget, record.config["model"]["hidden"]
    rows = record.document["rows"]["train"]
    return {
        "variant": record.variant,
        "budget": f"{budget.chains} chains, {budget.steps} steps, {hidden} hidden, {rows} rows",
    }


def diagnosis(group: list[Record], name: str) -> Estimate | None:
    """R-hat or ESS: the median over predictions, averaged over seeds; None if not recorded."""
    stored = [record.arrays("convergence")[name] for record in group if record.has("convergence")]
    known = [values[~np.isnan(values)] for values in stored]
    medians = [float(np.median(values)) for values in known if len(values)]
    return estimate(medians) if medians else None
