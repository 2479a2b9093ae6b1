"""Commands in processes of their own, killed at a place in their work and not at a time.

No test may depend on how fast the machine is. So a process dies by its own hand, at the n-th access
to a file of its records, and what waits for another process waits as long as that one lives.
"""

import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from command import command_line

ACCESSES = ("open", "os.rename", "os.remove", "os.mkdir")


def start(*words: str, outputs: Path, before: Callable[[], None] | None = None) -> int:
    """Start the command in a fork, as importing torch takes seconds; the process."""
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            if before:
                before()
            status = command_line(*words, outputs=outputs)
        finally:
            os._exit(status)
    return pid


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
        time.sleep(0.01)


def interrupted_by(access: int | None, *words: str, outputs: Path) -> int | None:
    """Run the command and kill it (SIGKILL) at that access to a file below `outputs`.

    Returns how many accesses there were where nothing killed it, and None where it was killed.
    """
    done = mmap.mmap(-1, 8)  # shared with the fork

    def count() -> None:
        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event not in ACCESSES or not isinstance(args[0], str | bytes | os.PathLike):
                return
            if str(outputs) in os.fsdecode(args[0]):
                number = int.from_bytes(done[:]) + 1
                done[:] = number.to_bytes(8)
                if number == access:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)

    status = ended(start(*words, outputs=outputs, before=count))
    if status == -signal.SIGKILL:
        return None
    assert status == 0
    return int.from_bytes(done[:])
