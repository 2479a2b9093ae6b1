"""The four tables for binary Bayesian neural networks: COMPAS, Adult, Online News, Blog Feedback.

R. Zhang, X. Liu and Q. Liu (2022), App. I.5. A feature is a number, or a 0/1 column for one value
of a category. A loader finds the original file, plain or compressed (`data.files`), and checks its
columns and rows. Where files are missing, a table that comes with scikit-learn replaces them.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pandas as pd

from latticework.data.files import MissingFileError, Source, convert_read_errors
from latticework.data.published_tables import (
    Content,
    Parted,
    PublishedTable,
    file_forms,
    one_hot_columns,
    require,
)
from latticework.data.splits import unit_range

UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"


@dataclass(frozen=True, kw_only=True)
class COMPAS(PublishedTable):
    """Whether a defendant offends again within two years: 6,172 rows, 13 features.

    The rows are those that ProPublica's own analysis keeps. The paper only says "13 attributes". As
    in its released scripts, these are five numbers (priors, three counts of juvenile offences,
    age), six columns for race and two for sex.
    """

    name: ClassVar[str] = "compas"
    shape: ClassVar[tuple[int, int]] = (
        7_214,
        53,
    )  # rows and columns of the file, before any filter
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
    choices: ClassVar[list[Source]] = file_forms(
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

    def expected_columns(self) -> list[str]:
        return [*self.numbers, "race", "sex", "two_year_recid", *self.filters]

    def read_files(self) -> Content:
        frame = self.frame(self.choices, self.shape)
        selected = frame[
            frame.days_b_screening_arrest.between(-30, 30)
            & (frame.is_recid != -1)
            & (frame.c_charge_degree != "O")
            & frame.score_text.notna()
        ]
        targets = selected.two_year_recid.to_numpy(np.float64)
        return Content(one_hot_columns(selected, self.numbers, ["race", "sex"]), targets)


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

    def read_files(self) -> Content:
        settings: dict = {"header": None, "skipinitialspace": True, "comment": "|"}
        parts = []
        for name, md5, rows in self.files:
            choices = file_forms(Source(name, ("adult", "."), (md5,), (f"{UCI}/adult/{name}",)))
            parts.append(self.frame(choices, (rows, len(self.columns)), **settings))
        frame = pd.concat(parts, ignore_index=True).set_axis(self.columns, axis=1)
        tested = np.repeat([False, True], list(map(len, parts)))
        selected = (frame != "?").all(axis=1)
        frame = frame[selected]
        targets = frame.income.str.startswith(">").to_numpy(np.float64)
        features = one_hot_columns(frame, self.numbers, self.categories)
        return Content(features, targets, tested[selected])


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
        *file_forms(Source("OnlineNewsPopularity.csv", archive.folders, origin=archive.urls[0])),
    ]

    def expected_columns(self) -> list[str]:
        return ["url", " timedelta", " n_tokens_title", " abs_title_sentiment_polarity", " shares"]

    def read_files(self) -> Content:
        path, source = self.find(self.choices)
        with convert_read_errors(path, source):
            if source is self.archive:
                with zipfile.ZipFile(path) as archive, archive.open(self.member) as file:
                    frame = pd.read_csv(file)
            else:
                frame = pd.read_csv(path)
        require(path, source, frame, self.shape, self.expected_columns())
        return make_content(frame)

    def read_substitute(self) -> tuple[Content, str]:
        partial = NewsPartial(**vars(self))
        try:
            return partial.read(), partial.name
        except MissingFileError:
            return super().read_substitute()


@dataclass(frozen=True, kw_only=True)
class NewsPartial(PublishedTable):
    """24,356 rows of Online News, in which early articles are over-represented."""

    name: ClassVar[str] = "news_partial (24,356 of 39,644 rows)"
    shape: ClassVar[tuple[int, int]] = (24_356, 63)
    choices: ClassVar[list[Source]] = file_forms(
        Source(
            "OnlineNewsPopularity_partial.csv",
            ("online_news", "."),
            ("ccec12aeb96e3dc642f131e59b58c244",),
            origin="where the data root came from",
        )
    )

    def expected_columns(self) -> list[str]:
        return [*News().expected_columns(), "source", "label_from"]

    def read_files(self) -> Content:
        return make_content(
            self.frame(self.choices, self.shape).drop(columns=["source", "label_from"])
        )


def make_content(frame: pd.DataFrame) -> Content:
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

    def read_files(self) -> Content:
        path, source = self.find([self.source])
        with convert_read_errors(path, source), zipfile.ZipFile(path) as archive:
            names = sorted(name for name in archive.namelist() if name.endswith(".csv"))
            parts = [pd.read_csv(archive.open(name), header=None) for name in names]
            frame = pd.concat(parts, ignore_index=True)
        require(path, source, frame, self.shape, [])
        targets = frame[280].to_numpy(np.float64)
        if self.conventions == "released":
            targets = targets % 256
        selected = targets <= np.percentile(targets, 90)
        tested = np.repeat(["test" in name for name in names], list(map(len, parts)))
        features = frame.loc[selected, :279]
        varied = features.columns[(features != features.iloc[0]).any()]
        return Content(features[varied], unit_range(targets[selected]), tested[selected])
