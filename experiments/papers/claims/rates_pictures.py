"""Claims of Breuleux et al. (2011), Sections 4 and 5.1: what the samples look like."""

from numpy.typing import NDArray

from latticework.experiments.papers.claims import compare, readings, thresholds
from latticework.experiments.papers.claims.rates_samplers import FPCD, HERDING, NAMES, SP
from latticework.experiments.papers.claims.rates_step_sizes import group_by_size
from latticework.experiments.papers.claims.verdict import Finding, Number, numbers
from latticework.experiments.records.estimates import Estimate, estimate
from latticework.experiments.records.record import Record


def judge_pixels_on(records: list[Record]) -> Finding:
    """Images of sample penalization have more pixels on than those of the rates samplers.

    The paper says "larger and bolder" than "the true distribution"; counting pixels is our measure.
    The pixel means of the rates samplers follow those of the training data.
    """
    groups = readings.records_by_sampler(_with_samples(records), NAMES)
    shares = readings.by_sampler_and_seed(groups, lambda r: float(_samples(r).mean()))
    return Finding(
        compare.differences("share of pixels on", shares, [(SP, HERDING), (SP, FPCD)]),
        numbers("share of pixels on, {}", shares),
        "larger and bolder: more pixels on in the stored samples than in those of rates-FPCD and "
        "rates-herding, whose pixel means follow the data; our measure",
    )


def penalization_uniform(records: list[Record], coding: str | None = None) -> Finding:
    """Without decay, the samples of sample penalization tend to the uniform distribution.

    `coding` is that of the statistics. Our measure is the fraction of pixels in which two samples
    differ. It is 1/2 if every pixel is on half of the time, and below 1/2 otherwise. Every fast
    step size of the records has to pass.
    """
    settings = {"sampler.decay": 1.0, "sampler.coding": coding}
    stored = readings.with_settings(_with_samples(records), settings)
    readings.records_by_sampler(stored, [SP])
    margins, shown = [], []
    tolerance = thresholds.UNIFORM.value()
    for size, runs in sorted(group_by_size(stored).items()):
        chains = readings.records_by_sampler(runs, [SP])[SP]
        apart = readings.by_seed(chains, _share_of_differing_pixels)
        quantity = f"share of pixels in which two samples differ, fast step size {size:g}"
        margins += compare.equivalence(quantity, apart, 0.5, tolerance)
        shown.append(Number(quantity, estimate(apart.values()), Estimate(0.5)))
    note = f"of the stored samples; uniform means 1/2 ± {tolerance:g}; "
    note += "the measure is our choice"
    return Finding(margins, shown, note)


def _with_samples(records: list[Record]) -> list[Record]:
    return [record for record in records if record.has_array("sequence")]


def _samples(record: Record) -> NDArray:
    """The stored samples, one a row."""
    return record.arrays("sequence")["x"]


def _share_of_differing_pixels(record: Record) -> float:
    """Mean fraction of sites in which two distinct samples of the stored sequence differ."""
    x = _samples(record)
    on = x.mean(0)
    return float((2 * on * (1 - on)).mean() * len(x) / (len(x) - 1))
