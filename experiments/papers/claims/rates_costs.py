"""Claims of Breuleux et al. (2011), Section 5.1: the cost of samples, and times to cover states."""

import math

import numpy as np

from latticework.experiments.papers.claims import compare, readings, thresholds
from latticework.experiments.papers.claims.rates_samplers import (
    FPCD,
    GIBBS,
    PAPER_SAMPLE_COUNT,
)
from latticework.experiments.papers.claims.verdict import Finding, Number
from latticework.experiments.records import estimates
from latticework.experiments.records.estimates import Estimate, published_mean
from latticework.experiments.records.record import Record


def judge_time_ratio(records: list[Record], data: str) -> Finding:
    """Judge the ratio of seconds, Gibbs / rates-FPCD, to the ISL of few rates-FPCD samples."""
    timed = estimates.drop_shared_core(records)
    groups = readings.records_by_sampler(timed, [GIBBS, FPCD], ["isl", "seconds"])
    ours, gibbs = (readings.by_seed(groups[name], lambda r: r) for name in (FPCD, GIBBS))
    isl_of_few = readings.value_at("isl", "step", PAPER_SAMPLE_COUNT)
    times, reached = [], 0
    for seed in readings.common_seeds(ours, gibbs):
        samples, is_reached = _samples_to(gibbs[seed], isl_of_few(ours[seed]))
        reached += is_reached
        seconds, our_seconds = map(estimates.step_seconds, (gibbs[seed], ours[seed]))
        times.append(samples / PAPER_SAMPLE_COUNT * seconds / our_seconds)
    paper, censored = published_mean("rates_fig2", "times_faster", data), len(times) - reached
    quantity = f"log(times faster) - log {paper:g}"
    values = tuple(math.log(time / paper) for time in times)
    few = f", at least ({censored} of {len(times)} never got there)" if censored else ""
    here = estimates.estimate(times)
    number = Number(f"times faster than Gibbs{few}", here, Estimate(paper))
    note = (
        f"ratio of the seconds to reach the ISL of {PAPER_SAMPLE_COUNT} rates-FPCD samples, "
        "Gibbs / rates-FPCD, each model with its own seconds per sample"
    )
    return Finding([compare.Margin(quantity, values, at_least=censored > 0)], [number], note)


def _samples_to(record: Record, level: float) -> tuple[float, bool]:
    """The number of samples at which the ISL reaches `level`, or all of them; whether it does.

    The ISL is interpolated in the logarithm of the number of samples.
    """
    curve = record.metrics[["step", "isl"]].dropna()
    steps, isl = curve["step"].to_numpy(float), curve["isl"].to_numpy(float)
    above = np.flatnonzero(isl >= level)
    if not len(above) or above[0] == 0:
        return float(steps[0 if len(above) else -1]), len(above) > 0
    around = slice(above[0] - 1, above[0] + 1)
    return float(np.exp(np.interp(level, isl[around], np.log(steps[around])))), True


def judge_cost(records: list[Record]) -> Finding:
    """At equal k, a sample of rates-FPCD costs about 2 (USPS) and 7 (MNIST) times one of Gibbs."""
    margins, shown = [], []
    factor = thresholds.SAMPLE_COST.value()
    seconds = readings.run_json_value("seconds_per_step")
    for data in ("usps", "mnist"):
        timed = estimates.drop_shared_core(readings.with_choices(records, model=f"rbm_{data}"))
        if not timed:
            raise LookupError(f"no record of rbm_{data}")
        groups = readings.records_by_sampler(timed, [GIBBS, FPCD])
        values = readings.by_sampler_and_seed(groups, seconds)
        times, paper = (
            readings.paired_ratios(values[FPCD], values[GIBBS]),
            published_mean("rates_cost", data),
        )
        quantity = f"{data.upper()}: log(time of rates-FPCD / Gibbs)"
        margins += compare.equivalence(
            quantity, readings.logs(times), math.log(paper), math.log(factor)
        )
        text = f"{data.upper()}: time of rates-FPCD / Gibbs"
        here = estimates.estimate(times.values())
        shown.append(Number(text, here, estimates.published_estimate("rates_cost", data)))
    note = (
        f"seconds a sample at k = 1; tolerance: a factor of {factor:.2f} (ours), so that 2 and 7 "
        "do not overlap; on one machine, and the ratio depends on it"
    )
    return Finding(margins, shown, note)
