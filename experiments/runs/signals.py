"""Stop commands cleanly on signals.

SIGTERM, SIGUSR1, SIGUSR2 and SIGINT (Ctrl-C) stop a command with exit status 128 + the signal's
number: in a resumable loop after a checkpoint at the end of the iteration (`DeferredSignals`),
elsewhere at once. Handlers that a launcher has installed stay.

Imports the standard library only, because a command imports this before everything else.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

log = logging.getLogger(__name__)
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)
Handler = Callable[[int, FrameType | None], Any] | int | None


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
    before: dict[signal.Signals, Handler] = {}
    for number in SIGNALS if main else ():
        handler = signal.getsignal(number)
        if _is_default(handler):
            before[number] = handler
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
        self.before: dict[int, Handler] = {}
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self.before[number] = signal.signal(number, self._note)
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
