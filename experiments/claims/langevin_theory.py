"""Claims of Zhang et al. (2022) about the sampler's law, mostly exact. Imports no torch."""

from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from latticework.experiments.claims.pairing import Value
from latticework.experiments.claims.verdict import Finding, Margin, Number
from latticework.experiments.results.estimate import Estimate
from latticework.experiments.results.grouping import by_sampler
from latticework.experiments.results.published import published
from latticework.experiments.results.record import Record
from latticework.experiments.results.style import label

SLOPE = 0.01  # largest deviation of a fitted slope from -1


def fig1a_rate(records: list[Record]) -> Finding:
    """Log bias has slope -1 against 1 / (2 alpha), with alpha in {0, 1} units."""
    slopes: dict[float, list[float]] = {}
    for record in records:
        if "slope" in record.document and "unit" in record.metrics:
            unit = float(record.metrics["unit"].iloc[0])
            slopes.setdefault(unit, []).append(record.document["slope"])
    if not slopes:
        raise LookupError("no record has an enumerated chain at small step sizes")
    margins, numbers = [], []
    for unit, values in sorted(slopes.items()):
        name = {1.0: "{0, 1}", 4.0: "{-1, 1}"}.get(unit, f"flips of squared distance {unit:g}")
        far = max(abs(value / unit + 1) for value in values)
        margins.append(Margin(f"{name}: {SLOPE:g} - |slope + 1|", (SLOPE - far,), exact=True))
        here = Estimate(float(np.mean(values)))
        paper = published("fig1", "slope") if unit == 1 else None
        numbers.append(Number(f"slope on {name}, alpha in its own units", here, paper))
    note = "exact, from enumerated chains; alpha in {0, 1} units (alpha / 4 on {-1, 1})"
    return Finding(tuple(margins), tuple(numbers), note)


def fig1a_bound(records: list[Record]) -> Finding:
    """Theorem 5.1's bound lies above the bias at every step size."""
    return _bounded(records, "exact", "the bias")


def fig1b_epsilon(records: list[Record]) -> Finding:
    """The bias increases with epsilon along the whole curve and stays below a bound.

    For a = 1, b = 0.1. The bound has the form of Theorem 5.2. The paper does not state its
    constants; `experiments.measures.stationary.bounds` derives them from the proof.
    """
    kept = [r for r in records if r.config["model"].get("a") and "epsilon" in r.config["model"]]
    table = _table(kept, "exact", lambda r: r.config["model"]["epsilon"])
    margins = []
    for alpha, rows in table.groupby("step_size"):
        bias = rows.groupby("setting")["exact"].first().sort_index()
        if len(bias) > 1:
            rise = float(np.diff(np.log(bias)).min())
            what = f"smallest increase of log bias between adjacent epsilons ({len(bias)} values)"
            margins.append(Margin(f"{what}, alpha = {alpha:g}", (rise,), True))
    if not margins:
        raise LookupError("no records at two or more values of epsilon")
    bounded = _bounded(kept, "exact", "the bias", "our bound of Theorem 5.2's form")
    note = "exact; we derived the bound's constants from the proof of Theorem 5.2"
    return Finding((*margins, *bounded.margins), note=note)


def thm61_bound(records: list[Record]) -> Finding:
    """Theorem 6.1's bound exceeds the bias of the stochastic proposal at all settings tried."""
    return _bounded(records, "bias", "the proposal's bias")


class Ends(NamedTuple):
    """The last readings of a record with the preconditioner, and at the best step size without."""

    ours: pd.Series
    best: pd.Series


def _ends(record: Record) -> Ends | None:
    table = record.metrics
    end = table[table["step"] == table["step"].max()]
    scaled, plain = end[end["power"] == 1], end[end["power"] == 0]
    if scaled.empty or plain.empty:
        return None
    return Ends(scaled.iloc[0].astype(float), plain.loc[plain["thinned"].idxmin()].astype(float))


def _spread(ends: Ends, level: float) -> tuple[float, float]:
    """The gap between two medians over chains, with their 10 % and 90 % quantiles at any level."""
    ours, best = ends
    gap = best["thinned"] - ours["thinned"]
    down = best["log_rmse"] - best["log_rmse_low"] + ours["log_rmse_high"] - ours["log_rmse"]
    up = best["log_rmse_high"] - best["log_rmse"] + ours["log_rmse"] - ours["log_rmse_low"]
    return float(gap - down), float(gap + up)


def app_h(records: list[Record]) -> Finding:
    """Preconditioned DLP's log RMSE is below that of standard DLP at its best step size.

    Both errors are those of the mean over every other step. A site that flips deterministically at
    every step has the correct mean over all steps, so that mean would favour step sizes at which
    the chain does not mix. Records hold the median of the error over chains; its quantiles are
    available only for means over all steps. The limits of a single seed use the distances of these
    quantiles from their median.
    """
    margins, numbers = [], []
    for key, group in by_sampler([r for r in records if "thinned" in r.metrics]).items():
        ends = [end for record in group if (end := _ends(record)) is not None]
        if not ends:
            continue
        gaps = tuple(float(end.best["thinned"] - end.ours["thinned"]) for end in ends)
        name = label(key)
        what = f"{name}: log RMSE, best step size - preconditioned"
        limits = partial(_spread, ends[0]) if len(ends) == 1 else None
        margins.append(Margin(what, gaps, limits=limits))
        ours, best = (pd.DataFrame(rows).mean() for rows in zip(*ends, strict=True))
        papers = published("appH", "preconditioned"), published("appH", "standard")
        size = f"alpha = {best['step_size']:g}"
        numbers += [
            Number(f"{name}, preconditioned: log RMSE", Estimate(ours["thinned"]), papers[0]),
            Number(f"{name}, preconditioned, all steps: log RMSE", Estimate(ours["log_rmse"])),
            Number(f"{name}, best, {size}: log RMSE", Estimate(best["thinned"]), papers[1]),
            Number(f"{name}, best, {size}, all steps: log RMSE", Estimate(best["log_rmse"])),
        ]
    if not margins:
        raise LookupError("no records with and without a preconditioner")
    note = (
        "errors of the mean over every other step: medians over chains, with the spread (10 % to "
        "90 %) of the error over all steps; over all steps, a site that flips at every step has "
        "the correct mean without mixing"
    )
    return Finding(tuple(margins), tuple(numbers), note)


def _bounded(records: list[Record], column: str, what: str, bound: str = "the bound") -> Finding:
    table = _table(records, column, lambda record: 0.0)
    table = table[table[column] > 0]
    slack = np.log(table["theorem"] / table[column])
    if slack.empty:
        raise LookupError(f"no record with {column} above 0")
    margin = Margin(f"smallest log({bound} / {what})", (float(slack.min()),), True)
    return Finding((margin,), note=f"exact, at {len(table)} settings")


def _table(records: list[Record], column: str, setting: Value) -> pd.DataFrame:
    tables = [
        record.metrics.assign(setting=setting(record))
        for record in records
        if {column, "theorem"} <= set(record.metrics)
    ]
    if not tables:
        raise LookupError(f"no record with the columns {column} and theorem")
    return pd.concat(tables)
