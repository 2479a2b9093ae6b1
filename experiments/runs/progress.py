"""Progress of a loop, as a live line or as plain lines in a log, and of a sweep's runs."""

import logging
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from latticework.experiments.records.numbers import duration

log = logging.getLogger(__name__)
T = TypeVar("T")
LIVE_EVERY, PLAIN_EVERY = 0.1, 15.0  # seconds between two lines, on a terminal and elsewhere
BAR = 20  # characters
CLEAR = "\r\033[K"  # to the start of the line, and erase it


def progress(
    items: Iterable[T],
    what: str,
    total: int,
    latest: Callable[[], dict[str, float]],
    done: int = 0,
    each: int = 1,
) -> Iterator[T]:
    """Yield `items`; show steps per second and the `latest` metrics, which it returns by name.

    `done` of the `total` items were processed earlier. An item counts as `each`, such as the steps
    between two readings.
    """
    live = sys.stdout.isatty()
    handlers = logging.getLogger().handlers if live else []
    for handler in handlers:
        handler.addFilter(_clear)  # else a message would follow the line
    started = last = time.monotonic()
    try:
        for count, item in enumerate(items, start=done + 1):
            yield item
            now = time.monotonic()
            if now - last > (LIVE_EVERY if live else PLAIN_EVERY):
                last, seconds = now, (now - started) / (count - done) / each
                rate = _text(seconds, count * each, total * each)
                line = f"{count * each:,}/{total * each:,}  {rate}  {_short(latest())}"
                if live:
                    bar = "━" * (BAR * count // total)
                    line = f"{what} {bar:{BAR}} {line}"[: shutil.get_terminal_size().columns - 1]
                    print(f"{CLEAR}{line}", end="", flush=True)
                else:
                    log.info("%s %s", what, line)
    finally:
        for handler in handlers:
            handler.removeFilter(_clear)
        if live:
            _clear()


def _clear(*_: object) -> bool:
    """Erase the live line. As a filter of a handler's messages, it lets all of them through."""
    print(CLEAR, end="", flush=True)
    return True


def _text(each: float, done: int, total: int) -> str:
    """The rate at `each` seconds per item, and the time that is left: `3.2/s  2 min to go`."""
    rate = f"{1 / each:.0f}/s" if each <= 0.1 else f"{1 / each:.2g}/s"
    return f"{rate}  {duration(each * (total - done))} to go" if done < total else rate


def _short(row: dict[str, float]) -> str:
    names = [name for name in row if name not in ("seconds", "evaluations")]
    return "  ".join(f"{name} {row[name]:.4g}" for name in names[:4])


@dataclass(frozen=True)
class SweepClock:
    """Counts the finished runs of a sweep over all processes.

    Each run appends a line to `file`: its process, the end by that machine's monotonic clock, and
    whether it was executed. Processes that share the folder therefore share the counts.
    """

    file: Path
    runs: int  # 0 if the sweep does not say how many there are

    @classmethod
    def started(cls, folder: Path, runs: int) -> "SweepClock":
        """Start a count in `folder`. Removes counts left by killed processes of this machine."""
        folder.mkdir(parents=True, exist_ok=True)
        name = f".sweep-{socket.gethostname()}-"
        for left in folder.glob(f"{name}*-*"):
            try:
                os.kill(int(left.name.split("-")[-2]), 0)
            except ProcessLookupError:
                left.unlink(missing_ok=True)
            except OSError:  # another user's
                pass
        return cls(folder / f"{name}{os.getpid()}-{time.time_ns()}", runs)

    def ended(self, executed: bool) -> str:
        """Count a run; return the progress: `3 of 20 runs, about 4 min to go`.

        The estimate leaves out runs that were not `executed`, because their record existed, and the
        first run of a process, which imports packages and compiles kernels.
        """
        with self.file.open("a") as file:
            file.write(f"{socket.gethostname()}/{os.getpid()} {time.monotonic()} {executed:d}\n")
        lines = [line.rsplit(" ", 2) for line in self.file.read_text().splitlines()]
        if not self.runs:
            return f"{len(lines)} runs so far"
        ends: dict[str, list[float]] = {}
        for process, end, counts in lines:
            if int(counts):
                ends.setdefault(process, []).append(float(end))
        rate = sum((len(one) - 1) / (one[-1] - one[0]) for one in ends.values() if one[-1] > one[0])
        text, left = f"{len(lines)} of {self.runs} runs", self.runs - len(lines)
        return f"{text}, about {duration(left / rate)} to go" if rate and left > 0 else text

    def remove(self) -> None:
        self.file.unlink(missing_ok=True)
