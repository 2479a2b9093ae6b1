"""Confidence intervals of means by Student's t: the only place that asks for its quantiles."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """A mean with its confidence interval."""

    middle: float
    low: float
    high: float


def t_half_width(count: float, level: float = 0.95) -> float:
    """Half-width of an interval from `count` independent values, in standard errors of the mean.

    Infinite for fewer than two values. The count may be a fraction, as an effective one is.
    """
    from scipy import stats  # most runs need no SciPy

    return float(stats.t.ppf((1 + level) / 2, count - 1)) if count >= 2 else math.inf


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """The mean of independent values with its t-interval; infinite for a single value."""
    numbers = np.asarray(values, dtype=float)
    mean, count = float(numbers.mean()), len(numbers)
    if count < 2:
        return Interval(mean, -math.inf, math.inf)
    half = float(t_half_width(count, level) * numbers.std(ddof=1) / math.sqrt(count))
    return Interval(mean, mean - half, mean + half)


def geometric_interval(values: Iterable[float]) -> Interval:
    """The geometric mean, with the t-interval of the logarithm; 0 unless all are positive."""
    numbers = np.array(list(values))
    if not len(numbers) or not (numbers > 0).all():
        return Interval(0.0, 0.0, 0.0)
    middle, low, high = mean_interval(np.log(numbers))
    return Interval(float(np.exp(middle)), float(np.exp(low)), float(np.exp(high)))
