"""An estimate: the mean over runs with its spread, as numbers and as text; the best of several.

The papers' estimates are read from `published.yaml`.
"""

import math
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from omegaconf import OmegaConf

from latticework.experiments.records.record import Record

BEST, TIE = "best", "tie"
LEVEL = 0.05  # two-sided
PUBLISHED = Path(__file__).with_name("published.yaml")


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


def finite(value: float) -> float | None:
    """`value` as JSON holds it: None if it is infinite or no number."""
    return value if math.isfinite(value) else None


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


def marks(
    estimates: Sequence[Estimate | None], better: Literal["higher", "lower"] | None
) -> list[str]:
    """BEST for the best estimate, TIE for estimates that do not differ from it, else "".

    Two estimates differ if Welch's t-test rejects equal means at the level LEVEL. The spread of an
    estimate with `runs` is the standard deviation over them. Without `runs` it is a standard error
    within one run. Nothing is marked if an estimate has no spread, because differences cannot be
    judged, or if fewer than two estimates are finite.
    """
    known = [e for e in estimates if e is not None and math.isfinite(e.mean)]
    if better is None or len(known) < 2 or any(_error(e) is None for e in known):
        return [""] * len(estimates)
    first = (max if better == "higher" else min)(known, key=lambda e: e.mean)

    def mark(one: Estimate | None) -> str:
        if one is first:
            return BEST
        if one is None or not math.isfinite(one.mean):
            return ""
        return "" if differ(one, first) else TIE

    return [mark(one) for one in estimates]


def differ(one: Estimate, other: Estimate) -> bool:
    """Whether the means of two estimates differ by Welch's t-test."""
    from scipy.stats import t

    errors = [_error(one) or 0.0, _error(other) or 0.0]
    variance = sum(error**2 for error in errors)
    if variance == 0:
        return one.mean != other.mean
    counts = [math.inf if e.runs is None else e.runs - 1 for e in (one, other)]
    inverse = sum(error**4 / count for error, count in zip(errors, counts, strict=True))
    freedom = variance**2 / inverse if inverse else math.inf
    statistic = abs(one.mean - other.mean) / math.sqrt(variance)
    return bool(statistic > t.ppf(1 - LEVEL / 2, freedom))


def _error(estimate: Estimate) -> float | None:
    """The standard error of the mean; None if it is not known."""
    if estimate.spread is None or not math.isfinite(estimate.spread):
        return None
    if estimate.runs is None:
        return estimate.spread
    return estimate.spread / math.sqrt(estimate.runs) if estimate.runs > 1 else None


def published(name: str, *keys: str) -> Estimate | None:
    """The number at `keys` of the table or figure `name`; None if the paper does not print it.

    Raises KeyError for a name that is not in the file.
    """
    node: Any = _published()[name]["values"]
    for key in keys:
        if not isinstance(node, dict) or key not in node:
            return None
        node = node[key]
    return Estimate(*node) if isinstance(node, list) else Estimate(float(node))


def comparable(records: Iterable[Record], name: str, *keys: str) -> Estimate | None:
    """`published(name, *keys)` for comparison with `records`; None if they used substitute data."""
    if any(record.substitute is not None for record in records):
        return None
    return published(name, *keys)


def printed(name: str, *keys: str) -> float:
    """The mean of `published(name, *keys)`. Raises KeyError if the paper does not print it."""
    found = published(name, *keys)
    if found is None:
        raise KeyError(f"published.yaml has no {name} {' '.join(keys)}")
    return found.mean


def names() -> list[str]:
    """Names of the tables and figures in the file."""
    return list(_published())


@cache
def _published() -> Any:
    return OmegaConf.to_container(OmegaConf.load(PUBLISHED))
