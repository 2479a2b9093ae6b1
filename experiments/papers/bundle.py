"""Pack the finished records of an experiment into one small file that can be committed.

A bundle keeps metrics.csv, the arrays that figures, tables and claims read, and run.json. Long
entries of run.json, such as sentences, are kept of the first seed of each setting, which figures
show. Curves have at most `CURVE_ROW_STEPS[0]` rows, and fewer if the bundle would exceed
`TARGET_BUNDLE_BYTES`. Numbers are rounded to 7 digits. Equal records give equal bytes.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from omegaconf import DictConfig

from latticework.experiments.figures.plot import Plot
from latticework.experiments.papers.claims.ledger import CLAIMS
from latticework.experiments.papers.draw import make_all
from latticework.experiments.records.archive import write_archive
from latticework.experiments.records.grouping import by_setting
from latticework.experiments.records.record import Record

# Rows of a curve: the first number that keeps to TARGET_BUNDLE_BYTES, or else the last.
CURVE_ROW_STEPS = (200, 100, 50, 30)
MAX_ARRAY_BYTES = 64 * 1024  # bytes of an array's file; larger ones are left out
# Longer entries of run.json are kept of the first seed only.
MAX_ENTRY_CHARACTERS = 4096
TARGET_BUNDLE_BYTES = 200_000  # bytes of a bundle
# Keys of the configuration that a bundle leaves out.
ELSEWHERE = ("outputs", "logger", "figures", "tables", "scales", "also", "force")
SOURCES = ("root", "cache")  # keys of its `data`
MACHINE = ("outputs", "device", "threads", "data.root", "data.cache")  # keys of overrides


@dataclass(frozen=True)
class ReadTracker(Record):
    """A record that logs the names of arrays that are read."""

    opened: set[str] = field(default_factory=set)

    def arrays(self, name: str) -> dict[str, NDArray]:
        arrays = super().arrays(name)  # a bundle may have left it out
        self.opened.add(name)
        return arrays


@dataclass(frozen=True)
class Packed:
    """Summary of a packed experiment."""

    file: Path
    size: int
    runs: int
    thinned: int  # records of which rows were left out
    too_large: list[str]  # arrays that are read, but too large to keep
    long: list[str]  # entries of run.json that are kept of the first seeds only


def write_bundle(records: Sequence[Record], config: DictConfig, target: Path) -> Packed:
    """Write the bundle `target` of `records`, all of the experiment `config`."""
    trackers = [ReadTracker(record.path, record.document) for record in records]
    _open_all(trackers, config)
    long = _long_entries(trackers)
    arrays, too_large = _small_arrays(trackers)
    target.parent.mkdir(parents=True, exist_ok=True)
    tables = [record.metrics for record in records]
    for rows in CURVE_ROW_STEPS:
        # Each pass thins the last result, so that runs of an earlier bundle keep equal steps.
        tables = [thin(table, rows) for table in tables]
        files = dict(arrays)
        for record, table in zip(trackers, tables, strict=True):
            files |= _run_files(record, table, arrays, long[record.path])
        write_archive(target, files)
        if (size := target.stat().st_size) <= TARGET_BUNDLE_BYTES:
            break
    thinned = 0
    for whole, table in zip(records, tables, strict=True):
        thinned += len(table) < len(whole.metrics)
    left_out = sorted(set().union(*long.values()))
    return Packed(target, size, len(records), thinned, too_large, left_out)


def _run_files(
    record: ReadTracker, table: pd.DataFrame, arrays: Mapping[str, bytes], long: set[str]
) -> dict[str, bytes]:
    """metrics.csv and run.json of a record, by their place in the bundle."""
    run = record.path.name
    metrics = table.to_csv(index=False, float_format="%.7g", lineterminator="\n")
    packed_arrays = {name for name in record.opened if f"{run}/{name}.npz" in arrays}
    document = _run_json(record, table, packed_arrays, long)
    return {f"{run}/metrics.csv": metrics.encode(), f"{run}/run.json": document.encode()}


def _small_arrays(records: Sequence[ReadTracker]) -> tuple[dict[str, bytes], list[str]]:
    """Return the opened arrays that are small enough, by file, and describe larger ones."""
    arrays, too_large = {}, []
    for record in records:
        for name in sorted(record.opened):
            content = (record.path / f"{name}.npz").read_bytes()
            if len(content) > MAX_ARRAY_BYTES:
                too_large.append(f"{record.path.name}/{name}.npz, {len(content)} bytes")
            else:
                arrays[f"{record.path.name}/{name}.npz"] = content
    return arrays, too_large


def thin(table: pd.DataFrame, rows: int = CURVE_ROW_STEPS[0]) -> pd.DataFrame:
    """At most `rows` rows of a curve: both ends, and rows evenly spaced in index and in log index.

    A table that is not a curve is kept whole: its steps do not increase, or a column has gaps after
    its first value.
    """
    steps = table["step"].to_numpy() if "step" in table else np.zeros(len(table))
    gaps = table.isna() & table.ffill().notna()
    if len(table) <= rows or (np.diff(steps) <= 0).any() or gaps.any(axis=None):
        return table
    even = np.linspace(0, len(table) - 1, rows // 2)
    early = np.geomspace(1, len(table), rows // 2) - 1
    return table.iloc[np.unique(np.concatenate([even, early]).round().astype(int))]


def _open_all(records: Sequence[Record], config: DictConfig) -> None:
    """Draw all figures and tables and judge all claims, so that the records log what is read.

    Raises the error of a figure that fails for another reason than missing records.
    """
    for made in make_all(config, list(records)):
        if made.error and made.failed:
            raise made.error
        if isinstance(made.content, Plot):
            plt.close(made.content.figure)
    for claim in CLAIMS:
        if claim.experiment == config.name:
            try:
                claim.judge(list(records))
            except (LookupError, FileNotFoundError):
                continue


def _seed_pair(record: Record) -> tuple[int, int]:
    return record.config["seed"] or 0, record.config.get("model_seed") or 0


def _long_entries(records: Sequence[Record]) -> dict[Any, set[str]]:
    """The long entries that the bundle leaves out, by record: those of all but the first seeds."""
    long: dict[Any, set[str]] = {}
    for group in by_setting(records):
        for repeated in group:
            long[repeated.path] = _long_names(repeated.document)
        long[min(group, key=_seed_pair).path] = set()
    return long


def _long_names(document: Mapping[str, Any]) -> set[str]:
    """The entries of run.json that are longer than `MAX_ENTRY_CHARACTERS`."""
    names = set()
    for name, value in _without_keys(document, ("files", "config", "overrides")).items():
        if len(json.dumps(value)) > MAX_ENTRY_CHARACTERS:
            names.add(name)
    return names


def _run_json(record: Record, table: pd.DataFrame, arrays: set[str], long: set[str]) -> str:
    """run.json without machine-specific paths and the entries `long`.

    It lists the arrays and entries that the bundle leaves out.
    """
    config = _without_keys(record.config, ELSEWHERE)
    if isinstance(data := config.get("data"), dict):
        config["data"] = _without_keys(data, SOURCES)
    all_arrays = set(record.document.get("left_out") or ())  # packed from a bundle
    for file in map(PurePath, record.files):
        if file.suffix == ".npz":
            all_arrays.add(file.stem)
    overrides = [o for o in record.document["overrides"] if o.split("=")[0] not in MACHINE]
    entries = _without_keys(record.document, {"files", *long})
    if left_out := sorted({*long, *entries.get("entries_left_out", ())}):
        entries["entries_left_out"] = left_out
    document = {
        **entries,
        "config": config,
        "overrides": overrides,
        "left_out": sorted(all_arrays - arrays),
        "rows_kept": [len(table), len(record.metrics)],
    }
    return json.dumps(_without_paths(document), indent=1, sort_keys=True)


def _without_keys(entries: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in entries.items() if key not in keys}


def _without_paths(value: Any) -> Any:
    """Replace each absolute path by its last part."""
    if isinstance(value, dict):
        return {key: _without_paths(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_paths(item) for item in value]
    if isinstance(value, str) and PurePath(value).is_absolute():
        return PurePath(value).name
    return value
