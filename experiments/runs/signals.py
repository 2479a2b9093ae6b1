"""Stop commands cleanly on signals, and report how a crashed process died.

SIGTERM, SIGUSR1, SIGUSR2 and SIGINT (Ctrl-C) stop a command with exit status 128 + the signal's
number: in a resumable loop after a checkpoint at the end of the iteration (`DeferredSignals`),
elsewhere at once. Handlers that a launcher has installed stay.

Imports the standard library only, because a command imports this before everything else.
"""

import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

log = logging.getLogger(__name__)
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)
Handler = Callable[[int, FrameType | None], Any] | int | None
CRASH = ".crash"


def stop(number: int, where: str) -> NoReturn:
    """Print where the command stopped, and leave.

    Written at once: C code that imports NumPy ends the process when an import raises.
    """
    os.write(2, f"stopped by {signal.Signals(number).name}{where}\n".encode())
    raise SystemExit(128 + number)


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # one more Ctrl-C ends the process at once
    stop(number, ": the same command continues with what is missing")


def _is_default(handler: Handler) -> bool:
    return not callable(handler) or handler in (signal.default_int_handler, _stop)


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Let the signals stop this process in the block; only the main thread can install handlers."""
    main = threading.current_thread() is threading.main_thread()
    before = {n: signal.getsignal(n) for n in SIGNALS if main}
    before = {n: handler for n, handler in before.items() if _is_default(handler)}
    try:
        for number in before:
            signal.signal(number, _stop)
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is _stop:
                signal.signal(number, handler)


class DeferredSignals:
    """Collects the signals that arrive in a block. A second SIGINT stops at once."""

    def __enter__(self) -> "DeferredSignals":
        self.came: list[int] = []
        main = threading.current_thread() is threading.main_thread()
        self.before: dict[int, Handler] = {
            number: signal.signal(number, self._note) for number in (SIGNALS if main else ())
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came.append(number)
        name = signal.Signals(number).name
        log.warning("%s: writing a checkpoint at the end of this iteration", name)
        if number == signal.SIGINT:
            signal.signal(number, _stop)

    def handle_received(self, where: str) -> None:
        """Act on the signals that came, after the checkpoint is written.

        The handler of a launcher is called: submitit's ignores SIGTERM, and on SIGUSR2 requeues the
        job and exits. Otherwise the command stops.
        """
        came, self.came = self.came, []
        for number in came:
            handler = self.before[number]
            if _is_default(handler) or not callable(handler):
                stop(number, where)
            handler(number, None)


@contextmanager
def write_crash_note(folder: Path) -> Iterator[None]:
    """Write the fault and the place in the Python code to `folder` if this process crashes."""
    before = faulthandler.is_enabled()
    (folder / CRASH).unlink(missing_ok=True)  # and no link that another planted is followed
    with (folder / CRASH).open("x") as file:
        faulthandler.enable(file)
        try:
            yield
        finally:
            faulthandler.disable()
            if before and sys.__stderr__ is not None:  # sys.stderr may be no file
                faulthandler.enable(sys.__stderr__)
            (folder / CRASH).unlink(missing_ok=True)


def explain_crash(folder: Path) -> str:
    """How the process that held `folder` died, and what to do about it."""
    file = folder / CRASH
    if file.exists() and (fault := file.read_text(errors="replace").partition("\n")[0]):
        return (
            f"crashed ({fault}). This is a fault in compiled code, not in your command. If it "
            "happens again, put ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default before the "
            f"command, which takes slower code for the processor, and report it with {file}"
        )
    return (
        "was killed (SIGKILL), with other runs of its sweep or by the system. The system does so "
        "when memory runs out: then take fewer chains, a smaller batch, or fewer runs at once "
        "(hydra.launcher.n_jobs)"
    )
