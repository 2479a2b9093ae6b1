"""Train a small BERT to predict masked words.

J. Devlin, M.-W. Chang, K. Lee and K. Toutanova, "BERT: Pre-training of Deep Bidirectional
Transformers for Language Understanding", NAACL 2019: a share of the tokens is chosen, of which 80 %
become [MASK], 10 % a random token and 10 % stay, and the model is asked for the chosen ones. One
sentence at a time, without next-sentence prediction. The WordPiece vocabulary is learned from the
same sentences. A batch holds a fixed number of tokens, of sentences of similar length.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from tokenizers import BertWordPieceTokenizer
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from data.corpus import Text
from data.wordpiece import SPECIAL, Encoded, encode, learn, tokenizer_of
from experiments import writing
from experiments.artifacts import artifact
from experiments.context import Run
from models.base import EnergyModel
from samplers.base import Sampler

PAD, MASK, FIRST = SPECIAL.index("[PAD]"), SPECIAL.index("[MASK]"), len(SPECIAL)
POOL = 64  # batches among which sentences are sorted by length
TESTED = 0.15  # share of the held-out tokens that are masked, each in turn replaced by [MASK]


def mlm_pretraining(
    *,
    model: EnergyModel | None,
    sampler: Sampler | None,
    data: Text,
    run: Run,
    network: Callable[[], Any],
    updates: int,
    tokens: int,
    learning_rate: float,
    every: int,
    sentences: int,
    share: float = 0.2,
    warm_up: float = 0.05,
    half: bool = True,
) -> None:
    """Train what `network` gives by AdamW; the learning rate rises, then falls to 0, linearly.

    `network` gives a new `BertForMaskedLM`; the run's target and sampler are not used. A batch has
    `tokens` tokens, padding included, of which a share of `share` is predicted. The rate is
    highest, `learning_rate`, after a share of `warm_up` of the `updates`. Every `every` updates,
    masked words of the first `sentences` sentences of each held-out set are predicted. `half`
    computes in bfloat16 where that is safe; the weights stay in single precision.

    The model is left in `model/` of the record, in the hub's format and half precision, with
    its vocabulary. Raises ValueError without sentences.
    """
    if data is None:
        raise ValueError("training needs sentences; give data=corpus")
    with run.seeded("network"):
        bert = network().to(run.device)
    vocabulary = bert.config.vocab_size
    tokenizer = tokenizer_of(_vocabulary(data, vocabulary, run))
    longest = bert.config.max_position_embeddings
    corpus = encode(tokenizer, data.train, longest)
    held_out = {
        name: encode(tokenizer, held[:sentences], longest) for name, held in data.held_out.items()
    }
    run.note(
        training_sentences=len(data.train),
        training_tokens=len(corpus.tokens),
        parameters=sum(p.numel() for p in bert.parameters()),
    )
    decayed = [p for p in bert.parameters() if p.ndim > 1]
    others = [p for p in bert.parameters() if p.ndim <= 1]
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}],
        lr=learning_rate,
        betas=(0.9, 0.98),
    )
    bert.train()
    memory: dict[str, Any] = {"model": bert, "optimiser": optimiser, "pass": 0, "batch": 0}
    memory["loss"] = torch.zeros((), device=run.device)
    plan: list[Tensor] = []
    for update in run.resumable(memory, "training", total=updates):
        if not plan and memory["batch"]:  # taken up again in the middle of a pass
            plan = _plan(corpus, tokens, memory["pass"], run)
        if memory["batch"] == len(plan):
            memory["pass"], memory["batch"] = memory["pass"] + 1, 0
            plan = _plan(corpus, tokens, memory["pass"], run)
        batch = pad(corpus, plan[memory["batch"]])
        memory["batch"] += 1
        rng = run.shared_rng(f"masks of update {update}", device="cpu")
        x, chosen = corrupt(batch, share, vocabulary, rng)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate * rate(update / updates, warm_up)
        with _precision(run, half):
            logits = predict(bert, x.to(run.device), chosen.to(run.device))
        loss = cross_entropy(logits.float(), batch[chosen].to(run.device))
        optimiser.zero_grad()
        loss.backward()
        clip_grad_norm_(bert.parameters(), 1.0)
        optimiser.step()
        memory["loss"] += loss.detach()
        if update % every == 0 or update == updates:
            bert.eval()
            readings: dict[str, float] = {}
            for name, sequences in held_out.items():
                readings |= _held_out(bert, name, sequences, run, tokens, half)
            bert.train()
            run.log(update, loss=memory["loss"] / (update % every or every), **readings)
            memory["loss"].zero_()
            export(bert, tokenizer, run.path / "model")


def _vocabulary(data: Text, size: int, run: Run) -> list[str]:
    """Learned once and stored, as text in a tensor: learning does not come out the same twice."""

    def make() -> dict[str, Tensor]:
        text = "\n".join(learn(data.train, size))
        return {"text": torch.tensor(list(text.encode()), dtype=torch.uint8)}

    stored = artifact(run, "vocabulary", {"data": data.fingerprint, "size": size}, make)["text"]
    return bytes(stored.tolist()).decode().split("\n")


def rate(progress: float, warm_up: float) -> float:
    """Of the highest learning rate, after a share `progress` of the updates."""
    return min(progress / warm_up, (1 - progress) / (1 - warm_up))


def corrupt(batch: Tensor, share: float, vocabulary: int, rng: Generator) -> tuple[Tensor, Tensor]:
    """The tokens as the model is shown them, and which ones it is asked for, `[batch, length]`."""
    chosen = (torch.rand(batch.shape, generator=rng) < share) & (batch >= FIRST)
    kind = torch.rand(batch.shape, generator=rng)
    other = torch.randint(FIRST, vocabulary, batch.shape, generator=rng)
    shown = torch.where(chosen & (kind < 0.8), MASK, batch)
    return torch.where(chosen & (kind >= 0.9), other, shown), chosen


def predict(model: Any, x: Tensor, chosen: Tensor) -> Tensor:
    """Logits of the chosen tokens only, `[chosen, vocabulary]`: of the rest nobody asks."""
    hidden = model.bert(input_ids=x, attention_mask=(x != PAD).long())[0]
    return model.cls(hidden[chosen])


def _precision(run: Run, half: bool) -> AbstractContextManager:
    return torch.autocast(run.device.type, dtype=torch.bfloat16, enabled=half)


def _plan(corpus: Encoded, tokens: int, number: int, run: Run) -> list[Tensor]:
    """The batches of pass `number` through the sentences, each as their indices, in a new order.

    Of `POOL` batches' worth of sentences in random order, each batch takes those of similar length.
    """
    rng = run.shared_rng(f"pass {number}", device="cpu")
    lengths = torch.from_numpy(corpus.starts).diff()
    order = torch.randperm(len(lengths), generator=rng)
    pools = order.tensor_split(max(1, round(len(corpus.tokens) / (POOL * tokens))))
    batches = [
        b for pool in pools for b in _similar(pool[lengths[pool].argsort()], lengths, tokens)
    ]
    return [batches[i] for i in torch.randperm(len(batches), generator=rng).tolist()]


def _similar(order: Tensor, lengths: Tensor, tokens: int) -> Iterator[Tensor]:
    """Consecutive pieces of `order`, of at most `tokens` tokens each when padded."""
    first, widest = 0, 0
    for i, length in enumerate(lengths[order].tolist()):
        widest = max(widest, length)
        if i > first and widest * (i + 1 - first) > tokens:
            yield order[first:i]
            first, widest = i, length
    yield order[first:]


def pad(corpus: Encoded, rows: Tensor) -> Tensor:
    """The sentences `rows`, `[sentences, length of the longest]`."""
    pieces = [corpus.tokens[corpus.starts[i] : corpus.starts[i + 1]] for i in rows.tolist()]
    sequences = [torch.from_numpy(piece).long() for piece in pieces]
    return torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=PAD)


@torch.no_grad()
def _held_out(
    model: Any, name: str, corpus: Encoded, run: Run, tokens: int, half: bool
) -> dict[str, float]:
    """Accuracy and perplexity of masked tokens, the same ones at every reading."""
    rng = run.shared_rng(f"held out {name}", device="cpu")
    lengths = torch.from_numpy(corpus.starts).diff()
    nats, right, count = 0.0, 0, 0
    for rows in _similar(lengths.argsort(), lengths, tokens):
        batch = pad(corpus, rows)
        chosen = (torch.rand(batch.shape, generator=rng) < TESTED) & (batch >= FIRST)
        x, target = torch.where(chosen, MASK, batch).to(run.device), batch[chosen].to(run.device)
        with _precision(run, half):
            logits = predict(model, x, chosen.to(run.device)).float()
        nats += float(cross_entropy(logits, target, reduction="sum"))
        right += int((logits.argmax(-1) == target).sum())
        count += len(target)
    key = name.replace(" ", "_")
    mean = torch.tensor(nats / max(count, 1))
    return {f"{key}_accuracy": right / max(count, 1), f"{key}_perplexity": float(mean.exp())}


def export(model: Any, tokenizer: BertWordPieceTokenizer, folder: Path) -> None:
    """The model in the hub's format: config.json, vocab.txt, safetensors in half precision."""
    pieces = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    with writing.folder(folder) as aside:
        copy.deepcopy(model).half().save_pretrained(aside)
        (aside / "vocab.txt").write_text("".join(f"{piece}\n" for piece, _ in pieces))
