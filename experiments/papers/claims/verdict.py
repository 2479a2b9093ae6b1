"""Decide whether a claim holds, from its margins.

Each claim becomes margins, quantities that are positive if it is true (`claims.compare`). A claim

    holds           if the 95 % interval of every margin lies above 0;
    does not hold   if the interval of some margin lies below 0 (Bonferroni-corrected level);
    is not decided  otherwise; the finding then says what would decide it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from latticework.experiments.papers.claims.compare import (
    MAX_ADVISED_SEEDS,
    Margin,
    corrected_level,
)
from latticework.experiments.papers.claims.readings import Seeds
from latticework.experiments.records.estimates import Estimate, estimate

MAX_REASONS = 2  # reasons that are written out for a claim that is not decided


class Verdict(StrEnum):
    """The ledger's verdict on a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "not decided"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Number:
    """A quantity as measured here, and as printed in the paper (None if it is not)."""

    quantity: str
    here: Estimate | None
    paper: Estimate | None = None


@dataclass(frozen=True)
class Finding:
    """The evidence for a claim.

    `note` says what was measured and explains choices that the paper leaves open. `indicative`
    names data that cannot decide the claim, such as a part of the paper's; empty if they can.
    `undecidable` says why no run of ours decides the claim; empty if runs do.
    """

    margins: Sequence[Margin]
    numbers: Sequence[Number] = ()
    note: str = ""
    indicative: str = ""
    undecidable: str = ""

    @property
    def weakest_margin(self) -> Margin:
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
        if not any(map(_is_open, self.margins)):
            return Verdict.HOLDS, ""
        level = corrected_level(len(self.margins))
        for margin in self.margins:
            below = margin.interval(level)[1] < 0 or (margin.exact and margin.mean <= 0)
            if below and not margin.at_least:
                return Verdict.FAILS, ""
        return Verdict.OPEN, _describe_needs(self.margins)


def numbers(
    quantity: str,
    values: Mapping[str, Seeds],
    paper: Callable[[str], Estimate | None] = lambda name: None,
) -> list[Number]:
    """The values of each sampler beside the paper's; its name replaces `{}` in `quantity`."""
    rows = []
    for name, seeds in values.items():
        rows.append(Number(quantity.format(name), estimate(seeds.values()), paper(name)))
    return rows


def _is_open(margin: Margin) -> bool:
    """Whether the interval of the margin does not lie above 0."""
    return not margin.interval()[0] > 0


def _describe_needs(margins: Sequence[Margin]) -> str:
    """The runs that would decide each open margin, in words."""
    needs = [_describe_need(margin, len(margins)) for margin in filter(_is_open, margins)]
    needs = list(dict.fromkeys(needs))
    text = "; ".join(needs[:MAX_REASONS])
    similar = len(needs) - MAX_REASONS
    if similar <= 0:
        return text
    return f"{text}; and {similar} similar {'one' if similar == 1 else 'ones'}"


def _describe_need(margin: Margin, count: int) -> str:
    """The runs that would decide this margin, one of `count`."""
    if not np.isfinite(margin.values).all():
        return f"{margin.quantity} is undefined in some runs"
    if margin.at_least and margin.mean <= 0:
        return f"{margin.quantity} has only a lower bound: longer runs"
    if len(margin.values) < 2 and not margin.ends:
        return f"{margin.quantity} has a single run: more seeds"
    seeds = margin.seeds_needed(count)
    if seeds:
        return f"{margin.text()}: about {seeds} seeds"
    if margin.ends:
        return f"{margin.text()}: closer ends"
    return f"{margin.text()}: more than {MAX_ADVISED_SEEDS} seeds"
