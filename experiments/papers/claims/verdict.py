"""Decide whether a claim holds, from numbers over seeds.

Each claim becomes numbers, such as the error of GWG minus that of DMALA, positive if the claim is
true. These are its margins. A margin has one value per seed, so its mean has a confidence interval
by Student's t. Most values are differences of two samplers at equal seeds; this is the paired t
test. A claim

    holds           if the 95 % interval of every margin lies above 0;
    does not hold   if the interval of some margin lies below 0 (Bonferroni-corrected level);
    is not decided  otherwise; the finding then says what would decide it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

from latticework.experiments.records.numbers import Estimate

LEVEL = 0.95  # of an interval; not corrected for the number of claims
MOST = 1000  # the largest number of seeds to recommend


class Verdict(StrEnum):
    """The ledger's verdict on a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "not decided"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Margin:
    """A quantity that is positive if the claim is true.

    `values` has one entry per seed, or a single one that is `exact`, that is, free of randomness.
    `limits` gives the interval at a level if records have their own; `basis` says where it comes
    from. A claim that a quantity is above or below a `line` has its distance as margin; `expected`
    is the side ("above", "below"), and the text shows the quantity. With `at_least`, the values are
    lower bounds, which can support a claim but never refute it.
    """

    what: str
    values: tuple[float, ...]
    exact: bool = False
    limits: Callable[[float], tuple[float, float]] | None = None
    basis: str = "chains of one run"
    at_least: bool = False
    expected: str = ""
    line: float = 0.0

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Confidence interval of the mean; infinite for a single run or an undefined value."""
        if self.limits is not None:
            return self.limits(level)
        values, count = np.asarray(self.values, dtype=float), len(self.values)
        if not np.isfinite(values).all() or (count < 2 and not self.exact):
            return -math.inf, math.inf
        if count < 2:
            return self.mean, self.mean
        reach = stats.t.ppf((1 + level) / 2, count - 1) * values.std(ddof=1) / math.sqrt(count)
        return self.mean - float(reach), self.mean + float(reach)

    def seeds_needed(self, margins: int) -> int | None:
        """Seeds that would decide if mean and spread stayed the same; None for more than `MOST`.

        `margins` is their number in the claim: one below 0 has to be so at the corrected level.
        """
        spread = float(np.std(self.values, ddof=1))
        level = LEVEL if self.mean > 0 else corrected(margins)
        for count in range(max(2, len(self.values)), MOST + 1):
            if stats.t.ppf((1 + level) / 2, count - 1) * spread / math.sqrt(count) < abs(self.mean):
                return count
        return None

    def text(self) -> str:
        """`DULA - DMALA: 1.77 [1.73, 1.81], 5 runs`. With limits of its own, the limits alone."""
        low, high = self.interval()
        sign = "at least " if self.at_least else ""
        if self.expected:
            return self._of_the_quantity()
        if self.exact:
            return f"{self.what}: {self.mean:.3g} (exact)"
        if self.limits is not None:
            return f"{self.what}: {low:.3g} to {high:.3g}, {self.basis}"
        runs = f"{len(self.values)} run{'s' * (len(self.values) != 1)}"
        spread = "" if math.isinf(low) else f" [{low:.3g}, {high:.3g}]"
        return f"{self.what}: {sign}{self.mean:.3g}{spread}, {runs}"

    def _of_the_quantity(self) -> str:
        """`acceptance of DMALA: 0.5398 [0.5388, 0.5408], expected above 0.49, 5 runs`."""
        sign = 1 if self.expected == "above" else -1
        mean, *ends = (self.line + sign * value for value in (self.mean, *self.interval()))
        low, high = sorted(ends)
        spread = "" if math.isinf(low) or self.exact else f" [{low:.4g}, {high:.4g}]"
        runs = f", {len(self.values)} run{'s' * (len(self.values) != 1)}"
        asked = f"expected {self.expected} {self.line:.4g}"
        return f"{self.what}: {mean:.4g}{spread}, {asked}{' (exact)' if self.exact else runs}"


@dataclass(frozen=True)
class Number:
    """A quantity as measured here, and as printed in the paper (None if it is not)."""

    what: str
    here: Estimate | None
    paper: Estimate | None = None


@dataclass(frozen=True)
class Finding:
    """The evidence for a claim.

    `note` says what was measured and explains choices that the paper leaves open. `indicative`
    names data that cannot decide the claim, such as a part of the paper's; empty if they can.
    """

    margins: Sequence[Margin]
    numbers: Sequence[Number] = ()
    note: str = ""
    indicative: str = ""

    @property
    def binding(self) -> Margin:
        """The margin that is closest to failing, relative to its uncertainty."""

        def strength(margin: Margin) -> float:
            low, high = margin.interval()
            half = (high - low) / 2
            if math.isinf(half):
                return 0.0  # nothing is known of it
            return margin.mean / half if half else math.copysign(math.inf, margin.mean)

        return min(self.margins, key=lambda margin: (strength(margin), margin.mean))

    def verdict(self) -> tuple[Verdict, str]:
        """The verdict; if it is not decided, also what would decide it."""
        intervals = [margin.interval() for margin in self.margins]
        if all(low > 0 for low, _ in intervals):
            return Verdict.HOLDS, ""
        shared = corrected(len(self.margins))
        for margin in self.margins:
            below = margin.interval(shared)[1] < 0 or (margin.exact and margin.mean <= 0)
            if below and not margin.at_least:
                return Verdict.FAILS, ""
        return Verdict.OPEN, _needs(self.margins)


def corrected(margins: int) -> float:
    """The Bonferroni-corrected level of each of `margins` intervals."""
    return 1 - (1 - LEVEL) / margins


def _needs(margins: Sequence[Margin]) -> str:
    reasons = []
    for margin in (m for m in margins if not m.interval()[0] > 0):
        if not np.isfinite(margin.values).all():
            reasons.append(f"{margin.what} is undefined in some runs")
        elif margin.limits is not None:
            reasons.append(margin.text())
        elif margin.at_least and margin.mean <= 0:
            reasons.append(f"{margin.what} has only a lower bound: longer runs")
        elif len(margin.values) < 2:
            reasons.append(f"{margin.what} has a single run: more seeds")
        else:
            seeds = margin.seeds_needed(len(margins))
            count = f"about {seeds} seeds" if seeds else f"more than {MOST} seeds"
            reasons.append(f"{margin.text()}: {count}")
    reasons = list(dict.fromkeys(reasons))
    rest = len(reasons) - 2
    more = f"; and {rest} similar one{'s' * (rest > 1)}" if rest > 0 else ""
    return "; ".join(reasons[:2]) + more
