"""Ranks with ties, from intervals over seeds."""

from collections.abc import Sequence

from latticework.sampling.intervals import Interval


def ranks(intervals: Sequence[Interval]) -> list[str]:
    """One plus the number of intervals that lie entirely above each; "=" marks ties."""
    numbers = []
    for interval in intervals:
        numbers.append(1 + sum(other.low > interval.high for other in intervals))
    return [f"={rank}" if numbers.count(rank) > 1 else str(rank) for rank in numbers]
