"""Base of the loaders of `data.tables`: find a published table, check it, split it.

A loader is a frozen dataclass whose fields are its YAML keys. `load()` finds the original file,
plain or compressed (`data.files`), checks its columns and rows, and returns a `data.splits.Table`.
If the files are not available and `strict` is false, a table that comes with scikit-learn replaces
them. A warning and the table's `substitute` and `variant` say so.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latticework.data.files import UNPACK, MissingFileError, Source, damaged, find, readable
from latticework.data.splits import Table, split, unit_range

log = logging.getLogger(__name__)
FEWEST = 100  # rows of a limit: 1 % of the training rows of fewer may be none


class Content(NamedTuple):
    features: pd.DataFrame  # of numbers
    targets: NDArray  # [n], in [0, 1]
    tested: NDArray | None = None  # [n], whether it is in the publisher's test part


def forms(plain: Source) -> list[Source]:
    """The file, and its compressed forms, which are searched for but not downloaded.

    Whoever compressed the file, its content has the checksum of the plain one.
    """
    packed = replace(plain, urls=(), origin=plain.help, packed=True)
    return [plain, *(replace(packed, name=plain.name + end) for end in UNPACK)]


@dataclass(frozen=True, kw_only=True)
class Published(ABC):
    """Base class of the loaders.

    Args:
        limit: number of rows used, at least 100, drawn at random; None for all.
        root: the data root; None for the environment variable LATTICEWORK_DATA, if set.
        cache: folder for downloads; None for `data/cache`.
        download: whether missing files may be downloaded.
        strict: whether missing data are an error, or are replaced.
        seed: of the generator of the splits.
    """

    limit: int | None = None
    root: str | None = None
    cache: str | None = None
    download: bool = True
    strict: bool = False
    seed: int = 0

    name: ClassVar[str]
    binary: ClassVar[bool] = False  # whether targets are 0 and 1

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < FEWEST:
            raise ValueError(
                f"limit must be at least {FEWEST} rows, so that some are held out to choose "
                f"settings, or null for all rows, got {self.limit}"
            )

    @abstractmethod
    def read(self) -> Content:
        """The table after its filters. Raises MissingFileError, DamagedFileError."""

    def load(self) -> Table:
        """Finds, checks, reads, splits and standardises the table.

        Raises:
            MissingFileError: if it is not available and `strict` is true.
            DamagedFileError: if a file is truncated, or has other columns or another number of
                rows than the published one.
        """
        try:
            content = self._content()
        except MissingFileError as error:
            if self.strict:
                raise
            return self._substitute(error)
        return self._table(content, self.variant)

    @property
    def variant(self) -> str:
        """Its name in records and tables, with any convention that changes the numbers."""
        return self.name

    def _content(self) -> Content:
        return _read(self, self.root or os.environ.get("LATTICEWORK_DATA"))

    def _table(self, content: Content, variant: str, substitute: bool = False) -> Table:
        return split(
            content.features.to_numpy(np.float64),
            content.targets.astype(np.float64),
            tuple(map(str, content.features)),
            variant,
            seed=self.seed,
            tested=content.tested,
            limit=self.limit,
            substitute=substitute,
        )

    def _substitute(self, error: MissingFileError) -> Table:
        content, name = bundled(self.binary)
        log.warning("SUBSTITUTE DATA: this is %s, not %s\n%s", name, self.name, error)
        return self._table(content, f"{name}, in place of {self.name}", substitute=True)

    def find(self, choices: list[Source]) -> tuple[Path, Source]:
        """The first of `choices` that is found, else the first that can be downloaded."""
        errors = []
        for download in (False, self.download):
            for source in choices:
                try:
                    return find(source, self.root, cache=self.cache, download=download), source
                except MissingFileError as error:
                    errors.append(error)
        raise errors[len(choices)]  # why the published form could not be had

    def frame(self, choices: list[Source], shape: tuple[int, int], **settings: Any) -> pd.DataFrame:
        """A CSV of `shape` (rows, columns) with the columns `expected()`; else DamagedFileError."""
        path, source = self.find(choices)
        with readable(path, source):
            frame = pd.read_csv(path, **settings)
        require(path, source, frame, shape, self.expected())
        return frame

    def expected(self) -> list[str]:
        """The columns that a file must have."""
        return []


@dataclass(frozen=True, kw_only=True)
class Parted(Published):
    """A table that is published in a training part and a test part.

    `split="random"` draws a fifth of all rows to test on, as the paper says. "published" keeps the
    publisher's parts, as its released scripts do; these may have different distributions.
    """

    split: Literal["random", "published"] = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split not in ("random", "published"):
            raise ValueError(f"split must be random or published, got {self.split!r}")

    @property
    def variant(self) -> str:
        return self.name if self.split == "random" else f"{self.name}, split as published"

    def _table(self, content: Content, variant: str, substitute: bool = False) -> Table:
        kept = content.tested if self.split == "published" else None
        return super()._table(content._replace(tested=kept), variant, substitute)


@lru_cache(maxsize=2)
def _read(loader: Published, root: str | None) -> Content:
    """Cached, because the runs of a sweep in one process load the same few tables."""
    return loader.read()


def require(
    path: Path, source: Source, frame: pd.DataFrame, shape: tuple[int, int], columns: list[str]
) -> None:
    """Raises DamagedFileError unless `frame` has all of `columns` and the given shape."""
    missing = [name for name in columns if name not in frame]
    if missing:
        found = ", ".join(map(str, frame.columns[:8]))
        reason = f"expected the columns {', '.join(missing)} too, found {found}, ..."
        raise damaged(path, source, reason)
    if frame.shape != shape:
        expected, found = (
            f"{rows:,} rows of {width} columns" for rows, width in (shape, frame.shape)
        )
        raise damaged(path, source, f"expected {expected}, found {found}")


def bundled(binary: bool) -> tuple[Content, str]:
    """A table of scikit-learn and its name; targets are 0 and 1 if `binary`, else in [0, 1]."""
    from sklearn.datasets import load_breast_cancer, load_diabetes  # its import takes a second

    load: Callable = load_breast_cancer if binary else load_diabetes
    found = load(as_frame=True)
    name = "breast cancer" if binary else "diabetes"
    targets = unit_range(found.target.to_numpy(np.float64))
    return Content(found.data, targets), f"scikit-learn's {name}"


def one_hot(frame: pd.DataFrame, numbers: list[str], categories: list[str]) -> pd.DataFrame:
    """The numeric columns, then a 0/1 column for each value of each category."""
    dummies = pd.get_dummies(frame[categories], columns=categories, dtype=float)
    return pd.concat([frame[numbers].astype(float), dummies], axis=1)
