"""Claims of Zhang et al. (2022) about the law of the sampler, mostly exact. Imports no torch."""

import numpy as np
import pandas as pd

from experiments.claims.pairing import Value
from experiments.claims.verdict import Finding, Margin, Number
from experiments.figures.style import label
from experiments.grouping import by_sampler
from experiments.published import published
from experiments.record import Record
from experiments.tables.table import Estimate

SLOPE = 0.01  # how far a fitted slope may be from -1


def fig1a_rate(records: list[Record]) -> Finding:
    """Log bias falls with slope -1 against 1 / (2 alpha), alpha in {0, 1} units."""
    slopes: dict[float, list[float]] = {}
    for record in records:
        if "slope" in record.document and "unit" in record.metrics:
            unit = float(record.metrics["unit"].iloc[0])
            slopes.setdefault(unit, []).append(record.document["slope"])
    if not slopes:
        raise LookupError("no record whose chain was enumerated at small step sizes")
    margins, numbers = [], []
    for unit, values in sorted(slopes.items()):
        name = {1.0: "{0, 1}", 4.0: "{-1, 1}"}.get(unit, f"flips of squared distance {unit:g}")
        far = max(abs(value / unit + 1) for value in values)
        margins.append(Margin(f"{name}: {SLOPE:g} less |slope + 1|", (SLOPE - far,), exact=True))
        here = Estimate(float(np.mean(values)))
        paper = published("fig1", "slope") if unit == 1 else None
        numbers.append(Number(f"slope on {name}, alpha in its own units", here, paper))
    note = "exact, of the enumerated chains; alpha in {0, 1} units, a quarter of it on {-1, 1}"
    return Finding(tuple(margins), tuple(numbers), note)


def fig1a_bound(records: list[Record]) -> Finding:
    """Theorem 5.1's bound lies above the bias at every step size."""
    return _bounded(records, "exact", "the bias")


def fig1b_epsilon(records: list[Record]) -> Finding:
    """The bias grows with epsilon, and stays below Theorem 5.2's bound; a = 1, b = 0.1."""
    kept = [r for r in records if r.config["model"].get("a") and "epsilon" in r.config["model"]]
    table = _table(kept, "exact", lambda r: r.config["model"]["epsilon"])
    margins = []
    for alpha, rows in table.groupby("step_size"):
        bias = rows.groupby("setting")["exact"].first().sort_index()
        if len(bias) > 1:
            rise = float(np.log(bias.iloc[-1] / bias.iloc[0]))
            what = f"log bias at epsilon = {bias.index[-1]:g} less that at {bias.index[0]:g}"
            margins.append(Margin(f"{what}, alpha = {alpha:g}", (rise,), True))
    if not margins:
        raise LookupError("no records at two values of epsilon")
    return Finding((*margins, *_bounded(kept, "exact", "the bias").margins), note="exact")


def thm61_bound(records: list[Record]) -> Finding:
    """Theorem 6.1's bound lies above the bias of the stochastic proposal everywhere tried."""
    return _bounded(records, "bias", "the proposal's bias")


def app_h(records: list[Record]) -> Finding:
    """Preconditioned DLP's log RMSE is below that of standard DLP at every step size."""
    margins, numbers = [], []
    for key, group in by_sampler([r for r in records if "thinned" in r.metrics]).items():
        table = pd.concat([record.metrics for record in group])
        end = table[table["step"] == table["step"].max()]
        scaled, plain = end[end["power"] == 1], end[end["power"] == 0]
        if scaled.empty or plain.empty:
            continue
        ours = scaled.iloc[0].astype(float)
        best = plain.loc[plain["log_rmse"].idxmin()].astype(float)
        limits = (
            float(best["log_rmse_low"] - ours["log_rmse_high"]),
            float(best["log_rmse_high"] - ours["log_rmse_low"]),
        )
        name = label(key)
        gap = float(best["log_rmse"] - ours["log_rmse"])
        what = f"{name}: log RMSE at the best step size less the preconditioned"
        margins.append(Margin(what, (gap,), limits=limits))
        every_other = plain.groupby("step_size")["thinned"].first().min()
        papers = published("appH", "preconditioned"), published("appH", "standard")
        numbers += [
            Number(f"{name}, preconditioned: log RMSE", Estimate(ours["log_rmse"]), papers[0]),
            Number(f"{name}, best step size: log RMSE", Estimate(best["log_rmse"]), papers[1]),
            Number(f"{name}, best step size, every other step", Estimate(float(every_other))),
        ]
    if not margins:
        raise LookupError("no records with and without a preconditioner")
    note = (
        "medians of the chains, limits their 10 % and 90 % quantiles; a site that flips at every "
        "step has the right mean over all steps, but not over every other one"
    )
    return Finding(tuple(margins), tuple(numbers), note)


def _bounded(records: list[Record], column: str, what: str) -> Finding:
    table = _table(records, column, lambda record: 0.0)
    table = table[table[column] > 0]
    slack = np.log(table["theorem"] / table[column])
    if slack.empty:
        raise LookupError(f"no record with {column} above 0")
    margin = Margin(f"log of the bound over {what}, at its least", (float(slack.min()),), True)
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
