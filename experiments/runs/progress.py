"""Progress: a live bar with steps per second and the latest metrics, or plain lines in a log."""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from latticework.experiments.records.duration import duration

log = logging.getLogger(__name__)
T = TypeVar("T")
PLAIN_EVERY = 15.0  # seconds between two lines where there is no terminal


def progress(
    items: Iterable[T],
    what: str,
    total: int | None,
    latest: Callable[[], dict[str, float]],
    done: int = 0,
) -> Iterator[T]:
    """Yield `items` and show the progress. `latest` returns the newest metrics by name.

    `done` of the `total` items were processed earlier.
    """
    if total is None and isinstance(items, Sized):
        total = done + len(items)
    return (_bar if sys.stdout.isatty() else _lines)(items, what, total, latest, done)


def _bar(
    items: Iterable[T],
    what: str,
    total: int | None,
    latest: Callable[[], dict[str, float]],
    before: int,
) -> Iterator[T]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]} {task.fields[left]} {task.fields[metrics]}"),
    )
    started = time.monotonic()
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task(what, total=total, completed=before, rate="", left="", metrics="")
        for done, item in enumerate(items, start=1):
            yield item
            each = (time.monotonic() - started) / done
            left = _left(each, before + done, total)
            bar.update(task, advance=1, rate=_rate(1 / each), left=left, metrics=_short(latest()))


def _lines(
    items: Iterable[T],
    what: str,
    total: int | None,
    latest: Callable[[], dict[str, float]],
    before: int,
) -> Iterator[T]:
    started = last = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - last > PLAIN_EVERY:
            last = now
            each = (now - started) / done
            left = _left(each, before + done, total)
            count = (before + done, total or "?")
            log.info("%s %d/%s  %s  %s  %s", what, *count, _rate(1 / each), left, _short(latest()))


def _rate(rate: float) -> str:
    return f"{rate:.0f}/s" if rate >= 10 else f"{rate:.2g}/s"


def _left(each: float, done: int, total: int | None) -> str:
    """The remaining time at `each` seconds per item: `2 min to go`."""
    return f"{duration(each * (total - done))} to go" if total and done < total else ""


def _short(row: dict[str, float]) -> str:
    names = [name for name in row if name not in ("seconds", "evaluations")]
    return "  ".join(f"{name} {row[name]:.4g}" for name in names[:4])
