"""Tables as files: CSV, Markdown and LaTeX.

A function of the records (`figures.tables`) returns the frame. Its cells are text, numbers, or
an `Estimate`. In the CSV, which is for programs, an estimate takes up to three columns, in full
precision. The other two formats are for readers.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from latticework.experiments.records.numbers import Estimate


def write(frame: pd.DataFrame, target: Path) -> list[Path]:
    """Write `frame` to `target` with the suffixes .csv, .md and .tex; return the paths."""
    written = [target.with_suffix(suffix) for suffix in (".csv", ".md", ".tex")]
    written[0].write_text(_long(frame).to_csv(index=False, lineterminator="\n"))
    written[1].write_text(markdown(frame) + "\n")
    text = frame.map(lambda cell: _text(cell).replace("±", "\\(\\pm\\)").replace("%", "\\%"))
    written[2].write_text(text.to_latex(index=False, escape=False).replace("_", "\\_"))
    return written


def markdown(frame: pd.DataFrame) -> str:
    return frame.map(_text).to_markdown(index=False, disable_numparse=True)


def _text(cell: Any) -> str:
    if isinstance(cell, Estimate):
        return cell.text()
    if cell is None or (isinstance(cell, float) and np.isnan(cell)):
        return ""
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _long(frame: pd.DataFrame) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for name in frame:
        cells = list(frame[name])
        if not any(isinstance(cell, Estimate) for cell in cells):
            columns[str(name)] = cells
            continue
        for part in Estimate._fields:
            values = [getattr(c, part) if isinstance(c, Estimate) else None for c in cells]
            if part == "mean" or any(value is not None for value in values):
                columns[str(name) if part == "mean" else f"{name} ({part})"] = values
    return pd.DataFrame(columns)
