"""Claims of Zhang et al. (2022), Section 7.5: text infilling (Table 3)."""

from collections.abc import Sequence
from functools import partial

from latticework.experiments.papers.claims import compare, readings, thresholds
from latticework.experiments.papers.claims.langevin_networks import (
    PAIRS,
    SAMPLERS,
)
from latticework.experiments.papers.claims.verdict import Finding, Number, numbers
from latticework.experiments.records.estimates import Estimate, published_estimate
from latticework.experiments.records.record import Record

COLUMNS = (
    "self_bleu",
    "self_2",
    "self_3",
    "wt103_2",
    "wt103_3",
    "tbc_2",
    "tbc_3",
)  # columns of Table 3


def table3_diversity(
    records: list[Record], model: str, ours: Sequence[str] = ("dula", "dmala")
) -> Finding:
    """With `model`, `ours` have lower self-BLEU and more unique n-grams than Gibbs and GWG."""
    scores, shown = _scores(records, model, COLUMNS)
    pairs = [pair for pair in PAIRS if pair[0] in ours]
    margins: list[compare.Margin] = []
    for column, values in scores.items():
        if column == "self_bleu":  # lower is better
            margins += compare.differences(column, values, [(b, a) for a, b in pairs])
        else:
            margins += compare.differences(column, values, pairs)
    return Finding(margins, shown)


def table3_quality(records: list[Record], model: str) -> Finding:
    """With `model`, the corpus BLEU of DULA and DMALA is similar to that of Gibbs and GWG."""
    scores, shown = _scores(records, model, ["corpus_bleu"])
    values, margins = scores["corpus_bleu"], []
    tolerance = thresholds.BLEU.value()
    for ours, theirs in PAIRS:
        gaps = readings.paired_differences(values[ours], values[theirs])
        quantity = f"corpus BLEU, {ours} - {theirs}"
        margins += compare.equivalence(quantity, gaps, 0.0, tolerance)
    return Finding(margins, shown, f"similar: within {tolerance:g} points")


def _scores(
    records: list[Record], model: str, columns: Sequence[str]
) -> tuple[dict[str, dict[str, readings.Seeds]], list[Number]]:
    """Columns of Table 3 for `model`, by sampler and seed, and the numbers beside the paper's."""
    by_column: dict[str, dict[str, readings.Seeds]] = {}
    shown: list[Number] = []
    with_model = readings.with_choices(records, model=model)
    for column in columns:
        scored = [r for r in with_model if column in (r.document.get("scores") or {})]
        where = f" with {model}"
        groups = readings.by_choice(scored, SAMPLERS, where, lambda r: r.choices["sampler"])
        values = readings.by_sampler_and_seed(groups, partial(_score_in_column, column=column))

        def paper(name: str, column: str = column) -> Estimate | None:
            return published_estimate("table3", model, name, column)

        shown += numbers(f"{column}: {{}}", values, paper)
        by_column[column] = values
    return by_column, shown


def _score_in_column(record: Record, column: str) -> float:
    return float(record.document["scores"][column])
