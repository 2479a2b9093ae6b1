"""Base of the loaders of published images: find, read, check and binarise, or substitute."""

from __future__ import annotations

import logging
import textwrap
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from latticework.data.base import Dataset
from latticework.data.digits import Digits
from latticework.data.files import MissingFileError, Source, find
from latticework.data.grey import MODES, Grey, check_mode

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Images(ABC):
    """Base class of the loaders of published images.

    Args:
        binarize: threshold, static or dynamic (see `data.grey`). If the published images are
            binary, it only affects a substitute.
        root: the data root; None for the environment variable LATTICEWORK_DATA, if set.
        cache: folder for downloads; None for `data/cache`.
        download: whether missing files may be downloaded.
        strict: whether missing data are an error, or are replaced by digits.
        seed: of the generators of the splits and the draws.
    """

    binarize: str = "threshold"
    root: str | None = None
    cache: str | None = None
    download: bool = True
    strict: bool = False
    seed: int = 0

    name: ClassVar[str]
    counts: ClassVar[tuple[int, int, int]]
    size: ClassVar[int] = 28

    def __post_init__(self) -> None:
        check_mode(self.binarize)

    @abstractmethod
    def read(self) -> Grey:
        """The published images. Raises MissingFileError, DamagedFileError."""

    def load(self) -> Dataset:
        """Finds, checks, reads and binarises the images.

        Raises:
            MissingFileError: if they are not available and `strict` is true.
            DamagedFileError: if a file is truncated or another one, even if `strict` is false.
        """
        try:
            grey = self.read()
        except MissingFileError as error:
            if self.strict:
                raise
            return self._substitute(error)
        found = (len(grey.train), len(grey.valid), len(grey.test))
        if found != self.counts:
            raise ValueError(f"{grey.name}: expected splits of {self.counts} images, found {found}")
        return grey.to_binary(self.binarize, self.seed)

    def path(self, source: Source) -> Path:
        """Path of the verified file."""
        return find(source, self.root, cache=self.cache, download=self.download)

    def _substitute(self, error: MissingFileError) -> Dataset:
        digits = Digits(
            size=self.size, binarize=self.binarize, seed=self.seed, epoch_size=self.counts[0]
        ).load()
        wanted = f"{self.name}, {MODES[self.binarize]}"
        log.warning(
            "%s",
            _box(
                f"SUBSTITUTE DATA: THIS IS NOT {self.name.upper()}",
                f"asked for:  {wanted}",
                f"used:       {digits.variant} ({len(digits.train):,} training images)",
                f"why:        {error}",
                "Do not compare results on these data with published numbers. "
                "data.strict=true makes this an error; data=digits selects the digits openly.",
            ),
        )
        return replace(digits, variant=f"{digits.variant}, in place of {wanted}", substitute=True)


def _box(*paragraphs: str) -> str:
    """The paragraphs in a frame that stands out in a log."""
    lines = [
        line
        for text in paragraphs
        for line in textwrap.wrap(text, 88, break_long_words=False, break_on_hyphens=False)
    ]
    width = max(map(len, lines))
    edge = "#" * (width + 6)
    return "\n".join(["", edge, *(f"## {line:<{width}} ##" for line in lines), edge])
