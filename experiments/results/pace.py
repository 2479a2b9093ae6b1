"""Seconds per step of runs, and which runs had the processor to themselves."""

from collections.abc import Callable, Sequence

import numpy as np

from latticework.experiments.results.record import Record

QUIET = 0.1  # share of the intervals between readings in which a run had the machine to itself
BUSY = 1.25  # times the pace of the fastest run: a slower run had other work beside it


def pace(record: Record) -> float:
    """Seconds per step of a run: the `QUIET` quantile over the intervals between readings.

    A low quantile is used because other work on the machine only adds time, perhaps for most of a
    run.
    """
    readings = record.metrics[["step", "seconds"]].to_numpy(float)
    steps, seconds = np.diff(readings, axis=0).T
    return float(np.quantile(seconds / steps, QUIET))


def undisturbed(
    records: Sequence[Record], seconds: Callable[[Record], float] = pace
) -> list[Record]:
    """The runs of one setting whose timing is used.

    They are at most `BUSY` times as slow as the fastest. Slower runs shared the machine with other
    work, which only adds time.
    """
    times = [seconds(record) for record in records]
    return [r for r, time in zip(records, times, strict=True) if time <= BUSY * min(times)]
