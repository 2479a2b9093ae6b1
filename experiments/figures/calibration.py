"""Rates of verdicts by task=calibration: tables by rule, target and quantity, and a figure."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from latticework.experiments.figures import plot, style
from latticework.experiments.records import grouping, verdict_rules
from latticework.experiments.records.record import Record
from latticework.experiments.records.verdict_rules import Share, VerdictRule

WRONG, UNSEEN = "wrong of converged", "less unseen modes"
REFUSED, PROMISED = "refused of right", "refused of right with ESS 400"
MIN_TRIPS = (0, 2, 5, 10, 20)  # round trips a ladder, of the rules for log Z


def collect_rows(records: list[Record], half: str = "judging") -> pd.DataFrame:
    """The short runs of all records of a half, with their target, seed and sampler.

    Raises LookupError if no record is of task=calibration, or none of that half.
    """
    parts = []
    for record in grouping.require_records_with(records, "r_hat_pairs", task="calibration"):
        sampler = record.choices["sampler"]
        if record.config["task"]["temper"]:
            sampler += ", tempered"
        about = {"target": record.config["model"]["name"], "seed": record.config["seed"]}
        parts.append(record.metrics.assign(sampler=sampler, **about))
    rows = pd.concat(parts, ignore_index=True)
    rows = rows[verdict_rules.half_of(rows) == half]
    if rows.empty:
        raise LookupError(f"no record is of the {half} half (experiments/records/verdict_rules.py)")
    return rows.reset_index(drop=True)


def rules(records: list[Record], half: str = "judging") -> pd.DataFrame:
    """The rates of each rule over a half, with Wilson's 95 % intervals of independent runs."""
    rows = collect_rows(records, half)
    table = []
    for name, rule in verdict_rules.RULES.items():
        shares = verdict_rules.measure_rates(rows, rule)
        mark = " (in use)" if name == verdict_rules.IN_USE else ""
        table.append({"rule": name + mark, **{key: _in_words(shares[key]) for key in shares}})
    return pd.DataFrame(table)


def targets(records: list[Record], half: str = "judging") -> pd.DataFrame:
    """The rates of the former rule and of the one in use, by target and sampler."""
    rows = collect_rows(records, half)
    table = []
    for (target, sampler), cell in rows.groupby(["target", "sampler"], sort=True):
        row = {"target": target, "sampler": sampler, "runs": len(cell)}
        for label, name in (("former", verdict_rules.FORMER), ("now", verdict_rules.IN_USE)):
            shares = verdict_rules.measure_rates(cell, verdict_rules.RULES[name])
            row[f"wrong, {label}"] = _in_counts(shares[WRONG])
            row[f"refused, {label}"] = _in_counts(shares[PROMISED])
        table.append(row)
    return pd.DataFrame(table)


def log_z(records: list[Record], half: str = "judging") -> pd.DataFrame:
    """How many 95 % intervals of log Z hold the truth, by the round trips that are asked for."""
    rows = collect_rows(records, half)
    if "log_z_error" not in rows:
        raise LookupError(f"no record of the {half} half is tempered")
    rows = rows[rows["log_z_error"].notna()]
    held = (rows["log_z_error"] <= -rows["log_z_low"]) & (
        rows["log_z_error"] >= -rows["log_z_high"]
    )
    converged = verdict_rules.RULES[verdict_rules.IN_USE].accepts(rows)
    table = []
    for trips in MIN_TRIPS:
        for name, chosen in (("", converged | True), (", chains converged", converged)):
            taken = chosen & (rows["round_trips"] >= trips)
            good = rows["log_z_error"].abs() < 0.5
            table.append(
                {
                    "rule": f"{trips} round trips{name}",
                    "intervals that hold": _in_words(verdict_rules.share(held[taken])),
                    "off by more than 1 nat": int((rows["log_z_error"].abs() > 1)[taken].sum()),
                    "refused with an error below 0.5": _in_words(verdict_rules.share(~taken[good])),
                }
            )
    return pd.DataFrame(table)


def intervals(records: list[Record], half: str = "judging") -> pd.DataFrame:
    """How many intervals of 1.96 MCSEs hold, over runs that the rule in use calls converged."""
    rows = collect_rows(records, half)
    rows = rows[verdict_rules.RULES[verdict_rules.IN_USE].accepts(rows)]
    table = []
    kinds = {kind: kind for kind in verdict_rules.KINDS} | {"rb": "sites, given the rest"}
    for kind, name in kinds.items():
        if f"covering_{kind}" not in rows:
            continue
        hold, number = rows[f"covering_{kind}"].sum(), rows[f"intervals_{kind}"].sum()
        if number:
            table.append({"means": name, "intervals": int(number), "hold": f"{hold / number:.1%}"})
    if "ratio_rb" in rows:
        ratio = rows["ratio_rb"].median()
        table.append({"means": "variance of sites / given the rest", "hold": f"{ratio:.2f}"})
    return pd.DataFrame(table).astype(object).fillna("")


def _in_words(ratio: Share) -> str:
    """A share with its interval and counts: `1.2 % [0.4, 3.1], 3 of 250`."""
    if not ratio.of:
        return "0 of 0"
    low, high = 100 * ratio.low, 100 * ratio.high
    return f"{100 * ratio.value:.1f} % [{low:.1f}, {high:.1f}], {ratio.hits} of {ratio.of}"


def _in_counts(ratio: Share) -> str:
    return f"{ratio.hits} of {ratio.of}"


def draw_thresholds(records: list[Record], half: str = "judging") -> plot.Plot:
    """Wrong ones of the converged against refused ones of the right, as the R-hat limit moves."""
    rows = collect_rows(records, half)
    used = verdict_rules.RULES[verdict_rules.IN_USE]
    fixed = replace(used, by_chains=0.0)
    curves = [
        ("R-hat alone", lambda excess: VerdictRule(r_hat=excess, ess=0)),
        ("R-hat and ESS 400", lambda excess: VerdictRule(r_hat=excess)),
        ("all other rules too", lambda excess: replace(fixed, r_hat=excess)),
    ]
    series: list[plot.Series] = []
    look: dict[str, Any]
    for number, (name, rule) in enumerate(curves):
        x, y = _move_limit(rows, rule)
        if x:  # some run has converged
            series.append(plot.Series(name, x, y, color=style.numbered_style(number)["color"]))
    points = {
        "former rule": verdict_rules.RULES[verdict_rules.FORMER],
        "rule in use": used,
    }
    for number, (name, chosen) in enumerate(points.items()):
        shares = verdict_rules.measure_rates(rows, chosen)
        if not (shares[REFUSED].of and shares[WRONG].of):
            continue
        place = 100 * shares[REFUSED].value, 100 * shares[WRONG].value
        look = {"marker": "sD"[number], "linestyle": "none"}
        series.append(plot.Series(name, *place, color="black", **look))
    labels = {"xlabel": "refused, % of the right runs", "ylabel": "wrong, % of the converged"}
    panel = plot.Panel(series, **labels, ylim=(0, None))
    figure, ax = style.new_figure(width=style.PAGE_INCHES * 0.7)
    panel.draw(ax)
    return plot.finish_plot(figure, [ax], [panel], f"{len(rows)} runs of the {half} half.")


def _move_limit(
    rows: pd.DataFrame, rule: Callable[[float], VerdictRule]
) -> tuple[Sequence[float], Sequence[float]]:
    """Percentages of refused and wrong runs at many limits of R-hat."""
    x, y = [], []
    for excess in np.geomspace(0.002, 1, 28):
        shares = verdict_rules.measure_rates(rows, rule(float(excess)))
        if shares[WRONG].of:
            x.append(100 * shares[REFUSED].value)
            y.append(100 * shares[WRONG].value)
    return x, y
