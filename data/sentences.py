"""Sentences for text infilling, from two reference corpora.

R. Zhang, X. Liu and Q. Liu (ICML 2022), Section 7.5 and Appendix I.6: 20 sentences of the Toronto
BookCorpus (tbc) and WikiText-103 (wt103), each with a quarter of its words masked. The references
are the 5,000 sentences of each corpus sampled by Wang and Cho (2019, "BERT has a mouth, and it must
speak"), without the sentences drawn for infilling.

A sentence is a tuple of lower-case words, split at white space. The BookCorpus's `` and '' become
", WikiText's @@unknown@@ becomes [UNK].
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import torch

from latticework.data.base import derive
from latticework.data.files import (
    MissingFileError,
    Source,
    convert_read_errors,
    damaged_file_error,
    find,
    substitute,
)
from latticework.data.text import help_topics

MASK, UNKNOWN = "[MASK]", "[UNK]"
REPLACED = {"``": '"', "''": '"', "@@unknown@@": UNKNOWN}
SHORTEST, LONGEST = 15, 25  # words of a sentence that may be drawn
PUBLISHED = 5_000  # sentences of each corpus
ORIGIN = f"where the data root came from ({PUBLISHED:,} sentences, one a line)"
Sentence = tuple[str, ...]


@dataclass(frozen=True)
class Blanks:
    """A sentence with blanks: its words, and the increasing indices of the masked ones.

    `origin` names the corpus. In a user's own sentence the masked words are unknown, and are
    "[MASK]".
    """

    words: Sentence
    masked: tuple[int, ...]
    origin: str

    def __post_init__(self) -> None:
        if not self.masked or not all(0 <= i < len(self.words) for i in self.masked):
            raise ValueError(
                f"a sentence needs one masked word or more, each an index below "
                f"{len(self.words)}, got {list(self.masked)}"
            )

    def fill_blanks(self, words: Iterable[str]) -> Sentence:
        """The sentence with `words` at its blanks. A piece `##ing` is joined to the word before."""
        new = dict(zip(self.masked, words, strict=True))
        filled: list[str] = []
        for i, word in enumerate(self.words):
            piece = new.get(i, word)
            if i in new and piece.startswith("##") and filled:
                filled[-1] += piece.removeprefix("##")
            else:
                filled.append(piece)
        return tuple(filled)


@dataclass(frozen=True, eq=False)
class Infilling:
    """The data of the text-infilling experiment: sentences with blanks, and references."""

    blanks: list[Blanks]
    references: dict[str, list[Sentence]]  # by corpus: tbc, wt103
    variant: str
    substitute: bool = False

    @cached_property
    def fingerprint(self) -> str:
        content = (self.variant, self.blanks, self.references)
        return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def blanks_of(text: str) -> Blanks:
    """A user's own sentence, lower-cased, such as "The [MASK] cat sat on the [MASK].".

    Raises ValueError if it has no [MASK].
    """
    words = tuple(text.replace(MASK, f" {MASK} ").split())
    words = tuple(word if word == MASK else word.lower() for word in words)
    masked = tuple(i for i, word in enumerate(words) if word == MASK)
    if not masked:
        raise ValueError(f"the text must hold one [MASK] or more, got {text!r}")
    return Blanks(words, masked, "text")


def normalise(line: str) -> Sentence:
    """The words of a line of a reference file."""
    words = line.lower().split()
    return tuple(REPLACED.get(word, word) for word in words)


def eligible(sentence: Sentence) -> bool:
    """Whether a sentence may be drawn: 15 to 25 words."""
    return SHORTEST <= len(sentence) <= LONGEST


def read_references(root: str | None) -> dict[str, list[Sentence]]:
    """The sentences of both files, by corpus.

    Raises:
        MissingFileError: if a file is missing.
        DamagedFileError: if a file is not a text, or has no sentence.
    """
    references = {}
    for corpus, source in Sentences.sources.items():
        lines = _lines(find(source, root), source)
        references[corpus] = [normalise(line) for line in lines]
    return references


def _lines(path: Path, source: Source) -> list[str]:
    with convert_read_errors(path, source):
        text = path.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise damaged_file_error(path, source, f"expected {PUBLISHED:,} sentences, found none")
    return lines


def is_complete(references: dict[str, list[Sentence]]) -> bool:
    """Whether both corpora have as many sentences as published."""
    return all(len(sentences) == PUBLISHED for sentences in references.values())


def describe_sizes(references: dict[str, list[Sentence]]) -> str:
    """The sizes of the corpora, for the variant."""
    if is_complete(references):
        return f"{PUBLISHED:,} sentences each of {' and '.join(references)}"
    sizes = (f"{len(sentences):,} sentences of {c}" for c, sentences in references.items())
    return " and ".join(sizes)


@dataclass(frozen=True, kw_only=True)
class Sentences:
    """`count` sentences with blanks, half from each corpus, and the references without them.

    If the files are missing and `strict` is false, sentences of Python's help topics replace both
    corpora, and the data set is marked as a substitute.

    Args:
        count: number of sentences.
        share: fraction of a sentence's words to mask (rounded); never the first or the last word.
        root: the data root; None for the environment variable LATTICEWORK_DATA, if set.
        strict: whether missing files are an error.
        seed: seeds the generator that draws the sentences and the masked words.
    """

    count: int = 20
    share: float = 0.25
    root: str | None = None
    strict: bool = False
    seed: int = 0

    sources: ClassVar[dict[str, Source]] = {
        "tbc": Source("tbc.5k.txt", ("bert_gen_sentences", "."), origin=ORIGIN),
        "wt103": Source("wiki103.5k.txt", ("bert_gen_sentences", "."), origin=ORIGIN),
    }

    def __post_init__(self) -> None:
        if self.count < 2 or self.count % 2:
            raise ValueError(f"count must be an even number, half of each corpus, got {self.count}")
        if not 0 < self.share < 1:
            raise ValueError(f"share must be between 0 and 1, got {self.share}")

    def load(self) -> Infilling:
        """Read both files and draw the sentences.

        Raises:
            MissingFileError: if a file is missing and `strict` is true.
            DamagedFileError: if a file is not a text, or has no sentence.
            ValueError: if a corpus has too few sentences for `count`.
        """
        replaced = False
        try:
            references = read_references(self.root)
            variant = describe_sizes(references)
        except MissingFileError as error:
            references, replaced = _help_sentences(), True
            variant = (
                "sentences of Python's help topics, in place of "
                f"{PUBLISHED:,} sentences each of {' and '.join(references)}"
            )
            substitute(error, self.strict, variant)
        blanks = []
        for corpus, sentences in references.items():
            rng = derive(self.seed, f"sentences of {corpus}")
            fit = {s for s in sentences if eligible(s) and UNKNOWN not in s}
            pool = sorted(fit)  # a set has no fixed order
            if len(pool) < self.count // 2:
                raise ValueError(
                    f"count={self.count} needs {self.count // 2} sentences of {corpus} with "
                    f"{SHORTEST} to {LONGEST} words, none of them unknown; of its "
                    f"{len(sentences):,} sentences {len(pool)} are fit: take a smaller data.count"
                )
            drawn = torch.randperm(len(pool), generator=rng)[: self.count // 2]
            blanks += [self._mask(pool[i], corpus, rng) for i in drawn.tolist()]
        taken = {blank.words for blank in blanks}
        rest_of_corpora = {}
        for corpus, sentences in references.items():
            rest_of_corpora[corpus] = [words for words in sentences if words not in taken]
        return Infilling(blanks, rest_of_corpora, variant, replaced)

    def _mask(self, words: Sentence, corpus: str, rng: torch.Generator) -> Blanks:
        inner = range(1, len(words) - 1)
        count = min(max(1, round(self.share * len(words))), len(inner))
        chosen = torch.randperm(len(inner), generator=rng)[:count].tolist()
        return Blanks(words, tuple(sorted(inner[i] for i in chosen)), corpus)


def _help_sentences() -> dict[str, list[Sentence]]:
    """Sentences of Python's help topics, alternately assigned to the two corpora."""
    topics = " ".join(" ".join(topic.split()) for topic in help_topics())
    sentences = [normalise(f"{part} .") for part in topics.split(". ") if part]
    return {"tbc": sentences[::2], "wt103": sentences[1::2]}
