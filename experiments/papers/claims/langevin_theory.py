"""Claims of Zhang et al. (2022) about the sampler's law, mostly exact."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from latticework.experiments.papers.claims import compare, readings, thresholds
from latticework.experiments.papers.claims.verdict import Finding, Number
from latticework.experiments.records.estimates import Estimate, estimate, published_estimate
from latticework.experiments.records.grouping import by_sampler, group_by
from latticework.experiments.records.labels import sampler_label
from latticework.experiments.records.record import Record

UNITS = {1.0: "{0, 1}", 4.0: "{-1, 1}"}  # by the squared distance of a flip
TENTH = 0.1  # share of the steps, from which a distance should fall as that of independent draws


def fig1a_rate(records: list[Record]) -> Finding:
    """Log bias has slope -1 against 1 / (2 alpha), with alpha in {0, 1} units."""
    fitted = [r for r in records if "slope" in r.document and "unit" in r.metrics]
    if not fitted:
        raise LookupError("no record has an enumerated chain at small step sizes")
    margins, shown = [], []
    by_unit = group_by(lambda record: float(record.metrics["unit"].iloc[0]), fitted)
    for unit, runs in sorted(by_unit.items()):
        slopes = np.array([record.document["slope"] for record in runs])
        name = UNITS.get(unit, f"flips of squared distance {unit:g}")
        farthest = float(np.abs(slopes / unit + 1).max())
        quantity = f"{name}: distance of the slope from -1"
        margin = compare.margin_below(quantity, {0: farthest}, thresholds.SLOPE.value())
        margins.append(replace(margin, exact=True))
        here = Estimate(float(np.mean(slopes)))
        paper = published_estimate("fig1", "slope") if unit == 1 else None
        shown.append(Number(f"slope on {name}, alpha in its own units", here, paper))
    note = "exact, from enumerated chains; alpha in {0, 1} units (alpha / 4 on {-1, 1})"
    return Finding(margins, shown, note)


def judge_bound(
    records: list[Record], column: str, quantity: str = "the bias", bound: str = "the bound"
) -> Finding:
    """The theorem's bound lies above `column` at every setting."""
    table = _table(records, column)
    table = table[table[column] > 0]
    slack = np.log(table["theorem"] / table[column])
    if slack.empty:
        raise LookupError(f"no record with {column} above 0")
    quantity = f"smallest log({bound} / {quantity})"
    margin = compare.Margin(quantity, (float(slack.min()),), exact=True)
    return Finding([margin], note=f"exact, at {len(table)} settings")


def fig1b_epsilon(records: list[Record]) -> Finding:
    """The bias increases with epsilon along the whole curve and stays below a bound.

    For a = 1, b = 0.1. The bound has the form of Theorem 5.2. The paper does not state its
    constants; `experiments.tasks.measures.stationary.bias_bounds` derives them from the proof.
    """
    varied = []
    for record in records:
        model = record.config["model"]
        if model.get("a") and "epsilon" in model:
            varied.append(record)
    margins = []
    for alpha, rows in _table(varied, "exact").groupby("step_size"):
        bias = rows.groupby("epsilon")["exact"].first().sort_index()
        if len(bias) > 1:
            rise = float(np.diff(np.log(bias)).min())
            quantity = (
                f"smallest increase of log bias between adjacent epsilons ({len(bias)} values)"
            )
            margins.append(compare.Margin(f"{quantity}, alpha = {alpha:g}", (rise,), exact=True))
    if not margins:
        raise LookupError("no records at two or more values of epsilon")
    below_bound = judge_bound(varied, "exact", bound="our bound of Theorem 5.2's form")
    note = "exact; we derived the bound's constants from the proof of Theorem 5.2"
    return Finding([*margins, *below_bound.margins], note=note)


def app_h(records: list[Record], column: str = "log_rmse", over: str = "all steps") -> Finding:
    """The error of the mean is smaller preconditioned than at any step size without.

    `over` says which steps the mean takes whose error `column` is. A site that flips at every step
    has the correct mean over all steps without mixing, so that mean favours step sizes at which the
    chain is stuck; `thinned`, of every other step, does not.
    """
    margins, shown = [], []
    for key, group in by_sampler([r for r in records if column in r.metrics]).items():
        ends = readings.by_seed(group, lambda record: _last_readings(record, column))
        pairs = [pair for pair in ends.values() if pair is not None]
        if not pairs:
            continue
        name = sampler_label(key)
        gaps = tuple(best[column] - ours[column] for ours, best in pairs)
        quantity = f"{name}: log RMSE, best step size - preconditioned"
        margins.append(compare.Margin(quantity, gaps))
        sizes = sorted({best["step_size"] for _, best in pairs})
        alphas = ", ".join(map("{:g}".format, sizes))
        for place, which, paper in (
            (0, "preconditioned", "preconditioned"),
            (1, f"best without, alpha = {alphas}", "standard"),
        ):
            text = f"{name}, {which}: log RMSE of the mean over {over}"
            here = estimate(pair[place][column] for pair in pairs)
            shown.append(Number(text, here, published_estimate("appH", paper)))
    if not margins:
        raise LookupError("no records with and without a preconditioner")
    note = f"log RMSE of the mean over {over}, at the end; median over the chains of a run"
    return Finding(margins, shown, note)


def _last_readings(record: Record, column: str) -> tuple[pd.Series, pd.Series] | None:
    """The last readings with the preconditioner, and without it at the lowest `column`."""
    table = record.metrics
    end = table[table["step"] == table["step"].max()]
    scaled, plain = end[end["power"] == 1], end[end["power"] == 0]
    if scaled.empty or plain.empty:
        return None
    return scaled.iloc[0].astype(float), plain.loc[plain[column].idxmin()].astype(float)


def app_b(records: list[Record]) -> Finding:
    """The law of the draws tends to the target (DMALA) or to the enumerated law (DULA).

    The distance, relative to the mean distance of as many independent draws, keeps its size over
    the last decade of steps if the draws have the law. With a remaining bias it grows by a factor
    that tends to sqrt(10). The claim asks for less than half of that, in logarithms.
    """
    columns = {"DMALA": "total_variation", "DULA": "to_unadjusted"}
    needed = ["total_variation", "independent"]
    groups = readings.records_by_sampler(records, list(columns), needed)
    margins, most = [], thresholds.GROWTH.value()
    for name, column in columns.items():
        sizes = group_by(lambda record: record.document["states"], groups[name])
        for states, runs in sorted(sizes.items()):
            quantity = f"{name}, {states} states: growth of the relative distance"
            growths = readings.by_seed(runs, _growth(column))
            margins.append(compare.margin_below(quantity, growths, most))
    note = (
        "total variation to the target for DMALA, to its own enumerated law for DULA, over that of "
        "as many independent draws: its growth from a tenth of the steps to all, in logarithms"
    )
    return Finding(margins, note=note)


def app_c_means(records: list[Record]) -> Finding:
    """The means of DMALA tend to the exact ones with every window.

    Their error, times the root of the steps, keeps its size over the last decade of steps. With a
    remaining bias it grows by a factor that tends to sqrt(10); the claim asks for less than half
    of that, in logarithms.
    """
    margins, most = [], thresholds.GROWTH.value()
    for window, runs in sorted(_by_window(records).items()):
        quantity = f"window {window}: growth of RMSE times the root of the steps"
        growths = readings.by_seed(runs, _growth_of_error)
        margins.append(compare.margin_below(quantity, growths, most))
    return Finding(margins, note="from a tenth of the steps to all, in logarithms")


def app_c_windows(records: list[Record]) -> Finding:
    """A window of more than 1 has a smaller error of DMALA's means after as many steps."""
    groups = _by_window(records)
    if 1 not in groups or len(groups) < 2:
        raise LookupError("no records with a window of 1 and with a wider one")
    error = readings.last_value("log_rmse")
    narrow = readings.by_seed(groups.pop(1), error)
    margins = []
    for window, runs in sorted(groups.items()):
        wide = readings.by_seed(runs, error)
        margins.append(compare.difference(f"log RMSE, window 1 - window {window}", narrow, wide))
    return Finding(margins)


def _by_window(records: list[Record]) -> dict[int, list[Record]]:
    """The runs of DMALA by the window of their proposals."""
    runs = readings.records_by_sampler(records, ["DMALA"], ["log_rmse"])["DMALA"]
    return group_by(lambda record: int(record.config["model"]["window"]), runs)


def _growth_of_error(record: Record) -> float:
    table = record.metrics
    steps, error = table["step"].to_numpy(float), table["log_rmse"].to_numpy(float)
    return float(error[-1] - np.interp(TENTH * steps[-1], steps, error) - math.log(TENTH) / 2)


def _growth(column: str) -> readings.Value:
    def value(record: Record) -> float:
        table = record.metrics
        away = np.log(table[column] / table["independent"]).to_numpy(float)
        steps = table["step"].to_numpy(float)
        return float(away[-1] - np.interp(TENTH * steps[-1], steps, away))

    return value


def _table(records: list[Record], column: str) -> pd.DataFrame:
    tables = []
    for record in records:
        if {column, "theorem"} <= set(record.metrics):
            epsilon = record.config["model"].get("epsilon", 0.0)
            tables.append(record.metrics.assign(epsilon=epsilon))
    if not tables:
        raise LookupError(f"no record with the columns {column} and theorem")
    return pd.concat(tables)
