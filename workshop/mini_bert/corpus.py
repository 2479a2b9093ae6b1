"""The sentences that mini_bert is trained on: of reviews and of the reference corpora.

Reference sentences that may be drawn for infilling are held out from training, whatever the seed of
that draw.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from latticework.data.base import derive
from latticework.data.files import MissingFileError, convert_read_errors, find, substitute
from latticework.data.sentences import describe_sizes, eligible, is_complete, read_references
from latticework.data.text import Reviews, help_topics, other_size, read_jsonl

END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"')]))\s+")  # where a sentence ends
MARKUP = re.compile(r"<[^>]*>")
SHORTEST, LONGEST = 4, 80  # words of a training sentence


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
        corpora = ", ".join(references) if is_complete(references) else describe_sizes(references)
        train, held = self._split(texts)
        pools: dict[str, list[str]] = {"reviews": held}
        for corpus, sentences in references.items():
            distinct = sorted(set(sentences))
            pools[corpus] = [" ".join(s) for s in distinct if eligible(s)]
            kept = [" ".join(s) for s in distinct if not eligible(s) and len(s) >= SHORTEST]
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
                f"{len(texts):,} texts with {len(train):,} sentences of {SHORTEST} to {LONGEST} "
                f"words to train on and {len(held):,} held out are too few: give more text, or "
                f"another data.limit ({self.limit}) or data.held_out ({self.held_out})"
            )
        return train, held


def sentences_of(texts: Iterable[str]) -> Iterator[str]:
    """The sentences of 4 to 80 words, markup removed."""
    for text in texts:
        for sentence in END.split(MARKUP.sub(" ", text).strip()):
            words = sentence.split()
            if SHORTEST <= len(words) <= LONGEST:
                yield " ".join(words)


def _read(path: Path) -> Iterator[str]:
    with convert_read_errors(path):
        if path.name.endswith(".jsonl.xz"):
            yield from read_jsonl(path)
        else:
            with path.open(encoding="utf-8") as file:
                yield from (line for line in file if line.strip())
