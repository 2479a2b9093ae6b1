"""The four tables for binary Bayesian neural networks: COMPAS, Adult, Online News, Blog Feedback.

R. Zhang, X. Liu and Q. Liu (2022), App. I.5. A feature is a number, or a 0/1 column for one value
of a category.

A loader is a frozen dataclass whose fields are its YAML keys. `load()` finds the original file,
plain or compressed (`data.files`), checks its columns and rows, and returns a `data.splits.Table`.
If the files are not available and `strict` is false, a table that comes with scikit-learn replaces
them. A warning and the table's `substitute` and `variant` say so.
"""

from __future__ import annotations

import logging
import os
import zipfile
from abc import ABC, abstractmethod
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
    damaged,
    find,
)
from latticework.data.splits import Table, split, unit_range

log = logging.getLogger(__name__)
UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
MIN_LIMIT_ROWS = 100  # rows of a limit: 1 % of the training rows of fewer may be none


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
class PublishedTable(ABC):
    """Base class of the loaders.

    Args:
        normalise: None standardises the features; "unit" maps them to [0, 1] (`data.splits.split`).
        limit: number of rows used, at least 100, drawn at random; None for all.
        root: the data root; None for the environment variable LATTICEWORK_DATA, if set.
        cache: folder for downloads; None for `data/cache`.
        download: whether missing files may be downloaded.
        strict: whether missing data are an error, or are replaced.
        seed: of the generator of the splits.
    """

    normalise: Literal["unit"] | None = None
    limit: int | None = None
    root: str | None = None
    cache: str | None = None
    download: bool = True
    strict: bool = False
    seed: int = 0

    name: ClassVar[str]
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
            variant if self.normalise is None else f"{variant}, features in [0, 1]",
            seed=self.seed,
            tested=content.tested,
            normalise=self.normalise,
            limit=self.limit,
            substitute=substitute,
        )

    def _substitute(self, error: MissingFileError) -> Table:
        content, name = self._stand_in()
        log.warning("SUBSTITUTE DATA: this is %s, not %s\n%s", name, self.name, error)
        return self._table(content, f"{name}, in place of {self.name}", substitute=True)

    def _stand_in(self) -> tuple[Content, str]:
        """The table that replaces a missing one, and its name."""
        return sklearn_table(self.binary)

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
        with convert_read_errors(path, source):
            frame = pd.read_csv(path, **settings)
        require(path, source, frame, shape, self.expected())
        return frame

    def expected(self) -> list[str]:
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

    def _table(self, content: Content, variant: str, substitute: bool = False) -> Table:
        kept = content.tested if self.split == "published" else None
        return super()._table(content._replace(tested=kept), variant, substitute)


@lru_cache(maxsize=2)
def _read(loader: PublishedTable, root: str | None) -> Content:
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


def sklearn_table(binary: bool) -> tuple[Content, str]:
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


@dataclass(frozen=True, kw_only=True)
class COMPAS(PublishedTable):
    """Whether a defendant offends again within two years: 6,172 rows, 13 features.

    The rows are those that ProPublica's own analysis keeps. The paper only says "13 attributes". As
    in its released scripts, these are five numbers (priors, three counts of juvenile offences,
    age), six columns for race and two for sex.
    """

    name: ClassVar[str] = "compas"
    shape: ClassVar[tuple[int, int]] = (7_214, 53)  # of the file, before any filter
    binary: ClassVar[bool] = True
    numbers: ClassVar[list[str]] = [
        "priors_count",
        "juv_fel_count",
        "juv_misd_count",
        "juv_other_count",
        "age",
    ]
    filters: ClassVar[list[str]] = [
        "days_b_screening_arrest",
        "is_recid",
        "c_charge_degree",
        "score_text",
    ]
    choices: ClassVar[list[Source]] = forms(
        Source(
            "compas-scores-two-years.csv",
            ("compas", "."),
            ("9165d40c400bba93a8cffece2b74622b",),
            (
                "https://raw.githubusercontent.com/propublica/compas-analysis/master/"
                "compas-scores-two-years.csv",
            ),
        )
    )

    def expected(self) -> list[str]:
        return [*self.numbers, "race", "sex", "two_year_recid", *self.filters]

    def read(self) -> Content:
        frame = self.frame(self.choices, self.shape)
        kept = frame[
            frame.days_b_screening_arrest.between(-30, 30)
            & (frame.is_recid != -1)
            & (frame.c_charge_degree != "O")
            & frame.score_text.notna()
        ]
        targets = kept.two_year_recid.to_numpy(np.float64)
        return Content(one_hot(kept, self.numbers, ["race", "sex"]), targets)


@dataclass(frozen=True, kw_only=True)
class Adult(Parted):
    """Whether a person earns more than 50,000 dollars: 45,222 rows without '?', 88 features.

    The rows of UCI's two files. UCI's own split has 30,162 training rows and 15,060 test rows.
    `education` is dropped, because `education-num` holds the same information.
    """

    name: ClassVar[str] = "adult"
    binary: ClassVar[bool] = True
    columns: ClassVar[list[str]] = [
        *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status"),
        *("occupation", "relationship", "race", "sex", "capital-gain", "capital-loss"),
        *("hours-per-week", "native-country", "income"),
    ]
    numbers: ClassVar[list[str]] = [
        *("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
    ]
    categories: ClassVar[list[str]] = [
        *("workclass", "marital-status", "occupation", "relationship", "race", "sex"),
        "native-country",
    ]
    files: ClassVar[list[tuple[str, str, int]]] = [
        ("adult.data", "5d7c39d7b8804f071cdd1f2a7c460872", 32_561),
        ("adult.test", "35238206dfdf7f1fe215bbb874adecdc", 16_281),
    ]

    def read(self) -> Content:
        settings: dict = {"header": None, "skipinitialspace": True, "comment": "|"}
        parts = []
        for name, md5, rows in self.files:
            choices = forms(Source(name, ("adult", "."), (md5,), (f"{UCI}/adult/{name}",)))
            parts.append(self.frame(choices, (rows, len(self.columns)), **settings))
        frame = pd.concat(parts, ignore_index=True).set_axis(self.columns, axis=1)
        tested = np.repeat([False, True], list(map(len, parts)))
        kept = (frame != "?").all(axis=1)
        frame = frame[kept]
        targets = frame.income.str.startswith(">").to_numpy(np.float64)
        features = one_hot(frame, self.numbers, self.categories)
        return Content(features, targets, tested[kept])


@dataclass(frozen=True, kw_only=True)
class News(PublishedTable):
    """How often an article of Mashable was shared: 39,644 rows, 58 features.

    The target is the logarithm of the shares, scaled to [0, 1]. `url` and `timedelta` are not used
    as features. If only a partial copy is found, it is used as a substitute, under its own name.
    """

    name: ClassVar[str] = "news"
    shape: ClassVar[tuple[int, int]] = (39_644, 61)
    member: ClassVar[str] = "OnlineNewsPopularity/OnlineNewsPopularity.csv"
    archive: ClassVar[Source] = Source(  # no checksum: no copy of the whole table was at hand
        "OnlineNewsPopularity.zip",
        ("online_news", "."),
        urls=(f"{UCI}/00332/OnlineNewsPopularity.zip",),
    )
    choices: ClassVar[list[Source]] = [
        archive,  # only it is downloaded: the publisher does not offer the CSV alone
        *forms(Source("OnlineNewsPopularity.csv", archive.folders, origin=archive.urls[0])),
    ]

    def expected(self) -> list[str]:
        return ["url", " timedelta", " n_tokens_title", " abs_title_sentiment_polarity", " shares"]

    def read(self) -> Content:
        path, source = self.find(self.choices)
        with convert_read_errors(path, source):
            if source is self.archive:
                with zipfile.ZipFile(path) as archive, archive.open(self.member) as file:
                    frame = pd.read_csv(file)
            else:
                frame = pd.read_csv(path)
        require(path, source, frame, self.shape, self.expected())
        return news(frame)

    def _stand_in(self) -> tuple[Content, str]:
        partial = NewsPartial(**vars(self))
        try:
            return partial._content(), partial.name
        except MissingFileError:
            return super()._stand_in()


@dataclass(frozen=True, kw_only=True)
class NewsPartial(PublishedTable):
    """24,356 rows of Online News, in which early articles are over-represented."""

    name: ClassVar[str] = "news_partial (24,356 of 39,644 rows)"
    shape: ClassVar[tuple[int, int]] = (24_356, 63)
    choices: ClassVar[list[Source]] = forms(
        Source(
            "OnlineNewsPopularity_partial.csv",
            ("online_news", "."),
            ("ccec12aeb96e3dc642f131e59b58c244",),
            origin="where the data root came from",
        )
    )

    def expected(self) -> list[str]:
        return [*News().expected(), "source", "label_from"]

    def read(self) -> Content:
        return news(self.frame(self.choices, self.shape).drop(columns=["source", "label_from"]))


def news(frame: pd.DataFrame) -> Content:
    """The 58 features and the scaled logarithm of the shares."""
    shares = frame[" shares"].to_numpy(np.float64)
    return Content(
        frame.drop(columns=["url", " timedelta", " shares"]).rename(columns=str.strip),
        unit_range(np.log(shares)),
    )


@dataclass(frozen=True, kw_only=True)
class Blog(Parted):
    """How many comments a blog post gets within a day: 54,314 rows, 276 features.

    The rows of UCI's training file and its 60 test files, without rows above the 90th percentile of
    the target and without constant columns. The target is scaled to [0, 1].

    UCI's own split has 47,287 rows of 2010 and 2011 and 7,027 of February and March 2012, whose
    posts get fewer comments. The paper's released scripts read files `train` and `test`; judging by
    their results, these are UCI's. `conventions="released"` reproduces a fault of these scripts,
    which take targets modulo 256.
    """

    conventions: Literal["correct", "released"] = "correct"

    name: ClassVar[str] = "blog"
    shape: ClassVar[tuple[int, int]] = (60_021, 281)
    source: ClassVar[Source] = Source(  # no checksum: the copy at hand was packed again later
        "BlogFeedback.zip",
        ("blogfeedback", "."),
        urls=(f"{UCI}/00304/BlogFeedback.zip",),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.conventions not in ("correct", "released"):
            raise ValueError(f"conventions must be correct or released, got {self.conventions!r}")

    @property
    def variant(self) -> str:
        name = super().variant
        return name if self.conventions == "correct" else f"{name}, targets modulo 256"

    def read(self) -> Content:
        path, source = self.find([self.source])
        with convert_read_errors(path, source), zipfile.ZipFile(path) as archive:
            names = sorted(name for name in archive.namelist() if name.endswith(".csv"))
            parts = [pd.read_csv(archive.open(name), header=None) for name in names]
            frame = pd.concat(parts, ignore_index=True)
        require(path, source, frame, self.shape, [])
        targets = frame[280].to_numpy(np.float64)
        if self.conventions == "released":
            targets = targets % 256
        kept = targets <= np.percentile(targets, 90)
        tested = np.repeat(["test" in name for name in names], list(map(len, parts)))
        features = frame.loc[kept, :279]
        varied = features.columns[(features != features.iloc[0]).any()]
        return Content(features[varied], unit_range(targets[kept]), tested[kept])
