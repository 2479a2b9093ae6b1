"""Claims of Zhang et al. (2022), Section 7.4: Bayesian neural networks (Tables 2 and 4)."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

import numpy as np

from latticework.experiments.figures.bnn import method
from latticework.experiments.papers.claims import compare, readings
from latticework.experiments.papers.claims.langevin_ising import step_cost
from latticework.experiments.papers.claims.verdict import Finding, Number, numbers
from latticework.experiments.records.estimates import Estimate, estimate, published_estimate
from latticework.experiments.records.record import Record

SAMPLERS = ("gibbs", "gwg", "dula", "dmala")
PAIRS = tuple(product(("dula", "dmala"), ("gibbs", "gwg")))
REVERSED_PAIRS = tuple((theirs, ours) for ours, theirs in PAIRS)  # where lower is better
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
    margins: list[compare.Margin] = []
    shown: list[Number] = []
    variant = readings.available_variant(records, data)
    for metric in BOTH:
        values = _by_method(records, variant, metric, SAMPLERS, readings.last_value)
        paper = partial(published_estimate, "table2", metric, data)
        shown += numbers(f"{variant}, {WORDS[metric]}: {{}}", values, paper)
        if metric in metrics:
            pairs = REVERSED_PAIRS if metric == RMSE else PAIRS
            margins += compare.differences(WORDS[metric], values, pairs)
    return Finding(margins, shown, STATES, _describe_part(variant, data))


def table2_exception(records: list[Record]) -> Finding:
    """On COMPAS, DULA and DMALA have a larger test RMSE than Gibbs and GWG."""
    values = _by_method(records, "compas", RMSE, SAMPLERS, readings.last_value)
    return Finding(compare.differences("test RMSE", values, PAIRS), note=STATES)


def table2_cost(records: list[Record]) -> Finding:
    """`step_cost` of the runs on COMPAS, the first data set of the paper's tables."""
    return step_cost(readings.with_choices(records, data="compas"))


def table4_splits(records: list[Record]) -> Finding:
    """Table 4 on COMPAS with one value for each random split of its rows."""
    splits = {record.setting("data.seed") for record in records} - {None}
    if len(splits) < 2:
        raise LookupError("no records of several splits of COMPAS")
    means: dict[str, list[float]] = {}
    for split in sorted(splits):
        finding = table4(readings.with_settings(records, {"data.seed": split}), "compas")
        for margin in finding.margins:
            means.setdefault(margin.quantity, []).append(margin.mean)
    margins, shown = [], []
    for quantity, values in means.items():
        margins.append(compare.Margin(quantity, tuple(values)))
        shown.append(Number(quantity, estimate(values)))
    return Finding(margins, shown, f"{finding.note}; one value for each of the splits")


def table4(
    records: list[Record],
    data: str,
    metrics: Sequence[str] = BOTH,
    batches: Sequence[str] = BATCHES,
) -> Finding:
    """On `data`, stochastic DULA improves in `metrics` with the batch.

    A line is fitted to each metric against log10 of the batch size, for each seed. A metric is the
    last reading of a run, as in Table 2 and in the paper.
    """
    margins: list[compare.Margin] = []
    shown: list[Number] = []
    variant = readings.available_variant(records, data)
    for metric in metrics:
        values = _by_method(records, variant, metric, batches, readings.last_value)
        x = _log_batch_sizes(readings.with_choices(records, data=variant), batches)
        sign = 1 if metric == LIKELIHOOD else -1
        slopes = []
        for seed in readings.common_seeds(*values.values()):
            slopes.append(_slope(x, [sign * values[batch][seed] for batch in batches]))
        turned = "" if sign > 0 else ", times -1,"
        quantity = f"slope of {WORDS[metric]}{turned} against log10 of the batch size"
        margins.append(compare.Margin(quantity, tuple(slopes)))
        papers = {batch: published_estimate("table4", metric, data, batch) for batch in batches}
        printed = [sign * paper.mean for paper in papers.values() if paper]
        theirs = Estimate(_slope(x, printed)) if len(printed) == len(batches) else None
        text = f"{variant}, {quantity}, {batches[0]} rows to all"
        shown.append(Number(text, estimate(slopes), theirs))
        for batch, seeds in values.items():
            size = "all rows" if batch == "full" else f"batch {batch}"
            text = f"{variant}, {WORDS[metric]}: {size}"
            shown.append(Number(text, estimate(seeds.values()), papers[batch]))
    read = "averages over all states" if metrics[0] == AVERAGED else STATES
    note = f"{read}; batches of {', '.join(batches[:-1])} and all rows"
    return Finding(margins, shown, note, _describe_part(variant, data))


def _log_batch_sizes(records: list[Record], batches: Sequence[str]) -> np.ndarray:
    """log10 of the number of rows of each batch; all rows are those of the training data."""
    rows = max(record.document["rows"]["train"] for record in records)
    return np.log10([rows if batch == "full" else int(batch) for batch in batches])


def _slope(x: np.ndarray, values: Sequence[float]) -> float:
    return float(np.polyfit(x, values, 1)[0])


def _describe_part(variant: str, data: str) -> str:
    """The reason why records of a variant of `data` only indicate; "" for `data`."""
    return "" if variant == data else f"paper, {variant}"


def _by_method(
    records: list[Record],
    data: str,
    metric: str,
    names: Sequence[str],
    value: Callable[[str], readings.Value],
) -> dict[str, readings.Seeds]:
    """`value` of `metric` by method and seed, of the runs on `data`."""
    on_data = [r for r in readings.with_choices(records, data=data) if metric in r.metrics]
    where = f" on {data}"
    groups = readings.by_choice(on_data, names, where, lambda record: method(record)[0])
    named = {name: groups[name] for name in names}
    return readings.by_sampler_and_seed(named, value(metric))
