"""Text: bags of words, sentences with blanks and their references, BLEU and unique n-grams."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from made_texts import SENTENCES, write_reviews, write_texts
from nltk.translate.bleu_score import corpus_bleu

from latticework.data.files import DamagedFileError, MissingFileError
from latticework.data.sentences import Blanks, Sentences, blanks_of, eligible, normalise
from latticework.data.text import Reviews, bag_of_words, pieces
from latticework.experiments.records.estimates import published_estimate
from latticework.experiments.tasks.measures.text_scores import (
    References,
    bleu,
    scores,
    self_bleu,
    unique,
)

offline = pytest.mark.usefixtures("root")


# Bags of words: stems, splits, what is kept and what stands in.

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


@offline
def test_a_review_is_cut_into_two_pieces_of_one_split(tmp_path):
    text = "It was good. Really!<br /><br />We ate. The bill came... Then home."
    assert pieces(text, 2) == ["It was good Really", "We ate The bill came"]
    assert pieces("One sentence only", 2) == ["One sentence only"]
    write_reviews(tmp_path, [4 * f"w{'x' * (i + 1)}. " for i in range(40)])
    data = Reviews(words=32, sentences=2, root=str(tmp_path), cache=str(tmp_path)).load()
    assert [len(part) for part in (data.train, data.valid, data.test)] == [64, 8, 8]
    assert "cut to 2 sentences" in data.variant
    assert not data.valid.any()  # the stems are those of training rows, and no text shares one
    with pytest.raises(ValueError, match="sentences must be at least 1"):
        Reviews(sentences=0)


@offline
def test_the_cache_gives_what_the_file_gave(tmp_path):
    file = write_reviews(tmp_path / "data", TEXTS)
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


@offline
def test_a_cache_that_cannot_be_written_is_not_needed(tmp_path, caplog):
    write_reviews(tmp_path / "data", TEXTS)
    (tmp_path / "cache").write_text("a file, where a folder should be")
    settings = {"words": 5, "root": str(tmp_path / "data")}
    found = Reviews(cache=str(tmp_path / "cache"), **settings).load()
    assert "has to read the reviews again" in caplog.text
    stored = Reviews(cache=str(tmp_path / "other"), **settings)
    assert stored.load().fingerprint == stored.load().fingerprint == found.fingerprint


@offline
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


# Sentences with blanks, and their references.


@pytest.fixture
def sentence_files(tmp_path):
    write_texts(tmp_path)
    return str(tmp_path)


def test_lines_become_the_papers_words():
    words = ('"', "i", "'m", "here", ",", '"', "he", "said", ".")
    assert normalise("`` I 'm here , '' He said .") == words
    assert normalise("The @@UNKNOWN@@ of 7 @.@ 5") == ("the", "[UNK]", "of", "7", "@.@", "5")
    assert [eligible(("a",) * n) for n in (14, 15, 25, 26)] == [False, True, True, False]


def test_sentences_are_drawn_and_masked_by_the_rules(sentence_files):
    data = Sentences(count=20, root=sentence_files, seed=3).load()
    assert not data.substitute
    assert [blank.origin for blank in data.blanks] == ["tbc"] * 10 + ["wt103"] * 10
    assert len({blank.words for blank in data.blanks}) == 20
    for blank in data.blanks:
        assert eligible(blank.words)
        assert "[UNK]" not in blank.words
        assert len(blank.masked) == round(len(blank.words) / 4)
        assert 0 not in blank.masked
        assert len(blank.words) - 1 not in blank.masked
        assert list(blank.masked) == sorted(set(blank.masked))
    drawn = {blank.words for blank in data.blanks}
    kept = {sentence for sentences in data.references.values() for sentence in sentences}
    assert not drawn & kept
    assert [len(sentences) for sentences in data.references.values()] != [102, 102]
    assert all(len(sentences) >= 90 for sentences in data.references.values())


def test_the_seed_names_the_draw(sentence_files):
    first, again, other = (Sentences(root=sentence_files, seed=seed).load() for seed in (0, 0, 1))
    assert first.blanks == again.blanks
    assert first.fingerprint == again.fingerprint
    assert first.blanks != other.blanks
    assert first.fingerprint != other.fingerprint


def test_missing_files_are_replaced_out_loud_or_an_error(tmp_path, caplog):
    data = Sentences(root=str(tmp_path), count=4).load()
    assert data.substitute
    assert "help topics" in data.variant
    assert "SUBSTITUTE DATA" in caplog.text
    assert len(data.blanks) == 4
    with pytest.raises(MissingFileError, match="tbc.5k.txt"):
        Sentences(root=str(tmp_path), strict=True).load()


@pytest.mark.skipif(not os.environ.get("LATTICEWORK_DATA"), reason="needs the real files")
def test_the_real_files():
    data = Sentences(strict=True).load()
    assert [len(sentences) for sentences in data.references.values()] == [4990, 4990]
    assert not any("``" in s or "@@unknown@@" in s for s in data.references["tbc"])
    assert any("[UNK]" in s for s in data.references["wt103"])
    assert data.variant == "5,000 sentences each of tbc and wt103"


def test_files_of_another_size_are_named_by_what_they_hold(sentence_files):
    found = "102 sentences of tbc and 102 sentences of wt103"
    assert Sentences(root=sentence_files).load().variant == found


def test_too_few_sentences_are_refused(sentence_files):
    """The made-up files have 55 different sentences that may be drawn, and all of them are."""
    assert len(Sentences(root=sentence_files, count=110).load().blanks) == 110
    with pytest.raises(ValueError, match="count=112 needs 56 sentences of tbc .* 55 are fit"):
        Sentences(root=sentence_files, count=112).load()


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xff\xfe"], ids=["empty", "blank", "binary"])
def test_a_file_without_sentences_is_damaged(sentence_files, content):
    path = Path(sentence_files) / SENTENCES / "tbc.5k.txt"
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"tbc\.5k\.txt"):
        Sentences(root=sentence_files).load()


def test_a_sentence_of_ones_own():
    blank = blanks_of("The [MASK] cat sat on the [MASK].")
    assert blank.words == ("the", "[MASK]", "cat", "sat", "on", "the", "[MASK]", ".")
    assert blank.masked == (1, 6)
    assert blank.fill_blanks(["old", "mat"]) == ("the", "old", *blank.words[2:6], "mat", ".")
    with pytest.raises(ValueError, match=r"must hold one \[MASK\]"):
        blanks_of("The cat sat.")


def test_pieces_are_joined_to_the_word_before():
    blank = Blanks(("a", "b", "c", "d"), (1, 2), "test")
    assert blank.fill_blanks(["walk", "##ing"]) == ("a", "walking", "d")
    assert blank.fill_blanks(["##s", "x"]) == ("as", "x", "d")
    assert Blanks(("a", "b"), (0,), "test").fill_blanks(["##s"]) == ("##s", "b")
    with pytest.raises(ValueError, match="index below 2"):
        Blanks(("a", "b"), (2,), "test")


# BLEU and unique n-grams: against NLTK on chance sentences, and counted by hand.


def chance(rng, count, words, shortest=1, longest=12):
    return [
        tuple(f"w{i}" for i in rng.integers(words, size=rng.integers(shortest, longest + 1)))
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("seed", "words", "longest"), [(0, 3, 12), (1, 6, 9), (2, 40, 6), (3, 4, 3)]
)
def test_bleu_is_nltks_to_the_last_bit(seed, words, longest):
    """Also where short sentences have no four-gram, or none is matched."""
    rng = np.random.default_rng(seed)
    references, sentences = chance(rng, 60, words), chance(rng, 15, words, 1, longest)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NLTK's, of orders without a match
        expected = corpus_bleu([references] * len(sentences), sentences)
        others = [sentences[:i] + sentences[i + 1 :] for i in range(len(sentences))]
        expected_self = corpus_bleu(others, sentences)
    assert bleu(sentences, References(references)) == 100 * expected
    assert self_bleu(sentences) == 100 * expected_self


def test_unique_n_grams_by_hand():
    sentences = [("a", "b", "c"), ("a", "b", "d")]  # ab bc ab bd
    assert unique(sentences, 2) == 50  # bc and bd occur once
    assert unique(sentences, 3) == 100
    references = References([("x", "b", "c")])
    assert unique(sentences, 2, references) == 50  # ab and bd, each counted once, of four
    assert unique(sentences, 3, references) == 100
    assert unique([("a",)], 2) == 0


def test_the_columns_are_those_of_the_published_table():
    rng = np.random.default_rng(0)
    references = {"wt103": chance(rng, 20, 5), "tbc": chance(rng, 20, 9)}
    sentences = chance(rng, 8, 5, 4)
    found = scores(sentences, references)
    for name, value in found.items():
        assert published_estimate("table3", "bert_base", "dmala", name) is not None
        assert 0 <= value <= 100
    pooled = References([*references["wt103"], *references["tbc"]])
    assert found["corpus_bleu"] == bleu(sentences, pooled)
    assert found["tbc_2"] == unique(sentences, 2, References(references["tbc"]))
