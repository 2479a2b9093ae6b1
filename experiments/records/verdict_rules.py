"""Rules of a verdict on draws, and when a run was right: applied to the rows of task=calibration.

All of this was written before the judging half was run, and is not changed by it:

- Wrong: some mean is off by more than z* standard errors (z* is two-sided at `LEVEL` over all
  quantities of the run, by Bonferroni), or by more than `LARGEST_SHARE` sds of the target. These
  are four MCSEs at the ESS of 400 that a verdict promises. Right: not wrong.
- Values that are too rare to be judged (`diagnostics.find_rare`): some rules leave them out and say
  so. Such a verdict promises no standard error for them, so they are only wrong by sds there.
- Unseen mode: a wrong run on a target of `TWO_SIDED`, all draws of which are on one side.
- Choosing: the targets `CHOOSING` with even seeds. Judging: `JUDGING` with odd seeds. No other
  record counts.
- The rule is chosen on the choosing half, among `RULES`. Among those that refuse less than a tenth
  of the right runs with an ESS of 400, it has the fewest wrong ones among the converged, less
  unseen modes; of equals, the one with the smallest limit of R-hat for few chains. Seeds 0 and 2 of
  the choosing half chose; seed 1 of the judging half had been seen before, so later odd seeds
  judge.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

LEVEL = 1e-3  # probability that a right run of known MCSEs is called wrong
LARGEST_SHARE = 0.2  # sds of the target
MIN_ESS = 400
MANY_CHAINS = 32  # chains from which a test over chains can see a drift
MIN_DRAWS, MIN_CHAIN_DRAWS = 400, 20  # draws of all chains, and of each: fewer are not judged
CHOOSING = (
    "ising16_crit",
    "potts3_8",
    "crf_8x8_q3",
    "pmj_cubic_60",
    "sk_20",
    "asia",
    "rbm_24x16",
    "hardcore_6x6",
    "subset_30_5",
    "select_10",
    "two_modes_20",
)
JUDGING = (
    "ising16_cold",
    "ising16_field",
    "potts4_8",
    "grids_11",
    "alarm",
    "fhmm_zeros",
    "rbm_digits_20",
    "colourings_6x6",
    "knapsack_8x4",
    "select_19",
    "sbm_florentine",
    "poisson_ring_10",
)
# Half of the largest sum of the sites that are read: two phases or modes lie on either side.
TWO_SIDED = {"ising16_crit": 16, "ising16_cold": 16, "two_modes_20": 10}
KINDS = ("energy", "sites", "pairs", "moments")


@dataclass(frozen=True)
class VerdictRule:
    """When a run is called converged."""

    r_hat: float = 0.01  # largest excess over 1, if that does not depend on the chains
    by_chains: float = 0.0  # largest excess for each chain, in place of `r_hat`
    most: float = 0.2  # largest excess of any number of chains, with `by_chains`
    ess: float = MIN_ESS  # smallest ESS
    ratio: float = np.inf  # largest ESS of a draw
    pairs: bool = False  # R-hat and ESS of products of pairs too
    moves: bool = False  # every chain has moved
    drift: float = 0.0  # smallest p-value of the test for a drift, with many chains
    entries: int = 0  # entries of the rarer value of a site, at least
    rare_apart: bool = False  # values that are too rare to be judged are left out, and said to be

    def accepts(self, rows: pd.DataFrame) -> pd.Series:
        """Whether each run is converged."""
        excess = rows["chains"].mul(self.by_chains).clip(upper=self.most)
        if not self.by_chains:
            excess = excess.add(self.r_hat)
        number = rows["chains"] * rows["draws"]
        good = is_judged(rows)
        judged = "judged_" if self.rare_apart else ""
        for kind in KINDS[: 3 if self.pairs else 2]:
            good &= rows[f"{judged}r_hat_{kind}"] - 1 <= excess
            good &= np.minimum(rows[f"{judged}ess_{kind}"], number) >= self.ess
            good &= rows[f"{judged}most_ess_{kind}"] <= self.ratio * number
            tested = rows["chains"] >= MANY_CHAINS
            good &= ~tested | (rows[f"{judged}drift_{kind}"] >= self.drift)
        if self.moves:
            good &= rows["frozen"] == 0
        return good & (rows["entries"] >= self.entries)


BY_CHAINS = VerdictRule(by_chains=1 / MIN_ESS, ratio=2, moves=True)
PROTOTYPE = replace(BY_CHAINS, pairs=True, drift=0.01)


def _rules_apart() -> dict[str, VerdictRule]:
    """Rules that leave rare values out, with R-hat's limit times a factor and a largest limit."""
    rules = {}
    for times, most in product((1.0, 1.25, 1.5, 2.0), (0.2, 1.0)):
        rules[f"rare apart, R-hat {times:g} times, at most {1 + most:g}"] = replace(
            PROTOTYPE, by_chains=times / MIN_ESS, most=most, rare_apart=True
        )
    return rules


RULES: Mapping[str, VerdictRule] = {
    "R-hat 1.01, ESS 400": VerdictRule(),  # Vehtari et al. 2021
    "R-hat by chains": BY_CHAINS,
    "+ drift": replace(BY_CHAINS, drift=0.01),
    "+ pairs": replace(BY_CHAINS, pairs=True),
    "+ 10 entries": replace(BY_CHAINS, entries=10),
    "+ pairs, drift": PROTOTYPE,
    "+ pairs, drift, 10 entries": replace(PROTOTYPE, entries=10),
    "R-hat 1.01, all of these": VerdictRule(
        ratio=2, moves=True, pairs=True, drift=0.01, entries=10
    ),
    **_rules_apart(),
}
# The usual rule, and that of sampling.verdict.
FORMER, IN_USE = "R-hat 1.01, ESS 400", "rare apart, R-hat 1.25 times, at most 2"


def is_judged(rows: pd.DataFrame) -> pd.Series:
    """Whether there are enough draws to judge."""
    enough = rows["chains"] * rows["draws"] >= MIN_DRAWS
    return enough & (rows["draws"] >= MIN_CHAIN_DRAWS)


def is_wrong(rows: pd.DataFrame, rare_apart: bool = False) -> pd.Series:
    """Whether each run is wrong; with `rare_apart`, values that it does not judge have no z."""
    from scipy.stats import norm

    limit = norm.isf(LEVEL / 2 / rows["quantities"])
    judged = "judged_" if rare_apart else ""
    far = rows[[f"{judged}z_{kind}" for kind in KINDS]].max(axis=1) > limit
    return far | (rows[[f"share_{kind}" for kind in KINDS]].max(axis=1) > LARGEST_SHARE)


def has_unseen_mode(rows: pd.DataFrame) -> pd.Series:
    """Whether all draws are on one side of a target of two sides, and the run is wrong."""
    middle = rows["target"].map(TWO_SIDED)
    return is_wrong(rows) & ((rows["least_sum"] > middle) | (rows["largest_sum"] < middle))


def has_promised_ess(rows: pd.DataFrame) -> pd.Series:
    """Whether the log-probability and every site have the ESS that a verdict promises."""
    least = np.minimum(rows["ess_energy"], rows["ess_sites"])
    return np.minimum(least, rows["chains"] * rows["draws"]) >= MIN_ESS


def half_of(rows: pd.DataFrame) -> pd.Series:
    """`choosing`, `judging` or "" of each row."""
    even = rows["seed"] % 2 == 0
    choosing = rows["target"].isin(CHOOSING) & even
    judging = rows["target"].isin(JUDGING) & ~even
    return pd.Series(np.select([choosing, judging], ["choosing", "judging"], ""), rows.index)


class Share(NamedTuple):
    """A share of runs, with Wilson's 95 % interval of independent runs."""

    hits: int
    of: int
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.hits / self.of if self.of else np.nan


def share(chosen: pd.Series) -> Share:
    """The share of true values."""
    count, number = int(chosen.sum()), len(chosen)
    if not number:
        return Share(0, 0, np.nan, np.nan)
    z = 1.959964
    middle = (count + z**2 / 2) / (number + z**2)
    half = z * np.sqrt(count * (number - count) / number + z**2 / 4) / (number + z**2)
    return Share(count, number, max(0.0, middle - half), min(1.0, middle + half))


def measure_rates(rows: pd.DataFrame, rule: VerdictRule) -> dict[str, Share]:
    """How often a rule is wrong and how often it refuses, over the judged runs."""
    rows = rows[is_judged(rows)]
    accepted, wrong = rule.accepts(rows), is_wrong(rows)
    broken = is_wrong(rows, rule.rare_apart)  # promises
    promised = has_promised_ess(rows)
    return {
        "wrong of converged": share(broken[accepted]),
        "less unseen modes": share((broken & ~has_unseen_mode(rows))[accepted]),
        "refused of right": share(~accepted[~wrong]),
        "refused of right with ESS 400": share(~accepted[~wrong & promised]),
        "converged": share(accepted),
    }


def table_of_rules(rows: pd.DataFrame, rules: Mapping[str, VerdictRule] = RULES) -> pd.DataFrame:
    """The rates of each rule, a row a rule, as shares with their intervals."""
    records: dict[str, dict[str, Any]] = {}
    for name, rule in rules.items():
        records[name] = measure_rates(rows, rule)
    return pd.DataFrame.from_dict(records, orient="index")
