"""Records: the files that a run writes, and how figures read them.

Each record of an experiment is a folder, `outputs/<experiment>/<scale>/<run>/`. Committed records
are in a file per experiment, a bundle (`records.archive`), which contains smaller versions of these
folders (experiments/papers/bundle.py). A bundle is read in memory.
"""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from latticework.experiments.records.archive import (
    LARGEST,
    LARGEST_ARRAYS,
    DamagedError,
    open_archive,
    read_arrays,
)
from latticework.experiments.records.escapes import escape_terminal
from latticework.experiments.records.files import read_file, read_json
from latticework.experiments.records.identity import (
    DIGEST_CHARACTERS,
    SEEDS,
    flatten_settings,
    identity,
)

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)
BUNDLES = Path(__file__).resolve().parents[2] / "docs" / "results" / "records"
DATA_OF_VARIANT = {
    "news_partial": "news",
    "omniglot_derived": "omniglot",
}  # variants of published data sets
RESULT_SUFFIXES = (".csv", ".npz", ".safetensors", ".yaml")  # what a record keeps besides run.json
MAPPING, NUMBER, TEXT, COUNT = "a mapping", "a number", "a text", "a whole number"
TYPES: dict[str, Any] = {MAPPING: dict, NUMBER: int | float, TEXT: str, COUNT: int, "a list": list}
RUN_JSON_SCHEMA = {  # types of the keys of run.json that every record has
    "config": MAPPING,
    "choices": MAPPING,
    "overrides": "a list",
    "versions": MAPPING,
    "seconds": NUMBER,
}
OPTIONAL = {  # types of the keys that some records lack; all but files may be null
    "files": MAPPING,
    "data": MAPPING,
    "language": MAPPING,
    "device": TEXT,
    "commit": TEXT,
    "threads": COUNT,
    "peak_memory_bytes": NUMBER,
    "cpu_share": NUMBER,
    "left_out": "a list",
    "entries_left_out": "a list",
}
PARTS = {  # types of parts of `config`, if they are there and not null
    "sampler": MAPPING,
    "task": MAPPING,
    "model": MAPPING,
    "data": MAPPING,
    "seed": COUNT,
    "model_seed": COUNT,
}
OF_TEXTS = ("overrides", "choices", "versions", "left_out", "entries_left_out")  # hold only texts


@dataclass(frozen=True)
class Budget:
    """`chains` chains take `steps` steps each; metrics are read every `every` steps.

    Raises ValueError unless all three are positive and `steps` is a multiple of `every`.
    """

    chains: int
    steps: int
    every: int = 1

    def __post_init__(self) -> None:
        for name in ("chains", "steps", "every"):
            if (count := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be positive, got {count}")
        if self.steps % self.every:
            raise ValueError(
                f"steps must be a multiple of every, got {self.steps} and {self.every}"
            )

    @property
    def readings(self) -> int:
        """The number of readings after the start."""
        return self.steps // self.every


@dataclass(frozen=True)
class Record:
    """A finished run, read-only."""

    path: Path | zipfile.Path
    document: dict[str, Any]  # run.json

    @property
    def bundle(self) -> Path | None:
        """The file of the bundle that the record is in; None for a record in a folder."""
        return None if isinstance(self.path, Path) else Path(str(self.path.root.filename))

    @property
    def display_path(self) -> str:
        """`<experiment>/<scale>/<run>` in the outputs, or `<bundle>.zip/<run>`."""
        if isinstance(self.path, Path):
            return "/".join(self.path.resolve().parts[-3:])
        return "/".join(Path(str(self.path)).parts[-2:])

    @property
    def config(self) -> dict[str, Any]:
        return self.document["config"]

    @property
    def choices(self) -> dict[str, str]:
        """Hydra's group choices, such as {"sampler": "dmala", "model": "ising"}."""
        return self.document["choices"]

    def setting(self, key: str) -> Any:
        """The value of the dotted `key` of the configuration; None if there is none."""
        value: Any = self.config
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    @cached_property
    def settings(self) -> dict[str, str]:
        """The settings that determine the numbers, without seeds: JSON by dotted key.

        Includes the variant of the data, whose name says how they were split, so `data.split` is
        left out. Null keys are left out too, so that older records, which lack them, compare equal.
        """
        parts = identity(self.config)
        for key in SEEDS:
            parts.pop(key, None)
        settings = flatten_settings(parts)
        settings["data.split"] = None
        for name, key in (("data", "variant"), ("language", "used")):
            settings[f"{name}.{key}"] = (self.document.get(name) or {}).get(key)
        return {key: json.dumps(value) for key, value in settings.items() if value is not None}

    @property
    def budget(self) -> Budget:
        """Chains, steps and readings. Raises LookupError for a task without a budget."""
        task = self.config["task"] or {}
        task = task.get("budget") or task
        counts = {name: task[name] for name in ("chains", "steps", "every") if name in task}
        if not {"chains", "steps"} <= set(counts):
            raise LookupError(f"{self.path} is of a task without a budget of chains and steps")
        return Budget(**counts)

    @property
    def substitute(self) -> str | None:
        """The name of the substitute data or language model that the run used, or None."""
        data, language = self.document.get("data") or {}, self.document.get("language") or {}
        if data.get("substitute"):
            return data["variant"]
        return language["used"] if language.get("substitute") else None

    @property
    def variant(self) -> str:
        """Which data the run used: `usps`, or `SUBSTITUTE: digits`; empty for a run without."""
        data = self.document.get("data") or {}
        return f"{'SUBSTITUTE: ' * bool(data.get('substitute'))}{data.get('variant') or ''}"

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """metrics.csv, one row a reading."""
        import pandas as pd  # takes long to import, and runs, which use this module, need none

        return pd.read_csv(BytesIO(read_file(self.path / "metrics.csv")))

    def arrays(self, name: str) -> dict[str, NDArray]:
        """The arrays of `<name>.npz`. Raises FileNotFoundError naming the record."""
        try:
            content = read_file(self.path / f"{name}.npz")
        except (FileNotFoundError, KeyError) as error:
            raise FileNotFoundError(f"{self.path} holds no {name}.npz") from error
        most = LARGEST_ARRAYS if self.bundle is None else LARGEST
        return read_arrays(content, f"{self.path}/{name}.npz", most)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of run.json, which holds the checksums of the other files.

        In bundles and older records, whose run.json holds no checksums, the other files are hashed
        as well.
        """
        digest = hashlib.sha256(read_file(self.path / "run.json"))
        if "files" not in self.document:
            for name in sorted(self.files):
                if name.endswith(RESULT_SUFFIXES):
                    digest.update(name.encode() + read_file(self.path / name))
        return digest.hexdigest()

    @property
    def files(self) -> list[str]:
        """The names of the record's files and folders.

        `zipfile.Path.iterdir` is avoided because it visits every file of a bundle several times.
        """
        if isinstance(self.path, Path):
            return [file.name for file in self.path.iterdir()]
        within = self.path.at
        return [n.removeprefix(within) for n in self.path.root.namelist() if n.startswith(within)]

    def has_array(self, name: str) -> bool:
        """Whether the run stored `<name>.npz`, even if a bundle leaves it out."""
        left_out = self.document.get("left_out") or ()
        return name in left_out or (self.path / f"{name}.npz").exists()


def versions(packages: Sequence[str]) -> dict[str, str]:
    """The versions of Python and of `packages`, as far as they are installed."""
    by_package = {"python": sys.version.split()[0]}
    for package in packages:
        try:
            by_package[package] = version(package)
        except PackageNotFoundError:  # an un-installed checkout
            continue
    return by_package


def load_record(path: Path | zipfile.Path) -> Record:
    """The record at `path`. Raises DamagedError if its files fail their checksums."""
    document, fault = _verify_document(path)
    return _record(path, document, fault)


def _record(path: Path | zipfile.Path, document: dict[str, Any], fault: str) -> Record:
    if fault:
        raise DamagedError(
            f"the record {path} is damaged: {fault}; run its command again to replace it"
        )
    return Record(path, document)


def _document(path: Path | zipfile.Path) -> tuple[dict[str, Any], str]:
    """run.json of the record at `path`, and a description of its damage, "" if intact."""
    try:
        document = read_json(path / "run.json")
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        return {}, f"run.json cannot be read ({type(error).__name__})"
    if not isinstance(document, dict):
        return {}, f"run.json holds no record, but a {type(document).__name__}"
    fault = _fault(document)
    return ({}, fault) if fault else (document, "")


def _fault(document: dict[str, Any]) -> str:
    """The first entry of run.json that is not of its type; "" if all are."""
    for name, kind in RUN_JSON_SCHEMA.items():
        if not isinstance(document.get(name), TYPES[kind]):
            return f"{name} in run.json must be {kind}"
    for name, kind in OPTIONAL.items():
        if name in document and not _is_of_type(document[name], kind, null=name != "files"):
            return f"{name} in run.json must be {kind}"
    for name, kind in PARTS.items():
        if not _is_of_type(document["config"].get(name), kind):
            return f"config.{name} in run.json must be {kind}"
    for name in OF_TEXTS:
        entry = document.get(name) or ()
        values = entry.values() if isinstance(entry, dict) else entry
        if not all(isinstance(value, str | None) for value in values):
            return f"{name} in run.json must hold texts only"
    return ""


def _is_of_type(value: Any, kind: str, null: bool = True) -> bool:
    """Whether an entry of run.json is of its type, or None where it may be `null`."""
    return (null and value is None) or isinstance(value, TYPES[kind])


def checksums(path: Path) -> dict[str, str]:
    """SHA-256 of every result file in the folder of a record, by name."""
    sums = {}
    for file in sorted(path.iterdir()):
        if file.suffix in RESULT_SUFFIXES:
            sums[file.name] = hashlib.sha256(read_file(file)).hexdigest()
    return sums


def describe_damage(path: Path | zipfile.Path) -> str:
    """Describe the damage of the finished record at `path`; "" if it is intact."""
    return _verify_document(path)[1]


def _verify_document(path: Path | zipfile.Path) -> tuple[dict[str, Any], str]:
    """As `_document`; also verifies the checksums of a record in a folder."""
    document, fault = _document(path)
    if fault or not isinstance(path, Path):
        return document, fault
    try:
        digests = checksums(path)
    except OSError as error:  # another user's file, or a link to nothing
        name = Path(error.filename).name if error.filename else "a file"
        return document, f"{name} cannot be read ({type(error).__name__})"
    faults = [
        f"{name} is {'changed' if name in digests else 'missing'}"
        for name, digest in document.get("files", {}).items()
        if digests.get(name) != digest
    ]
    return document, ", ".join(faults)


def load_all(root: Path) -> list[Record]:
    """Every finished run under `root`, a folder or a bundle, in the order of their paths.

    A folder without run.json is an unfinished run and is skipped, and so is a damaged record, with
    a warning. Raises FileNotFoundError if there is no finished run.
    """
    records, damaged = read_records(root)
    for fault in damaged.values():
        log.warning("left out: %s", escape_terminal(fault))
    if not records:
        raise FileNotFoundError(f"no finished run under {root}; run the experiment first")
    return records


def read_records(root: Path) -> tuple[list[Record], dict[str, str]]:
    """As `load_all`, with a line for each damaged record by its folder's name."""
    if root.suffix == ".zip" and root.is_file():
        return _read_bundle(root), {}
    records, damaged = [], {}
    for folder in sorted(_list_begun_runs(root)):
        try:
            records.append(load_record(folder))
        except DamagedError as error:
            damaged[folder.name] = str(error)
    return records, damaged


def _list_begun_runs(root: Path) -> Iterator[Path]:
    """The folders below `root` with a run.json, which may be a link to nothing."""
    for folder, folders, files in os.walk(root):
        if "run.json" in (*folders, *files):
            yield Path(folder)


def _read_bundle(file: Path) -> list[Record]:
    archive = open_archive(file)
    root = zipfile.Path(archive)
    records = []
    for name in sorted(archive.namelist()):
        folder, _, entry = name.partition("/")
        if entry == "run.json":
            records.append(load_record(root / folder))
    return records


def open_record(place: str | Path) -> Record:
    """The finished record that a user names: its folder, its run.json, or `<bundle>.zip/<run>`.

    Its checksums are not verified; `damage` does so. Raises ValueError if there is none, and
    DamagedError if its run.json or the bundle cannot be read.
    """
    path = Path(place)
    path = path.parent if path.name == "run.json" else path
    if not path.exists():  # without the digits of its identity
        candidates = list(path.parent.glob(f"{glob.escape(path.name)}-{'?' * DIGEST_CHARACTERS}"))
        path = candidates[0] if len(candidates) == 1 else path
    bundle, run = path.parent, path.name
    if bundle.suffix == ".zip" and bundle.is_file():
        inside = zipfile.Path(open_archive(bundle)) / run
        if (inside / "run.json").exists():
            return _record(inside, *_document(inside))
        raise ValueError(f"{bundle} holds no run {run}")
    if not (path / "run.json").is_file():
        raise ValueError(
            f"{path} is no finished record: it has no run.json; give the folder of a run, as in "
            "outputs/<experiment>/<scale>/<run>, or <bundle>.zip/<run>"
        )
    return _record(path, *_document(path))
