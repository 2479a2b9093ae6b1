"""Seconds: per step of runs, which runs had their core to themselves, and durations in words."""

from collections.abc import Callable, Sequence

import numpy as np

from latticework.experiments.records.record import Record

QUIET = 0.1  # share of the intervals between readings in which a run had the machine to itself
DAY = 86_400
BUSY = 1.25  # times the seconds of a run that has its core to itself: longer is refused


def pace(record: Record) -> float:
    """Seconds per step of a run: the `QUIET` quantile over the intervals between readings.

    A low quantile is used because other work on the machine only adds time, perhaps for most of a
    run.
    """
    readings = record.metrics[["step", "seconds"]].to_numpy(float)
    steps, seconds = np.diff(readings, axis=0).T
    return float(np.quantile(seconds / steps, QUIET))


def busy(record: Record) -> bool:
    """Whether other work took the core while a run was timed: `BUSY` times its CPU time or longer.

    `cpu_share` of a record is its CPU time over its seconds (`sampling.clock.Clock`). False where
    it is not known: in older records, on a GPU, with several threads, or after a short timing.
    """
    share = record.document.get("cpu_share")
    return share is not None and share * BUSY < 1


def idle(records: Sequence[Record]) -> list[Record]:
    """The runs that are not `busy`. Raises LookupError if all of them are."""
    kept = [record for record in records if not busy(record)]
    if records and not kept:
        names = ", ".join(sorted({record.choices["sampler"] for record in records}))
        raise LookupError(
            f"other work took the core of every run of {names} (cpu_share in run.json), so their "
            "seconds do not count; run them again, alone on a core"
        )
    return kept


def share_text(records: Sequence[Record]) -> str:
    """The smallest `cpu_share` of the records, in words; empty if none is known."""
    shares = [share for r in records if (share := r.document.get("cpu_share")) is not None]
    if not shares:
        return ""
    count = sum(map(busy, records))
    refused = f"; {count} of {len(records)} had a busy core, and their seconds do not count"
    return f"timed with {min(shares):.0%} of a core or more" + refused * bool(count)


def timed(records: list[Record]) -> tuple[list[Record], str]:
    """The runs that a figure against seconds shows, and a sentence about those that it leaves out.

    If all are `busy`, it shows them and says so; claims refuse them.
    """
    kept = [record for record in records if not busy(record)]
    count = len(records) - len(kept)
    if not kept:
        return records, " Other work took the core of every run: all seconds are too long."
    return kept, f" Without {count} of {len(records)} runs, whose core was busy." * bool(count)


def undisturbed(
    records: Sequence[Record], seconds: Callable[[Record], float] = pace
) -> list[Record]:
    """The runs of one setting whose timing is used.

    They are at most `BUSY` times as slow as the fastest. Other work on the machine only adds time,
    so a slower run was made beside other work, also where `cpu_share` is not known.
    """
    times = [seconds(record) for record in records]
    return [r for r, time in zip(records, times, strict=True) if time <= BUSY * min(times)]


def duration(seconds: float) -> str:
    """`0.05 s`, `42 s`, `13 min`, `2.5 h`, `3.1 days`: every time that a user reads."""
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 3 * DAY else f"{seconds / DAY:.1f} days"
