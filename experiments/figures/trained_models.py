"""Tables of trained RBMs, and of the settings of their samplers, with what chooses among them."""

from typing import Any

import pandas as pd

from latticework.experiments.records.estimates import estimate, last_reading
from latticework.experiments.records.grouping import group_by, settings_table
from latticework.experiments.records.record import Record
from latticework.experiments.records.training_quality import (
    FACTS,
    lower_likelihood,
    why_not_trained,
)

CHAIN_FACTS = {"share of commonest state": "commonest_share", "spurious samples": "spurious_share"}


def trained_models(records: list[Record]) -> pd.DataFrame:
    """The trained models, those that pass as trained first, each kind by its validation ISL.

    A row is a method with its learning rates and number of hidden units, averaged over seeds of
    training. `fails because` is empty for a model that passes as trained; it is judged by the means
    over seeds. Log-likelihoods are of validation rows, in nats. Raises LookupError if no record of
    task=train_rbm holds the numbers of `TrainingQuality`.
    """
    measured = [record for record in records if record.document.keys() >= set(FACTS)]
    if not measured:
        raise LookupError(
            "no record says how well its model was trained; run task=train_rbm with task.quality"
        )
    runs_by_setting = group_by(_setting, measured)
    quality = {setting: _mean_facts(runs) for setting, runs in runs_by_setting.items()}
    best = max(lower_likelihood(facts) for facts in quality.values())
    rows = []
    for setting, runs in runs_by_setting.items():
        method, hidden, rate, decays, fast = setting
        row = {
            "training": method,
            "hidden units": hidden,
            "learning rate": f"{rate:g}, {'decreasing' if decays else 'constant'}",
            "fast rate": "" if fast is None else f"{fast:g}",
            "validation ISL": estimate(last_reading(record, "isl") for record in runs),
            "AIS towards the model": estimate(r.document["ais_forward"] for r in runs),
            "AIS from rows": estimate(r.document["ais_back"] for r in runs),
            "share of commonest state": estimate(r.document["commonest_share"] for r in runs),
            "pixels on, less the data": estimate(r.document["pixel_error"] for r in runs),
            "fails because": why_not_trained(quality[setting], best),
        }
        rows.append(row)
    rows.sort(key=lambda row: (row["fails because"] != "", -row["validation ISL"].mean))
    return pd.DataFrame(rows).astype(object)


def _setting(record: Record) -> tuple:
    """The training method, hidden units, learning rate, whether it decreases, and fast rate."""
    return (
        record.choices["negatives"],
        record.setting("model.hidden"),
        record.setting("task.learning_rate"),
        record.setting("task.linear_decay"),
        record.setting("negatives.fast_step_size"),
    )


def _mean_facts(runs: list[Record]) -> dict[str, float]:
    """The mean of each of `FACTS` over seeds."""
    means = {}
    for key in FACTS:
        means[key] = sum(record.document[key] for record in runs) / len(runs)
    return means


def sampler_settings(records: list[Record]) -> pd.DataFrame:
    """The settings of each sampler that were run, with the best mean validation ISL first.

    Means are over the models, one a seed. Raises LookupError if no record has a validation ISL.
    """
    scored = [
        record
        for record in records
        if {"validation_isl", *CHAIN_FACTS.values()} <= set(record.document)
    ]
    if not scored:
        raise LookupError("no record has a validation ISL; run task=isl")
    headings, parts = settings_table(scored)
    rows: list[dict[str, Any]] = []
    for texts, runs in parts:
        row: dict[str, Any] = dict(zip(headings, texts, strict=True))
        row["validation ISL"] = estimate(record.document["validation_isl"] for record in runs)
        for name, key in CHAIN_FACTS.items():
            row[name] = estimate(record.document[key] for record in runs)
        rows.append(row)
    rows.sort(key=lambda row: (row.get("sampler", ""), -row["validation ISL"].mean))
    return pd.DataFrame(rows).astype(object)


def improvements(records: list[Record]) -> pd.DataFrame:
    """The log-likelihood before and after the mean fast weights, by fast step size.

    A value is the lower of two directions of AIS, in nats, averaged over the models. Raises
    LookupError if no record is of task=improvement.
    """
    measured = [record for record in records if "ais_back_after" in record.document]
    if not measured:
        raise LookupError("no record has a model before and after; run task=improvement")
    headings, parts = settings_table(measured)
    rows = []
    for texts, runs in parts:
        row: dict[str, Any] = dict(zip(headings, texts, strict=True))
        for suffix in ("before", "after"):
            values = []
            for record in runs:
                facts = {key: record.document[f"{key}_{suffix}"] for key in FACTS}
                values.append(lower_likelihood(facts))
            row[f"log-likelihood {suffix}"] = estimate(values)
        row["distance"] = estimate(record.document["distance"] for record in runs)
        rows.append(row)
    return pd.DataFrame(rows).astype(object)
