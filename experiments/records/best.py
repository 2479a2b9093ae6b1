"""The best of several estimates, and those not significantly different from it."""

import math
from collections.abc import Sequence

from latticework.experiments.records.estimate import Estimate
from latticework.experiments.records.headline import Better

BEST, TIE = "best", "tie"
LEVEL = 0.05  # two-sided


def marks(estimates: Sequence[Estimate | None], better: Better) -> list[str]:
    """BEST for the best estimate, TIE for estimates that do not differ from it, else "".

    Two estimates differ if Welch's t-test rejects equal means at the level LEVEL. The spread of an
    estimate with `runs` is the standard deviation over them. Without `runs` it is a standard error
    within one run. Nothing is marked if an estimate has no spread, because differences cannot be
    judged, or if fewer than two estimates are finite.
    """
    known = [e for e in estimates if e is not None and math.isfinite(e.mean)]
    if better is None or len(known) < 2 or any(_error(e) is None for e in known):
        return [""] * len(estimates)
    first = (max if better == "higher" else min)(known, key=lambda e: e.mean)

    def mark(one: Estimate | None) -> str:
        if one is first:
            return BEST
        if one is None or not math.isfinite(one.mean):
            return ""
        return "" if differ(one, first) else TIE

    return [mark(one) for one in estimates]


def differ(one: Estimate, other: Estimate) -> bool:
    """Whether the means of two estimates differ by Welch's t-test."""
    from scipy.stats import t

    errors = [_error(one) or 0.0, _error(other) or 0.0]
    variance = sum(error**2 for error in errors)
    if variance == 0:
        return one.mean != other.mean
    counts = [math.inf if e.runs is None else e.runs - 1 for e in (one, other)]
    inverse = sum(error**4 / count for error, count in zip(errors, counts, strict=True))
    freedom = variance**2 / inverse if inverse else math.inf
    statistic = abs(one.mean - other.mean) / math.sqrt(variance)
    return bool(statistic > t.ppf(1 - LEVEL / 2, freedom))


def _error(estimate: Estimate) -> float | None:
    """The standard error of the mean; None if it is not known."""
    if estimate.spread is None or not math.isfinite(estimate.spread):
        return None
    if estimate.runs is None:
        return estimate.spread
    return estimate.spread / math.sqrt(estimate.runs) if estimate.runs > 1 else None
