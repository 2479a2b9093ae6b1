"""Ranks with ties, from intervals over seeds."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

MIXED = 1.05  # the largest R-hat of chains that agree


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
    """The geometric mean over seeds, with the t-interval of the logarithm.

    Zero if there are no values or one of them is not positive.
    """
    found = np.array(list(values))
    if not len(found) or not (found > 0).all():
        return Interval(0.0, 0.0, 0.0)
    return Interval(*(float(np.exp(part)) for part in student(np.log(found))))


def ranks(intervals: Sequence[Interval]) -> list[str]:
    """The rank of each of `intervals`; the largest is first.

    A rank is one plus the number of intervals that lie entirely above this one. Equal ranks are
    ties, marked "=".
    """
    above = [1 + sum(other.low > own.high for other in intervals) for own in intervals]
    return [f"{'=' * (above.count(rank) > 1)}{rank}" for rank in above]
