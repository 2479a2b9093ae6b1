"""Sentences for text infilling, from two reference corpora, and to train language models on.

R. Zhang, X. Liu and Q. Liu (ICML 2022), Section 7.5 and Appendix I.6: 20 sentences of the Toronto
BookCorpus (tbc) and WikiText-103 (wt103), each with a quarter of its words masked. The references
are the 5,000 sentences of each corpus sampled by Wang and Cho (2019, "BERT has a mouth, and it must
speak"), without the sentences drawn for infilling.

A sentence is a tuple of lower-case words, split at white space. The BookCorpus's `` and '' become
", WikiText's @@unknown@@ becomes [UNK].

`Corpus` has the sentences to train a small masked language model on, from the reviews (`data.text`)
and both reference corpora, or from any text files. The reference sentences that may be drawn for
infilling are held out from training, whatever the seed of that draw.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import ClassVar

import torch

from latticework.data.base import derive
from latticework.data.files import (
    MissingFileError,
    Source,
    convert_read_errors,
    damaged,
    find,
    substitute,
)
from latticework.data.text import Reviews, help_topics, other_size, read_jsonl

MASK, UNKNOWN = "[MASK]", "[UNK]"
REPLACED = {"``": '"', "''": '"', "@@unknown@@": UNKNOWN}
SHORTEST, LONGEST = 15, 25  # words of a sentence that may be drawn
PUBLISHED = 5_000  # sentences of each corpus
ORIGIN = f"where the data root came from ({PUBLISHED:,} sentences, one a line)"
END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"')]))\s+")  # where a sentence ends
MARKUP = re.compile(r"<[^>]*>")
FEWEST, MOST = 4, 80  # words of a training sentence
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

    def filled(self, words: Iterable[str]) -> Sentence:
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
    return {
        corpus: [normalise(line) for line in _lines(find(source, root), source)]
        for corpus, source in Sentences.sources.items()
    }


def _lines(path: Path, source: Source) -> list[str]:
    with convert_read_errors(path, source):
        text = path.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise damaged(path, source, f"expected {PUBLISHED:,} sentences, found none")
    return lines


def whole(references: dict[str, list[Sentence]]) -> bool:
    """Whether both corpora have as many sentences as published."""
    return all(len(sentences) == PUBLISHED for sentences in references.values())


def counted(references: dict[str, list[Sentence]]) -> str:
    """The sizes of the corpora, for the variant."""
    if whole(references):
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
            variant = counted(references)
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
            pool = sorted(fit)  # a set has no order of its own
            if len(pool) < self.count // 2:
                raise ValueError(
                    f"count={self.count} needs {self.count // 2} sentences of {corpus} with "
                    f"{SHORTEST} to {LONGEST} words, none of them unknown; of its "
                    f"{len(sentences):,} sentences {len(pool)} are such: take a smaller data.count"
                )
            drawn = torch.randperm(len(pool), generator=rng)[: self.count // 2]
            blanks += [self._mask(pool[i], corpus, rng) for i in drawn.tolist()]
        taken = {blank.words for blank in blanks}
        references = {c: [s for s in kept if s not in taken] for c, kept in references.items()}
        return Infilling(blanks, references, variant, replaced)

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


@dataclass(frozen=True, eq=False)
class Text:
    """Sentences to train on, and held-out sentences by the name of their source."""

    train: list[str]
    held_out: dict[str, list[str]]
    variant: str
    substitute: bool = False

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(self.variant.encode())
        for sentences in (self.train, *self.held_out.values()):
            digest.update(hashlib.sha256("\n".join(sentences).encode()).digest())
        return digest.hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Sentences of the reviews and the reference files, or of `files`.

    Args:
        files: the user's text files instead: `.jsonl.xz` with a key `text`, else plain text with
            one paragraph on each line.
        repeats: how often each reference sentence of another length occurs among the training
            sentences. They are few, and resemble the sentences that the experiment fills in.
        limit: number of texts read, of the reviews or of all `files`; None for all.
        held_out: fraction of the texts held out.
        root: the data root; None for the environment variable LATTICEWORK_DATA, if set.
        strict: whether missing data are an error, or are replaced by Python's help topics.
        seed: of the generator that chooses the held-out texts.
    """

    files: Sequence[str] | None = None
    repeats: int = 1
    limit: int | None = None
    held_out: float = 0.01
    root: str | None = None
    strict: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 2:
            raise ValueError(
                f"limit must be at least 2 texts, one of them held out, or null, got {self.limit}"
            )
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must be between 0 and 1, got {self.held_out}")

    def load(self) -> Text:
        """Reads and splits the texts.

        Raises:
            MissingFileError: if the data are not available and `strict` is true.
            DamagedFileError: if a file of the data root cannot be read.
            ValueError: if there are too few texts to train on some and hold out others.
        """
        if self.files:
            lines = (text for file in self.files for text in _read(Path(file).expanduser()))
            names = ", ".join(Path(file).name for file in self.files)
            train, held = self._split(list(islice(lines, self.limit)))
            return Text(train, {"corpus": held}, f"sentences of {names}")
        try:
            path = find(Reviews.source, self.root)
            references = read_references(self.root)
        except MissingFileError as error:
            name = "sentences of Python's help topics, in place of reviews and references"
            substitute(error, self.strict, name)
            train, held = self._split(help_topics())
            return Text(train, {"help topics": held}, name, substitute=True)
        with convert_read_errors(path, Reviews.source):
            texts = list(islice(read_jsonl(path), self.limit))
        reviews = f"imdb{other_size(len(texts), self.limit)}"
        corpora = ", ".join(references) if whole(references) else counted(references)
        train, held = self._split(texts)
        pools: dict[str, list[str]] = {"reviews": held}
        for corpus, sentences in references.items():
            distinct = sorted(set(sentences))
            pools[corpus] = [" ".join(s) for s in distinct if eligible(s)]
            kept = [" ".join(s) for s in distinct if not eligible(s) and len(s) >= FEWEST]
            train += kept * self.repeats
        return Text(train, pools, f"reviews ({reviews}) and reference sentences ({corpora})")

    def _split(self, texts: list[str]) -> tuple[list[str], list[str]]:
        """Sentences of the training texts and of the held-out texts. No text is in both.

        Raises ValueError if either has none.
        """
        order = torch.randperm(len(texts), generator=derive(self.seed, "corpus split")).tolist()
        count = max(1, round(self.held_out * len(texts)))
        held = list(sentences_of(texts[i] for i in order[:count]))
        train = list(sentences_of(texts[i] for i in order[count:]))
        if not train or not held:
            raise ValueError(
                f"{len(texts):,} texts with {len(train):,} sentences of {FEWEST} to {MOST} "
                f"words to train on and {len(held):,} held out are too few: give more text, or "
                f"another data.limit ({self.limit}) or data.held_out ({self.held_out})"
            )
        return train, held


def sentences_of(texts: Iterable[str]) -> Iterator[str]:
    """The sentences of 4 to 80 words, markup removed."""
    for text in texts:
        for sentence in END.split(MARKUP.sub(" ", text).strip()):
            words = sentence.split()
            if FEWEST <= len(words) <= MOST:
                yield " ".join(words)


def _read(path: Path) -> Iterator[str]:
    with convert_read_errors(path):
        if path.name.endswith(".jsonl.xz"):
            yield from read_jsonl(path)
        else:
            with path.open(encoding="utf-8") as file:
                yield from (line for line in file if line.strip())
