"""Task: fill the blanks of sentences and score the results (Zhang et al. 2022, Table 3)."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor

from latticework.data import sentences as sentences_data
from latticework.data.base import Dataset
from latticework.experiments.records.estimates import Better, KeyNumber
from latticework.experiments.records.record import Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures.text_scores import scores
from latticework.experiments.tasks.measures.validity import Validity, warn_of_invalid_steps
from latticework.models.abilities import FillsBlanks
from latticework.models.distributions import draw_categorical, softmax_weights
from latticework.models.domains import one_hot
from latticework.samplers.base import Sampler
from latticework.sampling.chain import run_chain
from latticework.sampling.loop_state import LoopState
from latticework.sampling.metrics import Acceptance, Changed

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Filling(LoopState):
    generated: list[dict[str, Any]] = field(default_factory=list)  # an entry a sentence


def text_infilling(
    *,
    model: Any,
    sampler: Sampler,
    data: sentences_data.Infilling,
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
    if not isinstance(model, FillsBlanks) or not isinstance(data, sentences_data.Infilling):
        raise ValueError(
            "task=text_infilling needs a masked language model, such as model=mini_bert, and "
            f"data=sentences, got {type(model).__name__} and {type(data).__name__}"
        )
    given = [text] if isinstance(text, str) else text
    blanks = (
        data.blanks if given is None else [sentences_data.blanks_of(sentence) for sentence in given]
    )
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
        written, log_prob = rank_fillings(target, last.state.x)
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
    score_by_name = scores(sentences, data.references)
    score_by_name["perplexity"] = perplexity(memory.generated, keep)
    run.note(generated=memory.generated, keep=keep, scores=score_by_name)
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
def rank_fillings(target: Any, x: Tensor) -> tuple[list[list[str]], list[float]]:
    """The words of each chain, likeliest first, and sum_i log f with each blank masked in turn."""
    log_prob = target.log_likelihood(x)
    order = log_prob.argsort(descending=True)
    return target.words(x[order]), log_prob[order].tolist()


def sentences_of(generated: Sequence[dict[str, Any]], keep: int) -> list[tuple[str, ...]]:
    """The `keep` likeliest sentences of each entry."""
    filled = []
    for entry in generated:
        blank = sentences_data.Blanks(
            tuple(entry["words"]), tuple(entry["masked"]), entry["origin"]
        )
        filled += [blank.fill_blanks(words) for words in entry["written"][:keep]]
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
