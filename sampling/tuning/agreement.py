"""Whether the samplers of a race agree on the target.

A sampler that missed a part of it can look converged: chains that all miss the same part have an
R-hat near 1. A sampler is mixed if its own chains agree. Two samplers disagree in these tests
between independent chains:

- The means of two mixed samplers differ, of the log-probability or an entry of x (Welch's t-test).
- The mean log-probability of a sampler that is not mixed is above that of a mixed one (one-sided):
  from random states chains go up, so the latter has missed states of high probability.
- k of one's C chains end above the largest log-probability of the n effective draws of a mixed one.
  For draws of one law this has probability C! (C + n - k)! / ((C - k)! (C + n)!).

Samplers of one law disagree with probability `DISAGREEMENT_LEVEL` at most (Bonferroni).
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy import stats

DISAGREEMENT_LEVEL = 1e-3
NAMED = 4  # further quantities that a sentence names
ROUNDING = 4 * float(np.finfo(np.float32).eps)  # relative error of means; the targets' precision


@dataclass(frozen=True)
class ChainSummary:
    """The target as the chains of one sampler saw it. Quantity 0 is the log-probability."""

    name: str
    mixed: bool  # whether its own chains agree
    means: NDArray  # [chains, quantities], over the draws of each chain
    last: NDArray  # [chains], log-probability of the last draw
    largest: float  # log-probability of any draw
    effective: float  # draws of all chains that count as independent ones
    start: float = -np.inf  # largest log-probability of starts that are not random: chains
    #          that have not left them do not count against another sampler


def disagreements(seen: Sequence[ChainSummary], quantities: Sequence[str]) -> list[str]:
    """A sentence for each pair of samplers that disagree, with the quantity that differs most.

    `quantities` names the columns of `means`.
    """
    pairs = [pair for pair in combinations(seen, 2) if pair[0].mixed and pair[1].mixed]
    tried = [(low, high) for low, high in permutations(seen, 2) if low.mixed]
    behind = [(low, high) for low, high in tried if not high.mixed]
    level = DISAGREEMENT_LEVEL / max(1, len(pairs) * len(quantities) + len(behind) + len(tried))
    sentence_by_pair: dict[frozenset[str], str] = {}
    for first, second in pairs:
        p = _p(first, second, "two-sided")
        if (p < level).any():
            places = [int(place) for place in p.argsort() if p[place] < level]
            sentence_by_pair[frozenset((first.name, second.name))] = _describe_disagreement(
                first, second, quantities, places
            )
    for low, high in behind:
        if high.means[:, 0].mean() > high.start and _p(high, low, "greater")[0] < level:
            sentence_by_pair[frozenset((low.name, high.name))] = _describe_disagreement(
                low, high, quantities, [0]
            )
    for low, high in tried:
        above = int((high.last > max(low.largest, high.start)).sum())
        if _chance(above, len(high.last), int(low.effective)) < level:
            sentence_by_pair.setdefault(
                frozenset((low.name, high.name)),
                f"{above} of the {len(high.last)} chains of {high.name} ended at a log-probability "
                f"above {low.largest:.5g}, the largest that {low.name} saw",
            )
    return list(sentence_by_pair.values())


def _chance(above: int, chains: int, draws: int) -> float:
    """The probability that the `above` largest of `chains` and `draws` are all of the former."""
    return comb(chains, above) / comb(chains + draws, above)


def _p(one: ChainSummary, other: ChainSummary, alternative: str) -> NDArray:
    """P-values of equal means, by quantity. Differences within rounding count as 0."""
    a, b = one.means, other.means
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # quantities that never change
        p = stats.ttest_ind(a, b, equal_var=False, alternative=alternative).pvalue
    gap = a.mean(0) - b.mean(0)
    apart = gap if alternative == "greater" else abs(gap)
    p = np.where(np.isnan(p), np.where(apart > 0, 0.0, 1.0), p)
    return np.where(abs(gap) <= ROUNDING * abs(a.mean(0)), 1.0, p)


def _describe_disagreement(
    one: ChainSummary, other: ChainSummary, quantities: Sequence[str], places: Sequence[int]
) -> str:
    """The means of the first of `places` with standard errors over chains, and the other places."""
    first, *more = places
    means = [
        f"{each.means[:, first].mean():.5g} ± {stats.sem(each.means[:, first]):.2g} by {each.name}"
        for each in (one, other)
    ]
    text = f"the mean of {quantities[first]} is {' and '.join(means)}"
    if not more:
        return text
    ending = f" and {len(more) - NAMED} more" if len(more) > NAMED else ""
    return (
        f"{text}, and those of {', '.join(quantities[i] for i in more[:NAMED])}{ending} differ too"
    )
