"""Claims of Breuleux et al. (2011), Sections 4 and 5.1: what the samples look like."""

import math

from numpy.typing import NDArray

from latticework.experiments.papers.claims import compare, readings, thresholds
from latticework.experiments.papers.claims.rates_samplers import NAMES, SP
from latticework.experiments.papers.claims.rates_step_sizes import group_by_size
from latticework.experiments.papers.claims.verdict import Finding, Number
from latticework.experiments.records.estimates import Estimate, estimate
from latticework.experiments.records.record import Record


def judge_pixels_on(records: list[Record]) -> Finding:
    """Images of sample penalization have more pixels on than rows of the data.

    The paper says "larger and bolder" than "the true distribution"; counting pixels is our measure.
    Samples with fewer pixels on than every stored test row are blank, and do not count.
    """
    stored = [record for record in _with_samples(records) if record.has_array("test_rows")]
    groups = readings.records_by_sampler(stored, NAMES)
    excess = {}
    shown = [Number("share of pixels on, test rows", Estimate(_share_on(stored[0], "test_rows")))]
    for name, runs in groups.items():
        shares = readings.by_seed(runs, _share_on_of_samples)
        shown.append(Number(f"share of pixels on, {name}", estimate(shares.values())))
        blank = readings.by_seed(runs, _share_of_blank_samples)
        shown.append(Number(f"share of blank samples, {name}", estimate(blank.values())))
        excess[name] = readings.by_seed(runs, _pixels_on_beyond_data)
    margin = compare.positive("share of pixels on, SP - test rows", excess[SP])
    note = (
        "larger and bolder: more pixels on in the stored samples than in test rows; samples with "
        "fewer pixels on than every test row are blank, and do not count; our measure"
    )
    return Finding([margin], shown, note)


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


def _share_on(record: Record, array: str) -> float:
    """The mean share of pixels that are on in the rows of an array."""
    return float(record.arrays(array)["x"].mean())


def _is_blank(record: Record) -> NDArray:
    """Whether each stored sample has fewer pixels on than every stored test row."""
    rows = record.arrays("test_rows")["x"]
    return _samples(record).sum(1) < rows.sum(1).min()


def _share_of_blank_samples(record: Record) -> float:
    return float(_is_blank(record).mean())


def _share_on_of_samples(record: Record) -> float:
    """The mean share of pixels on in the samples that are not blank; NaN if all are."""
    shown = _samples(record)[~_is_blank(record)]
    return float(shown.mean()) if len(shown) else math.nan


def _pixels_on_beyond_data(record: Record) -> float:
    return _share_on_of_samples(record) - _share_on(record, "test_rows")


def _share_of_differing_pixels(record: Record) -> float:
    """Mean fraction of sites in which two distinct samples of the stored sequence differ."""
    x = _samples(record)
    on = x.mean(0)
    return float((2 * on * (1 - on)).mean() * len(x) / (len(x) - 1))
