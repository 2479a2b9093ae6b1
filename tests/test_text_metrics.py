"""BLEU and unique n-grams: against NLTK on chance sentences, and counted by hand."""

import warnings

import numpy as np
import pytest
from nltk.translate.bleu_score import corpus_bleu

from latticework.experiments.tasks.measures.text_scores import (
    References,
    bleu,
    scores,
    self_bleu,
    unique,
)


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
    from latticework.experiments.records.estimates import published_estimate

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
