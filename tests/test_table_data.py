"""Tables of numbers: read, filtered, split and standardised as stated, or refused or replaced."""

import bz2
import gzip
import hashlib
import lzma
import os
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from latticework.data.files import DamagedFileError, MissingFileError
from latticework.data.images import Caltech
from latticework.data.splits import count_repeated, rows_among, split, unit_range
from latticework.data.tables import COMPAS, Adult, Blog, News, NewsPartial
from latticework.scripts.fetch_data import CONF

LOADERS = (COMPAS, Adult, News, NewsPartial, Blog)
PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
real_data = pytest.mark.skipif(
    "LATTICEWORK_DATA" not in os.environ, reason="LATTICEWORK_DATA names no data root"
)


# Made-up files in the published forms.


def compas(rows=60):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"other_{i}": ["x"] * rows for i in range(41)})
    for name in COMPAS.numbers:
        frame[name] = rng.integers(0, 9, rows)
    frame["race"] = rng.choice(["African-American", "Other", "Asian"], rows)
    frame["sex"] = rng.choice(["Male", "Female"], rows)
    frame["two_year_recid"] = np.arange(rows) % 2
    frame["days_b_screening_arrest"] = 0.0
    frame["is_recid"], frame["c_charge_degree"], frame["score_text"] = 0, "F", "Low"
    frame.loc[0, "days_b_screening_arrest"] = 31
    frame.loc[1, "days_b_screening_arrest"] = np.nan
    frame.loc[2, "is_recid"] = -1
    frame.loc[3, "c_charge_degree"] = "O"
    frame.loc[4, "score_text"] = "N/A"
    return frame


def put(root, folder, name, content):
    path = root / folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def csv(frame):
    return frame.to_csv(index=False).encode()


def md5(content):
    return hashlib.md5(content).hexdigest()


def publish(monkeypatch, loader, content):
    """As if the loader's publisher offered `content`, plain."""
    choices = [replace(source, md5=(md5(content),)) for source in loader.choices]
    monkeypatch.setattr(loader, "choices", choices)


@pytest.mark.parametrize("end", PACK)
def test_compas_plain_or_compressed(root, monkeypatch, end):
    monkeypatch.setattr(COMPAS, "shape", (60, 53))
    frame = compas()
    publish(monkeypatch, COMPAS, csv(frame))
    name, other = f"compas-scores-two-years.csv{end}", frame.assign(age=frame["age"] + 1)
    put(root, "compas", name, PACK[end](csv(other)))
    with pytest.raises(DamagedFileError, match="expected md5.*, found "):
        COMPAS(root=str(root)).load()
    put(root, "compas", name, PACK[end](csv(frame)))
    table = COMPAS(root=str(root)).load()
    assert (table.variant, table.substitute) == ("compas", False)
    assert table.columns == (
        *COMPAS.numbers,
        *("race_African-American", "race_Asian", "race_Other", "sex_Female", "sex_Male"),
    )
    assert (len(table.train), len(table.valid), len(table.test)) == (44, 0, 11)  # 55 are kept
    targets = torch.cat([part.targets for part in (table.train, table.valid, table.test)])
    assert targets.sum() == frame.two_year_recid[5:].sum()


LINES = [
    "39, State-gov, 77516, Bachelors, 13, Never-married, Sales, Husband, White, Male, 2174, 0, 40, "
    "United-States, <=50K{}",
    "50, Private, 83311, Masters, 14, Divorced, Sales, Wife, Black, Female, 0, 0, 13, Cuba, >50K{}",
    "50, ?, 83311, Masters, 14, Divorced, Sales, Wife, Black, Female, 0, 0, 13, Cuba, >50K{}",
]


def adult(lines, end):
    return "\n".join(line.format(end) for line in lines).encode() + b"\n\n"


def put_adult(root, monkeypatch, test):
    """UCI's two files, compressed; `test` is the content of the second."""
    train = adult(LINES * 10, "")
    files = [("adult.data", md5(train), 30), ("adult.test", md5(test), 15)]
    monkeypatch.setattr(Adult, "files", files)
    put(root, "adult", "adult.data.gz", gzip.compress(train))
    put(root, "adult", "adult.test.gz", gzip.compress(test))


def test_adult_is_both_files_without_gaps(root, monkeypatch):
    put_adult(root, monkeypatch, b"|1x3 Cross validator\n" + adult(LINES * 5, "."))
    table = Adult(root=str(root)).load()
    assert len(table.train) + len(table.valid) + len(table.test) == 30
    assert table.columns[:6] == tuple(Adult.numbers)
    assert len(table.columns) == 6 + 2 + 2 + 1 + 2 + 2 + 2 + 2
    assert "education_Masters" not in table.columns
    rich = table.train.features[:, table.columns.index("sex_Female")] > 0
    torch.testing.assert_close(table.train.targets, rich.float())


def articles(rows=50):
    rng = np.random.default_rng(1)
    names = ["url", " timedelta", *(f" f{i}" for i in range(58)), " shares"]
    names[2], names[59] = " n_tokens_title", " abs_title_sentiment_polarity"
    frame = pd.DataFrame(rng.normal(size=(rows, 61)), columns=names)
    frame["url"] = "http://"
    frame[" shares"] = np.exp(rng.uniform(1, 9, rows))
    return frame


def archive(root, name, members):
    path = put(root, ".", name, b"")
    with zipfile.ZipFile(path, "w") as target:
        for member, content in members.items():
            target.writestr(member, content)
    return path


@pytest.mark.parametrize("form", ["zip", "csv"])
def test_news_from_the_archive_or_the_file_in_it(root, monkeypatch, form):
    monkeypatch.setattr(News, "shape", (50, 61))
    frame = articles()
    if form == "zip":
        archive(root, "OnlineNewsPopularity.zip", {News.member: csv(frame)})
    else:
        put(root, "online_news", "OnlineNewsPopularity.csv", csv(frame))
    table = News(root=str(root)).load()
    assert (table.variant, len(table.columns)) == ("news", 58)
    assert not {"url", "timedelta", "shares"} & set(table.columns)
    targets = torch.cat([part.targets for part in (table.train, table.valid, table.test)])
    expected = unit_range(np.log(frame[" shares"].to_numpy()))
    np.testing.assert_allclose(sorted(targets.tolist()), sorted(expected), rtol=1e-6)


def test_partial_news_has_a_name_of_its_own(root, monkeypatch, caplog):
    monkeypatch.setattr(NewsPartial, "shape", (50, 63))
    frame = articles().assign(source="s", label_from="file")
    publish(monkeypatch, NewsPartial, csv(frame))
    put(root, "online_news", "OnlineNewsPopularity_partial.csv.gz", gzip.compress(csv(frame)))
    own = NewsPartial(root=str(root)).load()
    assert own.variant.startswith("news_partial")
    assert not own.substitute
    assert len(own.columns) == 58
    instead = News(root=str(root)).load()
    assert instead.substitute
    assert "in place of news" in instead.variant
    assert "SUBSTITUTE DATA" in caplog.text
    torch.testing.assert_close(instead.train.features, own.train.features)


def blog(rows=80):
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(rng.normal(size=(rows, 281)))
    frame[7] = 3.0  # constant
    frame[280] = np.r_[np.zeros(rows - 30), np.arange(30.0)]
    frame.loc[rows - 1, 280] = 258.0
    return frame


def put_blog(root, frame):
    names = ("blogData_test-a.csv", "blogData_test-b.csv", "blogData_train.csv")
    parts = dict(zip(names, np.array_split(frame.index, 3), strict=True))
    members = {
        name: frame.loc[rows].to_csv(index=False, header=False) for name, rows in parts.items()
    }
    return archive(root, "BlogFeedback.zip", members)


def test_blog_drops_the_largest_targets_and_constant_columns(root, monkeypatch):
    monkeypatch.setattr(Blog, "shape", (80, 281))
    put_blog(root, blog())
    table = Blog(root=str(root)).load()
    assert len(table.columns) == 279
    assert "7" not in table.columns
    targets = torch.cat([part.targets for part in (table.train, table.valid, table.test)])
    assert len(targets) == 72  # of 80, without the largest 8
    assert ((targets * 21).round() == 2).sum() == 1  # 21 is the largest that is kept
    released = Blog(root=str(root), conventions="released").load()
    targets = torch.cat([part.targets for part in (released.train, released.valid, released.test)])
    assert ((targets * 20).round() == 2).sum() == 2  # 258 counts as 2, and 20 is the largest
    assert released.fingerprint != table.fingerprint
    assert (table.variant, released.variant) == ("blog", "blog, targets modulo 256")
    with pytest.raises(ValueError, match="correct or released, got 'authors'"):
        Blog(conventions="authors")


@pytest.mark.slow
def test_adult_and_blog_as_their_publisher_split_them(root, monkeypatch):
    put_adult(root, monkeypatch, adult(LINES * 5, "."))
    monkeypatch.setattr(Blog, "shape", (80, 281))
    frame = blog()
    put_blog(root, frame)  # the 54 first rows are in files to test on
    for loader, trained, tested in [(Adult, 20, 10), (Blog, 18, 54)]:
        table = loader(root=str(root), split="published").load()
        assert (len(table.train) + len(table.valid), len(table.test)) == (trained, tested)
        assert table.variant == f"{loader.name}, split as published"
        other = loader(root=str(root)).load()
        assert len(other.test) == round(0.2 * (trained + tested))
        with pytest.raises(ValueError, match="random or published, got 'theirs'"):
            loader(split="theirs")
    targets = sorted((table.test.targets * 21).round().tolist())
    assert targets == sorted(np.clip(frame[280][:54], 0, 21).tolist())


# Files that are not the published ones.


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (compas().drop(columns="age"), "expected the columns age too, found other_0, "),
        (compas(59), "expected 60 rows of 53 columns, found 59 rows of 53 columns"),
        (compas().assign(more=1), "expected 60 rows of 53 columns, found 60 rows of 54 columns"),
    ],
)
def test_other_columns_or_rows_say_what_was_expected(root, monkeypatch, frame, message):
    monkeypatch.setattr(COMPAS, "shape", (60, 53))
    publish(monkeypatch, COMPAS, csv(frame))
    path = put(root, "compas", "compas-scores-two-years.csv", csv(frame))
    with pytest.raises(DamagedFileError, match=message) as caught:
        COMPAS(root=str(root)).load()
    assert str(path) in str(caught.value)


def test_damaged_files_are_errors_and_are_not_replaced(root, monkeypatch):
    monkeypatch.setattr(Blog, "shape", (80, 281))
    path = put_blog(root, blog())
    path.write_bytes(path.read_bytes()[:-100])
    whole = gzip.compress(csv(compas()))
    put(root, "compas", "compas-scores-two-years.csv.gz", whole[: len(whole) // 2])
    put(root, "adult", "adult.data", b"39, State-gov\n")
    archive(root, "OnlineNewsPopularity.zip", {"other.csv": b"a,b\n"})
    for loader, message in [
        (Blog, "cannot be read"),
        (COMPAS, "cannot be read"),
        (Adult, "expected md5 5d7c39d7"),
        (News, "cannot be read.*OnlineNewsPopularity.csv"),
    ]:
        with pytest.raises(DamagedFileError, match=message):
            loader(root=str(root)).load()


@pytest.mark.parametrize("loader", LOADERS)
def test_missing_files_are_replaced_out_loud_or_refused(root, caplog, loader):
    table = loader(root=str(root)).load()
    assert table.substitute
    kind = "breast cancer" if loader.binary else "diabetes"
    assert table.variant == f"scikit-learn's {kind}, in place of {loader.name}"
    assert "SUBSTITUTE DATA" in caplog.text
    with pytest.raises(MissingFileError, match="no network|cannot be downloaded"):
        loader(root=str(root), strict=True).load()


# Splits.


def test_splits_are_disjoint_random_and_of_the_stated_size():
    """The 6,172 rows are split into 4,889 for training, 49 held out and 1,234 for testing."""
    features = np.arange(6_172.0)[:, None]
    targets = features[:, 0] / 6_171
    table = split(features, targets, ("row",), "rows", seed=0)
    sizes = [len(part) for part in (table.train, table.valid, table.test)]
    assert sizes == [4_889, 49, 1_234]
    rows = torch.cat([part.targets for part in (table.train, table.valid, table.test)]) * 6_171
    assert rows.round().long().sort().values.tolist() == list(range(6_172))
    other = split(features, targets, ("row",), "rows", seed=1)
    assert other.fingerprint != table.fingerprint
    again = split(features, targets, ("row",), "rows", seed=0)
    assert again.fingerprint == table.fingerprint
    assert split(features, targets, ("row",), "other", seed=0).fingerprint != table.fingerprint
    some = split(features, targets, ("row",), "rows", seed=0, limit=100)
    assert (some.variant, len(some.test)) == ("rows, 100 of 6,172 rows", 20)


def test_features_are_standardised_by_the_training_rows():
    rng = np.random.default_rng(3)
    features = np.column_stack([rng.normal(5, 3, 200), np.full(200, 0.1), np.zeros(200)])
    order = split(features, np.zeros(200), ("a", "b", "c"), "rows", seed=0)
    train, test = order.train.features, order.test.features
    torch.testing.assert_close(train.mean(0), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(train.std(0), torch.tensor([1.0, 0.0, 0.0]))
    assert (test[:, 1:] == 0).all()
    assert test.mean(0)[0].abs() > 1e-4  # control: not by the test rows


def test_features_are_mapped_to_the_unit_interval_by_the_training_rows():
    rng = np.random.default_rng(3)
    features = np.column_stack([rng.normal(5, 3, 200), np.full(200, 0.1), np.arange(200) % 2])
    order = split(features, np.zeros(200), ("a", "b", "c"), "rows", seed=0, normalise="unit")
    train, test = order.train.features, order.test.features
    assert (train.amin(0).tolist(), train.amax(0).tolist()) == ([0, 0, 0], [1, 0, 1])
    assert (test[:, 1] == 0).all()
    standard = split(features, np.zeros(200), ("a", "b", "c"), "rows", seed=0).test.features
    both = np.corrcoef(test[:, 0], standard[:, 0])  # the same rows, in other units
    assert both[0, 1] == pytest.approx(1)
    assert set(test[:, 2].tolist()) == {0, 1}


@pytest.mark.parametrize("loader", LOADERS)
def test_a_normalisation_is_named_in_the_variant_or_refused(root, loader):
    plain, unit = (loader(root=str(root), normalise=how).load() for how in (None, "unit"))
    assert unit.variant == f"{plain.variant}, features in [0, 1]"
    assert unit.train.features.aminmax() == (0, 1)
    assert plain.train.features.min() < 0
    assert (unit.test.targets == plain.test.targets).all()
    with pytest.raises(ValueError, match="normalise must be null, .* or unit, .*, got 'minmax'"):
        loader(normalise="minmax")


@pytest.mark.parametrize("normalise", [None, "unit"])
def test_a_column_that_is_constant_among_training_rows_alone_is_0(normalise):
    features, targets = np.zeros((50, 1)), np.arange(50) / 49
    plain = split(features, targets, ("a",), "rows", seed=0)
    held = round(49 * float(plain.test.targets[0]))  # a row of the test part
    features[held] = 7
    changed = split(features, targets, ("a",), "rows", seed=0, normalise=normalise)
    assert (changed.test.features == 0).all()


@pytest.mark.parametrize("loader", LOADERS)
def test_a_limit_leaves_rows_to_validate_on(root, loader):
    for limit in (-5, 0, 60, 99):
        with pytest.raises(ValueError, match=f"at least 100 rows, .* or null .*, got {limit}"):
            loader(limit=limit)
    parts = loader(root=str(root), limit=100).load()
    assert (len(parts.train), len(parts.valid), len(parts.test)) == (79, 1, 20)


# The real files.


@pytest.mark.slow
@real_data
@pytest.mark.parametrize(
    ("loader", "settings", "sizes", "columns"),
    [
        (COMPAS, {}, (4_889, 49, 1_234), 13),
        (Adult, {}, (35_816, 362, 9_044), 88),
        (Adult, {"split": "published"}, (29_860, 302, 15_060), 88),
        (NewsPartial, {}, (19_290, 195, 4_871), 58),
        (Blog, {}, (43_016, 435, 10_863), 276),
        (Blog, {"split": "published"}, (46_814, 473, 7_027), 276),
    ],
)
def test_the_real_tables(loader, settings, sizes, columns):
    table = loader(strict=True, **settings).load()
    assert not table.substitute
    assert tuple(len(part) for part in (table.train, table.valid, table.test)) == sizes
    assert table.train.features.shape[1] == len(table.columns) == columns
    assert table.train.features.dtype == table.train.targets.dtype == torch.float32
    for part in (table.train, table.test):
        assert part.features.isfinite().all()
        assert ((part.targets >= 0) & (part.targets <= 1)).all()


@pytest.mark.slow
@real_data
@pytest.mark.parametrize(
    ("loader", "words", "pages"),
    [
        (COMPAS(), "{} of the {:,} test rows of COMPAS", ("table2", "table4")),
        (Adult(), "of Adult {} of {:,}", ("table2", "table4")),
        (Blog(), "Blog's random split {} of {:,}", ("table2", "table4")),
        (Blog(split="published"), "of its published split {} of {:,}", ("table2", "table4")),
        (Caltech(), "{} of the {:,} test rows of Caltech", ("table1",)),
    ],
    ids=("compas", "adult", "blog", "blog-published", "caltech"),
)
def test_the_pages_say_how_many_test_rows_are_training_rows(loader, words, pages):
    data = loader.load()
    images = isinstance(loader, Caltech)
    count = rows_among(data.test, data.train) if images else count_repeated(data)
    for name in pages:
        note = (CONF.parent / f"docs/results/notes/{name}.md").read_text()
        assert words.format(count, len(data.test)) in " ".join(note.split())
