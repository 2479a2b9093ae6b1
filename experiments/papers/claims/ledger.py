"""The verdicts on the claims of the papers.

A claim is judged on finished runs at the paper's scale, on the data asked for, with the settings of
its experiment. Only such runs decide. Other records (a smaller scale, substitute data, other
settings) are indicative: without better records, the ledger shows their verdict as an indication.

Rules. A claim that a paper makes literally is judged literally. A weaker or another reading is a
claim of its own, with `own_reading`. The note of a finding says what was measured and what "about"
allows. Seeds used for tuning are excluded from the verdicts (`tuning_seed`). Where seeds were added
after a look at the first ones, the ledger also shows the verdict of the `fresh` ones alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from latticework.experiments.papers.claims.claim import DLP, GROUPS, LATER, OURS, RATES, Claim
from latticework.experiments.papers.claims.langevin_claims import LANGEVIN_CLAIMS
from latticework.experiments.papers.claims.later_claims import LATER_CLAIMS
from latticework.experiments.papers.claims.rates_claims import RATES_CLAIMS
from latticework.experiments.papers.claims.thresholds import (
    SCALES,
    Threshold,
    collect_used,
    scale_thresholds,
)
from latticework.experiments.papers.claims.verdict import Finding, Verdict
from latticework.experiments.records.record import Record

__all__ = ["CLAIMS", "DLP", "GROUPS", "LATER", "OURS", "RATES", "Claim", "Entry", "Pool", "judge"]
CLAIMS = (*LANGEVIN_CLAIMS, *RATES_CLAIMS, *LATER_CLAIMS)


@dataclass(frozen=True)
class Pool:
    """Records of one experiment that are judged together. Only the paper's scale `decides`."""

    basis: str  # "paper", "quick", "paper, substitutes"
    decides: bool
    records: list[Record]


@dataclass(frozen=True)
class Entry:
    """A line of the ledger. `indication` is the verdict on records that cannot decide."""

    claim: Claim
    verdict: Verdict
    basis: str = ""
    finding: Finding | None = None
    needs: str = ""
    indication: Verdict | None = None
    fresh: Finding | None = None  # from the claim's fresh runs alone
    thresholds: tuple[Threshold, ...] = ()  # thresholds of ours that the verdict depends on
    scaled: tuple[Verdict, ...] = ()  # the verdicts with all of them halved, and doubled


def judge(pools: Mapping[str, Sequence[Pool]], claims: Sequence[Claim] = CLAIMS) -> list[Entry]:
    """The entry of every claim. `pools` are lists by experiment, the best pool first."""
    return [judge_claim(claim, pools.get(claim.experiment, ())) for claim in claims]


def judge_claim(claim: Claim, pools: Sequence[Pool]) -> Entry:
    """The entry of one claim, and its verdicts where our thresholds are halved and doubled."""
    with collect_used() as used:
        entry = _judge_once(claim, pools)
    if not used:
        return entry
    verdicts = []
    for scale in SCALES:
        with scale_thresholds(scale):
            verdicts.append(_judge_once(claim, pools).verdict)
    ordered = sorted(used, key=lambda threshold: threshold.bounds)
    return replace(entry, thresholds=tuple(ordered), scaled=tuple(verdicts))


def _judge_once(claim: Claim, pools: Sequence[Pool]) -> Entry:
    """The entry of one claim, from the first pool whose records suffice."""
    command = f"python run.py experiment={claim.experiment}"
    if not pools:
        return Entry(claim, Verdict.NOT_RUN, needs=command)
    missing = ""
    for pool in pools:
        try:
            finding = _find(claim, pool.records)
        except (LookupError, FileNotFoundError) as error:  # the latter: left out of a bundle
            reason = str(error.args[0] if error.args else "the records are not sufficient")
            missing = missing or f"{pool.basis}: {reason}; {command}"
            continue
        verdict, needs = finding.verdict()
        basis = finding.indicative or pool.basis
        if finding.undecidable:
            indication = verdict if finding.indicative else None
            needs = finding.undecidable
            return Entry(claim, Verdict.OPEN, basis, finding, needs, indication=indication)
        if pool.decides and not finding.indicative:
            fresh = _find_in_fresh_runs(claim, pool.records)
            return Entry(claim, verdict, pool.basis, finding, needs, fresh=fresh)
        needs = missing or command
        return Entry(claim, Verdict.OPEN, basis, finding, needs, indication=verdict)
    return Entry(claim, Verdict.OPEN, pools[0].basis, needs=missing)


def _find(claim: Claim, records: Sequence[Record]) -> Finding:
    """The finding from the runs that may judge."""
    allowed = [record for record in records if record.config.get(claim.seed) != claim.tuning_seed]
    finding = claim.judge(allowed)
    if len(allowed) == len(records):
        return finding
    without = f"without {claim.seed} {claim.tuning_seed}, which was used for tuning"
    return replace(finding, note="; ".join(filter(None, (finding.note, without))))


def _find_in_fresh_runs(claim: Claim, records: Sequence[Record]) -> Finding | None:
    """The finding from the fresh runs, or None if they do not suffice."""
    if claim.fresh is None:
        return None
    judged_alone = replace(claim, judge=claim.fresh.judge or claim.judge)
    try:
        return _find(judged_alone, [record for record in records if claim.fresh.keep(record)])
    except LookupError:
        return None
