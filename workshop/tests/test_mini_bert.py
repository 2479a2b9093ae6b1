"""Training of the small masked language model: its corpus, word pieces, what is masked, batches."""

import lzma
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import workshop.mini_bert.training as training
from latticework.data.files import DamagedFileError
from latticework.data.sentences import Sentences, normalise
from latticework.experiments.runs.run import Run
from latticework.models.masked_lm import MaskedLM, untrained
from tests.made_texts import SENTENCES, write_texts
from workshop.mini_bert.corpus import Corpus, Text, sentences_of
from workshop.mini_bert.training import corrupt, main, pad, plan_batches, rate
from workshop.mini_bert.word_pieces import (
    SPECIAL,
    Encoded,
    encode,
    learn_vocabulary,
    make_tokenizer,
)

SMALL = "--updates 4 --tokens 64 --every 2 --sentences 5 --vocabulary 60 --hidden 8 --layers 1"


@pytest.fixture
def root(tmp_path):
    write_texts(tmp_path)
    return str(tmp_path)


# The corpus.


@pytest.mark.skipif(not os.environ.get("LATTICEWORK_DATA"), reason="needs the real files")
def test_the_real_files():
    text = Corpus(strict=True, limit=5).load()
    assert text.variant == "reviews (imdb) and reference sentences (tbc, wt103)"


def test_files_of_another_size_are_named_by_what_they_hold(root):
    sizes = "102 sentences of tbc and 102 sentences of wt103"
    corpus = "reviews (imdb{}) and reference sentences ({})"
    assert Corpus(root=root).load().variant == corpus.format(", 200 reviews", sizes)
    assert Corpus(root=root, limit=200).load().variant == corpus.format("", sizes)
    assert Corpus(root=root, limit=300).load().variant == corpus.format(", 200 reviews", sizes)


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xff\xfe"], ids=["empty", "blank", "binary"])
def test_a_file_without_sentences_is_damaged(root, content):
    (Path(root) / SENTENCES / "tbc.5k.txt").write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"tbc\.5k\.txt"):
        Corpus(root=root).load()


@pytest.mark.parametrize(
    "content", [lzma.compress(b'{"text": "A cat."}\n' * 99)[:60] + b"junk", lzma.compress(b"{}\n")]
)
def test_a_corrupt_file_of_texts(content, tmp_path):
    file = tmp_path / "texts.jsonl.xz"
    file.write_bytes(content)
    message = rf"{file} \({len(content)} bytes\) is damaged: it cannot be read \("
    with pytest.raises(DamagedFileError, match=message):
        Corpus(files=[str(file)]).load()


def test_a_corpus_that_cannot_be_split_is_refused(tmp_path):
    file = tmp_path / "own.txt"
    file.write_text("One line of five words.\n")
    with pytest.raises(ValueError, match="1 texts with 0 sentences of 4 to 80 words to train on"):
        Corpus(files=[str(file)]).load()
    with pytest.raises(ValueError, match="limit must be at least 2 texts, .* got -5"):
        Corpus(limit=-5)
    with pytest.raises(ValueError, match="held_out must be between 0 and 1, got 1"):
        Corpus(held_out=1)


def test_the_corpus_never_holds_what_may_be_drawn(root):
    text = Corpus(root=root, repeats=3).load()
    trained = set(text.train)
    for seed in range(5):
        for blank in Sentences(root=root, seed=seed).load().blanks:
            assert " ".join(blank.words) not in trained
            assert " ".join(blank.words) in text.held_out[blank.origin]
    lines = (Path(root) / SENTENCES / "tbc.5k.txt").read_text().splitlines()
    others = {" ".join(words) for words in map(normalise, lines) if len(words) == 10}
    assert others
    assert all(text.train.count(sentence) == 3 for sentence in others)
    assert len(text.held_out["reviews"]) == 4  # one review in a hundred, of two sentences each
    assert not set(text.held_out["reviews"]) & trained - {"It has two sentences!"}


def test_a_corpus_of_ones_own_files(tmp_path):
    file = tmp_path / "own.txt"
    file.write_text("\n".join(f"Line {i} has five words. And here is another." for i in range(50)))
    text = Corpus(files=[str(file)], held_out=0.1, limit=20).load()
    assert len(text.train) == 36
    assert len(text.held_out["corpus"]) == 4
    assert text.variant == "sentences of own.txt"


def test_texts_are_cut_into_sentences():
    text = 'He said "no way!" Then he left.<br /><br />I (really) liked it. Ok. Mr. x went to it?'
    assert list(sentences_of([text])) == [
        'He said "no way!"', "I (really) liked it.", "x went to it?"
    ]  # fmt: skip


def test_a_vocabulary_is_learned_and_sentences_are_cut_to_length():
    vocabulary = learn_vocabulary(["Unbelievable things happened there"] * 5, 60)
    assert tuple(vocabulary[:5]) == SPECIAL
    assert "things" in vocabulary
    tokenizer = make_tokenizer(vocabulary)
    corpus = encode(tokenizer, ["things happened", "there " * 30], 8)
    first, second = (corpus.tokens[corpus.starts[i] : corpus.starts[i + 1]] for i in (0, 1))
    assert tokenizer.decode(first.tolist()) == "things happened"
    assert (first[0], first[-1], len(second)) == (2, 3, 8)


# Training.


def test_tokens_are_masked_as_bert_was_trained():
    rng = torch.Generator().manual_seed(0)
    batch = torch.randint(5, 100, (200, 50), generator=rng)
    batch[:, 0], batch[:, -1], batch[::2, -2] = 2, 3, 0
    shown, chosen = corrupt(batch, 0.2, 100, rng)
    words = batch >= 5
    assert not (chosen & ~words).any()
    assert torch.equal(shown[~chosen], batch[~chosen])
    n = int(words.sum())
    assert abs(float(chosen.sum()) - 0.2 * n) < 5 * (0.16 * n) ** 0.5
    kept, masked = shown[chosen] == batch[chosen], shown[chosen] == 4
    count = int(chosen.sum())
    assert abs(float(masked.sum()) - 0.8 * count) < 5 * (0.16 * count) ** 0.5
    same = 0.1 + 0.1 / 95  # a random token may be the same
    assert abs(float(kept.sum()) - same * count) < 5 * (same * (1 - same) * count) ** 0.5
    assert int(shown.min()) >= 0


def test_a_pass_takes_every_sentence_once_in_batches_of_a_size(tmp_path):
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 20, size=500)
    corpus = Encoded(
        rng.integers(5, 50, size=lengths.sum()), np.concatenate([[0], lengths.cumsum()])
    )
    plan = plan_batches(corpus, 100, 1, Run(tmp_path))
    assert sorted(torch.cat(plan).tolist()) == list(range(500))
    sizes = [pad(corpus, rows).numel() for rows in plan]
    assert max(sizes) <= 100
    assert lengths.sum() / sum(sizes) > 0.9  # little padding
    again, other = (plan_batches(corpus, 100, n, Run(tmp_path)) for n in (1, 2))
    assert all(map(torch.equal, plan, again))
    assert not all(map(torch.equal, plan, other))


def test_the_learning_rate_rises_and_falls():
    assert [rate(p, 0.1) for p in (0.05, 0.1, 0.55, 1.0)] == pytest.approx([0.5, 1, 0.5, 0])


def test_held_out_sentences_train_neither_the_vocabulary_nor_the_weights(tmp_path, monkeypatch):
    learned_from = []

    def learn(sentences, size):
        learned_from.append(list(sentences))
        return [*SPECIAL, "one", "two", "three", "four", "five"]

    monkeypatch.setattr(training, "learn_vocabulary", learn)
    train = ["one two three", "two three four", "five one"] * 4

    def losses(name, held_out):
        run = Run(tmp_path / name, outputs=tmp_path / name)
        run.path.mkdir()
        torch.manual_seed(0)
        bert = untrained(10, hidden=8, layers=1, heads=1, positions=16)
        data = Text(train, {"held": held_out}, "made up")
        training.train(bert, data, run, updates=2, tokens=40, every=1, sentences=40)
        return pd.read_csv(run.path / "metrics.csv")

    first = losses("a", ["one two three four five"] * 20)
    other = losses("b", ["five five", "four four"] * 20)
    assert first["loss"].tolist() == other["loss"].tolist()
    assert (first["held_perplexity"] != other["held_perplexity"]).all()  # control
    assert learned_from == [train, train]


def test_the_command_trains_a_model_that_can_be_loaded_and_resumes(root, tmp_path, monkeypatch):
    """A second call after the first has been broken off ends with the same weights."""
    monkeypatch.setenv("LATTICEWORK_DATA", root)
    words = [*SMALL.split(), "--strict"]
    main([*words, "--to", str(tmp_path / "whole")])
    original, calls = training.update_once, []

    def broken_off(*given):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(1)
        return original(*given)

    monkeypatch.setattr(training, "update_once", broken_off)
    monkeypatch.setattr(training, "Run", lambda *a, **k: Run(*a, checkpoint=0.0, **k))
    half = ["--to", str(tmp_path / "half")]
    shutil.copytree(tmp_path / "whole" / "artifacts", tmp_path / "half" / "artifacts")
    with pytest.raises(KeyboardInterrupt):
        main([*words, *half])
    calls[:] = []
    main([*words, *half])
    assert len(calls) == 1  # the fourth update alone
    rows = [pd.read_csv(tmp_path / name / "metrics.csv") for name in ("whole", "half")]
    assert rows[0].equals(rows[1])
    model = MaskedLM(str(tmp_path / "half" / "model"))
    assert not model.substitute
    assert not (tmp_path / "half" / "checkpoints").exists()
