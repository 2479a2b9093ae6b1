"""Reasons to end a run before its last step: Ctrl-C, and a budget that is spent."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Protocol

from latticework.sampling.budget import Allowance
from latticework.sampling.progress import ProgressLine, has_live_output

_inside: ContextVar[bool] = ContextVar("inside", default=False)


@contextmanager
def part_of_other_work() -> Iterator[None]:
    """Runs inside show no progress, and Ctrl-C ends the whole work with KeyboardInterrupt.

    Their results are parts of another, such as a race, which a piece of a run would make wrong.
    """
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


def is_part_of_other_work() -> bool:
    """Whether this is inside `part_of_other_work`."""
    return _inside.get()


def shows_progress(progress: bool | None) -> bool:
    """Whether a run shows its progress: as the user says, else where there is a live output."""
    wanted = has_live_output() if progress is None else progress
    return wanted and not is_part_of_other_work()


class Watched(Protocol):
    """A run as its watch reads it."""

    steps: int  # made after the burn-in
    evaluations: float  # all chains' in the whole run

    def describe_progress(self) -> str: ...


class Watch:
    """Ends a run by Ctrl-C or a budget, and shows its progress.

    In its context, the first Ctrl-C sets `stopped`, so that the step under way is finished; a
    second one raises KeyboardInterrupt. This holds in the main thread, where nobody else handles
    the signal.
    """

    def __init__(
        self,
        budget: Allowance | None = None,
        *,
        chains: int = 1,
        began: float = 0.0,
        line: ProgressLine | None = None,
    ) -> None:
        """Watch a run that `began` at that `time.perf_counter()`.

        A budget of evaluations is that of each of `chains` chains.
        """
        self.stopped = ""  # why the run ended before its last step
        self._budget, self._chains, self._began = budget, chains, began
        self._line = line
        self._handler: Any = None

    def look(self, run: Watched) -> bool:
        """Whether to end the run now. Shows the progress from time to time."""
        if (
            not self.stopped
            and self._budget is not None
            and self._spent(run) >= self._budget.amount
        ):
            self.stopped = f"stopped by the budget of {self._budget}"
        if self._line is not None and (self.stopped or self._line.due()):
            self._line.update(run.steps, run.describe_progress(), self._seconds_left(run))
        return bool(self.stopped)

    def _spent(self, run: Watched) -> float:
        assert self._budget is not None
        if self._budget.unit == "seconds":
            return time.perf_counter() - self._began
        return run.evaluations / self._chains

    def _seconds_left(self, run: Watched) -> float | None:
        """Seconds until the budget ends, if it has one."""
        if self._budget is None:
            return None
        elapsed, spent = time.perf_counter() - self._began, self._spent(run)
        return elapsed * (self._budget.amount / max(spent, 1e-9) - 1)

    def _note_interrupt(self, number: int, frame: Any) -> None:
        if self.stopped:
            signal.default_int_handler(number, frame)
        self.stopped = "stopped by Ctrl-C"

    def __enter__(self) -> "Watch":
        main = threading.current_thread() is threading.main_thread()
        unhandled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if main and unhandled and not is_part_of_other_work():
            self._handler = signal.signal(signal.SIGINT, self._note_interrupt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        if self._line is not None:
            self._line.close()


Look = Callable[[Watched], bool]
