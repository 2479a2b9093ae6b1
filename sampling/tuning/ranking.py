"""Ranks with ties, from intervals over seeds."""

from collections.abc import Sequence

from latticework.sampling.intervals import Interval


def _count_above(interval: Interval, intervals: Sequence[Interval]) -> int:
    return sum(each.low > interval.high for each in intervals)


def ranks(intervals: Sequence[Interval]) -> list[str]:
    """One plus the number of intervals that lie entirely above each; "=" marks ties."""
    numbers = [1 + _count_above(interval, intervals) for interval in intervals]
    return [f"={rank}" if numbers.count(rank) > 1 else str(rank) for rank in numbers]
