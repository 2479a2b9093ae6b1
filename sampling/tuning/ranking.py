"""Ranks with ties, from intervals over seeds."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats


class Interval(NamedTuple):
    """A mean with its 95 % confidence interval."""

    middle: float
    low: float
    high: float


def student(values: Sequence[float]) -> Interval:
    """The mean over seeds with its t-interval; infinite for a single value."""
    found = np.asarray(values, dtype=float)
    mean = float(found.mean())
    if len(found) < 2:
        return Interval(mean, -math.inf, math.inf)
    half = float(stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / math.sqrt(len(found)))
    return Interval(mean, mean - half, mean + half)


def geometric(values: Iterable[float]) -> Interval:
    """The geometric mean, with the t-interval of the logarithm; 0 unless all are positive."""
    found = np.array(list(values))
    if not len(found) or not (found > 0).all():
        return Interval(0.0, 0.0, 0.0)
    return Interval(*(float(np.exp(part)) for part in student(np.log(found))))


def ranks(intervals: Sequence[Interval]) -> list[str]:
    """One plus the number of intervals that lie entirely above each; "=" marks ties."""
    above = [1 + sum(other.low > own.high for other in intervals) for own in intervals]
    return [f"{'=' * (above.count(rank) > 1)}{rank}" for rank in above]
