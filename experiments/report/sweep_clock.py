"""How far a sweep is, and how long the rest will take. Imports no torch."""

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from latticework.experiments.results.duration import duration


@dataclass(frozen=True)
class SweepClock:
    """Counts the runs of a sweep that have ended, in whatever process each of them ran.

    Each run appends a byte to `file`, so the count is that of all processes that share the folder.
    """

    file: Path
    runs: int  # 0 if the sweep does not say how many there are
    began: float  # seconds since the epoch

    @classmethod
    def started(cls, folder: Path, runs: int) -> "SweepClock":
        """A new count in `folder`. Removes counts that killed processes of this machine left."""
        folder.mkdir(parents=True, exist_ok=True)
        name = f".sweep-{socket.gethostname()}-"
        for left in folder.glob(f"{name}*-*"):
            try:
                os.kill(int(left.name.split("-")[-2]), 0)
            except ProcessLookupError:
                left.unlink(missing_ok=True)
            except OSError:  # another user's
                pass
        return cls(folder / f"{name}{os.getpid()}-{time.time_ns()}", runs, time.time())

    def ended(self, executed: bool) -> str:
        """Count a run; return how far the sweep is: `3 of 20 runs, about 4 min to go`.

        A run that was not `executed`, because its record was there, says nothing about the others.
        """
        with self.file.open("ab") as file:
            file.write(b"x" if executed else b".")
        done = self.file.read_bytes()
        if not self.runs:
            return f"{len(done)} runs so far"
        left, worked = self.runs - len(done), done.count(b"x")
        text = f"{len(done)} of {self.runs} runs"
        if left <= 0 or not worked:
            return text
        return f"{text}, about {duration((time.time() - self.began) / worked * left)} to go"

    def remove(self) -> None:
        self.file.unlink(missing_ok=True)
