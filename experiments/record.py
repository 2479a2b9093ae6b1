"""Records: what a run leaves on disk, and how figures read it back. Imports no torch."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray


@dataclass(frozen=True)
class Record:
    """A finished run, read-only."""

    path: Path
    document: dict[str, Any]  # run.json

    @property
    def config(self) -> dict[str, Any]:
        return self.document["config"]

    @property
    def choices(self) -> dict[str, str]:
        """Hydra's group choices, such as {"sampler": "dmala", "model": "ising"}."""
        return self.document["choices"]

    @property
    def substitute(self) -> str | None:
        """The name of the data that stood in for what was asked, or None."""
        data = self.document.get("data") or {}
        return data["variant"] if data.get("substitute") else None

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """metrics.csv, one row a reading."""
        return pd.read_csv(self.path / "metrics.csv")

    def arrays(self, name: str) -> dict[str, NDArray]:
        """The arrays of `<name>.npz`. Raises FileNotFoundError naming the record."""
        with np.load(self.path / f"{name}.npz", allow_pickle=False) as file:
            return dict(file)

    def has(self, name: str) -> bool:
        return (self.path / f"{name}.npz").exists()


def load(path: Path) -> Record:
    return Record(path, json.loads((path / "run.json").read_text()))


def load_all(root: Path) -> list[Record]:
    """Every finished run under `root`, in the order of their paths.

    Raises FileNotFoundError when there is none; a folder without run.json did not finish.
    """
    records = [load(file.parent) for file in sorted(root.rglob("run.json"))]
    if not records:
        raise FileNotFoundError(f"no finished run under {root}; run the experiment first")
    return records
