"""An estimate: the mean over runs with its spread, as numbers and as text."""

import math
from typing import Any, NamedTuple

import numpy as np


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
        if spread is not None and (values == values[0]).all():
            spread = 0.0  # and not the rounding of the mean
        return Estimate(float(values.mean()), spread, len(values))
