"""Read and write files where others may have put something in their place.

Only regular files are read, because a pipe would block for ever. JSON nested beyond MAX_DEPTH is
refused, because code that walks it would exhaust Python's stack.
"""

import glob
import json
import os
import stat
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

MAX_DEPTH = 100  # levels of dictionaries and lists
ABANDONED_AFTER = 3600.0  # seconds; a file is written in a few


def read_file(path: Path | zipfile.Path) -> bytes:
    """The content of a regular file, or of a link to one. Raises OSError for anything else."""
    if not isinstance(path, Path):
        return path.read_bytes()
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        return file.read()


def write_file(target: Path, content: bytes | str) -> None:
    """Write `content` to a new file that then takes the place of `target`.

    Processes may write the same target at once, for example two workers of a sweep its table: each
    writes a file of its own. A link that another user planted is replaced, and what it leads to
    stays as it is.
    """
    data = content.encode() if isinstance(content, str) else content
    _remove_abandoned(target)
    partial = target.with_name(f"{target.name}.{os.getpid()}-{time.time_ns()}.partial")
    try:
        with partial.open("xb") as file:
            file.write(data)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _remove_abandoned(target: Path) -> None:
    """Delete what killed processes left of `target`."""
    for partial in target.parent.glob(f"{glob.escape(target.name)}.*.partial"):
        with suppress(FileNotFoundError):  # its process may end now
            if time.time() - partial.lstat().st_mtime > ABANDONED_AFTER:
                partial.unlink()


def read_json(path: Path | zipfile.Path) -> Any:
    """The JSON value in a file. Raises OSError, or ValueError if it is damaged or nested deeply."""
    content = read_file(path)
    try:
        value = json.loads(content.decode())
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply") from error
    if exceeds_depth(value):
        raise ValueError(f"{path} is nested deeper than {MAX_DEPTH} levels")
    return value


def exceeds_depth(value: Any) -> bool:
    """Whether dictionaries and lists in `value` are nested deeper than MAX_DEPTH levels."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = []
        for item in level:
            if isinstance(item, dict):
                inner += [each for each in item.values() if isinstance(each, dict | list)]
            elif isinstance(item, list):
                inner += [each for each in item if isinstance(each, dict | list)]
        if not inner:
            return False
        level = inner
    return True
