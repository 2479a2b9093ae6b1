"""Claims of Zhang et al. (2022), Section 7.4 and App. I.5: Bayesian networks."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from latticework.experiments.figures.tables.bnn import method
from latticework.experiments.papers.claims.pairing import (
    Seeds,
    Value,
    by_seed,
    common,
    difference,
    last,
)
from latticework.experiments.papers.claims.verdict import Finding, Margin, Number
from latticework.experiments.records.estimate import Estimate, estimate
from latticework.experiments.records.published import published
from latticework.experiments.records.record import VARIANTS, Record

BATCHES = ("10", "100", "500", "full")


def table2(data: str, metrics: Sequence[str]) -> Callable[[list[Record]], Finding]:
    """On the data set `data`, DULA and DMALA beat Gibbs and GWG in each of `metrics`."""

    def judge(records: list[Record]) -> Finding:
        margins, numbers = [], []
        there, indicative = _available(records, data)
        for metric in ("train_log_likelihood", "test_rmse"):
            ends = _by_method(records, there, metric, ("gibbs", "gwg", "dula", "dmala"))
            for name, seeds in ends.items():
                paper = published("table2", metric, data, name)
                text = f"{there}, {_words(metric)}: {name}"
                numbers.append(Number(text, estimate(seeds.values()), paper))
            for ours in ("dula", "dmala") if metric in metrics else ():
                for theirs in ("gibbs", "gwg"):
                    better, worse = (theirs, ours) if metric == "test_rmse" else (ours, theirs)
                    what = f"{_words(metric)}, {better} - {worse}"
                    margins.append(difference(what, ends[better], ends[worse]))
        note = "states of the chains after all steps, averaged over the chains"
        return Finding(tuple(margins), tuple(numbers), note, indicative)

    return judge


def table2_exception(records: list[Record]) -> Finding:
    """On COMPAS, DULA and DMALA have a larger test RMSE than Gibbs and GWG."""
    ends = _by_method(records, "compas", "test_rmse", ("gibbs", "gwg", "dula", "dmala"))
    margins = tuple(
        difference(f"test RMSE, {ours} - {theirs}", ends[ours], ends[theirs])
        for ours in ("dula", "dmala")
        for theirs in ("gibbs", "gwg")
    )
    return Finding(margins, note="states of the chains after all steps, averaged over the chains")


def table4(data: str) -> Callable[[list[Record]], Finding]:
    """On the data set `data`, stochastic DULA improves with the logarithm of the batch size."""
    return _improves(data, ("train_log_likelihood", "test_rmse"), BATCHES)


def table4_beyond(data: str) -> Callable[[list[Record]], Finding]:
    """`table4` from 100 rows to all."""
    return _improves(data, ("train_log_likelihood", "test_rmse"), BATCHES[1:])


def table4_averaged(data: str) -> Callable[[list[Record]], Finding]:
    """`table4` for the RMSE of predictions averaged over the states of the chains."""
    return _improves(data, ("test_rmse_averaged",), BATCHES)


def table4_splits(records: list[Record]) -> Finding:
    """`table4` on COMPAS with one value for each random split of its rows."""
    parts = {record.config["data"]["seed"] for record in records if "seed" in record.config["data"]}
    if len(parts) < 2:
        raise LookupError("no records of several splits of COMPAS")
    findings = [
        table4("compas")([r for r in records if r.config["data"]["seed"] == part])
        for part in sorted(parts)
    ]
    margins = tuple(
        Margin(same[0].what, tuple(one.mean for one in same))
        for same in zip(*(finding.margins for finding in findings), strict=True)
    )
    numbers = tuple(Number(margin.what, estimate(margin.values)) for margin in margins)
    return Finding(margins, numbers, f"{findings[0].note}; one value for each of the splits")


def _improves(
    data: str, metrics: Sequence[str], batches: Sequence[str]
) -> Callable[[list[Record]], Finding]:
    """A line is fitted to each of `metrics` against log10 of the batch size, for each seed.

    A metric is its mean over the readings in the second half of a run, which varies less than the
    last reading. The RMSE of averaged predictions is the last one, which has all states.
    """

    def judge(records: list[Record]) -> Finding:
        margins, numbers = [], []
        there, indicative = _available(records, data)
        for metric in metrics:
            sign, averaged = (1 if metric == "train_log_likelihood" else -1), "averaged" in metric
            ends = _by_method(records, there, metric, batches, last if averaged else late)
            rows = max(r.document["rows"]["train"] for r in records if r.choices["data"] == there)
            x = np.log10([rows if batch == "full" else int(batch) for batch in batches])
            papers = {batch: published("table4", metric, data, batch) for batch in batches}

            def slope(values: list[float], x: NDArray = x, sign: int = sign) -> float:
                return float(sign * np.polyfit(x, values, 1)[0])

            slopes = tuple(
                slope([ends[batch][seed] for batch in batches]) for seed in common(*ends.values())
            )
            turned = "" if sign > 0 else ", times -1,"
            what = f"slope of {_words(metric)}{turned} against log10 of the batch size"
            margins.append(Margin(what, slopes))
            known = [paper.mean for paper in papers.values() if paper]
            theirs = Estimate(slope(known)) if len(known) == len(batches) else None
            text = f"{there}, {what}, {batches[0]} rows to all"
            numbers.append(Number(text, estimate(slopes), theirs))
            for batch, seeds in ends.items():
                paper = papers[batch]
                size = "all rows" if batch == "full" else f"batch {batch}"
                text = f"{there}, {_words(metric)}: {size}"
                numbers.append(Number(text, estimate(seeds.values()), paper))
        read = (
            "the last averages"
            if "averaged" in metrics[0]
            else "means over the second half of a run"
        )
        note = f"{read}; batches of {', '.join(batches[:-1])} and all rows"
        return Finding(tuple(margins), tuple(numbers), note, indicative)

    return judge


def late(metric: str) -> Value:
    """The mean of `metric` over the readings in the second half of a run."""

    def value(record: Record) -> float:
        table = record.metrics
        return float(table[metric][table["step"] > table["step"].max() / 2].mean())

    return value


def _available(records: list[Record], data: str) -> tuple[str, str]:
    """`data`, or the variant of it that records have; and what then makes them an indication."""
    there = {record.choices.get("data") for record in records}
    for variant, of in VARIANTS.items():
        if of == data and data not in there and variant in there:
            return variant, f"paper, {variant}"
    return data, ""


def _by_method(
    records: list[Record],
    data: str,
    metric: str,
    names: Sequence[str],
    value: Callable[[str], Value] = last,
) -> dict[str, Seeds]:
    groups: dict[str, list[Record]] = {name: [] for name in names}
    for record in records:
        if record.choices.get("data") == data and metric in record.metrics:
            groups.setdefault(method(record)[0], []).append(record)
    if missing := [name for name in names if not groups[name]]:
        raise LookupError(f"no record of {', '.join(missing)} on {data}")
    return {name: by_seed(groups[name], value(metric)) for name in names}


def _words(metric: str) -> str:
    return {
        "train_log_likelihood": "training log-likelihood",
        "test_rmse": "test RMSE",
        "test_rmse_averaged": "test RMSE of averaged predictions",
    }[metric]


def of_compas(records: list[Record]) -> list[Record]:
    """The runs on COMPAS, the first data set of the paper's tables."""
    return [record for record in records if record.choices.get("data") == "compas"]
