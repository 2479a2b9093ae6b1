"""Claims of Zhang et al. (2022), Section 7.5: text infilling."""

from collections.abc import Sequence
from functools import partial
from itertools import product

from latticework.experiments.papers.claims.pairing import (
    Seeds,
    by_choice,
    by_seed,
    differences,
    gap,
    within,
)
from latticework.experiments.papers.claims.verdict import Finding, Margin, Number
from latticework.experiments.records.numbers import estimate, published
from latticework.experiments.records.record import Record

SIMILAR = 2.5  # BLEU points, about the difference between methods in the paper's Table 3
COLUMNS = ("self_bleu", "self_2", "self_3", "wt103_2", "wt103_3", "tbc_2", "tbc_3")  # of Table 3
PAIRS = tuple(product(("dula", "dmala"), ("gibbs", "gwg")))


def table3_diversity(records: list[Record], model: str) -> Finding:
    """With `model`, DULA and DMALA have lower self-BLEU and more unique n-grams than the others."""
    found, shown = _scores(records, model, COLUMNS)
    margins: list[Margin] = []
    for column, scores in found.items():
        pairs = [pair[::-1] if column == "self_bleu" else pair for pair in PAIRS]
        margins += differences(column, scores, pairs)
    return Finding(margins, shown)


def table3_quality(records: list[Record], model: str) -> Finding:
    """With `model`, the corpus BLEU of DULA and DMALA is similar to that of Gibbs and GWG."""
    found, shown = _scores(records, model, ["corpus_bleu"])
    scores, margins = found["corpus_bleu"], []
    for ours, theirs in PAIRS:
        what = f"corpus BLEU, {ours} - {theirs}"
        margins += within(what, gap(scores[ours], scores[theirs]), 0.0, SIMILAR)
    return Finding(margins, shown, f"similar: within {SIMILAR:g} points")


def _scores(
    records: list[Record], model: str, columns: Sequence[str]
) -> tuple[dict[str, dict[str, Seeds]], list[Number]]:
    """Columns of Table 3 for `model`, by sampler and seed, and the numbers beside the paper's."""
    found: dict[str, dict[str, Seeds]] = {}
    shown: list[Number] = []
    for column in columns:
        kept = [
            record
            for record in records
            if column in (record.document.get("scores") or {}) and record.choices["model"] == model
        ]
        names = ("gibbs", "gwg", "dula", "dmala")
        groups = by_choice(kept, names, f" with {model}", lambda r: r.choices["sampler"])
        score = partial(_score, column=column)
        found[column] = {name: by_seed(group, score) for name, group in groups.items()}
        for name, seeds in found[column].items():
            here = estimate(seeds.values())
            shown.append(
                Number(f"{column}: {name}", here, published("table3", model, name, column))
            )
    return found, shown


def _score(record: Record, column: str) -> float:
    return float(record.document["scores"][column])
