"""Stop commands cleanly on signals, and report how a crashed process died.

SIGTERM, SIGUSR1, SIGUSR2 and SIGINT (Ctrl-C) stop a command with exit status 128 + the signal's
number. Inside a resumable loop they are noted, and the loop writes a checkpoint at the end of its
iteration (`noticed`). Everywhere else they raise Stopped at once (`answered`).

A fault in compiled code or a lack of memory ends a process at once. Two files are left in the
record's folder: `.holder` names the process, and `.crash` is empty or holds the signal and the
place in the Python code, written by `faulthandler`. The next process that runs the same
configuration reports how the previous one died (`death`).

Imports the standard library only, because a command imports this before everything else.
"""

import atexit
import faulthandler
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

log = logging.getLogger(__name__)
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)
Handler = Callable[[int, FrameType | None], Any] | int | None
STARTS = "before the first checkpoint; the same command starts again"
RESUMES = "after a checkpoint; the same command resumes from there"
CONTINUES = "outside of a run; the same command continues with what is missing"

HOLDER, CRASH = ".holder", ".crash"
# The words of faulthandler, in the first line that it writes.
FAULTS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}


class Stopped(SystemExit):
    """A signal ended the command. The exit status is 128 + the signal's number.

    `where` says at which point, and what repeating the command does. `told` is true once this has
    been printed.
    """

    where, told = "", False

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(int(self.code or 0) - 128).name} {self.where}"


def _stop(number: int, frame: FrameType | None) -> None:
    """The handler outside of loops.

    C code that imports NumPy calls PyErr_Print on an error, and a SystemExit then ends the process
    at once. So the line is printed at exit at the latest.
    """
    stop = Stopped(128 + number)
    atexit.register(_tell, stop)
    raise stop


def _tell(stop: Stopped) -> None:
    if not stop.told:
        stop.where, stop.told = stop.where or _where, True
        print(stop, file=sys.stderr, flush=True)


def _is_default(handler: Handler) -> bool:
    return not callable(handler) or handler is signal.default_int_handler


@contextmanager
def answered() -> Iterator[dict[int, Handler]]:
    """Raise Stopped in the block when a signal arrives. The handlers of a launcher stay.

    Yields the handlers that are restored after the block.
    """
    before: dict[int, Handler] = {}
    if threading.current_thread() is threading.main_thread():  # no other can install handlers
        before = {n: h for n in SIGNALS if _is_default(h := signal.getsignal(n))}
    try:
        for number in before:
            signal.signal(number, _stop)
        yield before
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_where = STARTS


def outside_of_runs() -> None:
    """Tell later messages that signals outside of runs leave only finished or resumable runs."""
    global _where
    _where = CONTINUES


@contextmanager
def stoppable() -> Iterator[None]:
    """Apply `answered` to a whole command. Prints where it stopped unless the run has done so."""
    global _where
    _where = STARTS
    with answered() as before:
        try:
            yield
        except Stopped as stop:
            # One more Ctrl-C ends the process at once, with no traceback.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            before[signal.SIGINT] = signal.SIG_DFL
            _tell(stop)
            raise


# In a loop.


class Signals:
    """Signals received during a loop, and the handlers that were installed before it."""

    def __init__(self) -> None:
        self.came: list[signal.Signals] = []
        self.before: dict[int, Handler] = {}

    def __bool__(self) -> bool:
        return bool(self.came)

    def act(self, where: str) -> None:
        """Act on the received signals, after the checkpoint is written.

        If a launcher installed a handler, it is called: submitit's ignores SIGTERM, and on SIGUSR2
        requeues the job and exits. Otherwise Stopped is raised.
        """
        came, self.came = self.came, []
        for number in came:
            handler = self.before[number]
            if not callable(handler) or handler in (signal.default_int_handler, _stop):
                stop = Stopped(128 + number)
                stop.where = where
                raise stop
            handler(number, None)


@contextmanager
def noticed() -> Iterator[Signals]:
    """Collect the signals of SIGNALS that arrive inside the block. A second SIGINT stops at once.

    Only the main thread can install handlers; in other threads the signals keep their effect.
    """
    signals = Signals()

    def note(number: int, frame: FrameType | None) -> None:
        signals.came.append(signal.Signals(number))
        log.warning(
            "%s: writing a checkpoint at the end of this iteration", signal.Signals(number).name
        )
        if number == signal.SIGINT:
            signal.signal(number, _stop)

    try:
        for number in SIGNALS:
            signals.before[number] = signal.signal(number, note)
    except ValueError:
        pass
    try:
        yield signals
    finally:
        for known, handler in signals.before.items():
            signal.signal(known, handler)


# A process that a fault ended.


@contextmanager
def crash_noted(folder: Path) -> Iterator[None]:
    """If this process crashes in the block, write the signal and the place in the code to `folder`.

    SIGSEGV, SIGABRT, SIGBUS, SIGFPE and SIGILL are caught. No process can catch SIGKILL.
    """
    before = faulthandler.is_enabled()
    with (folder / CRASH).open("w") as file:
        faulthandler.enable(file)
        try:
            yield
        finally:
            if before and sys.__stderr__ is not None:
                faulthandler.enable(sys.__stderr__)
            else:
                faulthandler.disable()
            (folder / CRASH).unlink(missing_ok=True)


def death(folder: Path) -> str:
    """Report how the process that left `.holder` in `folder` died, and what to do about it."""
    text = ""
    with suppress(OSError):
        text = (folder / CRASH).read_text(errors="replace")[:200]
    if found := [name for words, name in FAULTS.items() if words in text]:
        return (
            f"was killed by {found[0]}. This is a fault in compiled code, not in your command. If "
            "it happens again, put ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default before the "
            "command, which takes slower code for the processor, and report it with the file "
            f"{folder / CRASH}, which says where it was"
        )
    return (
        "was killed (SIGKILL), with other runs of its sweep or by the system. The system does so "
        "when memory runs out: then take fewer chains, a smaller batch, or fewer runs at once "
        "(hydra.launcher.n_jobs)"
    )
