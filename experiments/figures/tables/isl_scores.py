"""The ISL of each sampler and of each trained model: Section 5.1 of Breuleux et al. (2011)."""

import numpy as np
import pandas as pd

from latticework.experiments.records.grouping import alone, differing, groups
from latticework.experiments.records.numbers import Estimate, comparable, estimate, last
from latticework.experiments.records.record import Record


def final_isl(records: list[Record], data: str, few: int = 100) -> pd.DataFrame:
    """The ISL of each sampler, and its efficiency compared with rates-FPCD.

    Two columns compare numbers of samples: how many samples reach the ISL of `few` samples of
    rates-FPCD, and how many samples of rates-FPCD reach the ISL of all samples. The reference is
    the mean curve of rates-FPCD. A run that never reaches the level counts with all its samples;
    the column `reached` says how many runs did. `data` is the key of the published numbers, which
    are left out beside substitute data. Raises LookupError unless there are records of rates-FPCD,
    with a single setting.
    """
    records = [record for record in records if "isl" in record.metrics and record.has("parzen")]
    found = groups(records)
    rivals = [record for g in found if g.key == ("rates_fpcd", 0) for record in g.records]
    curves = [_curve(record) for record in alone(rivals)]
    if not curves:
        raise LookupError("the table compares with rates-FPCD, but it has no record")
    rows_read = min(len(steps) for steps, _ in curves)
    sizes = curves[0][0][:rows_read]
    mean = np.mean([scores[:rows_read] for _, scores in curves], axis=0)
    aim = float(np.interp(few, sizes, mean))
    rows = []
    for group in found:
        counts = [_first(*_curve(record), aim) for record in group.records]
        finals = [record.document["isl"] for record in group.records]
        rows.append(
            {
                "samples of": group.label,
                "ISL": estimate(finals),
                "paper": comparable(group.records, "rates_fig2", data, group.key[0]),
                f"samples as good as {few} of rates-FPCD": estimate(c for c, _ in counts),
                "reached": f"{sum(there for _, there in counts)} of {len(counts)}",
                "samples of rates-FPCD as good as all": estimate(
                    _first(sizes, mean, score)[0] for score in finals
                ),
                "share of commonest state": estimate(
                    record.document["commonest_share"] for record in group.records
                ),
                "variant": group.records[0].variant,
            }
        )
    training = {
        "samples of": "training set",
        "ISL": Estimate(records[0].document["parzen"]),
        "variant": records[0].variant,
        "paper": comparable(records, "rates_fig2", data, "training_set"),
    }
    return pd.DataFrame([*rows, training]).astype(object)


def _curve(record: Record) -> tuple[np.ndarray, np.ndarray]:
    return record.metrics["step"].to_numpy(), record.metrics["isl"].to_numpy()


def _first(steps: np.ndarray, scores: np.ndarray, aim: float) -> tuple[int, bool]:
    """The first recorded number of samples with an ISL of `aim` or more, and whether it exists."""
    there = scores >= aim
    return (int(steps[there.argmax()]), True) if there.any() else (int(steps[-1]), False)


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
