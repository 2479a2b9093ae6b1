"""Bags of words: one binary site for each common word stem, 1 if a text contains it.

O. Breuleux, Y. Bengio and P. Vincent (2011), Section 5, used the 1,000 most common stems of 100,000
restaurant reviews of OpenTable, which are unpublished. IMDB's movie reviews replace them (A. Maas
et al., "Learning Word Vectors for Sentiment Analysis", ACL 2011). Stems are those of M. Porter's
algorithm ("An algorithm for suffix stripping", Program 1980), as implemented by NLTK.

The file is read once, line by line, keeping only the indices of each text's stems. The result is
stored in the cache folder, eight sites to a byte.
"""

from __future__ import annotations

import json
import logging
import lzma
import pydoc_data.topics
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

import numpy as np
import torch
from nltk.stem import PorterStemmer

from latticework.data.base import Dataset, derive
from latticework.data.files import (
    CACHE,
    UNREADABLE,
    MissingFileError,
    Source,
    convert_read_errors,
    find,
    substitute,
)

log = logging.getLogger(__name__)
WORD = re.compile(r"[a-z]{2,}")
SENTENCE_END = re.compile(r"(?:[.!?]+(?:\s+|(?=<)|$)|<br\s*/?>\s*)+")
PIECES = 2  # parts of a review that is cut
LARGEST = (80_000, 10_000, 10_000)  # the paper's splits
PUBLISHED = 50_000  # reviews of IMDB


@dataclass(frozen=True, kw_only=True)
class Reviews:
    """IMDB's 50,000 reviews by presence of `words` stems: 40,000 / 5,000 / 5,000, split at random.

    The stems are those that occur in most training reviews. A corpus of 100,000 texts or more is
    split 80,000 / 10,000 / 10,000 as in the paper, a smaller one in the same proportions. If the
    file is missing and `strict` is false, the paragraphs of Python's help topics, which come with
    Python, replace it, and the data set says so.

    With `sentences`, a review gives up to two rows: its first `sentences` sentences, and the next.
    Rows are then as short as restaurant reviews, and about 80,000 / 10,000 / 10,000 as in the
    paper. Both rows of a review are in the same split.

    Args:
        words: number of stems, the sites of a row.
        sentences: of a row; None for whole reviews.
        root: the data root; None for the environment variable LATTICEWORK_DATA, if set.
        cache: folder for the matrix; None for `data/cache`.
        strict: whether missing reviews are an error.
        seed: of the generator of the split.
    """

    words: int = 1000
    sentences: int | None = None
    root: str | None = None
    cache: str | None = None
    strict: bool = False
    seed: int = 0

    source: ClassVar[Source] = Source(
        "imdb_labelled_50k.jsonl.xz",
        ("reviews", "."),
        origin="where the data root came from (one JSON object a line, with the key text, made of "
        "ai.stanford.edu/~amaas/data/sentiment)",
    )

    def __post_init__(self) -> None:
        if self.words < 1:
            raise ValueError(f"words must be at least 1, got {self.words}")
        if self.sentences is not None and self.sentences < 1:
            raise ValueError(f"sentences must be at least 1 or None, got {self.sentences}")

    def load(self) -> Dataset:
        """Finds, reads, stems and splits the reviews, or unpacks them from the cache.

        Raises:
            MissingFileError: if they are not available and `strict` is true.
            DamagedFileError: if the file is truncated or another one.
        """
        try:
            path = find(self.source, self.root, cache=self.cache)
        except MissingFileError as error:
            name = "paragraphs of Python's help topics, in place of reviews"
            substitute(error, self.strict, name)
            rows, _ = bag_of_words(self._cut(help_topics()), self.words, self.seed)
            return _dataset(rows, name, substitute=True)
        rows = self._load_cached(path)
        name = "reviews (imdb, in place of the unpublished OpenTable), Porter stems"
        if self.sentences is not None:
            return _dataset(rows, f"{name}, cut to {self.sentences} sentences")
        return _dataset(rows, name + other_size(sum(map(len, rows))))

    def _cut(self, texts: Iterable[str]) -> Iterator[list[str]]:
        """The texts of the rows of each review."""
        for text in texts:
            yield [text] if self.sentences is None else pieces(text, self.sentences)

    def _load_cached(self, path: Path) -> list[np.ndarray]:
        stamp = path.stat()
        cut = "" if self.sentences is None else f"-cut{self.sentences}"
        key = f"reviews-porter{cut}-{self.words}-{self.seed}-{stamp.st_size}"
        key += f"-{int(stamp.st_mtime)}.npz"
        file = Path(self.cache or CACHE).expanduser() / "reviews" / key
        if file.exists():
            try:
                with np.load(file) as content:
                    packed = [content[split] for split in ("train", "valid", "test")]
                return [np.unpackbits(split, axis=1, count=self.words) for split in packed]
            except UNREADABLE as error:
                log.warning("%s is damaged (%r): it is replaced", file, error)
        log.info("reading %s, some tens of seconds", path.name)
        with convert_read_errors(path, self.source):
            rows, stems = bag_of_words(self._cut(read_jsonl(path)), self.words, self.seed)
        try:
            _store(file, rows, stems)
        except OSError as error:
            log.warning("the next run has to read the reviews again: %s", error)
        return rows


def _store(file: Path, rows: list[np.ndarray], stems: list[str]) -> None:
    """Writes the cache under a temporary name, then renames it; raises OSError."""
    train, valid, test = (np.packbits(part, axis=1) for part in rows)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{uuid4().hex}.part.npz")  # other processes write theirs
    try:
        np.savez_compressed(partial, stems=np.array(stems), train=train, valid=valid, test=test)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def other_size(texts: int, limit: int | None = None) -> str:
    """The words of a variant that lacks some of the reviews, or of the first `limit` of them."""
    expected = PUBLISHED if limit is None else min(limit, PUBLISHED)
    return "" if texts == expected else f", {texts:,} reviews"


def pieces(text: str, sentences: int) -> list[str]:
    """The first `sentences` sentences of a text, and the next; those that have a word."""
    parts = [part for part in SENTENCE_END.split(text) if WORD.search(part.lower())]
    starts = range(0, PIECES * sentences, sentences)
    cut = (" ".join(parts[start : start + sentences]) for start in starts)
    return [piece for piece in cut if piece]


def bag_of_words(
    texts: Iterable[list[str]], words: int, seed: int
) -> tuple[list[np.ndarray], list[str]]:
    """Presence of the `words` most common stems in each piece of each text.

    Returns uint8 splits, and the stems. All pieces of a text are in one split. Raises ValueError if
    there are fewer stems, or too few texts to split.
    """
    numbers: dict[str, int] = {}
    held = []  # for each text, the numbers of the stems of its pieces
    for text in texts:
        held.append([_number_stems(piece, numbers) for piece in text])
    if len(numbers) < words or len(held) < 10:
        raise ValueError(
            f"expected at least 10 texts with {words} stems in all, "
            f"found {len(held)} texts with {len(numbers)}"
        )
    order = torch.randperm(len(held), generator=derive(seed, "reviews split")).tolist()
    tenth = min(len(held) // 10, LARGEST[1])
    train = min(len(held) - 2 * tenth, LARGEST[0])
    parts = order[:train], order[train : train + tenth], order[train + tenth : train + 2 * tenth]
    pieces_by_split: list[list[np.ndarray]] = []
    for part in parts:
        pieces_by_split.append([])
        for text_number in part:
            pieces_by_split[-1] += held[text_number]

    frequency = np.zeros(len(numbers), dtype=np.int64)
    for piece in pieces_by_split[0]:
        frequency[piece] += 1  # a piece names each of its stems once
    commonest = np.argsort(-frequency, kind="stable")[:words]
    column = np.full(len(numbers), -1)
    column[commonest] = np.arange(words)
    splits = []
    for part in pieces_by_split:
        rows = np.zeros((len(part), words), dtype=np.uint8)
        for row, piece in zip(rows, part, strict=True):
            present = column[piece]
            row[present[present >= 0]] = 1
        splits.append(rows)
    names = list(numbers)
    return splits, [names[i] for i in commonest]


def _number_stems(piece: str, numbers: dict[str, int]) -> np.ndarray:
    """The numbers of a text's stems; new stems are added to `numbers`."""
    stems = {stem(word) for word in WORD.findall(piece.lower())}
    return np.array([numbers.setdefault(s, len(numbers)) for s in sorted(stems)], np.int32)


_porter = PorterStemmer()


@lru_cache(maxsize=200_000)
def stem(word: str) -> str:
    """The stem of a lower-case word by Porter's algorithm: "ponies" -> "poni"."""
    return _porter.stem(word)


def read_jsonl(path: Path) -> Iterator[str]:
    """The `text` of each line of a compressed file of JSON objects."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)["text"]


def help_topics() -> list[str]:
    """Paragraphs of at least five words from Python's help topics."""
    paragraphs = [p for t in pydoc_data.topics.topics.values() for p in t.split("\n\n")]
    return [paragraph for paragraph in paragraphs if len(WORD.findall(paragraph.lower())) >= 5]


def _dataset(rows: list[np.ndarray], variant: str, substitute: bool = False) -> Dataset:
    train, valid, test = map(torch.from_numpy, rows)
    epoch = 40_000 if substitute else 0
    return Dataset(train, valid, test, (train.shape[1],), variant, substitute, epoch_size=epoch)
