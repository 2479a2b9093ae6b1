"""Claims of Breuleux et al. (2011), Section 5.1: fast step sizes, and decay of fast weights."""

import math
from collections.abc import Iterable, Mapping

import numpy as np

from latticework.experiments.papers.claims import compare, readings, thresholds
from latticework.experiments.papers.claims.rates_samplers import (
    FPCD,
    HERDING,
    SAMPLES,
)
from latticework.experiments.papers.claims.verdict import Finding, Number, numbers
from latticework.experiments.records.estimates import (
    Estimate,
    estimate,
    published_estimate,
    published_mean,
)
from latticework.experiments.records.grouping import group_by
from latticework.experiments.records.record import Record

BySize = dict[float, list[Record]]


def step_size_ratio(records: list[Record]) -> Finding:
    """In the long run, the best fast step size of rates-herding is 10 to 100 times rates-FPCD's.

    If rates-FPCD was run with several k, its best k in the long run is taken.
    """
    groups = readings.records_by_sampler(records, [HERDING, FPCD], ["isl"])
    updates, ours = best_updates(groups[FPCD])
    herding_sizes, sizes = _best_sizes(groups[HERDING]), _best_sizes(ours)
    ratios = readings.paired_ratios(herding_sizes, sizes)
    low = published_mean("rates_fig2", "step_size", "lowest")
    high = published_mean("rates_fig2", "step_size", "highest")
    quantity = "fast step size of rates-herding / rates-FPCD"
    margins = [
        compare.margin_above(f"log({quantity})", readings.logs(ratios), math.log(low)),
        compare.margin_below(f"log({quantity})", readings.logs(ratios), math.log(high)),
    ]
    shown = [
        Number(quantity, estimate(ratios.values())),
        Number("fast step size of rates-herding", estimate(herding_sizes.values())),
        Number(f"fast step size of rates-FPCD, k = {updates}", estimate(sizes.values())),
    ]
    note = "best: highest validation ISL under all samples of a model, interpolated"
    plateaus = {"rates-herding": groups[HERDING], f"rates-FPCD, k = {updates}": ours}
    undecidable = _describe_plateau(plateaus, high / low)
    return Finding(margins, shown, note, undecidable=undecidable)


def _describe_plateau(runs: Mapping[str, list[Record]], resolution: float) -> str:
    """Which sampler's best size is on a plateau wider than a factor of `resolution`; "" if none.

    There the best of the sizes that were run is a matter of noise, and so is a ratio of them.
    """
    nats, plateaus = thresholds.PLATEAU_NATS.value(), []
    for name, records in runs.items():
        factors = []
        for curve in _isl_curves(records).values():
            best = max(curve.values())
            near = [size for size, isl in curve.items() if isl > best - nats]
            factors.append(max(near) / min(near))
        factor = float(np.median(factors))
        if factor > resolution:
            within = f"within {nats:g} nats over a factor of {factor:,.0f}"
            plateaus.append(f"the ISL of {name} is {within} (median over models)")
    if not plateaus:
        return ""
    return f"a best step size that is not on a plateau: {'; '.join(plateaus)}"


def best_updates(records: list[Record]) -> tuple[int, list[Record]]:
    """The k of rates-FPCD with the best long run at its best step size, and its records."""
    parts = group_by(lambda record: record.config["sampler"].get("steps", 1), records)

    def best_score(updates: int) -> float:
        best = readings.best_part(by_size(parts[updates]).values(), validation_isl)
        return float(np.mean(list(map(validation_isl, best))))

    chosen = max(parts, key=best_score) if len(parts) > 1 else next(iter(parts))
    return chosen, parts[chosen]


def long_run(records: list[Record], level: bool = False) -> Finding:
    """Rates-FPCD ends above rates-herding, each at its best fast step size in the long run.

    With `level`, there is no clear difference (USPS).
    """
    groups = readings.records_by_sampler(records, [HERDING, FPCD], ["isl"])
    groups[FPCD] = best_updates(groups[FPCD])[1]
    values = {}
    for name in (HERDING, FPCD):
        best = readings.best_part(by_size(groups[name]).values(), validation_isl)
        values[name] = readings.by_seed(best, readings.last_value("isl"))
    note = "best: highest validation ISL in the mean"
    if not level:
        margins = compare.differences("last ISL", values, [(FPCD, HERDING)])
        return Finding(margins, numbers(SAMPLES, values), note)
    lead = readings.paired_differences(values[FPCD], values[HERDING])
    nats = thresholds.CLEAR_NATS.value()
    margins = compare.equivalence(f"last ISL, {FPCD} - {HERDING}", lead, 0.0, nats)
    note = f"{note}; no clear difference: within {nats:g} nats, half of the paper's slight margin"
    return Finding(margins, numbers(SAMPLES, values), note)


def _best_sizes(records: list[Record]) -> readings.Seeds:
    """The fast step size with the highest validation ISL, by seed.

    It is interpolated: the vertex of the parabola through the best one that was run and its two
    neighbours, over the logarithm of the size. Raises LookupError if the best one is at an end.
    """
    best_sizes: readings.Seeds = {}
    for seed, curve in sorted(_isl_curves(records).items()):
        sizes = sorted(curve)
        scores = [curve[size] for size in sizes]
        best = int(np.argmax(scores))
        if not 0 < best < len(sizes) - 1:
            name = records[0].choices["sampler"]
            raise LookupError(
                f"the best fast step size of {name} with seed {seed}, {sizes[best]:g}, is at the "
                "end of those that were run; run it at smaller and larger ones"
            )
        near = slice(best - 1, best + 2)
        square, slope, _ = np.polyfit(np.log(sizes[near]), scores[near], 2)
        best_sizes[seed] = float(np.exp(-slope / (2 * square)))
    return best_sizes


def _isl_curves(records: list[Record]) -> dict[int, dict[float, float]]:
    """The validation ISL by seed and fast step size."""
    curves: dict[int, dict[float, float]] = {}
    for size, runs in by_size(records).items():
        for seed, isl in readings.by_seed(runs, validation_isl).items():
            curves.setdefault(seed, {})[size] = isl
    return curves


def by_size(records: Iterable[Record]) -> BySize:
    """The records with an ISL, by their positive fast step size."""
    sizes = group_by_size(record for record in records if "isl" in record.metrics)
    return {size: group for size, group in sizes.items() if size > 0}


def group_by_size(records: Iterable[Record]) -> BySize:
    """The records by their fast step size."""
    return group_by(lambda record: record.config["sampler"]["fast_step_size"], records)


def decay(records: list[Record]) -> Finding:
    """Rates-FPCD without decay ends above alpha = 0.95, each at its best fast step size.

    Raises LookupError if a best size is at the end of those that were run.
    """
    alphas = [published_mean("rates_fig3", "decay", name) for name in ("best", "other")]
    best: list[readings.Seeds] = []
    shown = []
    for alpha in alphas:
        sizes = by_size(readings.with_settings(records, {"sampler.decay": alpha}))
        if not sizes:
            raise LookupError(f"no record of rates-FPCD with decay {alpha:g}")
        chosen = max(sizes, key=lambda size: np.mean(list(map(validation_isl, sizes[size]))))
        if chosen in (min(sizes), max(sizes)):
            raise LookupError(
                f"the best fast step size with alpha = {alpha:g}, {chosen:g}, is at the end of "
                "those that were run; run it at smaller and larger ones"
            )
        best.append(readings.by_seed(sizes[chosen], readings.last_value("isl")))
        quantity = f"ISL with alpha = {alpha:g}, fast step size {chosen:g}"
        shown.append(Number(quantity, estimate(best[-1].values())))
    margin = compare.difference("ISL, (alpha = 1) - (alpha = 0.95)", *best)
    better = Estimate(alphas[int(margin.mean < 0)])
    quantity = f"the better decay alpha of {alphas[0]:g} and {alphas[1]:g}"
    shown.append(Number(quantity, better, published_estimate("rates_fig3", "decay", "best")))
    return Finding([margin], shown, "step sizes with the highest mean validation ISL")


def validation_isl(record: Record) -> float:
    """The validation ISL; the test ISL for records that were made before it was noted."""
    return float(record.document.get("validation_isl", readings.last_value("isl")(record)))
