"""Claims of Zhang et al. (2022), Section 7.5: text infilling."""

from collections.abc import Callable

from latticework.experiments.papers.claims.pairing import (
    Seeds,
    by_seed,
    common,
    difference,
    within,
)
from latticework.experiments.papers.claims.verdict import Finding, Margin, Number
from latticework.experiments.records.estimate import estimate
from latticework.experiments.records.published import published
from latticework.experiments.records.record import Record

SIMILAR = 2.5  # BLEU points, about the difference between methods in the paper's Table 3
COLUMNS = ("self_bleu", "self_2", "self_3", "wt103_2", "wt103_3", "tbc_2", "tbc_3")  # of Table 3


def table3_diversity(model: str) -> Callable[[list[Record]], Finding]:
    """With `model`, DULA and DMALA have lower self-BLEU and more unique n-grams than the others."""

    def judge(records: list[Record]) -> Finding:
        margins, found = [], {column: _scores(records, model, column) for column in COLUMNS}
        for column, ends in found.items():
            for ours in ("dula", "dmala"):
                for theirs in ("gibbs", "gwg"):
                    more, fewer = (theirs, ours) if column == "self_bleu" else (ours, theirs)
                    what = f"{column}, {more} - {fewer}"
                    margins.append(difference(what, ends[more], ends[fewer]))
        return Finding(tuple(margins), _table3_numbers(model, found))

    return judge


def table3_quality(model: str) -> Callable[[list[Record]], Finding]:
    """With `model`, the corpus BLEU of DULA and DMALA is similar to that of Gibbs and GWG."""

    def judge(records: list[Record]) -> Finding:
        ends = _scores(records, model, "corpus_bleu")
        margins: list[Margin] = []
        for ours in ("dula", "dmala"):
            for theirs in ("gibbs", "gwg"):
                seeds = common(ends[ours], ends[theirs])
                gap = {seed: ends[ours][seed] - ends[theirs][seed] for seed in seeds}
                margins += within(f"corpus BLEU, {ours} - {theirs}", gap, 0.0, SIMILAR)
        numbers = _table3_numbers(model, {"corpus_bleu": ends})
        return Finding(tuple(margins), numbers, f"similar: within {SIMILAR:g} points")

    return judge


def _scores(records: list[Record], model: str, column: str) -> dict[str, Seeds]:
    """A column of Table 3 for `model`, by sampler and seed."""
    groups: dict[str, list[Record]] = {name: [] for name in ("gibbs", "gwg", "dula", "dmala")}
    for record in records:
        if column in (record.document.get("scores") or {}) and record.choices["model"] == model:
            groups.setdefault(record.choices["sampler"], []).append(record)
    if missing := [name for name, group in groups.items() if not group]:
        raise LookupError(f"no record of {', '.join(missing)} with {model}")
    return {
        name: by_seed(group, lambda record: float(record.document["scores"][column]))
        for name, group in groups.items()
    }


def _table3_numbers(model: str, found: dict[str, dict[str, Seeds]]) -> tuple[Number, ...]:
    return tuple(
        Number(
            f"{column}: {name}", estimate(seeds.values()), published("table3", model, name, column)
        )
        for column, ends in found.items()
        for name, seeds in ends.items()
    )
