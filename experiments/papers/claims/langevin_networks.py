"""Claims of Zhang et al. (2022), Sections 7.4 and 7.5: Bayesian networks and text infilling."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

import numpy as np

from latticework.experiments.figures.bnn import method
from latticework.experiments.papers.claims.langevin_sampling import step_cost
from latticework.experiments.papers.claims.verdict import (
    Finding,
    Margin,
    Number,
    Seeds,
    Value,
    available_variant,
    by_choice,
    by_seed,
    common_seeds,
    differences,
    equivalence_margins,
    last_value,
    numbers,
    paired_differences,
)
from latticework.experiments.records.estimates import Estimate, estimate, published_estimate
from latticework.experiments.records.record import Record

SAMPLERS = ("gibbs", "gwg", "dula", "dmala")
PAIRS = tuple(product(("dula", "dmala"), ("gibbs", "gwg")))
SIMILAR = 2.5  # BLEU points, about the difference between methods in the paper's Table 3
COLUMNS = ("self_bleu", "self_2", "self_3", "wt103_2", "wt103_3", "tbc_2", "tbc_3")  # of Table 3
BATCHES = ("10", "100", "500", "full")
LIKELIHOOD, RMSE, AVERAGED = "train_log_likelihood", "test_rmse", "test_rmse_averaged"
BOTH = (LIKELIHOOD, RMSE)
WORDS = {
    LIKELIHOOD: "training log-likelihood",
    RMSE: "test RMSE",
    AVERAGED: "test RMSE of averaged predictions",
}
STATES = "states of the chains after all steps, averaged over the chains"


def table2(records: list[Record], data: str, metrics: Sequence[str] = BOTH) -> Finding:
    """On the data set `data`, DULA and DMALA beat Gibbs and GWG in each of `metrics`."""
    margins: list[Margin] = []
    shown: list[Number] = []
    there = available_variant(records, data)
    for metric in BOTH:
        found = _by_method(records, there, metric, SAMPLERS, last_value)
        paper = partial(published_estimate, "table2", metric, data)
        shown += numbers(f"{there}, {WORDS[metric]}: {{}}", found, paper)
        pairs = [pair[::-1] if metric == RMSE else pair for pair in PAIRS]
        margins += differences(WORDS[metric], found, pairs) if metric in metrics else []
    return Finding(margins, shown, STATES, _part(there, data))


def table2_exception(records: list[Record]) -> Finding:
    """On COMPAS, DULA and DMALA have a larger test RMSE than Gibbs and GWG."""
    found = _by_method(records, "compas", RMSE, SAMPLERS, last_value)
    return Finding(differences("test RMSE", found, PAIRS), note=STATES)


def table4_splits(records: list[Record]) -> Finding:
    """Table 4 on COMPAS with one value for each random split of its rows."""
    parts = {record.config["data"]["seed"] for record in records if "seed" in record.config["data"]}
    if len(parts) < 2:
        raise LookupError("no records of several splits of COMPAS")
    findings = [
        table4([r for r in records if r.config["data"]["seed"] == part], "compas")
        for part in sorted(parts)
    ]
    margins = [
        Margin(same[0].what, tuple(one.mean for one in same))
        for same in zip(*(finding.margins for finding in findings), strict=True)
    ]
    shown = [Number(margin.what, estimate(margin.values)) for margin in margins]
    return Finding(margins, shown, f"{findings[0].note}; one value for each of the splits")


def table4(
    records: list[Record],
    data: str,
    metrics: Sequence[str] = BOTH,
    batches: Sequence[str] = BATCHES,
) -> Finding:
    """On `data`, stochastic DULA improves in `metrics` with the batch.

    A line is fitted to each metric against log10 of the batch size, for each seed. A metric is its
    mean over the readings in the second half of a run, which varies less than the last reading. The
    RMSE of averaged predictions is the last one, which has all states.
    """
    margins: list[Margin] = []
    shown: list[Number] = []
    there = available_variant(records, data)
    for metric in metrics:
        sign = 1 if metric == LIKELIHOOD else -1
        value = last_value if metric == AVERAGED else late
        found = _by_method(records, there, metric, batches, value)
        rows = max(r.document["rows"]["train"] for r in records if r.choices["data"] == there)
        x = np.log10([rows if batch == "full" else int(batch) for batch in batches])
        papers = {batch: published_estimate("table4", metric, data, batch) for batch in batches}

        def slope(values: Sequence[float], x: np.ndarray = x, sign: int = sign) -> float:
            return float(sign * np.polyfit(x, values, 1)[0])

        seeds = common_seeds(*found.values())
        slopes = tuple(slope([found[batch][seed] for batch in batches]) for seed in seeds)
        turned = "" if sign > 0 else ", times -1,"
        what = f"slope of {WORDS[metric]}{turned} against log10 of the batch size"
        margins.append(Margin(what, slopes))
        known = [paper.mean for paper in papers.values() if paper]
        theirs = Estimate(slope(known)) if len(known) == len(batches) else None
        text = f"{there}, {what}, {batches[0]} rows to all"
        shown.append(Number(text, estimate(slopes), theirs))
        for batch, values in found.items():
            size = "all rows" if batch == "full" else f"batch {batch}"
            text = f"{there}, {WORDS[metric]}: {size}"
            shown.append(Number(text, estimate(values.values()), papers[batch]))
    means = "means over the second half of a run"
    read = "the last averages" if metrics[0] == AVERAGED else means
    note = f"{read}; batches of {', '.join(batches[:-1])} and all rows"
    return Finding(margins, shown, note, _part(there, data))


def late(metric: str) -> Value:
    """The mean of `metric` over the readings in the second half of a run."""

    def value(record: Record) -> float:
        table = record.metrics
        return float(table[metric][table["step"] > table["step"].max() / 2].mean())

    return value


def _part(there: str, data: str) -> str:
    """What makes records of a variant of `data` an indication; "" for `data`."""
    return "" if there == data else f"paper, {there}"


def _by_method(
    records: list[Record],
    data: str,
    metric: str,
    names: Sequence[str],
    value: Callable[[str], Value],
) -> dict[str, Seeds]:
    some = [r for r in records if r.choices.get("data") == data and metric in r.metrics]
    groups = by_choice(some, names, f" on {data}", lambda record: method(record)[0])
    return {name: by_seed(groups[name], value(metric)) for name in names}


def table2_cost(records: list[Record]) -> Finding:
    """`step_cost` of the runs on COMPAS, the first data set of the paper's tables."""
    return step_cost([record for record in records if record.choices.get("data") == "compas"])


# Section 7.5: text infilling.


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
        margins += equivalence_margins(
            what, paired_differences(scores[ours], scores[theirs]), 0.0, SIMILAR
        )
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
        groups = by_choice(kept, SAMPLERS, f" with {model}", lambda r: r.choices["sampler"])
        score = partial(_score, column=column)
        found[column] = {name: by_seed(group, score) for name, group in groups.items()}
        for name, seeds in found[column].items():
            here = estimate(seeds.values())
            shown.append(
                Number(f"{column}: {name}", here, published_estimate("table3", model, name, column))
            )
    return found, shown


def _score(record: Record, column: str) -> float:
    return float(record.document["scores"][column])
