"""Claims about samplers at equal time: judged at several times, because the order may change."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from latticework.experiments.papers.claims import compare, readings
from latticework.experiments.papers.claims.verdict import Finding, numbers
from latticework.experiments.records.record import Record

# Shares of the largest time that all runs reach. The shortest is a time at which chains have moved.
TIMES = (1 / 8, 1 / 4, 1 / 2, 1.0)


def lowest_at_equal_times(
    records: list[Record],
    column: str,
    title: str,
    others: Sequence[str],
    ours: Sequence[str] = ("DMALA",),
) -> Finding:
    """`ours` are below `others` in `column` at equal time, at each of `TIMES`.

    The end of the cheapest run alone would say nothing of the times that the others take.
    """
    groups = readings.records_by_sampler(records, [*others, *ours], [column])
    pairs = [(reference, name) for name in ours for reference in others]
    margins: list[compare.Margin] = []
    means: dict[float, dict[str, float]] = {}
    values: dict[str, readings.Seeds] = {}
    for share in TIMES:
        place, values = readings.values_at_common_end(groups, column, "seconds", share)
        margins += compare.differences(f"{title} after {place:.2g} s", values, pairs)
        means[place] = {name: float(np.mean(list(of.values()))) for name, of in values.items()}
    times = ", ".join(f"{place:.2g}" for place in means)
    note = "; ".join([f"{title} after {times} seconds", *_describe_changes(means, pairs)])
    return Finding(margins, numbers(f"{title} after {max(means):.2g} seconds: {{}}", values), note)


def _describe_changes(
    means: Mapping[float, Mapping[str, float]], pairs: Sequence[tuple[str, str]]
) -> list[str]:
    """Which sampler of a pair overtakes the other, and between which of the times."""
    changes = []
    for reference, name in pairs:
        for before, after in pairwise(means):
            led, leads = (means[t][name] < means[t][reference] for t in (before, after))
            if led == leads:
                continue
            ahead, behind = (name, reference) if leads else (reference, name)
            changes.append(f"{ahead} overtakes {behind} between {before:.2g} and {after:.2g} s")
    return changes
