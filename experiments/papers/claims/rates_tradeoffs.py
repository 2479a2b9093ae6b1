"""Claims of Breuleux et al. (2011), Sections 4 and 5.1: what fast weights do to model and samples.

They improve the model, stay near it, and trade mixing for spurious samples as the step grows.
"""

import math
from collections.abc import Mapping

import numpy as np

from latticework.experiments.papers.claims import compare, readings, thresholds
from latticework.experiments.papers.claims.rates_samplers import FPCD, GIBBS, HERDING
from latticework.experiments.papers.claims.rates_step_sizes import (
    best_updates,
    by_size,
    group_by_size,
)
from latticework.experiments.papers.claims.verdict import Finding, Number
from latticework.experiments.records import estimates
from latticework.experiments.records.estimates import Estimate, estimate
from latticework.experiments.records.record import Record
from latticework.experiments.records.training_quality import lower_likelihood

IMPROVING_STEP = 0.004  # the middle one of the three that are run; fixed before they were
FEW_SAMPLES, LARGE_STEP = 100, 10.0  # samples, and times the best fast step, of a robust sampler


def improves(records: list[Record]) -> Finding:
    """The model plus the mean fast weights of rates-FPCD has the larger log-likelihood.

    Both are measured by AIS in two directions, of which the lower estimate counts.
    """
    changes: dict[float, readings.Seeds] = {}
    shown = []
    for size, runs in sorted(group_by_size(records).items()):
        before = readings.by_seed(runs, _lower_likelihood("before"))
        after = readings.by_seed(runs, _lower_likelihood("after"))
        changes[size] = readings.paired_differences(after, before)
        quantity = f"nats that the log-likelihood gains, fast step size {size:g}"
        shown.append(Number(quantity, estimate(changes[size].values())))
    if IMPROVING_STEP not in changes:
        raise LookupError(f"no record with fast step size {IMPROVING_STEP:g}")
    margin = compare.positive(
        f"log-likelihood after - before, fast step size {IMPROVING_STEP:g}",
        changes[IMPROVING_STEP],
    )
    note = (
        "log-likelihood of validation rows, the lower of AIS in both directions; one model a seed"
    )
    return Finding([margin], shown, note)


def _lower_likelihood(suffix: str) -> readings.Value:
    """The lower of the two estimates of the log-likelihood `before` or `after`, in nats."""

    def value(record: Record) -> float:
        names = ("ais_forward", "ais_back")
        estimates_of_run = {
            name: readings.run_json_value(f"{name}_{suffix}")(record) for name in names
        }
        return lower_likelihood(estimates_of_run)

    return value


def distance_grows_with_root(records: list[Record]) -> Finding:
    """The distance of the fast weights from zero grows with the root of the fast step size."""
    distances = {}
    for size, runs in sorted(group_by_size(records).items()):
        distances[size] = readings.by_seed(runs, readings.run_json_value("distance"))
    if len(distances) < 3:
        raise LookupError("the exponent of the distance needs three fast step sizes")
    exponents: readings.Seeds = {}
    for seed in readings.common_seeds(*distances.values()):
        values = [distances[size][seed] for size in distances]
        exponents[seed] = float(np.polyfit(np.log(list(distances)), np.log(values), 1)[0])
    tolerance = thresholds.ROOT.value()
    quantity = "exponent of the distance over the fast step size"
    margins = compare.equivalence(quantity, exponents, 0.5, tolerance)
    shown = [Number(quantity, estimate(exponents.values()), Estimate(0.5))]
    for size, of_seed in distances.items():
        text = f"distance from the model, fast step size {size:g}"
        shown.append(Number(text, estimate(of_seed.values())))
    return Finding(margins, shown, f"root mean square of the fast weights; within {tolerance:g}")


def stays_faithful(records: list[Record]) -> Finding:
    """Rates-FPCD makes fewer spurious samples than Gibbs chains at temperatures 1.5 to 3."""
    groups = readings.records_by_sampler(records, [GIBBS, FPCD])
    spurious = readings.run_json_value("spurious_share")
    ours = readings.by_seed(groups[FPCD], spurious)
    shown = [Number(f"share of spurious samples, {FPCD}", estimate(ours.values()))]
    margins = []
    for temperature in (1.0, 1.5, 2.0, 3.0):
        runs = readings.with_settings(groups[GIBBS], {"task.temperature": temperature})
        if not runs:
            raise LookupError(f"no record of {GIBBS} at temperature {temperature:g}")
        hot = readings.by_seed(runs, spurious)
        quantity = f"share of spurious samples, {GIBBS} at T = {temperature:g}"
        shown.append(Number(quantity, estimate(hot.values())))
        isl = readings.by_seed(runs, readings.last_value("isl"))
        shown.append(Number(f"ISL, {GIBBS} at T = {temperature:g}", estimate(isl.values())))
        if temperature > 1:
            margins.append(compare.difference(f"{quantity} - {FPCD}", hot, ours))
    note = "spurious: further from all training rows than 95 % of the test rows are; our measure"
    return Finding(margins, shown, note)


def spurious_grow(records: list[Record]) -> Finding:
    """Larger fast steps make more spurious samples, with rates-FPCD and rates-herding."""
    margins, shown = [], []
    for name, sizes in _spurious_by_size(records).items():
        first, last = min(sizes), max(sizes)
        quantity = f"share of spurious samples of {name}, fast step size {last:g} - {first:g}"
        margins.append(compare.difference(quantity, sizes[last], sizes[first]))
        for size in (first, last):
            text = f"share of spurious samples of {name}, fast step size {size:g}"
            shown.append(Number(text, estimate(sizes[size].values())))
    note = "spurious: further from all training rows than 95 % of the test rows are; our measure"
    return Finding(margins, shown, note)


def _spurious_by_size(records: list[Record]) -> Mapping[str, dict[float, readings.Seeds]]:
    """The share of spurious samples of both rates samplers, by fast step size and seed."""
    measured = [record for record in records if "spurious_share" in record.document]
    groups = readings.records_by_sampler(measured, [HERDING, FPCD])
    groups[FPCD] = best_updates(groups[FPCD])[1]
    shares: dict[str, dict[float, readings.Seeds]] = {}
    for name in (HERDING, FPCD):
        shares[name] = {}
        for size, runs in by_size(groups[name]).items():
            shares[name][size] = readings.by_seed(runs, readings.run_json_value("spurious_share"))
    return shares


def herding_is_robust(records: list[Record]) -> Finding:
    """Ten times the best fast step costs rates-FPCD more nats of ISL than rates-herding.

    The ISL is that of 100 samples: the paper says that the advantage subsides as more are drawn.
    """
    groups = readings.records_by_sampler(records, [HERDING, FPCD], ["isl"])
    groups[FPCD] = best_updates(groups[FPCD])[1]
    isl_of_few = readings.value_at("isl", "step", FEW_SAMPLES)
    losses: dict[str, readings.Seeds] = {}
    shown = []
    for name in (HERDING, FPCD):
        isl = {}
        for size, runs in by_size(groups[name]).items():
            isl[size] = readings.by_seed(runs, isl_of_few)
        best = max(isl, key=lambda size: float(np.mean(list(isl[size].values()))))
        large = min(isl, key=lambda size: abs(math.log(size / (LARGE_STEP * best))))
        if not large > best:
            raise LookupError(f"the best fast step size of {name} is the largest that was run")
        losses[name] = readings.paired_differences(isl[best], isl[large])
        quantity = f"nats that {name} loses with a fast step size of {large:g} instead of {best:g}"
        shown.append(Number(quantity, estimate(losses[name].values())))
    margin = compare.difference(
        f"loss by large steps, {FPCD} - {HERDING}", losses[FPCD], losses[HERDING]
    )
    return Finding([margin], shown, f"test ISL of {FEW_SAMPLES} samples; ten times the best step")


def similar_cost(records: list[Record]) -> Finding:
    """A sample of rates-herding costs about as much as one of rates-FPCD, as they are used."""
    timed = estimates.drop_shared_core(records)
    groups = readings.records_by_sampler(timed, [HERDING, FPCD])
    seconds = readings.by_sampler_and_seed(groups, readings.run_json_value("seconds_per_step"))
    ratios = readings.paired_ratios(seconds[HERDING], seconds[FPCD])
    factor = thresholds.TIME.value()
    quantity = f"time of a sample, {HERDING} / {FPCD}"
    margins = compare.equivalence(f"log({quantity})", readings.logs(ratios), 0.0, math.log(factor))
    note = f"each with the settings of Figure 2; similar: within a factor of {factor:g}"
    return Finding(margins, [Number(quantity, estimate(ratios.values()))], note)
