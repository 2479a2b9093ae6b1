"""Whether code may be compiled, and where it is kept: where no other user can change it.

What lies in them is run. So a folder that other users own or can write is not used, and neither is
one below such a folder, whose owner could put another in its place. In a folder with the sticky
bit, such as the temporary one, only owners can do that.
"""

import os
import stat
from pathlib import Path


def cache_root() -> Path:
    """The folder below which compiled code is kept; RuntimeError without a home folder."""
    if (given := os.environ.get("LATTICEWORK_CACHE")) is not None and given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "latticework"


def switched_off() -> bool:
    """Whether numba compiles nothing, as debuggers and measures of coverage ask for."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def fault_of(folder: Path) -> str:
    """Make `folder` if there is none. Why compiled code cannot be kept in it; "" if it can."""
    try:
        missing = [part for part in (folder, *folder.parents) if not part.exists()]
        for part in reversed(missing):
            part.mkdir(mode=0o700, exist_ok=True)
        status = folder.stat()
        if status.st_uid != os.geteuid():
            return f"{folder} belongs to another user, whose code is not run"
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"other users can write {folder}, and their code is not run"
        for parent in folder.resolve().parents:
            if why := _fault_of_parent(parent):
                return why
    except OSError as error:
        return str(error)
    return "" if os.access(folder, os.W_OK) else f"{folder} is read-only"


def _fault_of_parent(parent: Path) -> str:
    status = parent.stat()
    if status.st_uid not in (os.geteuid(), 0):
        return f"{parent} belongs to another user, who could put other code there"
    writers = stat.S_IWOTH  # and a group, unless it is the user's own
    if status.st_gid != os.getegid():
        writers |= stat.S_IWGRP
    if status.st_mode & writers and not status.st_mode & stat.S_ISVTX:
        return f"other users can write {parent}, and could put other code there"
    return ""
