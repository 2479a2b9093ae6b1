"""Records: the files that a run writes, and how figures read them. Imports no torch.

Each record of an experiment is a folder, `outputs/<experiment>/<scale>/<run>/`. Committed records
are in a file per experiment, a bundle (`results.archive`), which contains smaller versions of these
folders (experiments/report/bundle.py). A bundle is read in memory.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zipfile
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from latticework.experiments.config.budget import Budget
from latticework.experiments.config.identity import PARTS, SOURCES, canonical, flat, leaves
from latticework.experiments.results.archive import open_archive

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)
BUNDLES = Path(__file__).resolve().parents[2] / "docs" / "results" / "records"
VARIANTS = {"news_partial": "news", "omniglot_derived": "omniglot"}  # of published data sets
RESULTS = (".csv", ".npz", ".safetensors", ".yaml")  # what a record keeps besides run.json


@dataclass(frozen=True)
class Record:
    """A finished run, read-only."""

    path: Path | zipfile.Path
    document: dict[str, Any]  # run.json

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

        Includes which data were found; the name of their variant says how they were split, so
        `data.split` adds nothing. A key that is null is left out. So older records, which lack a
        key, compare equal.
        """
        parts = {key: self.config.get(key) for key in PARTS}
        parts["task"] = flat(parts["task"])
        data = parts["data"]
        if isinstance(data, dict):
            parts["data"] = {
                key: value for key, value in data.items() if key not in (*SOURCES, "split")
            }
        found = leaves(canonical(parts, SOURCES))
        for name, key in (("data", "variant"), ("language", "used")):
            found[f"{name}.{key}"] = (self.document.get(name) or {}).get(key)
        if (engine := self.config.get("engine", "eager")) != "eager":  # as in the identity
            found["engine"] = engine
        return {key: json.dumps(value) for key, value in found.items() if value is not None}

    @property
    def budget(self) -> Budget:
        """Chains, steps and readings. Raises LookupError for a task without a budget."""
        task = flat(self.config["task"] or {})
        counts = {name: task[name] for name in ("chains", "steps", "every") if name in task}
        if not {"chains", "steps"} <= set(counts):
            raise LookupError(f"{self.path} is of a task without a budget of chains and steps")
        return Budget(**counts)

    @property
    def substitute(self) -> str | None:
        """The name of the substitute data or language model that the run used, or None."""
        data, language = (self.document.get(key) or {} for key in ("data", "language"))
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

        return pd.read_csv(BytesIO((self.path / "metrics.csv").read_bytes()))

    def arrays(self, name: str) -> dict[str, NDArray]:
        """The arrays of `<name>.npz`. Raises FileNotFoundError naming the record."""
        try:
            content = (self.path / f"{name}.npz").read_bytes()
        except (FileNotFoundError, KeyError) as error:
            raise FileNotFoundError(f"{self.path} holds no {name}.npz") from error
        with np.load(BytesIO(content), allow_pickle=False) as file:
            return dict(file)

    def has(self, name: str) -> bool:
        """Whether the run stored `<name>.npz`, even if a bundle leaves it out."""
        left_out = self.document.get("left_out") or ()
        return name in left_out or (self.path / f"{name}.npz").exists()


class DamagedRecordError(ValueError):
    """The files of a finished record are missing or have changed."""


def load(path: Path | zipfile.Path) -> Record:
    """The record at `path`. Raises DamagedRecordError if its files fail their checksums."""
    if isinstance(path, Path) and (fault := damage(path)):
        raise DamagedRecordError(
            f"the record {path} is damaged: {fault}; run its command again to replace it"
        )
    return Record(path, json.loads((path / "run.json").read_text()))


def checksums(path: Path) -> dict[str, str]:
    """SHA-256 of every result file in the folder of a record, by name."""
    files = sorted(file for file in path.iterdir() if file.suffix in RESULTS)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def damage(path: Path) -> str:
    """What is wrong with the finished record in the folder `path`; empty if nothing is."""
    try:
        document = json.loads((path / "run.json").read_text())
        known = document.get("files", {})  # older records have none
        document["config"]
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        return f"run.json cannot be read ({type(error).__name__})"
    found = checksums(path)
    faults = [
        f"{name} is {'changed' if name in found else 'missing'}"
        for name, digest in known.items()
        if found.get(name) != digest
    ]
    return ", ".join(faults)


def load_all(root: Path) -> list[Record]:
    """Every finished run under `root`, a folder or a bundle, in the order of their paths.

    A folder without run.json is an unfinished run and is skipped. Raises FileNotFoundError if there
    is no finished run.
    """
    if root.suffix == ".zip" and root.is_file():
        records = _bundled(root)
    else:
        records = []
        for file in sorted(root.rglob("run.json")):
            try:
                records.append(load(file.parent))
            except DamagedRecordError as error:
                log.warning("left out: %s", error)
    if not records:
        raise FileNotFoundError(f"no finished run under {root}; run the experiment first")
    return records


def load_experiment(outputs: Path, name: str, scale: str) -> list[Record]:
    """The finished runs of an experiment: those in `outputs`, otherwise those of its bundle.

    The two are never mixed, because their timings come from different machines. Raises
    FileNotFoundError if there are none.
    """
    folder, bundle = outputs / name / scale, BUNDLES / f"{name}.zip"
    try:
        return load_all(folder)
    except FileNotFoundError:
        if scale == "paper" and bundle.is_file():
            return load_all(bundle)
        raise


def _bundled(file: Path) -> list[Record]:
    archive = open_archive(file)
    root = zipfile.Path(archive)
    names = sorted(name for name in archive.namelist() if name.count("/") == 1)
    return [load(root / name.split("/")[0]) for name in names if name.endswith("/run.json")]


def opened(place: str | Path) -> Record:
    """The finished record that a user names: its folder, its run.json, or `<bundle>.zip/<run>`.

    Its checksums are not verified; `damage` does so. Raises ValueError if there is none.
    """
    path = Path(place)
    path = path.parent if path.name == "run.json" else path
    bundle, run = path.parent, path.name
    if bundle.suffix == ".zip" and bundle.is_file():
        inside = zipfile.Path(open_archive(bundle)) / run
        if (inside / "run.json").exists():
            return Record(inside, json.loads((inside / "run.json").read_text()))
        raise ValueError(f"{bundle} holds no run {run}")
    if not (path / "run.json").is_file():
        raise ValueError(
            f"{path} is no finished record: it has no run.json; give the folder of a run, as in "
            "outputs/<experiment>/<scale>/<run>, or <bundle>.zip/<run>"
        )
    return Record(path, json.loads((path / "run.json").read_text()))


def fingerprint(record: Record) -> str:
    """SHA-256 of a record: of run.json, which holds the checksums of the other files.

    In a bundle, whose run.json holds none, and in records from before there were any, the other
    files are hashed as well.
    """
    digest = hashlib.sha256((record.path / "run.json").read_bytes())
    if "files" not in record.document:
        for name in sorted(file.name for file in record.path.iterdir()):
            if name.endswith(RESULTS):
                digest.update(name.encode() + (record.path / name).read_bytes())
    return digest.hexdigest()
