"""WordPiece vocabularies, and sentences as sequences of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from tokenizers import BertWordPieceTokenizer

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = 300  # distinct characters kept; rarer ones become [UNK]
CHUNK = 10_000  # sentences encoded at once


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
