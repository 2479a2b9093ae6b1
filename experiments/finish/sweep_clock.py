"""The progress of a sweep and its remaining time."""

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from latticework.experiments.records.duration import duration


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
