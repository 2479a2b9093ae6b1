"""The thresholds that are ours: where a paper says "about" or "similar", and prints no number.

The ledger lists them with their reasons, and says how many verdicts change if all of them are
halved or doubled (`scale_thresholds`).
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from latticework.experiments.records.estimates import published_mean

SCALE: ContextVar[float] = ContextVar("scale", default=1.0)
USED: ContextVar[set["Threshold"] | None] = ContextVar("used", default=None)
SCALES = (0.5, 2.0)  # factors of all thresholds, at which the ledger judges again


@dataclass(frozen=True)
class Threshold:
    """A threshold of `size`, with what it bounds and why it is so large.

    A `is_factor` bounds a ratio from both sides, so it is scaled in its logarithm.
    """

    size: float
    bounds: str
    reason: str
    is_factor: bool = False

    @property
    def text(self) -> str:
        """`0.25`, or `a factor of 2`."""
        return f"a factor of {self.size:.3g}" if self.is_factor else f"{self.size:.3g}"

    def value(self) -> float:
        """The size, halved or doubled within `scale_thresholds`."""
        used, scale = USED.get(), SCALE.get()
        if used is not None:
            used.add(self)
        return self.size**scale if self.is_factor else self.size * scale


@contextmanager
def scale_thresholds(scale: float) -> Iterator[None]:
    """Scale all thresholds in this context."""
    token = SCALE.set(scale)
    try:
        yield
    finally:
        SCALE.reset(token)


@contextmanager
def collect_used() -> Iterator[set[Threshold]]:
    """The thresholds whose values are asked for in this context."""
    used: set[Threshold] = set()
    token = USED.set(used)
    try:
        yield used
    finally:
        USED.reset(token)


def slight_nats() -> float:
    """The ISL of rates-FPCD less that of the training set on USPS, which the paper calls slight."""
    rates_fpcd = published_mean("rates_fig2", "usps", "rates_fpcd")
    return rates_fpcd - published_mean("rates_fig2", "usps", "training_set")


SLOPE = Threshold(
    0.01,
    "distance of the slope of Theorem 5.1 from -1",
    "the chains have finite step sizes",
)
ACCEPTANCE = Threshold(
    0.03, "distance from a printed acceptance rate", "the paper prints two digits and no spread"
)
CHANGED_SITES = Threshold(
    0.5, "distance from a printed number of sites", "the paper prints a whole number"
)
LOG_RMSE = Threshold(0.25, 'log RMSE, of "about as well"', "a factor of 1.28 in the error")
LOG_MMD = Threshold(
    0.5, 'log MMD^2, of "about -6.5"', "the paper prints it as about, to half a unit"
)
TIME = Threshold(
    2.0, 'a time, of "roughly" and "similar"', "times depend on the machine", is_factor=True
)
TERM_ACCEPTANCE = Threshold(
    2.0, "an acceptance rate of Appendix D", "one of the rates is 0.005 %", is_factor=True
)
GROWTH = Threshold(
    math.log(10) / 4,
    "growth of a distance between laws, in logarithms",
    "half of what a bias would add over a decade of steps",
)
BLEU = Threshold(
    2.5,
    'points of BLEU, of "similar quality"',
    "the paper calls methods similar that differ by 2.0",
)
SAMPLE_COST = Threshold(
    math.sqrt(7 / 2),
    'the cost of a sample, of "two" and "seven" times',
    "the ranges of the two ratios meet and do not overlap",
    is_factor=True,
)
UNIFORM = Threshold(
    0.05,
    "distance of the share of pixels that differ from 1/2",
    "a tenth of the share of uniform samples",
)
CLEAR_NATS = Threshold(
    slight_nats() / 2,
    'nats of ISL, of "no clear difference" and "caught up"',
    "half of the 1.5 nats that the paper calls a slight margin, which its figure shows",
)
PLATEAU_NATS = Threshold(
    0.5,
    "nats of ISL by which sizes on a plateau differ",
    "less than a clear difference",
)
STUCK_NATS = Threshold(
    10.0,
    "nats between two starts of a stuck chain",
    "starts of rates-FPCD, which mixes, differ by less than one",
)
NARROW_MODE_SHARE = Threshold(
    0.1, "share of one state among the samples, of a narrow mode", '"disproportionate"'
)
BLANK_SHARE = Threshold(0.005, "share of words in a vector of zeros", "at most five of 1,000 words")
LEARNED_REJECTION = Threshold(
    0.01, "rejection rate of PAVG on a quadratic target", "its matrix is learned"
)
EXPONENT = Threshold(
    0.15, "distance from the exponent 2/3 of PAFS", "the theorem is about infinite sizes"
)
ROOT = Threshold(
    0.15,
    "distance from the exponent 1/2 of the fast weights' distance",
    "the bound is about the limit of many samples",
)
