"""Task: fill the blanks of sentences and score the results (Zhang et al. 2022, Table 3)."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Generator, Tensor

from latticework.data.base import Dataset
from latticework.data.sentences import Blanks, Infilling, blanks_of
from latticework.experiments.records.headline import KeyNumber
from latticework.experiments.records.record import Record
from latticework.experiments.runs.engine import for_engine
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures.nonfinite import Validity, watch
from latticework.experiments.tasks.measures.text import scores
from latticework.models.chance import draw_categorical, softmax_weights
from latticework.models.domain import one_hot
from latticework.samplers.base import Sampler
from latticework.sampling.chain import Reading, run_chain
from latticework.sampling.memory import Memory
from latticework.sampling.metrics import Acceptance, Changed

log = logging.getLogger(__name__)


@runtime_checkable
class Infills(Protocol):
    """A model of the words that fill the blanks of a sentence."""

    def given(self, *args: Any, **fields: Any) -> Any:
        """The target for one sentence, such as models.infilling.TextInfilling makes."""


@dataclass(eq=False)
class Filling(Memory):
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

    `model` is a target with `given(sentence, positions)`, such as models.infilling.TextInfilling.
    `text` replaces the sentences of the data: one sentence with [MASK] at its blanks, or several.

    metrics.csv has a row for each sentence. In run.json, `generated` holds the sentences, the
    masked positions and the words of every chain; `scores` the columns of Table 3 for the kept
    sentences, and their perplexity: exp of minus the mean of log f over the written words.

    Raises ValueError for another kind of model or data.
    """
    _check(model, data)
    own = [text] if isinstance(text, str) else text
    blanks = data.blanks if own is None else [blanks_of(sentence) for sentence in own]
    language = model.language
    run.note(
        language={
            "asked": language.asked, "used": language.name, "substitute": language.substitute
        }
    )  # fmt: skip
    memory = Filling()
    for number in run.resumable(memory, "sentences", total=len(blanks)):
        blank = blanks[number - 1]
        target = model.given(blank.words, blank.masked).to(run.device)
        x = start(target, chains, run.rng(f"start {number}"), None)
        reading = _filled(sampler, target, x, run, steps, number)
        entry = _entry(blank, target, reading.state.x)
        memory.generated.append(entry)
        log_prob, kept = entry["log_prob"], entry["log_prob"][:keep]
        run.log(
            number,
            sites=len(blank.masked),
            log_prob=sum(log_prob) / chains,
            kept_log_prob=sum(kept) / len(kept),
            distinct=len({tuple(words) for words in entry["written"]}),
            **reading.values,
        )
    _report(memory.generated, data, keep, run)


def headline(record: Record) -> list[KeyNumber]:
    """Diversity and quality of the kept sentences; percent, except the perplexity."""
    scores = record.document["scores"]
    return [
        KeyNumber("self_bleu", scores["self_bleu"], better="lower"),
        KeyNumber("self_2", scores["self_2"], better="higher"),
        KeyNumber("corpus_bleu", scores["corpus_bleu"], better="higher"),
        KeyNumber("perplexity", scores["perplexity"], better="lower"),
    ]


def _check(model: Any, data: Infilling) -> None:
    if not isinstance(model, Infills) or not isinstance(data, Infilling):
        raise ValueError(
            "task=text_infilling needs a masked language model, such as model=mini_bert, and "
            f"data=sentences, got {type(model).__name__} and {type(data).__name__}"
        )


def _filled(sampler: Sampler, target: Any, x: Tensor, run: Run, steps: int, number: int) -> Reading:
    """The last reading of chains of `target` from `x`."""
    metrics = Acceptance(), Changed(), Validity()
    rng = run.rng(f"chain {number}")
    sampler = for_engine(sampler, target, run, metrics)
    *_, last = run_chain(sampler, target, x, rng, steps=steps, every=steps, metrics=metrics)
    watch(run, last.carries[-1], steps)
    return last


def _entry(blank: Blanks, target: Any, x: Tensor) -> dict[str, Any]:
    """The stored entry of one sentence and the chains `x` on it, in JSON values."""
    written, log_prob = ranked(target, x)
    return {
        "words": list(blank.words), "masked": list(blank.masked), "origin": blank.origin,
        "written": written, "log_prob": log_prob,
    }  # fmt: skip


def _report(generated: list[dict[str, Any]], data: Infilling, keep: int, run: Run) -> None:
    """Score the kept sentences, note all of them, and show some."""
    sentences = sentences_of(generated, keep)
    found = scores(sentences, data.references)
    found["perplexity"] = perplexity(generated, keep)
    run.note(generated=generated, keep=keep, scores=found)
    for sentence in sentences[: 2 * keep]:
        log.info("%s", " ".join(sentence))


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
