"""Task: fill the blanks of sentences, and score what was written (Zhang et al. 2022, Table 3)."""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from data.base import Dataset
from data.sentences import Blanks, Infilling, blanks_of
from experiments.chain import run_chain
from experiments.context import Run
from experiments.metrics import Acceptance, Changed
from experiments.text_metrics import scores
from experiments.validity import Validity, watch
from models.chance import draw_categorical, softmax_weights
from models.domain import one_hot
from samplers.base import Sampler

log = logging.getLogger(__name__)


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
    """Run `chains` chains for `steps` steps on each sentence; the `keep` likeliest are scored.

    `model` is a target with `given(sentence, positions)`, models.infilling.TextInfilling. `text` is
    a sentence of one's own with [MASK] at its blanks, or several, in place of the data's.

    A row of metrics.csv is a sentence. The record's `generated` holds the sentences, which words
    were masked, and what every chain wrote; `scores` the columns of Table 3, of the kept sentences,
    and their perplexity: exp of minus the mean of log f over the written words.

    Raises ValueError without such a model, or without sentences to compare with.
    """
    if not hasattr(model, "given") or not isinstance(data, Infilling):
        raise ValueError(
            "task=text_infilling needs a masked language model, such as model=mini_bert, and "
            f"data=sentences, got {type(model).__name__} and {type(data).__name__}"
        )
    own = [text] if isinstance(text, str) else text
    blanks = data.blanks if own is None else [blanks_of(sentence) for sentence in own]
    language = model.language
    run.note(
        language={
            "asked": language.asked, "used": language.name, "substitute": language.substitute
        }
    )  # fmt: skip
    memory: dict[str, list[dict[str, Any]]] = {"generated": []}
    for number in run.resumable(memory, "sentences", total=len(blanks)):
        blank = blanks[number - 1]
        target = model.given(blank.words, blank.masked).to(run.device)
        x = start(target, chains, run.rng(f"start {number}"), None)
        chain = run_chain(
            sampler,
            target,
            x,
            run.rng(f"chain {number}"),
            steps=steps,
            every=steps,
            metrics=(Acceptance(), Changed(), Validity()),
        )
        *_, reading = chain
        watch(run, reading.carries[-1], steps)
        written, log_prob = ranked(target, reading.state.x)
        memory["generated"].append(
            {
                "words": list(blank.words), "masked": list(blank.masked), "origin": blank.origin,
                "written": written, "log_prob": log_prob,
            }
        )  # fmt: skip
        kept = log_prob[:keep]
        run.log(
            number,
            sites=len(blank.masked),
            log_prob=sum(log_prob) / chains,
            kept_log_prob=sum(kept) / len(kept),
            distinct=len({tuple(words) for words in written}),
            **reading.values,
        )
    generated = memory["generated"]
    found = scores(sentences_of(generated, keep), data.references)
    found["perplexity"] = perplexity(generated, keep)
    run.note(generated=generated, keep=keep, scores=found)
    for sentence in sentences_of(generated, keep)[: 2 * keep]:
        log.info("%s", " ".join(sentence))


@torch.no_grad()
def ranked(target: Any, x: Tensor) -> tuple[list[list[str]], list[float]]:
    """What each chain wrote, the likeliest first, and sum_i log f with each blank masked."""
    log_prob = target.log_likelihood(x)
    order = log_prob.argsort(descending=True)
    return target.words(x[order]), log_prob[order].tolist()


def sentences_of(generated: Sequence[dict[str, Any]], keep: int) -> list[tuple[str, ...]]:
    """The `keep` likeliest sentences of each."""
    filled = []
    for entry in generated:
        blank = Blanks(tuple(entry["words"]), tuple(entry["masked"]), entry["origin"])
        filled += [blank.filled(words) for words in entry["written"][:keep]]
    return filled


def perplexity(generated: Sequence[dict[str, Any]], keep: int) -> float:
    """Of the words at the blanks of the kept sentences, under the model that wrote them."""
    nats = -sum(sum(entry["log_prob"][:keep]) for entry in generated)
    words = sum(len(entry["masked"]) * len(entry["log_prob"][:keep]) for entry in generated)
    return math.exp(nats / words)


def from_blanks(model: Any, chains: int, rng: Generator, data: Dataset | None) -> Tensor:
    """Start: each word drawn by itself from the language model's law with all blanks masked."""
    with torch.no_grad():
        weights = softmax_weights(model.blank_log_probs()).expand(chains, -1, -1)
    return one_hot(draw_categorical(weights, rng).squeeze(-1), weights.shape[-1]).float()
