"""Scores of sentences: BLEU and unique n-grams.

A. Wang and K. Cho, "BERT has a mouth, and it must speak", 2019. A sentence is a sequence of words.
BLEU-4 equals NLTK's bit for bit (K. Papineni et al., ACL 2002: unsmoothed, pooled over the
sentences, with the closest reference length). BLEU clips the count of an n-gram at its largest
count in any reference. NLTK computes these counts again for each sentence; here they are computed
once.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from nltk.translate.bleu_score import brevity_penalty
from nltk.util import ngrams

Sentence = Sequence[str]
ORDERS = (1, 2, 3, 4)  # lengths of n-grams


class References:
    """The n-grams of up to four words in a set of reference sentences, and their counts."""

    def __init__(self, sentences: Iterable[Sentence]) -> None:
        self.lengths: set[int] = set()
        self.most: dict[tuple[str, ...], int] = {}  # the most that one sentence holds
        for sentence in sentences:
            self.lengths.add(len(sentence))
            for n in ORDERS:
                for gram, count in Counter(ngrams(sentence, n)).items():
                    if count > self.most.get(gram, 0):
                        self.most[gram] = count
        if not self.lengths:
            raise ValueError("references must hold one sentence or more, got none")

    def closest_length(self, length: int) -> int:
        """The reference length closest to `length`; on ties the shorter one."""
        return min(self.lengths, key=lambda own: (abs(own - length), own))


def bleu(sentences: Sequence[Sentence], references: References) -> float:
    """Corpus BLEU-4, in percent, of sentences that all have the same references."""
    return _pool_bleu((sentence, references) for sentence in sentences)


def self_bleu(sentences: Sequence[Sentence]) -> float:
    """Corpus BLEU-4, in percent, of each sentence against all others. Diverse sentences score low.

    Raises ValueError for fewer than two sentences.
    """
    if len(sentences) < 2:
        raise ValueError(f"self-BLEU needs two sentences or more, got {len(sentences)}")
    return _pool_bleu(
        (sentence, References([*sentences[:i], *sentences[i + 1 :]]))
        for i, sentence in enumerate(sentences)
    )


def _pool_bleu(pairs: Iterable[tuple[Sentence, References]]) -> float:
    """Corpus BLEU-4, in percent, of pairs of a sentence and its references."""
    matched, total = dict.fromkeys(ORDERS, 0), dict.fromkeys(ORDERS, 0)
    length = closest = 0
    for sentence, references in pairs:
        length += len(sentence)
        closest += references.closest_length(len(sentence))
        for n in ORDERS:
            counts = Counter(ngrams(sentence, n))
            matched[n] += sum(min(c, references.most.get(g, 0)) for g, c in counts.items())
            total[n] += max(1, sum(counts.values()))
    if not matched[1]:
        return 0.0
    # As NLTK has it: without smoothing, an order without a match counts as the smallest float.
    precisions = [Fraction(matched[n], total[n]) or sys.float_info.min for n in ORDERS]
    mean = math.fsum(0.25 * math.log(precision) for precision in precisions)
    return 100 * brevity_penalty(closest, length) * math.exp(mean)


def unique(sentences: Sequence[Sentence], n: int, references: References | None = None) -> float:
    """Percentage of unique n-grams among all n-grams of the sentences.

    An n-gram is unique if it occurs once. With `references`, distinct n-grams that are in none of
    the references are counted instead.
    """
    counts = Counter(gram for sentence in sentences for gram in ngrams(sentence, n))
    if references is None:
        unique_count = sum(count == 1 for count in counts.values())
    else:
        unique_count = sum(gram not in references.most for gram in counts)
    return 100 * unique_count / max(1, sum(counts.values()))


def scores(
    sentences: Sequence[Sentence], references: Mapping[str, Sequence[Sentence]]
) -> dict[str, float]:
    """The columns of Table 3, in percent: self-BLEU, unique n-grams by reference, corpus BLEU.

    Corpus BLEU uses the references of all corpora together.
    """
    percent_by_name = {"self_bleu": self_bleu(sentences)}
    tables = {
        name: References(sentences_of_corpus) for name, sentences_of_corpus in references.items()
    }
    for name, table in {"self": None, **tables}.items():
        percent_by_name |= {f"{name}_{n}": unique(sentences, n, table) for n in (2, 3)}
    everything = References(
        sentence for sentences_of_corpus in references.values() for sentence in sentences_of_corpus
    )
    return percent_by_name | {"corpus_bleu": bleu(sentences, everything)}
