"""Train a small BERT to predict masked words, as models/mini_bert was.

    python -m workshop.mini_bert.training              # one hour on one CPU core
    python -m workshop.mini_bert.training --files a.txt b.jsonl.xz

J. Devlin, M.-W. Chang, K. Lee and K. Toutanova, "BERT: Pre-training of Deep Bidirectional
Transformers for Language Understanding", NAACL 2019: a share of the tokens is chosen, of which 80 %
become [MASK], 10 % a random token and 10 % stay, and the model predicts the chosen tokens. Inputs
are single sentences, without next-sentence prediction. The WordPiece vocabulary is learned from the
same sentences. A batch holds a fixed number of tokens, in sentences of similar length.

The folder `--to` gets `model/`, in the hub's format, metrics.csv and checkpoints, from which the
same command resumes.
"""

import argparse
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from latticework.experiments.runs.run import Run
from latticework.experiments.runs.storage import load_or_make_artifact
from latticework.models.masked_lm import untrained
from latticework.sampling.loop_state import LoopState
from workshop.mini_bert.corpus import Corpus, Text
from workshop.mini_bert.word_pieces import (
    SPECIAL,
    Encoded,
    encode,
    export,
    learn_vocabulary,
    make_tokenizer,
)

PAD, MASK, FIRST = SPECIAL.index("[PAD]"), SPECIAL.index("[MASK]"), len(SPECIAL)
POOL_BATCHES = 64  # batches of a pool, within which sentences are sorted by length
TESTED_SHARE = 0.15  # share of the held-out tokens that are replaced by [MASK]
PREDICTED_SHARE = 0.2  # share of the training tokens
LEARNING_RATE = 0.0015  # the highest
WARM_UP = 0.05  # share of the updates in which the learning rate rises


def train(
    bert: Any, data: Text, run: Run, *, updates: int, tokens: int, every: int, sentences: int
) -> None:
    """Train `bert`, a BertForMaskedLM, by AdamW; the learning rate rises linearly, then falls to 0.

    A batch has `tokens` tokens, padding included. Every `every` updates, masked words of the first
    `sentences` sentences of each held-out set are predicted. Computes in bfloat16 where that is
    safe; the weights stay in single precision.
    """
    tokenizer = make_tokenizer(load_vocabulary(data, bert.config.vocab_size, run))
    longest = bert.config.max_position_embeddings
    batches = Batches(encode(tokenizer, data.train, longest), tokens, run)
    held_out = {}
    for name, held in data.held_out.items():
        held_out[name] = encode(tokenizer, held[:sentences], longest)
    loss = torch.zeros((), device=run.device)
    memory = MaskedTraining(bert, make_adamw(bert), batches, loss)
    bert.train()
    for update in run.resumable(memory, "training", total=updates):
        batch = batches.next()
        for group in memory.optimiser.param_groups:
            group["lr"] = LEARNING_RATE * rate(update / updates, WARM_UP)
        rng = run.shared_rng(f"masks of update {update}", device="cpu")
        memory.loss += update_once(memory, batch, rng, run)
        if update % every == 0 or update == updates:
            bert.eval()
            readings: dict[str, float] = {}
            for name, sequences in held_out.items():
                readings |= predict_held_out(bert, name, sequences, run, tokens)
            bert.train()
            run.log(update, loss=memory.loss / (update % every or every), **readings)
            memory.loss.zero_()
            export(bert, tokenizer, run.path / "model")


@dataclass(eq=False)
class MaskedTraining(LoopState):
    """All that an update changes. Each update has its own generator of masks."""

    model: Any  # BertForMaskedLM
    optimiser: torch.optim.Optimizer
    batches: "Batches"
    loss: Tensor  # sum since the last reading


@dataclass(init=False, eq=False)
class Batches(LoopState):
    """Batches of sentences, pass after pass. A checkpoint holds the pass and the place in it."""

    number: int  # number of the pass
    place: int  # batches taken of it

    def __init__(self, corpus: Encoded, tokens: int, run: Run) -> None:
        self.number, self.place = 0, 0
        self.corpus, self.tokens, self.run = corpus, tokens, run
        self.plan: list[Tensor] = []

    def next(self) -> Tensor:
        """The next batch, `[sentences, length]`."""
        if not self.plan and self.place:  # resumed in the middle of a pass
            self.plan = plan_batches(self.corpus, self.tokens, self.number, self.run)
        if self.place == len(self.plan):
            self.number, self.place = self.number + 1, 0
            self.plan = plan_batches(self.corpus, self.tokens, self.number, self.run)
        batch = pad(self.corpus, self.plan[self.place])
        self.place += 1
        return batch


def make_adamw(bert: Any) -> torch.optim.AdamW:
    """Weight decay for matrices, none for biases and scales."""
    decayed: list[Any] = []
    free: list[Any] = []
    for parameter in bert.parameters():
        (decayed if parameter.ndim > 1 else free).append(parameter)
    return torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": free, "weight_decay": 0.0}],
        lr=LEARNING_RATE,
        betas=(0.9, 0.98),
    )


def update_once(memory: MaskedTraining, batch: Tensor, rng: Generator, run: Run) -> Tensor:
    """One update on `batch`; the loss before it, in nats."""
    bert = memory.model
    x, chosen = corrupt(batch, PREDICTED_SHARE, bert.config.vocab_size, rng)
    with torch.autocast(run.device.type, dtype=torch.bfloat16):
        logits = predict(bert, x.to(run.device), chosen.to(run.device))
    loss = cross_entropy(logits.float(), batch[chosen].to(run.device))
    memory.optimiser.zero_grad()
    loss.backward()
    clip_grad_norm_(bert.parameters(), 1.0)
    memory.optimiser.step()
    return loss.detach()


def load_vocabulary(data: Text, size: int, run: Run) -> list[str]:
    """The vocabulary, learned once and stored: learning it twice gives different results."""

    def make() -> dict[str, Tensor]:
        text = "\n".join(learn_vocabulary(data.train, size))
        return {"text": torch.tensor(list(text.encode()), dtype=torch.uint8)}

    stored = load_or_make_artifact(
        run, "vocabulary", {"data": data.fingerprint, "size": size}, make
    )["text"]
    return bytes(stored.tolist()).decode().split("\n")


def rate(progress: float, warm_up: float) -> float:
    """The factor of the highest learning rate after the share `progress` of the updates."""
    return min(progress / warm_up, (1 - progress) / (1 - warm_up))


def corrupt(batch: Tensor, share: float, vocabulary: int, rng: Generator) -> tuple[Tensor, Tensor]:
    """The model's input, and which tokens it predicts (booleans), both `[batch, length]`."""
    chosen = (torch.rand(batch.shape, generator=rng) < share) & (batch >= FIRST)
    kind = torch.rand(batch.shape, generator=rng)
    other = torch.randint(FIRST, vocabulary, batch.shape, generator=rng)
    shown = torch.where(chosen & (kind < 0.8), MASK, batch)
    return torch.where(chosen & (kind >= 0.9), other, shown), chosen


def predict(model: Any, x: Tensor, chosen: Tensor) -> Tensor:
    """Logits of the chosen tokens only, `[chosen, vocabulary]`."""
    hidden = model.bert(input_ids=x, attention_mask=(x != PAD).long())[0]
    return model.cls(hidden[chosen])


def plan_batches(corpus: Encoded, tokens: int, number: int, run: Run) -> list[Tensor]:
    """The batches of pass `number` through the sentences, as indices, in random order.

    Sentences are shuffled, split into pools of `POOL_BATCHES` batches, and sorted by length.
    """
    rng = run.shared_rng(f"pass {number}", device="cpu")
    lengths = torch.from_numpy(corpus.starts).diff()
    order = torch.randperm(len(lengths), generator=rng)
    pools = order.tensor_split(max(1, round(len(corpus.tokens) / (POOL_BATCHES * tokens))))
    batches: list[Tensor] = []
    for pool in pools:
        batches += split_by_size(pool[lengths[pool].argsort()], lengths, tokens)
    return [batches[i] for i in torch.randperm(len(batches), generator=rng).tolist()]


def split_by_size(order: Tensor, lengths: Tensor, tokens: int) -> Iterator[Tensor]:
    """Consecutive pieces of `order` that have at most `tokens` tokens when padded."""
    first, widest = 0, 0
    for i, length in enumerate(lengths[order].tolist()):
        widest = max(widest, length)
        if i > first and widest * (i + 1 - first) > tokens:
            yield order[first:i]
            first, widest = i, length
    yield order[first:]


def pad(corpus: Encoded, rows: Tensor) -> Tensor:
    """The tokens of the sentences `rows`, padded to the longest, `[sentences, length]`."""
    pieces = [corpus.tokens[corpus.starts[i] : corpus.starts[i + 1]] for i in rows.tolist()]
    sequences = [torch.from_numpy(piece).long() for piece in pieces]
    return torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=PAD)


@torch.no_grad()
def predict_held_out(
    model: Any, name: str, corpus: Encoded, run: Run, tokens: int
) -> dict[str, float]:
    """Accuracy and perplexity of masked tokens. Every reading masks the same tokens."""
    rng = run.shared_rng(f"held out {name}", device="cpu")
    lengths = torch.from_numpy(corpus.starts).diff()
    nats, right, count = 0.0, 0, 0
    for rows in split_by_size(lengths.argsort(), lengths, tokens):
        batch = pad(corpus, rows)
        chosen = (torch.rand(batch.shape, generator=rng) < TESTED_SHARE) & (batch >= FIRST)
        x, target = torch.where(chosen, MASK, batch).to(run.device), batch[chosen].to(run.device)
        with torch.autocast(run.device.type, dtype=torch.bfloat16):
            logits = predict(model, x, chosen.to(run.device)).float()
        nats += float(cross_entropy(logits, target, reduction="sum"))
        right += int((logits.argmax(-1) == target).sum())
        count += len(target)
    key = name.replace(" ", "_")
    mean = torch.tensor(nats / max(count, 1))
    return {f"{key}_accuracy": right / max(count, 1), f"{key}_perplexity": float(mean.exp())}


def main(words: list[str] | None = None) -> None:
    form = argparse.ArgumentParser(
        prog="python -m workshop.mini_bert.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    form.add_argument("--to", type=Path, default=Path("outputs/mini_bert"))
    form.add_argument("--files", nargs="+", help="texts to train on, in place of the corpus")
    form.add_argument("--limit", type=int, help="of texts that are read")
    form.add_argument("--strict", action="store_true", help="missing data are an error")
    form.add_argument("--seed", type=int, default=0)
    sizes = {"updates": 3600, "tokens": 4096, "every": 200, "sentences": 1000}
    network = {"vocabulary": 8192, "hidden": 192, "layers": 4, "heads": 4, "positions": 64}
    for name, default in {**sizes, **network}.items():
        form.add_argument(f"--{name}", type=int, default=default)
    given = form.parse_args(words)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    data = Corpus(files=given.files, limit=given.limit, repeats=4, strict=given.strict).load()
    settings = {name: getattr(given, name) for name in ("seed", *sizes, *network)}
    settings["data"] = data.fingerprint
    device = "cuda" if torch.cuda.is_available() else "cpu"
    run = Run(
        given.to, device=device, model_seed=given.seed, outputs=given.to, config={"task": settings}
    )
    given.to.mkdir(parents=True, exist_ok=True)
    run.load_checkpoints(run.config)
    with run.seed_global_rng("network"):
        bert = untrained(**{name: getattr(given, name) for name in network}).to(device)
    train(bert, data, run, **{name: getattr(given, name) for name in sizes})
    run.checkpoints.remove()
    print(f"{data.variant}: {run.latest()}")


if __name__ == "__main__":
    main()
