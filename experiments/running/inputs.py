"""The files that a configuration names, such as a stored model (`task.pretrain.file`).

A configuration holds only their paths. run.json also holds their checksums (`inputs`), so a run
whose file was replaced does not count as finished.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KEYS = ("file", "files")  # the keys of a configuration that name a user's files


def inputs(config: Any) -> dict[str, str]:
    """SHA-256 of each file that `config` names and that exists, by its name there."""
    found = {name: Path(name).expanduser() for name in _names(config)}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in found.items()
        if path.is_file()
    }


def replaced(earlier: dict[str, Any], config: Any) -> str:
    """Names of files whose content is not what `earlier`, a record's facts, says; "" if none.

    Files that are gone, and those of records without checksums, do not count.
    """
    known = earlier.get("inputs") or {}
    return ", ".join(
        name for name, digest in inputs(config).items() if known.get(name, digest) != digest
    )


def _names(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _names(inner, str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner, key)
    elif isinstance(value, str) and key in KEYS:
        yield value
