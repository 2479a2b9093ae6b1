"""Margins: quantities that are positive if a claim is true, with their confidence intervals.

A margin has one value per seed, so its mean has a confidence interval by Student's t. Most values
are differences of two samplers at equal seeds; this is the paired t test.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from latticework.experiments.papers.claims.readings import Seeds, paired_differences
from latticework.sampling.intervals import t_half_width

Ends = Sequence[tuple[float, float]]  # a value that is known between two ends, one pair a run
LEVEL = 0.95  # level of an interval; not corrected for the number of claims
MAX_ADVISED_SEEDS = 1000  # the largest number of seeds to recommend
MAX_ROUNDING = 1e-12  # share of the threshold: a smaller quantity is a rounding error of 0


@dataclass(frozen=True)
class Margin:
    """A quantity that is positive if the claim is true.

    `values` has one entry per seed, or a single one that is `exact`, that is, free of randomness.
    Where a run knows its value only between two ends, `ends` gives them at a level and `basis` says
    where they come from; the interval then reaches from that of the mean lower end to that of the
    mean upper end. A claim that a quantity is above or below a `line` has its distance as margin;
    `expected` is the side ("above", "below"), and the text shows the quantity. With `at_least`, the
    values are lower bounds, which can support a claim but never refute it.
    """

    quantity: str
    values: tuple[float, ...]
    exact: bool = False
    ends: Callable[[float], Ends] | None = None
    basis: str = "chains of one run"
    at_least: bool = False
    expected: str = ""
    threshold: float = 0.0

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Confidence interval of the mean; infinite for a single run or an undefined value."""
        if self.ends is not None:
            low, high = self.sides(level)
            return low.interval(level)[0], high.interval(level)[1]
        values, count = np.asarray(self.values, dtype=float), len(self.values)
        if not np.isfinite(values).all() or (count < 2 and not self.exact):
            return -math.inf, math.inf
        if count < 2:
            return self.mean, self.mean
        half = _half_width(float(values.std(ddof=1)), count, level)
        return self.mean - half, self.mean + half

    def sides(self, level: float = LEVEL) -> list["Margin"]:
        """The lower and the upper ends at `level`, each as a margin. Needs `ends`."""
        assert self.ends is not None
        both = zip(*self.ends(level), strict=True)
        return [Margin(self.quantity, side, exact=len(side) == 1) for side in both]

    def seeds_needed(self, margins: int) -> int | None:
        """Seeds that would decide if mean and spread stayed the same; None for very many.

        `margins` is their number in the claim: one below 0 has to be so at the corrected level.
        None too for a single run, and if 0 lies between the mean `ends`.
        """
        if len(self.values) < 2:
            return None
        if self.ends is not None:
            low, high = self.sides()
            if low.mean > 0:
                return low.seeds_needed(margins)
            return high.seeds_needed(margins) if high.mean < 0 else None
        spread = float(np.std(self.values, ddof=1))
        level = LEVEL if self.mean > 0 else corrected_level(margins)
        for count in range(max(2, len(self.values)), MAX_ADVISED_SEEDS + 1):
            if _half_width(spread, count, level) < abs(self.mean):
                return count
        return None

    def text(self) -> str:
        """`DULA - DMALA: 1.77 [1.73, 1.81], 5 runs`. With ends, the interval alone."""
        low, high = self.interval()
        sign = "at least " if self.at_least else ""
        if self.expected:
            return self._text_of_quantity()
        if self.exact:
            return f"{self.quantity}: {self.mean:.3g} (exact)"
        if self.ends is not None:
            return f"{self.quantity}: {low:.3g} to {high:.3g}, {self.basis}"
        spread = "" if math.isinf(low) else f" [{low:.3g}, {high:.3g}]"
        return f"{self.quantity}: {sign}{self.mean:.3g}{spread}, {self._count_runs()}"

    def _text_of_quantity(self) -> str:
        """`acceptance of DMALA: 0.5398 [0.5388, 0.5408], expected above 0.49, 5 runs`."""
        mean, *ends = map(self._quantity, (self.mean, *self.interval()))
        low, high = sorted(ends)
        spread = "" if math.isinf(low) or self.exact else f" [{low:.4g}, {high:.4g}]"
        basis = " (exact)" if self.exact else f", {self._count_runs()}"
        expected = f"expected {self.expected} {self.threshold:.4g}"
        return f"{self.quantity}: {mean:.4g}{spread}, {expected}{basis}"

    def _quantity(self, distance: float) -> float:
        """The quantity that is so far on the expected side of the threshold."""
        quantity = self.threshold + (distance if self.expected == "above" else -distance)
        return 0.0 if abs(quantity) < MAX_ROUNDING * abs(self.threshold) else quantity

    def _count_runs(self) -> str:
        return "1 run" if len(self.values) == 1 else f"{len(self.values)} runs"


def corrected_level(margins: int) -> float:
    """The Bonferroni-corrected level of each of `margins` intervals."""
    return 1 - (1 - LEVEL) / margins


def _half_width(spread: float, count: int, level: float) -> float:
    return t_half_width(count, level) * spread / math.sqrt(count)


# Margins from values by seed.


def margin_above(quantity: str, seeds: Seeds, least: float) -> Margin:
    """The claim that `quantity`, whose values are `seeds`, is larger than `least`."""
    values = tuple(value - least for value in seeds.values())
    return Margin(quantity, values, expected="above", threshold=least)


def margin_below(quantity: str, seeds: Seeds, most: float) -> Margin:
    """The claim that `quantity`, whose values are `seeds`, is smaller than `most`."""
    values = tuple(most - value for value in seeds.values())
    return Margin(quantity, values, expected="below", threshold=most)


def positive(quantity: str, seeds: Seeds) -> Margin:
    """The claim that `seeds` are larger than 0."""
    return Margin(quantity, tuple(seeds.values()))


def difference(quantity: str, larger: Seeds, smaller: Seeds) -> Margin:
    """The claim that `larger` exceeds `smaller` at equal seeds."""
    return positive(quantity, paired_differences(larger, smaller))


def differences(
    quantity: str, values: Mapping[str, Seeds], pairs: Iterable[tuple[str, str]]
) -> list[Margin]:
    """The claims that the first sampler of each of `pairs` exceeds the second."""
    return [difference(f"{quantity}, {a} - {b}", values[a], values[b]) for a, b in pairs]


def equivalence(quantity: str, seeds: Seeds, centre: float, tolerance: float) -> list[Margin]:
    """An equivalence test: both margins are positive if the mean is within `centre` ± `tolerance`.

    The claim holds if the whole interval lies inside, and fails if it lies outside on one side.
    """
    lowest, largest = centre - tolerance, centre + tolerance
    return [margin_above(quantity, seeds, lowest), margin_below(quantity, seeds, largest)]
