"""How the runs of a command ended, and how many runs of a sweep have ended so far."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher

POLL_SECONDS = 0.5  # between looks for runs of other processes that have ended


class Outcome(NamedTuple):
    """How a run ended, the folder of its record, and why it failed."""

    path: Path
    how: Literal["finished", "finished before", "failed", "skipped"]
    cause: str = ""


def collect_results(
    keep: Callable[[JobReturn | None], None],
    meanwhile: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Let the launcher that Hydra makes next give `keep` what each of its runs returns, or None.

    It launches runs inside a context that `meanwhile` makes.

    Hydra gives the results of a sweep to its sweeper, and to no callback. All launchers return
    them, whatever the processes in which the runs were.
    """
    plugins = Plugins.instance()
    make = plugins.instantiate_launcher

    def make_collecting(**settings: Any) -> Any:
        # Hydra sends its plugins to other processes, as they are without this.
        vars(plugins).pop("instantiate_launcher", None)
        return _CollectingLauncher(make(**settings), keep, meanwhile)

    vars(plugins)["instantiate_launcher"] = make_collecting


class _CollectingLauncher:
    """A launcher that gives `keep` the results of the runs that `launcher` starts."""

    def __init__(
        self,
        launcher: Launcher,
        keep: Callable[[JobReturn | None], None],
        meanwhile: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.launcher, self.keep, self.meanwhile = launcher, keep, meanwhile

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        with self.meanwhile():
            results = self.launcher.launch(job_overrides, initial_job_idx=initial_job_idx)
        for result in results:
            self.keep(result)
        for _ in range(len(job_overrides) - len(results)):
            self.keep(None)
        return results


@dataclass(frozen=True)
class RunCounter:
    """Counts the runs of a sweep that have ended, in whatever process each was.

    Each run appends a line to `file`, so that their number is the count.
    """

    file: Path
    runs: int  # 0 if the sweep does not say how many there are

    @classmethod
    def start(cls, folder: Path, runs: int) -> "RunCounter":
        """Start a count in `folder`. Removes counts left by killed processes of this machine."""
        folder.mkdir(parents=True, exist_ok=True)
        name = f".sweep-{socket.gethostname()}-"
        for file in folder.glob(f"{name}*-*"):
            try:
                os.kill(int(file.name.split("-")[-2]), 0)
            except ProcessLookupError:
                file.unlink(missing_ok=True)
            except OSError:  # another user's process
                pass
        return cls(folder / f"{name}{os.getpid()}-{time.time_ns()}", runs)

    def count_run(self, line: str) -> str:
        """Count a run that ended as `line` says; return it after the progress: `3 of 20 runs: `."""
        line = " ".join(line.splitlines())
        with self.file.open("a+b", buffering=0) as file:  # a buffer would miss other processes
            file.write(f"{line}\n".encode())
            length = file.tell()
            file.seek(0)
            count = file.read(length).count(b"\n")
        return self._with_progress(count, line)

    def _with_progress(self, count: int, line: str) -> str:
        runs = f"{count} of {self.runs} runs" if self.runs else f"{count} runs so far"
        return f"{runs}: {line}"

    @contextmanager
    def follow(self) -> Iterator[None]:
        """Print the lines of the runs that end meanwhile, in whatever process.

        For launchers whose runs print into logs of their own.
        """
        ended = threading.Event()
        shown = len(self._lines())

        def watch() -> None:
            nonlocal shown
            over = False
            while not over:
                over = ended.wait(POLL_SECONDS)
                for line in self._lines()[shown:]:
                    shown += 1
                    print(self._with_progress(shown, line), flush=True)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _lines(self) -> list[str]:
        """The whole lines of the runs that have ended."""
        if not self.file.exists():
            return []
        text = self.file.read_bytes().decode(errors="replace")
        return text[: text.rfind("\n") + 1].splitlines()

    def remove(self) -> None:
        self.file.unlink(missing_ok=True)
