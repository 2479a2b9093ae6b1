"""Bags of words: stems, splits, what is kept and what stands in."""

import json
import lzma

import numpy as np
import pytest

from latticework.data.files import DamagedFileError, MissingFileError
from latticework.data.text import Reviews, bag_of_words, pieces

pytestmark = pytest.mark.usefixtures("root")

TEXTS = [
    f"common cats and {'rare' if i % 4 == 0 else 'often often'} dogs w{'x' * i}" for i in range(40)
]


WHOLE = [[text] for text in TEXTS]


def test_presence_of_the_commonest_stems():
    splits, stems = bag_of_words(WHOLE, 5, seed=0)
    assert [len(rows) for rows in splits] == [32, 4, 4]
    assert set(stems[:4]) == {"common", "cat", "and", "dog"}
    assert stems[4] == "often"  # repeats within a text do not count
    rows = np.concatenate(splits)
    assert (rows[:, :4] == 1).all()
    assert rows[:, 4].sum() == 30
    again, _ = bag_of_words(WHOLE, 5, seed=0)
    other, _ = bag_of_words(WHOLE, 5, seed=1)
    assert all(map(np.array_equal, splits, again))
    assert not all(map(np.array_equal, splits, other))
    with pytest.raises(ValueError, match="stems"):
        bag_of_words(WHOLE, 500, seed=0)


def test_a_large_corpus_has_the_splits_of_the_paper():
    splits, _ = bag_of_words((["one two"] for _ in range(110_000)), 2, seed=0)
    assert [len(rows) for rows in splits] == [80_000, 10_000, 10_000]


def test_a_review_is_cut_into_two_pieces_of_one_split(tmp_path):
    text = "It was good. Really!<br /><br />We ate. The bill came... Then home."
    assert pieces(text, 2) == ["It was good Really", "We ate The bill came"]
    assert pieces("One sentence only", 2) == ["One sentence only"]
    write(tmp_path, [4 * f"w{'x' * (i + 1)}. " for i in range(40)])
    data = Reviews(words=32, sentences=2, root=str(tmp_path), cache=str(tmp_path)).load()
    assert [len(part) for part in (data.train, data.valid, data.test)] == [64, 8, 8]
    assert "cut to 2 sentences" in data.variant
    assert not data.valid.any()  # the stems are those of training rows, and no text shares one
    with pytest.raises(ValueError, match="sentences must be at least 1"):
        Reviews(sentences=0)


def write(folder, texts=TEXTS):
    (folder / "reviews").mkdir(parents=True)
    file = folder / "reviews" / "imdb_labelled_50k.jsonl.xz"
    with lzma.open(file, "wt") as out:
        out.writelines(json.dumps({"text": text, "label": "pos"}) + "\n" for text in texts)
    return file


def test_the_cache_gives_what_the_file_gave(tmp_path):
    file = write(tmp_path / "data")
    loader = Reviews(words=5, root=str(tmp_path / "data"), cache=str(tmp_path / "cache"))
    first, second = loader.load(), loader.load()
    assert first.fingerprint == second.fingerprint
    assert first.shape == (5,)
    assert not first.substitute
    assert first.variant == (
        "reviews (imdb, in place of the unpublished OpenTable), Porter stems, 40 reviews"
    )
    assert len(list((tmp_path / "cache" / "reviews").iterdir())) == 1
    file.write_bytes(file.read_bytes()[:100])  # another size: the cache does not answer for it
    with pytest.raises(DamagedFileError, match="truncated"):
        loader.load()


def test_a_cache_that_cannot_be_written_is_not_needed(tmp_path, caplog):
    write(tmp_path / "data")
    (tmp_path / "cache").write_text("a file, where a folder should be")
    settings = {"words": 5, "root": str(tmp_path / "data")}
    found = Reviews(cache=str(tmp_path / "cache"), **settings).load()
    assert "has to read the reviews again" in caplog.text
    stored = Reviews(cache=str(tmp_path / "other"), **settings)
    assert stored.load().fingerprint == stored.load().fingerprint == found.fingerprint


def test_missing_reviews_are_replaced_out_loud_or_refused(tmp_path, caplog):
    data = Reviews(words=50, cache=str(tmp_path)).load()
    assert data.substitute
    assert "SUBSTITUTE" in caplog.text
    assert "help topics" in data.variant
    assert data.train.shape[1] == 50
    assert data.train.float().mean() > 0.02
    with pytest.raises(MissingFileError, match="imdb_labelled"):
        Reviews(cache=str(tmp_path), strict=True).load()
    with pytest.raises(ValueError, match="words must be at least 1"):
        Reviews(words=0)
