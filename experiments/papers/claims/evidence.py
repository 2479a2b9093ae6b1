"""The cheapest runs that give a claim its verdict."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from latticework.experiments.papers.claims.claim import Claim
from latticework.experiments.papers.claims.ledger import Entry, Pool, judge_claim
from latticework.experiments.papers.claims.verdict import Verdict
from latticework.experiments.records.record import Record

GROUPS = ("sampler", "data", "model", "negatives")  # groups with options that a claim may not need


@dataclass(frozen=True)
class DecisiveRuns:
    """Runs that give a claim the verdict of all its runs: few options, and the first seeds."""

    overrides: dict[
        str, list[str]
    ]  # overrides of the command that makes them, beside the experiment
    seeds: list[int]
    records: list[Record]
    entry: Entry

    @property
    def seconds(self) -> float:
        """The seconds that the runs took together."""
        return sum(record.document["seconds"] for record in self.records)


def find_cheapest(claim: Claim, pool: Pool) -> DecisiveRuns:
    """The runs of the options that the claim needs, with the fewest first seeds that decide it.

    If its verdict needs all seeds, or is none, these are all that may judge.
    """
    entry = judge_claim(claim, [pool])
    records, overrides = pool.records, {}
    for group in GROUPS:
        options = set(map(_option_of(group), records))
        needed = set(options)
        for option in sorted(options):
            fewer = _with_options(records, group, needed - {option})
            if _describe_margins(claim, pool, fewer) == _describe_margins(claim, pool, records):
                records = fewer
                needed.remove(option)
        if needed != options:
            overrides[group] = sorted(needed)
    seeds = {record.config.get(claim.seed) or 0 for record in records}
    judging = sorted(seeds - {claim.tuning_seed})
    verdict = entry.indication or entry.verdict
    count = len(judging)
    if verdict in (Verdict.HOLDS, Verdict.FAILS):
        for fewer_seeds in range(1, count):
            first = _judge(claim, pool, _with_seeds(records, claim.seed, judging[:fewer_seeds]))
            if (first.indication or first.verdict) is verdict:
                count = fewer_seeds
                break
    records = _with_seeds(records, claim.seed, judging[:count])
    return DecisiveRuns(overrides, judging[:count], records, _judge(claim, pool, records))


def _judge(claim: Claim, pool: Pool, records: list[Record]) -> Entry:
    return judge_claim(claim, [Pool(pool.basis, pool.decides, records)])


def _describe_margins(claim: Claim, pool: Pool, records: list[Record]) -> list[str]:
    """The margins that the records give, in words; none if they do not suffice."""
    finding = _judge(claim, pool, records).finding
    return [margin.text() for margin in finding.margins] if finding else []


def _option_of(group: str) -> Callable[[Record], str]:
    return lambda record: record.choices.get(group) or ""


def _with_options(records: list[Record], group: str, options: Collection[str]) -> list[Record]:
    option = _option_of(group)
    return [record for record in records if option(record) in options]


def _with_seeds(records: list[Record], key: str, seeds: Sequence[int]) -> list[Record]:
    return [record for record in records if (record.config.get(key) or 0) in seeds]
