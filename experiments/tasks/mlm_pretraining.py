"""Task: train a small BERT to predict masked words.

J. Devlin, M.-W. Chang, K. Lee and K. Toutanova, "BERT: Pre-training of Deep Bidirectional
Transformers for Language Understanding", NAACL 2019: a share of the tokens is chosen, of which 80 %
become [MASK], 10 % a random token and 10 % stay, and the model predicts the chosen tokens. Inputs
are single sentences, without next-sentence prediction. The WordPiece vocabulary is learned from the
same sentences. A batch holds a fixed number of tokens, in sentences of similar length.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import BertWordPieceTokenizer
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from latticework.data.sentences import Text
from latticework.experiments.records.estimates import KeyNumber, last_readings
from latticework.experiments.records.record import Record
from latticework.experiments.runs import storage
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.storage import load_or_make_artifact
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.loop_state import LoopState

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = 300  # distinct characters kept; rarer ones become [UNK]
CHUNK = 10_000  # sentences encoded at once
PAD, MASK, FIRST = SPECIAL.index("[PAD]"), SPECIAL.index("[MASK]"), len(SPECIAL)
POOL = 64  # sentences are sorted by length within so many batches
TESTED = 0.15  # share of the held-out tokens that are replaced by [MASK]


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
    """Train the network by AdamW; the learning rate rises linearly, then falls to 0.

    `network` makes a new `BertForMaskedLM`; model and sampler of the run are not used. A batch has
    `tokens` tokens, padding included, of which the share `share` is predicted. The learning rate is
    highest, `learning_rate`, after the share `warm_up` of the `updates`. Every `every` updates,
    masked words of the first `sentences` sentences of each held-out set are predicted. `half`
    computes in bfloat16 where that is safe; the weights stay in single precision.

    The record holds the model and its vocabulary in `model/`, in the hub's format and half
    precision. Raises ValueError without sentences.
    """
    if data is None:
        raise ValueError("training needs sentences; give data=corpus")
    with run.seed_global_rng("network"):
        bert = network().to(run.device)
    tokenizer = tokenizer_of(_vocabulary(data, bert.config.vocab_size, run))
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
    batches = Batches(corpus, tokens, run)
    memory = MaskedTraining(
        bert, _adamw(bert, learning_rate), batches, torch.zeros((), device=run.device)
    )
    bert.train()
    for update in run.resumable(memory, "training", total=updates):
        batch = batches.next()
        for group in memory.optimiser.param_groups:
            group["lr"] = learning_rate * rate(update / updates, warm_up)
        rng = run.shared_rng(f"masks of update {update}", device="cpu")
        memory.loss += _step(memory, batch, share, half, rng, run)
        if update % every == 0 or update == updates:
            bert.eval()
            readings: dict[str, float] = {}
            for name, sequences in held_out.items():
                readings |= _held_out(bert, name, sequences, run, tokens, half)
            bert.train()
            run.log(update, loss=memory.loss / (update % every or every), **readings)
            memory.loss.zero_()
            export(bert, tokenizer, run.path / "model")


def headline(record: Record) -> list[KeyNumber]:
    """The last loss, and how well masked words of each held-out set are predicted."""
    names = [name for name in record.metrics if name != "step"]
    return last_readings(
        record, {name: "higher" if "accuracy" in name else "lower" for name in names}
    )


def learn(sentences: Sequence[str], size: int) -> list[str]:
    """A vocabulary of at most `size` lower-case word pieces, the special tokens first.

    Equally frequent pieces come in no fixed order, and at the end of the list they may replace one
    another. Store the vocabulary if you need the same one again.
    """
    trainer = BertWordPieceTokenizer(lowercase=True)
    trainer.train_from_iterator(
        sentences,
        vocab_size=size,
        min_frequency=2,
        limit_alphabet=LETTERS,
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    numbers = trainer.get_vocab()
    return sorted(numbers, key=numbers.__getitem__)


def tokenizer_of(vocabulary: Sequence[str]) -> BertWordPieceTokenizer:
    """BERT's tokenizer: lower case, no accents, split at spaces and punctuation, then pieces."""
    numbers = {piece: i for i, piece in enumerate(vocabulary)}
    return BertWordPieceTokenizer(numbers, lowercase=True)


class Encoded(NamedTuple):
    """Concatenated token sequences: sentence i is `tokens[starts[i] : starts[i + 1]]`."""

    tokens: np.ndarray  # int32
    starts: np.ndarray  # int64, one more than there are sentences


def encode(tokenizer: BertWordPieceTokenizer, sentences: Sequence[str], longest: int) -> Encoded:
    """Each sentence as [CLS] sentence [SEP], cut to `longest` tokens."""
    tokenizer.enable_truncation(longest)
    parts, lengths = [], [0]
    for first in range(0, len(sentences), CHUNK):
        for encoding in tokenizer.encode_batch(list(sentences[first : first + CHUNK])):
            parts.append(np.array(encoding.ids, np.int32))
            lengths.append(len(encoding.ids))
    return Encoded(np.concatenate(parts), np.cumsum(lengths))


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

    number: int  # of the pass
    place: int  # batches taken of it

    def __init__(self, corpus: Encoded, tokens: int, run: Run) -> None:
        self.number, self.place = 0, 0
        self.corpus, self.tokens, self.run = corpus, tokens, run
        self.plan: list[Tensor] = []

    def next(self) -> Tensor:
        """The next batch, `[sentences, length]`."""
        if not self.plan and self.place:  # resumed in the middle of a pass
            self.plan = _plan(self.corpus, self.tokens, self.number, self.run)
        if self.place == len(self.plan):
            self.number, self.place = self.number + 1, 0
            self.plan = _plan(self.corpus, self.tokens, self.number, self.run)
        batch = pad(self.corpus, self.plan[self.place])
        self.place += 1
        return batch


def _adamw(bert: Any, learning_rate: float) -> torch.optim.AdamW:
    """Weight decay for matrices, none for biases and scales."""
    decayed = [p for p in bert.parameters() if p.ndim > 1]
    others = [p for p in bert.parameters() if p.ndim <= 1]
    return torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}],
        lr=learning_rate,
        betas=(0.9, 0.98),
    )


def _step(
    memory: MaskedTraining, batch: Tensor, share: float, half: bool, rng: Generator, run: Run
) -> Tensor:
    """One update on `batch`; the loss before it, in nats."""
    bert = memory.model
    x, chosen = corrupt(batch, share, bert.config.vocab_size, rng)
    with torch.autocast(run.device.type, dtype=torch.bfloat16, enabled=half):
        logits = predict(bert, x.to(run.device), chosen.to(run.device))
    loss = cross_entropy(logits.float(), batch[chosen].to(run.device))
    memory.optimiser.zero_grad()
    loss.backward()
    clip_grad_norm_(bert.parameters(), 1.0)
    memory.optimiser.step()
    return loss.detach()


def _vocabulary(data: Text, size: int, run: Run) -> list[str]:
    """The vocabulary, learned once and stored: learning it twice gives different results."""

    def make() -> dict[str, Tensor]:
        text = "\n".join(learn(data.train, size))
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


def _plan(corpus: Encoded, tokens: int, number: int, run: Run) -> list[Tensor]:
    """The batches of pass `number` through the sentences, as indices, in random order.

    Sentences are shuffled, split into pools of `POOL` batches and sorted by length in each pool.
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
def _held_out(
    model: Any, name: str, corpus: Encoded, run: Run, tokens: int, half: bool
) -> dict[str, float]:
    """Accuracy and perplexity of masked tokens. Every reading masks the same tokens."""
    rng = run.shared_rng(f"held out {name}", device="cpu")
    lengths = torch.from_numpy(corpus.starts).diff()
    nats, right, count = 0.0, 0, 0
    for rows in _similar(lengths.argsort(), lengths, tokens):
        batch = pad(corpus, rows)
        chosen = (torch.rand(batch.shape, generator=rng) < TESTED) & (batch >= FIRST)
        x, target = torch.where(chosen, MASK, batch).to(run.device), batch[chosen].to(run.device)
        with torch.autocast(run.device.type, dtype=torch.bfloat16, enabled=half):
            logits = predict(model, x, chosen.to(run.device)).float()
        nats += float(cross_entropy(logits, target, reduction="sum"))
        right += int((logits.argmax(-1) == target).sum())
        count += len(target)
    key = name.replace(" ", "_")
    mean = torch.tensor(nats / max(count, 1))
    return {f"{key}_accuracy": right / max(count, 1), f"{key}_perplexity": float(mean.exp())}


def export(model: Any, tokenizer: BertWordPieceTokenizer, folder: Path) -> None:
    """Write the model in the hub's format: config, vocabulary, safetensors in half precision."""
    pieces = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    with storage.staged_folder(folder) as aside:
        copy.deepcopy(model).half().save_pretrained(aside)
        (aside / "vocab.txt").write_text("".join(f"{piece}\n" for piece, _ in pieces))
