"""Task: fill the blanks of sentences and score the results (Zhang et al. 2022, Table 3).

The scores are BLEU and unique n-grams (A. Wang and K. Cho, "BERT has a mouth, and it must speak",
2019). A sentence is a sequence of words. BLEU-4 equals NLTK's bit for bit (K. Papineni et al., ACL
2002: unsmoothed, pooled over the sentences, with the closest reference length). BLEU clips the
count of an n-gram at its largest count in any reference. NLTK computes these counts again for each
sentence; here they are computed once.
"""

import logging
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import torch
from nltk.translate.bleu_score import brevity_penalty
from nltk.util import ngrams
from torch import Generator, Tensor

from latticework.data.base import Dataset
from latticework.data.sentences import Blanks, Infilling, blanks_of
from latticework.experiments.records.estimates import Better, KeyNumber
from latticework.experiments.records.record import Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.target import Validity, warn_of_invalid_steps
from latticework.models.abilities import FillsBlanks
from latticework.models.distributions import draw_categorical, softmax_weights
from latticework.models.domains import one_hot
from latticework.samplers.base import Sampler
from latticework.sampling.chain import run_chain
from latticework.sampling.loop_state import LoopState
from latticework.sampling.metrics import Acceptance, Changed

log = logging.getLogger(__name__)
Sentence = Sequence[str]
ORDERS = (1, 2, 3, 4)  # of n-grams


@dataclass(eq=False)
class Filling(LoopState):
    generated: list[dict[str, Any]] = field(default_factory=list)  # an entry a sentence


def text_infilling(
    *,
    model: Any,
    sampler: Sampler,
    data: Infilling,
    run: Run,
    chains: int,
    steps: int,
    keep: int,
    start: Callable[..., Tensor],
    text: str | Sequence[str] | None = None,
) -> None:
    """Run `chains` chains for `steps` steps on each sentence; score the `keep` likeliest.

    `model` is a target with `with_blanks(sentence, positions)`, such as
    models.infilling.TextInfilling.
    `text` replaces the sentences of the data: one sentence with [MASK] at its blanks, or several.

    metrics.csv has a row for each sentence. In run.json, `generated` holds the sentences, the
    masked positions and the words of every chain; `scores` the columns of Table 3 for the kept
    sentences, and their perplexity: exp of minus the mean of log f over the written words.

    Raises ValueError for another kind of model or data.
    """
    if not isinstance(model, FillsBlanks) or not isinstance(data, Infilling):
        raise ValueError(
            "task=text_infilling needs a masked language model, such as model=mini_bert, and "
            f"data=sentences, got {type(model).__name__} and {type(data).__name__}"
        )
    own = [text] if isinstance(text, str) else text
    blanks = data.blanks if own is None else [blanks_of(sentence) for sentence in own]
    if min(keep, chains) * len(blanks) < 2:
        raise ValueError(
            f"self-BLEU compares two sentences or more, and one is kept: give task.keep={keep} and "
            "task.chains two or more, or several sentences"
        )
    language = model.language
    used = {"asked": language.asked, "used": language.name, "substitute": language.substitute}
    run.note(language=used)
    memory, metrics = Filling(), (Acceptance(), Changed(), Validity())
    for number in run.resumable(memory, "sentences", total=len(blanks)):
        blank = blanks[number - 1]
        target = model.with_blanks(blank.words, blank.masked).to(run.device)
        x = start(target, chains, run.rng(f"start {number}"), None)
        kernel, rng = run.select_kernel(sampler, target, metrics), run.rng(f"chain {number}")
        *_, last = run_chain(kernel, target, x, rng, steps=steps, every=steps, metrics=metrics)
        warn_of_invalid_steps(run, last.carries[-1], steps)
        written, log_prob = ranked(target, last.state.x)
        memory.generated.append(
            {
                "words": list(blank.words), "masked": list(blank.masked), "origin": blank.origin,
                "written": written, "log_prob": log_prob,
            }
        )  # fmt: skip
        run.log(
            number,
            sites=len(blank.masked),
            log_prob=sum(log_prob) / chains,
            kept_log_prob=sum(log_prob[:keep]) / len(log_prob[:keep]),
            distinct=len({tuple(words) for words in written}),
            **last.values,
        )
    sentences = sentences_of(memory.generated, keep)
    found = scores(sentences, data.references)
    found["perplexity"] = perplexity(memory.generated, keep)
    run.note(generated=memory.generated, keep=keep, scores=found)
    for sentence in sentences[: 2 * keep]:
        log.info("%s", " ".join(sentence))


def headline(record: Record) -> list[KeyNumber]:
    """Diversity and quality of the kept sentences; percent, except the perplexity."""
    better: dict[str, Better] = {
        "self_bleu": "lower", "self_2": "higher", "corpus_bleu": "higher", "perplexity": "lower"
    }  # fmt: skip
    scores = record.document["scores"]
    return [KeyNumber(name, scores[name], better=side) for name, side in better.items()]


@torch.no_grad()
def ranked(target: Any, x: Tensor) -> tuple[list[list[str]], list[float]]:
    """The words of each chain, likeliest first, and sum_i log f with each blank masked in turn."""
    log_prob = target.log_likelihood(x)
    order = log_prob.argsort(descending=True)
    return target.words(x[order]), log_prob[order].tolist()


def sentences_of(generated: Sequence[dict[str, Any]], keep: int) -> list[tuple[str, ...]]:
    """The `keep` likeliest sentences of each entry."""
    filled = []
    for entry in generated:
        blank = Blanks(tuple(entry["words"]), tuple(entry["masked"]), entry["origin"])
        filled += [blank.filled(words) for words in entry["written"][:keep]]
    return filled


def perplexity(generated: Sequence[dict[str, Any]], keep: int) -> float:
    """Perplexity of the words at the blanks of the kept sentences, under the model itself."""
    nats = -sum(sum(entry["log_prob"][:keep]) for entry in generated)
    words = sum(len(entry["masked"]) * len(entry["log_prob"][:keep]) for entry in generated)
    return math.exp(nats / words)


def from_blanks(model: Any, chains: int, rng: Generator, data: Dataset | None) -> Tensor:
    """Start: independent words from the language model's conditionals with all blanks masked."""
    with torch.no_grad():
        weights = softmax_weights(model.blank_log_probs()).expand(chains, -1, -1)
    return one_hot(draw_categorical(weights, rng).squeeze(-1), weights.shape[-1]).float()


# Scores of sentences.


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
    return _pooled((sentence, references) for sentence in sentences)


def self_bleu(sentences: Sequence[Sentence]) -> float:
    """Corpus BLEU-4, in percent, of each sentence against all others. Diverse sentences score low.

    Raises ValueError for fewer than two sentences.
    """
    if len(sentences) < 2:
        raise ValueError(f"self-BLEU needs two sentences or more, got {len(sentences)}")
    return _pooled(
        (sentence, References([*sentences[:i], *sentences[i + 1 :]]))
        for i, sentence in enumerate(sentences)
    )


def _pooled(pairs: Iterable[tuple[Sentence, References]]) -> float:
    """Corpus BLEU-4, in percent, of pairs of a sentence and its references."""
    matched, total = dict.fromkeys(ORDERS, 0), dict.fromkeys(ORDERS, 0)
    own = closest = 0
    for sentence, references in pairs:
        own += len(sentence)
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
    return 100 * brevity_penalty(closest, own) * math.exp(mean)


def unique(sentences: Sequence[Sentence], n: int, references: References | None = None) -> float:
    """Percentage of unique n-grams among all n-grams of the sentences.

    An n-gram is unique if it occurs once. With `references`, distinct n-grams that are in none of
    the references are counted instead.
    """
    counts = Counter(gram for sentence in sentences for gram in ngrams(sentence, n))
    if references is None:
        found = sum(count == 1 for count in counts.values())
    else:
        found = sum(gram not in references.most for gram in counts)
    return 100 * found / max(1, sum(counts.values()))


def scores(
    sentences: Sequence[Sentence], references: Mapping[str, Sequence[Sentence]]
) -> dict[str, float]:
    """The columns of Table 3, in percent: self-BLEU, unique n-grams by reference, corpus BLEU.

    Corpus BLEU uses the references of all corpora together.
    """
    found = {"self_bleu": self_bleu(sentences)}
    tables = {name: References(kept) for name, kept in references.items()}
    for name, table in {"self": None, **tables}.items():
        found |= {f"{name}_{n}": unique(sentences, n, table) for n in (2, 3)}
    everything = References(sentence for kept in references.values() for sentence in kept)
    return found | {"corpus_bleu": bleu(sentences, everything)}
