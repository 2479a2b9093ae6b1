"""From numbers over seeds to a verdict on a claim. Imports no torch.

A claim is written as margins: quantities that are positive where it is true. Each has one value a
seed, so its mean has an interval (Student's t on the values, which are mostly differences of two
samplers at equal seeds: the paired test). A claim

    holds           when the 95 % interval of every margin lies above 0;
    does not hold   when that of some margin lies below 0, at a level shared among the margins;
    is not decided  otherwise, and the finding says what it would take.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

from experiments.tables.table import Estimate

LEVEL = 0.95  # of an interval, each claim by itself
MOST = 1000  # seeds: nobody will run more


class Verdict(StrEnum):
    """What the ledger says of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "not decided"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Margin:
    """A quantity that is positive where the claim is true.

    `values` has one entry a seed, or a single one that is `exact`: computed without chance.
    `limits` replaces the interval where records carry their own, `basis` says what it is made of.
    With `at_least` the values are lower bounds, which can support a claim but never refute it.
    """

    what: str
    values: tuple[float, ...]
    exact: bool = False
    limits: tuple[float, float] | None = None
    basis: str = "chains of one run"
    at_least: bool = False

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Of the mean; infinite where a single run, or an undefined value, says nothing."""
        if self.limits is not None:
            return self.limits
        values, count = np.asarray(self.values, dtype=float), len(self.values)
        if not np.isfinite(values).all() or (count < 2 and not self.exact):
            return -math.inf, math.inf
        if count < 2:
            return self.mean, self.mean
        reach = stats.t.ppf((1 + level) / 2, count - 1) * values.std(ddof=1) / math.sqrt(count)
        return self.mean - float(reach), self.mean + float(reach)

    def seeds_needed(self) -> int | None:
        """Seeds that would decide if mean and spread stayed as they are; None beyond `MOST`."""
        spread = float(np.std(self.values, ddof=1)) if len(self.values) > 1 else math.nan
        for count in range(max(2, len(self.values)), MOST + 1):
            if stats.t.ppf((1 + LEVEL) / 2, count - 1) * spread / math.sqrt(count) < abs(self.mean):
                return count
        return None

    def text(self) -> str:
        """`DULA - DMALA: 1.77 [1.73, 1.81], 5 runs`."""
        low, high = self.interval()
        sign = "at least " if self.at_least else ""
        if self.exact:
            return f"{self.what}: {self.mean:.3g} (exact)"
        if self.limits is not None:
            return f"{self.what}: {self.mean:.3g} [{low:.3g}, {high:.3g}], {self.basis}"
        runs = f"{len(self.values)} run{'s' * (len(self.values) != 1)}"
        spread = "" if math.isinf(low) else f" [{low:.3g}, {high:.3g}]"
        return f"{self.what}: {sign}{self.mean:.3g}{spread}, {runs}"


@dataclass(frozen=True)
class Number:
    """A quantity as measured here and as the paper prints it, where it does."""

    what: str
    here: Estimate
    paper: Estimate | None = None


@dataclass(frozen=True)
class Finding:
    """What records say of a claim. `note` explains a measure that the paper leaves open."""

    margins: tuple[Margin, ...]
    numbers: tuple[Number, ...] = ()
    note: str = ""

    @property
    def binding(self) -> Margin:
        """The margin that the claim is closest to failing by, relative to its uncertainty."""

        def strength(margin: Margin) -> float:
            low, high = margin.interval()
            half = (high - low) / 2
            if math.isinf(half):
                return 0.0  # nothing is known of it
            return margin.mean / half if half else math.copysign(math.inf, margin.mean)

        return min(self.margins, key=lambda margin: (strength(margin), margin.mean))

    def verdict(self) -> tuple[Verdict, str]:
        """The verdict, and what it would take where there is none."""
        intervals = [margin.interval() for margin in self.margins]
        if all(low > 0 for low, _ in intervals):
            return Verdict.HOLDS, ""
        shared = 1 - (1 - LEVEL) / len(self.margins)
        for margin in self.margins:
            below = margin.interval(shared)[1] < 0 or (margin.exact and margin.mean <= 0)
            if below and not margin.at_least:
                return Verdict.FAILS, ""
        return Verdict.OPEN, _needs(m for m in self.margins if not m.interval()[0] > 0)


def _needs(margins: Iterable[Margin]) -> str:
    reasons = []
    for margin in margins:
        if not np.isfinite(margin.values).all():
            reasons.append(f"{margin.what} is undefined in some runs")
        elif margin.limits is not None:
            low, high = margin.limits
            interval = f"{margin.mean:.3g} [{low:.3g}, {high:.3g}]"
            reasons.append(f"{margin.what} is {interval}, {margin.basis}")
        elif margin.at_least and margin.mean <= 0:
            reasons.append(f"{margin.what} is only bounded from below: longer runs")
        elif len(margin.values) < 2:
            reasons.append(f"{margin.what} has a single run: more seeds")
        else:
            seeds = margin.seeds_needed()
            count = f"about {seeds} seeds" if seeds else f"more than {MOST} seeds"
            reasons.append(f"{margin.text()}: {count}")
    more = f"; and {len(reasons) - 2} more like it" if len(reasons) > 2 else ""
    return "; ".join(reasons[:2]) + more
