"""Claims of Zhang et al. (2022), Section 7.4 and App. I.5: Bayesian networks. Imports no torch."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from latticework.experiments.claims.pairing import (
    Seeds,
    by_seed,
    common,
    difference,
    last,
)
from latticework.experiments.claims.verdict import Finding, Margin, Number
from latticework.experiments.results.estimate import Estimate, estimate
from latticework.experiments.results.published import published
from latticework.experiments.results.record import Record
from latticework.experiments.tables.bnn import method


def table2(data: str, metrics: Sequence[str]) -> Callable[[list[Record]], Finding]:
    """On the data set `data`, DULA and DMALA beat Gibbs and GWG in each of `metrics`."""

    def judge(records: list[Record]) -> Finding:
        margins, numbers = [], []
        for metric in ("train_log_likelihood", "test_rmse"):
            ends = _by_method(records, data, metric, ("gibbs", "gwg", "dula", "dmala"))
            for name, seeds in ends.items():
                paper = published("table2", metric, data, name)
                numbers.append(Number(f"{_words(metric)}: {name}", estimate(seeds.values()), paper))
            for ours in ("dula", "dmala") if metric in metrics else ():
                for theirs in ("gibbs", "gwg"):
                    better, worse = (theirs, ours) if metric == "test_rmse" else (ours, theirs)
                    what = f"{_words(metric)}, {better} - {worse}"
                    margins.append(difference(what, ends[better], ends[worse]))
        return Finding(tuple(margins), tuple(numbers), "final states of the chains")

    return judge


def table4(data: str) -> Callable[[list[Record]], Finding]:
    """On the data set `data`, stochastic DULA improves with the logarithm of the batch size."""

    def judge(records: list[Record]) -> Finding:
        margins, numbers = [], []
        batches = ("10", "100", "500", "full")
        for metric, sign in (("train_log_likelihood", 1), ("test_rmse", -1)):
            ends = _by_method(records, data, metric, batches)
            rows = max(r.document["rows"]["train"] for r in records if r.choices["data"] == data)
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
            numbers.append(Number(what, estimate(slopes), theirs))
            for batch, seeds in ends.items():
                paper = papers[batch]
                text = f"{_words(metric)}: {'all rows' if batch == 'full' else f'batch {batch}'}"
                numbers.append(Number(text, estimate(seeds.values()), paper))
        return Finding(tuple(margins), tuple(numbers), "the largest batch is all rows")

    return judge


def _by_method(
    records: list[Record], data: str, metric: str, names: Sequence[str]
) -> dict[str, Seeds]:
    groups: dict[str, list[Record]] = {name: [] for name in names}
    for record in records:
        if record.choices.get("data") == data and metric in record.metrics:
            groups.setdefault(method(record)[0], []).append(record)
    if missing := [name for name in names if not groups[name]]:
        raise LookupError(f"no record of {', '.join(missing)} on {data}")
    return {name: by_seed(groups[name], last(metric)) for name in names}


def _words(metric: str) -> str:
    return {"train_log_likelihood": "training log-likelihood", "test_rmse": "test RMSE"}[metric]
