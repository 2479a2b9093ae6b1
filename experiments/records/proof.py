"""What a figure was drawn from: the JSON file beside it, with its command, versions and records."""

import hashlib
import json
import sys
import zipfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from latticework.experiments.records.archive import DamagedError
from latticework.experiments.records.record import BUNDLES, Record, damage, opened

PACKAGES = ("latticework", "matplotlib", "numpy", "pandas")


def proof(figure: str, command: str, records: Sequence[Record]) -> str:
    """The JSON text for a figure that `command` draws from `records` now.

    `records` has the fingerprint of each record by its place, and the SHA-256 of each bundle.
    """
    prints: dict[str, str] = {}
    for record in records:
        if not isinstance(record.path, zipfile.Path):
            prints[place(record)] = record.fingerprint
        elif (bundle := _bundle(record.path)).name not in prints:
            prints[bundle.name] = hashlib.sha256(bundle.read_bytes()).hexdigest()
    document = {"figure": figure, "command": command, "records": prints, "versions": versions()}
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """The versions of Python and of `packages`, as far as they are installed."""
    found = {"python": sys.version.split()[0]}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # an un-installed checkout
            continue
    return found


def place(record: Record) -> str:
    """Where the record is: `<experiment>/<scale>/<run>` in the outputs, or `<bundle>.zip/<run>`."""
    if isinstance(record.path, zipfile.Path):
        return f"{_bundle(record.path).name}/{record.path.name}"
    return "/".join(record.path.resolve().parts[-3:])


def _bundle(path: zipfile.Path) -> Path:
    """The file of the bundle that `path` is in."""
    return Path(str(path.root.filename))


def state(name: str, known: str, folders: Sequence[Path]) -> str:
    """The state of a record or bundle of a figure: unchanged, missing, or what has changed.

    A record is looked for in `folders`, a bundle among the committed ones.
    """
    if name.endswith(".zip"):
        if not (BUNDLES / name).is_file():
            return "missing"
        same = hashlib.sha256((BUNDLES / name).read_bytes()).hexdigest() == known
        return "unchanged" if same else "changed: another bundle stands there"
    states = []
    for folder in folders:
        try:
            record = opened(folder / name)
        except DamagedError as error:
            states.append(f"changed: {error}")
            continue
        except ValueError:
            continue
        fault = damage(record.path)
        if not fault and record.fingerprint == known:
            return "unchanged"
        states.append(f"changed: {fault or 'another run stands there'}")
    return states[0] if states else "missing"
