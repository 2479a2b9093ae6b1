"""The numbers of a record of chains on a fixed target that are shown first."""

from dataclasses import replace

import numpy as np

from latticework.experiments.records.estimates import (
    Better,
    Estimate,
    KeyNumber,
    last_reading,
    last_readings,
)
from latticework.experiments.records.record import Record
from latticework.sampling.diagnostics import largest_r_hat

BETTER: dict[str, Better] = {
    "log_rmse": "lower",
    "log_rmse_ensemble": "lower",
    "log_mmd": "lower",
    "acceptance": None,
    "changed": None,
    "proposed": None,
    "unsettled": None,
}


def headline(record: Record) -> list[KeyNumber]:
    """Errors at the last reading; the mean state, ESS and R-hat of the trace; rates.

    `mean` is the average of x over sites, chains and draws.
    """
    errors = record.document.get("errors", {})
    ladders = []
    if log_z := record.document.get("log_z"):
        known = [end for end in ("low", "high") if log_z[end] is not None]
        ends = {f"95 % {end}": Estimate(log_z[end]) for end in known}
        ladders = [KeyNumber("log_z", log_z["value"], references=ends)]
    numbers = [
        replace(n, error=errors.get(n.name), error_over="chains" if n.name in errors else "")
        for n in last_readings(record, BETTER)
    ]
    if "log_mmd_floor" in record.metrics:
        floor = {"independent draws": Estimate(last_reading(record, "log_mmd_floor"))}
        numbers = [replace(n, references=floor) if n.name == "log_mmd" else n for n in numbers]
    numbers = [replace(n, unit="sites a step") if n.name == "changed" else n for n in numbers]
    traced = traced_numbers(record) if record.has_array("convergence") else []
    rates = [number for number in numbers if number.better is None]
    return [*ladders, *(number for number in numbers if number.better), *traced, *rates]


def traced_numbers(record: Record) -> list[KeyNumber]:
    """The mean of the trace, beside the exact one; ESS and R-hat of the sites that changed."""
    arrays, exact = record.arrays("convergence"), record.document.get("mean_exact")
    numbers = []
    if exact is not None and "mean" in arrays:
        mean, error, beside = arrays["mean"], arrays["mean_error"], {"exact": Estimate(exact)}
        numbers.append(KeyNumber("mean", float(mean), float(error), "draws", None, beside))
    ess, r_hat = (arrays[name][~np.isnan(arrays[name])] for name in ("ess", "r_hat"))
    draws = {"draws": Estimate(float(arrays["draws"] * arrays["chains"]))}
    if len(ess):
        worst, median = float(ess.min()), float(np.median(ess))
        numbers.append(KeyNumber("ess_worst", worst, better="higher", references=draws))
        numbers.append(KeyNumber("ess_median", median, better="higher", references=draws))
    if len(r_hat):  # one chain has none
        numbers.append(KeyNumber("largest_r_hat", float(r_hat.max())))
        known = {"of": Estimate(len(r_hat))}
        agree = float((r_hat <= largest_r_hat(int(arrays["chains"]))).sum())
        numbers.append(KeyNumber("sites_converged", agree, references=known))
    if stuck := int(arrays["constant"]):
        sites = {"sites": Estimate(len(arrays["ess"]))}
        numbers.append(KeyNumber("sites_never_changed", stuck, references=sites))
    return numbers
