"""Says which run died of a signal, where the run's own process no longer can.

A crash in compiled code, or the system when memory runs out, ends a process at once: nothing in it
can write a message any more. What it leaves in its record's folder is `.holder`, which names the
process, and `.crash`, which is empty or holds the signal and the place in the Python code, written
by `faulthandler` while the process was dying. `watched` starts a small process beside the command,
which does nothing until the command ends. If the command failed, or died without a word, it looks
for such folders and tells the user. That process is this file, run without any package.
"""

import faulthandler
import json
import os
import re
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HOLDER, CRASH = ".holder", ".crash"
# The words of faulthandler, in the first line that it writes.
SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
GOES_ON = "The same command resumes from the last checkpoints; without one, a run starts again."
CRASHED = (
    "This is a fault in compiled code, not in your command. If it happens again, put "
    "ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default before the command, which takes slower "
    f"code for the processor, and report it with the file {CRASH} of the run's folder, which says "
    "where it was."
)
KILLED = (
    "SIGKILL is what the system sends when memory runs out: take fewer chains, a smaller batch, or "
    "fewer runs at once (hydra.launcher.n_jobs)."
)
INTERRUPTED = 128  # an exit status above it means that a signal asked the command to end
FAILED, ENDED = "failed", "ended"

_watcher: subprocess.Popen | None = None


# In the command.


@contextmanager
def watched() -> Iterator[None]:
    """Tell of runs that died once the body has failed, also if its process is killed.

    The watching process starts with `look_in`, so a command that runs nothing costs nothing.
    """
    how = FAILED
    try:
        yield
        how = ENDED
    except SystemExit as end:
        if end.code is None or (isinstance(end.code, int) and not 0 < end.code < INTERRUPTED):
            how = ENDED
        raise
    finally:
        _end(how)


def look_in(folder: Path) -> None:
    """Name the folder that holds the records of the command's runs."""
    global _watcher
    words = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
    known = {str(path): text for path, text in holders(folder).items()}  # died in earlier commands
    with suppress(OSError):  # no room for one more process: the runs go on unwatched
        if _watcher is None:
            _watcher = subprocess.Popen(  # in a session of its own: Ctrl-C does not end it
                words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
            )
        _say(json.dumps([str(folder.absolute()), known]))


def _say(line: str) -> None:
    assert _watcher is not None
    assert _watcher.stdin is not None
    _watcher.stdin.write(f"{line}\n".encode())
    _watcher.stdin.flush()


def _end(how: str) -> None:
    global _watcher
    if _watcher is not None:
        with suppress(OSError):
            _say(how)
        with suppress(OSError):
            _watcher.communicate()
        _watcher = None


# In the process of a run.


@contextmanager
def crash_noted(folder: Path) -> Iterator[None]:
    """Keep the signal and the place in the code in `folder`, should this process crash meanwhile.

    SIGSEGV, SIGABRT, SIGBUS, SIGFPE and SIGILL are noted. No process can note SIGKILL.
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


def cause(folder: Path) -> str:
    """The signal that ended the process of the run in `folder`, or "" if it left no word."""
    with suppress(OSError):
        text = (folder / CRASH).read_text(errors="replace")
        return next((name for words, name in SIGNALS.items() if words in text[:200]), "")
    return ""


# In the process beside it.


def holders(folder: Path) -> dict[Path, str]:
    """The folders of runs that some process holds or held when it died, and which."""
    found = {}
    for file in folder.rglob(HOLDER):
        with suppress(OSError):  # gone meanwhile
            found[file.parent] = file.read_text()
    return found


def alive(holder: str, command: int) -> bool:
    """Whether the holder's process still runs. `command` has ended; other machines are not known.

    A process that has ended counts as ended even while its parent has not yet asked how.
    """
    match = re.fullmatch(r"process (\d+) on (.*)", holder)
    if not match or match[2] != socket.gethostname():
        return True
    process = int(match[1])
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's, or this system has no /proc
        return process != command
    return process != command and state not in "ZX"


def told(dead: list[Path]) -> str:
    """What to tell of the runs in these folders."""
    causes = {folder: cause(folder) for folder in dead}
    crashes = any(causes.values())
    # joblib kills the other runs in hand when one dies.
    otherwise = "ended with the others" if crashes else "killed (SIGKILL, most likely)"
    lines = [
        f"  {folder}  {f'killed by {name}' if name else otherwise}"
        for folder, name in sorted(causes.items(), key=lambda item: (not item[1], item[0]))
    ]
    head = "1 run died:" if len(dead) == 1 else f"{len(dead)} runs died:"
    return "\n".join(["", head, *lines, CRASHED if crashes else KILLED, GOES_ON])


def _watch(command: int) -> None:
    """Wait for the end of the process `command`, this one's parent, and tell what died."""
    text, there = b"", True
    while there:
        there = os.getppid() == command  # before the last look into the pipe
        while select.select([0], [], [], 1.0 if there else 0.0)[0]:
            part = os.read(0, 1 << 16)
            there = there and bool(part)
            text += part
            if not part or text.endswith((b"\nfailed\n", b"\nended\n")):
                there = False
                break
    *lines, last = text.decode().split("\n")[:-1] or [""]
    if last == ENDED:
        return
    if last != FAILED:
        lines.append(last)
    known: dict[str, str] = {}
    found: dict[Path, str] = {}
    for line in filter(None, lines):
        folder, earlier = json.loads(line)
        known.update(earlier)
        found.update(holders(Path(folder)))
    dead = [
        path
        for path, who in found.items()
        if known.get(str(path)) != who and not alive(who, command)
    ]
    if dead:
        print(told(dead), file=sys.stderr, flush=True)
    elif last != FAILED:
        print(f"\nThe command was killed by a signal. {GOES_ON}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    with suppress(OSError):  # stderr may be closed with the terminal
        _watch(int(sys.argv[1]))
