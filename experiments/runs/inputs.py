"""The files that a configuration names, such as a stored model (`task.pretrain.file`).

A language model may be a folder (`model.language.checkpoint`); its files count together.

A configuration holds only their paths. run.json also holds their checksums (`inputs`), so a run
whose file was replaced does not count as finished.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KEYS = ("file", "files", "checkpoint")  # the keys that name a user's files or folders


def inputs(config: Any) -> dict[str, str]:
    """SHA-256 of each file or folder that `config` names and that exists, by its dotted key."""
    found = {key: Path(name).expanduser() for key, name in _named(config)}
    return {key: _digest(path) for key, path in found.items() if path.exists()}


def _digest(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents of a folder's files that are not hidden."""
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    files = {file.name: _digest(file) for file in path.glob("[!.]*") if file.is_file()}
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def replaced(earlier: dict[str, Any], config: Any) -> str:
    """Keys of files that have changed since `earlier`, the facts of a record; "" if none.

    Files that are missing or have no checksum in the record are ignored.
    """
    known = earlier.get("inputs") or {}
    return ", ".join(
        key for key, digest in inputs(config).items() if known.get(key, digest) != digest
    )


def _named(value: Any, path: str = "", key: str = "") -> Iterator[tuple[str, str]]:
    """The values of KEYS in a nested configuration; `key` is the last name in the dotted `path`."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _named(inner, f"{path}.{name}" if path else str(name), str(name))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _named(inner, f"{path}.{place}", key)
    elif isinstance(value, str) and key in KEYS:
        yield path, value
