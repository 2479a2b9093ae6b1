"""BERT's word pieces: the vocabulary of a corpus, its sentences as tokens, and the export."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import BertWordPieceTokenizer

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_LETTERS = 300  # distinct characters kept; rarer ones become [UNK]
CHUNK_SENTENCES = 10_000  # encoded at once


def learn_vocabulary(sentences: Sequence[str], size: int) -> list[str]:
    """A vocabulary of at most `size` lower-case word pieces, the special tokens first.

    Equally frequent pieces come in no fixed order, and at the end of the list they may replace one
    another. Store the vocabulary if you need the same one again.
    """
    trainer = BertWordPieceTokenizer(lowercase=True)
    trainer.train_from_iterator(
        sentences,
        vocab_size=size,
        min_frequency=2,
        limit_alphabet=MAX_LETTERS,
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    number_by_piece = trainer.get_vocab()
    return sorted(number_by_piece, key=number_by_piece.__getitem__)


def make_tokenizer(vocabulary: Sequence[str]) -> BertWordPieceTokenizer:
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
    for first in range(0, len(sentences), CHUNK_SENTENCES):
        for encoding in tokenizer.encode_batch(list(sentences[first : first + CHUNK_SENTENCES])):
            parts.append(np.array(encoding.ids, np.int32))
            lengths.append(len(encoding.ids))
    return Encoded(np.concatenate(parts), np.cumsum(lengths))


def export(model: Any, tokenizer: BertWordPieceTokenizer, folder: Path) -> None:
    """Write the model in the hub's format: config, vocabulary, safetensors in half precision."""
    pieces = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    copy.deepcopy(model).half().save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece, _ in pieces))
