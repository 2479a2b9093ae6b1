"""Sentences with blanks, and their references."""

import json
import lzma
import os
from pathlib import Path

import numpy as np
import pytest

from latticework.data.files import DamagedFileError, MissingFileError
from latticework.data.sentences import (
    Blanks,
    Sentences,
    blanks_of,
    eligible,
    normalise,
)

FOLDER = "bert_gen_sentences"


@pytest.fixture
def root(tmp_path):
    """Made-up files: sentences of 10 to 29 words, and one of 20 with an unknown word."""
    (tmp_path / FOLDER).mkdir()
    for name in ("tbc.5k.txt", "wiki103.5k.txt"):
        rng = np.random.default_rng(len(name))
        lines = [
            " ".join(["The", *(f"w{i}" for i in rng.integers(50, size=8 + k % 20)), "."])
            for k in range(100)
        ]
        lines.append(" ".join(["A", *["@@UNKNOWN@@"] * 18, "."]))
        (tmp_path / FOLDER / name).write_text("\n".join([*lines, "", lines[7]]) + "\n")
    (tmp_path / "reviews").mkdir()
    with lzma.open(tmp_path / "reviews" / "imdb_labelled_50k.jsonl.xz", "wt") as file:
        for i in range(200):
            text = f"Review number {i} is long.<br />It has two sentences!"
            file.write(json.dumps({"text": text}) + "\n")
    return str(tmp_path)


def test_lines_become_the_papers_words():
    words = ('"', "i", "'m", "here", ",", '"', "he", "said", ".")
    assert normalise("`` I 'm here , '' He said .") == words
    assert normalise("The @@UNKNOWN@@ of 7 @.@ 5") == ("the", "[UNK]", "of", "7", "@.@", "5")
    assert [eligible(("a",) * n) for n in (14, 15, 25, 26)] == [False, True, True, False]


def test_sentences_are_drawn_and_masked_by_the_rules(root):
    data = Sentences(count=20, root=root, seed=3).load()
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


def test_the_seed_names_the_draw(root):
    first, again, other = (Sentences(root=root, seed=seed).load() for seed in (0, 0, 1))
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


def test_files_of_another_size_are_named_by_what_they_hold(root):
    found = "102 sentences of tbc and 102 sentences of wt103"
    assert Sentences(root=root).load().variant == found


def test_too_few_sentences_are_refused(root):
    """The made-up files have 55 different sentences that may be drawn, and all of them are."""
    assert len(Sentences(root=root, count=110).load().blanks) == 110
    with pytest.raises(ValueError, match="count=112 needs 56 sentences of tbc .* 55 are such"):
        Sentences(root=root, count=112).load()


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xff\xfe"], ids=["empty", "blank", "binary"])
def test_a_file_without_sentences_is_damaged(root, content):
    path = Path(root) / FOLDER / "tbc.5k.txt"
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"tbc\.5k\.txt"):
        Sentences(root=root).load()


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
