"""Figures, as files, and tables that the report shows of an experiment."""

from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from latticework.experiments.records.files import write_file


@dataclass(frozen=True)
class Picture:
    """A figure as PNG, and by suffix as SVG, its numbers, a page of text, and its proof as JSON."""

    name: str
    png: bytes
    texts: dict[str, str]

    def write(self, target: Path) -> list[Path]:
        """Write the PNG to `target` and the texts beside it; return the paths."""
        write_file(target, self.png)
        beside = {target.with_suffix(suffix): text for suffix, text in self.texts.items()}
        for file, text in beside.items():
            write_file(file, text)
        return [target, *beside]


@dataclass(frozen=True)
class Drawn:
    """Figures and tables made from a holding; `reasons_not_made` says why others could not be made.

    `failed` are the ones in `reasons_not_made` that fail because of a mistake in the code.
    """

    pictures: list[Picture] = field(default_factory=list)
    tables: list[tuple[str, pd.DataFrame]] = field(default_factory=list)
    reasons_not_made: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
