"""Trained models ranked by validation ISL: Section 5.1 of Breuleux et al. (2011)."""

import pandas as pd

from latticework.experiments.records.grouping import differing
from latticework.experiments.records.numbers import estimate, last
from latticework.experiments.records.record import Record


def models(records: list[Record]) -> pd.DataFrame:
    """The final validation ISL of each trained model, over training seeds, best first.

    A row has the training method, learning rates and number of hidden units. If these do not
    identify a model, further columns name the settings in which models differ. Raises LookupError
    if no record is of task=train_rbm.
    """
    found: dict[tuple, list[Record]] = {}
    for record in records:
        if "isl" in record.metrics and (method := record.choices.get("negatives")):
            config = record.config
            fast = config["negatives"].get("fast_step_size")
            key = (method, config["model"]["hidden"], config["task"]["learning_rate"], fast)
            found.setdefault(key, []).append(record)
    if not found:
        raise LookupError("no record holds the validation ISL of a training; run task=train_rbm")
    rows = []
    for (method, hidden, rate, fast), some in found.items():
        headings, parts = differing(some)
        rows += [
            {
                "training": method,
                "hidden units": hidden,
                "learning rate": rate,
                "fast rate": "" if fast is None else f"{fast:g}",
                **dict(zip(headings, texts, strict=True)),
                "validation ISL": estimate(last(record, "isl") for record in runs),
            }
            for texts, runs in parts
        ]
    rows.sort(key=lambda row: row["validation ISL"].mean, reverse=True)
    return pd.DataFrame(rows).astype(object)
