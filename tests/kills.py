"""Commands in processes of their own, killed at a place in their work and not at a time.

No test may depend on how fast the machine is. So a process dies by its own hand, at the n-th access
to a file of its records, and what waits for another process waits as long as that one lives.
Files are harmed in place.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from command import command_line

ACCESSES = ("open", "os.rename", "os.remove", "os.mkdir")


def start(*words: str, outputs: Path) -> int:
    """Start the command in a fork, as importing torch takes seconds; the process."""
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            status = command_line(*words, outputs=outputs)
        finally:
            _end_wandb()
            os._exit(status)
    return pid


def _end_wandb() -> None:
    """Wait until its files are written, as at a normal exit: os._exit skips the exit handlers."""
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()


def ended(pid: int) -> int:
    """Wait for its exit status, minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def alive(pid: int) -> bool:
    """Whether it has not ended; its exit status can still be asked for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def until(condition: Callable[[], Any], *pids: int) -> None:
    """Wait for the condition. Raises AssertionError if one of the processes ends before."""
    while not condition():
        assert all(map(alive, pids)), "it ended too early"
        time.sleep(0.05)


@dataclass
class Watch:
    """Counts accesses to files below `outputs`; the process dies (SIGKILL) at the one named."""

    outputs: Path
    dies_at: int | None = None
    count: int = 0

    def see(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in ACCESSES or not isinstance(args[0], str | bytes | os.PathLike):
            return
        if str(self.outputs) in os.fsdecode(args[0]):
            self.count += 1
            if self.count == self.dies_at:
                os.kill(os.getpid(), signal.SIGKILL)


_watching: list[Watch] = []


@cache
def _listen() -> None:
    """An audit hook stays for good, so there is one."""
    sys.addaudithook(lambda event, args: [watch.see(event, args) for watch in _watching])


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    _listen()
    _watching.append(watch)
    try:
        yield
    finally:
        _watching.remove(watch)


def accesses(*words: str, outputs: Path) -> int:
    """Run the command in this process: how many accesses there are to files below `outputs`."""
    with watching(watch := Watch(outputs)):
        assert command_line(*words, outputs=outputs) == 0
    return watch.count


def killed(access: int, *words: str, outputs: Path) -> None:
    """Run the command in a fork and kill it at that access. AssertionError if it ends before."""
    pid = os.fork()
    if pid == 0:
        try:
            with watching(Watch(outputs, access)):
                command_line(*words, outputs=outputs)
        finally:
            os._exit(70)
    assert ended(pid) == -signal.SIGKILL


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def flip_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
