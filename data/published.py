"""The base of the loaders of published data, such as `data.images` and `data.tables`.

A loader is a frozen dataclass whose fields are its YAML keys. If its files are not available and
`strict` is false, other data replace them. A warning and the data's `substitute` and `variant` say
so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from latticework.data.files import MissingFileError, Source, find

Content = TypeVar("Content")  # what a file holds
Loaded = TypeVar("Loaded")


@dataclass(frozen=True, kw_only=True)
class PublishedData(ABC, Generic[Content, Loaded]):
    """Reads published files, or replaces them.

    Args:
        root: the data root; None for the environment variable LATTICEWORK_DATA, if set.
        cache: folder for downloads; None for `data/cache`.
        download: whether missing files may be downloaded.
        strict: whether missing data are an error, or are replaced.
        seed: of the generators of the splits and the draws.
    """

    root: str | None = None
    cache: str | None = None
    download: bool = True
    strict: bool = False
    seed: int = 0

    name: ClassVar[str]

    @abstractmethod
    def read(self) -> Content:
        """The published data. Raises MissingFileError, DamagedFileError."""

    @abstractmethod
    def prepare(self, content: Content) -> Loaded:
        """Split what was read, and bring its values into the form that models take."""

    @abstractmethod
    def replace_missing(self, error: MissingFileError) -> Loaded:
        """Other data in place of missing ones, and a warning that says so."""

    def load(self) -> Loaded:
        """Find, check, read and prepare the data.

        Raises:
            MissingFileError: if they are not available and `strict` is true.
            DamagedFileError: if a file is truncated or another one, even if `strict` is false.
        """
        try:
            content = self.read()
        except MissingFileError as error:
            if self.strict:
                raise
            return self.replace_missing(error)
        return self.prepare(content)

    def path(self, source: Source, *, download: bool = True) -> Path:
        """Path of the verified file. It is downloaded only if the loader may, too."""
        return find(source, self.root, cache=self.cache, download=download and self.download)
