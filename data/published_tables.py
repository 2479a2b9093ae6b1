"""The base of the loaders of published tables: their files, columns, splits and substitutes."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latticework.data.files import (
    UNPACK,
    MissingFileError,
    Source,
    convert_read_errors,
    damaged_file_error,
)
from latticework.data.published import PublishedData
from latticework.data.splits import Table, split, unit_range

log = logging.getLogger(__name__)
MIN_LIMIT_ROWS = 100  # rows of a limit: 1 % of fewer training rows may be no row


class Content(NamedTuple):
    features: pd.DataFrame  # all numbers
    targets: NDArray  # [n], in [0, 1]
    tested: NDArray | None = None  # [n], whether it is in the publisher's test part


def file_forms(plain: Source) -> list[Source]:
    """The file, and its compressed forms, which are searched for but not downloaded.

    The content of a compressed file has the checksum of the plain one.
    """
    packed = replace(plain, urls=(), origin=plain.help, packed=True)
    return [plain, *(replace(packed, name=plain.name + end) for end in UNPACK)]


@dataclass(frozen=True, kw_only=True)
class PublishedTable(PublishedData[Content, Table]):
    """Base class of the loaders of tables.

    Args:
        normalise: None standardises the features; "unit" maps them to [0, 1] (`data.splits.split`).
        limit: number of rows used, at least 100, drawn at random; None for all.
    """

    normalise: Literal["unit"] | None = None
    limit: int | None = None

    binary: ClassVar[bool] = False  # whether targets are 0 and 1

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < MIN_LIMIT_ROWS:
            raise ValueError(
                f"limit must be at least {MIN_LIMIT_ROWS} rows, so that some are held out to "
                f"choose settings, or null for all rows, got {self.limit}"
            )
        if self.normalise not in (None, "unit"):
            raise ValueError(
                "normalise must be null, which standardises the features, or unit, which maps them "
                f"to [0, 1], got {self.normalise!r}"
            )

    def read(self) -> Content:
        return _read_once(self, self.root or os.environ.get("LATTICEWORK_DATA"))

    @abstractmethod
    def read_files(self) -> Content:
        """The table after its filters. Raises MissingFileError, DamagedFileError."""

    def prepare(self, content: Content) -> Table:
        return self.split_rows(content, self.variant)

    @property
    def variant(self) -> str:
        """Its name in records and tables, with any convention that changes the numbers."""
        return self.name

    def split_rows(self, content: Content, variant: str, *, substitute: bool = False) -> Table:
        """The three parts of the table, with its features normalised."""
        return split(
            content.features.to_numpy(np.float64),
            content.targets.astype(np.float64),
            tuple(map(str, content.features)),
            variant if self.normalise is None else f"{variant}, features in [0, 1]",
            seed=self.seed,
            tested=content.tested,
            normalise=self.normalise,
            limit=self.limit,
            substitute=substitute,
        )

    def replace_missing(self, error: MissingFileError) -> Table:
        content, name = self.read_substitute()
        log.warning("SUBSTITUTE DATA: this is %s, not %s\n%s", name, self.name, error)
        return self.split_rows(content, f"{name}, in place of {self.name}", substitute=True)

    def read_substitute(self) -> tuple[Content, str]:
        """The table that replaces a missing one, and its name."""
        return sklearn_table(self.binary)

    def find(self, choices: list[Source]) -> tuple[Path, Source]:
        """The first of `choices` that is found, else the first that can be downloaded."""
        errors = []
        for download in (False, True):
            for source in choices:
                try:
                    return self.path(source, download=download), source
                except MissingFileError as error:
                    errors.append(error)
        raise errors[len(choices)]  # why the published form could not be had

    def frame(self, choices: list[Source], shape: tuple[int, int], **settings: Any) -> pd.DataFrame:
        """A CSV of `shape` (rows, columns) with `expected_columns`; else DamagedFileError."""
        path, source = self.find(choices)
        with convert_read_errors(path, source):
            frame = pd.read_csv(path, **settings)
        require(path, source, frame, shape, self.expected_columns())
        return frame

    def expected_columns(self) -> list[str]:
        """The columns that a file must have."""
        return []


@dataclass(frozen=True, kw_only=True)
class Parted(PublishedTable):
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

    def split_rows(self, content: Content, variant: str, *, substitute: bool = False) -> Table:
        tested = content.tested if self.split == "published" else None
        return super().split_rows(content._replace(tested=tested), variant, substitute=substitute)


@lru_cache(maxsize=2)
def _read_once(loader: PublishedTable, root: str | None) -> Content:
    """Cached, because the runs of a sweep in one process load the same few tables."""
    return loader.read_files()


def require(
    path: Path, source: Source, frame: pd.DataFrame, shape: tuple[int, int], columns: list[str]
) -> None:
    """Raises DamagedFileError unless `frame` has all of `columns` and the given shape."""
    missing = [name for name in columns if name not in frame]
    if missing:
        present = ", ".join(map(str, frame.columns[:8]))
        reason = f"expected the columns {', '.join(missing)} too, found {present}, ..."
        raise damaged_file_error(path, source, reason)
    if frame.shape != shape:
        size = "{:,} rows of {} columns"
        reason = f"expected {size.format(*shape)}, found {size.format(*frame.shape)}"
        raise damaged_file_error(path, source, reason)


def sklearn_table(binary: bool) -> tuple[Content, str]:
    """A table of scikit-learn and its name; targets are 0 and 1 if `binary`, else in [0, 1]."""
    from sklearn.datasets import load_breast_cancer, load_diabetes  # its import takes a second

    load: Callable = load_breast_cancer if binary else load_diabetes
    table = load(as_frame=True)
    name = "breast cancer" if binary else "diabetes"
    targets = unit_range(table.target.to_numpy(np.float64))
    return Content(table.data, targets), f"scikit-learn's {name}"


def one_hot_columns(frame: pd.DataFrame, numbers: list[str], categories: list[str]) -> pd.DataFrame:
    """The numeric columns, then a 0/1 column for each value of each category."""
    dummies = pd.get_dummies(frame[categories], columns=categories, dtype=float)
    return pd.concat([frame[numbers].astype(float), dummies], axis=1)
