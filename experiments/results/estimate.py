"""Tables: a data frame of labels and estimates, written as CSV, Markdown and LaTeX.

A function of the records returns the frame. Its cells are text, numbers, or an `Estimate`. In the
CSV, which is for programs, an estimate takes up to three columns, in full precision. The other two
formats are for readers.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


class Estimate(NamedTuple):
    """A mean over runs. `spread` is the standard deviation between runs, or None for one run."""

    mean: float
    spread: float | None = None
    runs: int | None = None

    def text(self) -> str:
        """`-0.3590 ± 0.0014 (5)`: two digits of the spread, and the number of runs in brackets.

        Where the number of runs is not known, there are no brackets, and a spread of one digit, as
        in published tables, gets no second one.
        """
        runs = "" if self.runs is None else f" ({self.runs})"
        if not self.spread or not math.isfinite(self.spread):  # one run, or runs that are all alike
            return f"{self.mean:.6g}{runs}"
        places = max(0, 1 - math.floor(math.log10(self.spread)))
        if self.runs is None and float(f"{self.spread:.1g}") == self.spread:
            places = max(0, places - 1)
        return f"{self.mean:,.{places}f} ± {self.spread:,.{places}f}{runs}"


def number(value: Estimate | None) -> str:
    """`-6.85 ± 0.13 (5)`, as in tables. Without a spread, four digits and no `(1)`."""
    if value is None:
        return ""
    if value.spread and math.isfinite(value.spread):
        return value.text()
    runs = f" ({value.runs})" if value.runs and value.runs > 1 else ""
    return f"{value.mean:,.4g}{runs}" if abs(value.mean) < 1e4 else f"{value.mean:,.0f}{runs}"


def estimate(values: Any) -> Estimate:
    """Mean and spread of `values`, one per run. A single run has no spread.

    With an infinite value, such as the R-hat of chains that are stuck, the spread is NaN.
    """
    values = np.asarray(list(values), dtype=float)
    with np.errstate(invalid="ignore"):
        spread = float(values.std(ddof=1)) if len(values) > 1 else None
        return Estimate(float(values.mean()), spread, len(values))


def write(frame: pd.DataFrame, target: Path) -> list[Path]:
    """Write `frame` to `target` with the suffixes .csv, .md and .tex; return the paths."""
    text = frame.map(_text)
    written = [target.with_suffix(suffix) for suffix in (".csv", ".md", ".tex")]
    written[0].write_text(csv(frame))
    written[1].write_text(text.to_markdown(index=False, disable_numparse=True) + "\n")
    latex = text.map(lambda cell: str(cell).replace("±", "\\(\\pm\\)").replace("%", "\\%"))
    written[2].write_text(latex.to_latex(index=False, escape=False).replace("_", "\\_"))
    return written


def csv(frame: pd.DataFrame) -> str:
    """The table as CSV, for programs."""
    return _long(frame).to_csv(index=False, lineterminator="\n")


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
    import pandas as pd  # late: most runs write no table

    return pd.DataFrame(columns)
