"""Breuleux et al. (2011), Section 3: a chain with less self-transition probability."""

from dataclasses import replace

import numpy as np

from latticework.experiments.papers.claims import compare
from latticework.experiments.papers.claims.verdict import Finding
from latticework.experiments.records.record import Record

MAX_LAW_ERROR = 1e-9  # total variation that rounding may add to an invariant law


def staying_less(records: list[Record]) -> Finding:
    """A_lambda keeps the stationary law; its second eigenvalue decreases with lambda."""
    margins = []
    for record in records:
        if not {"lambda", "law_error", "second_eigenvalue"} <= set(record.metrics):
            continue
        table, where = record.metrics, f"a = {record.config['model']['coupling']:g}"
        error = {0: float(table["law_error"].max())}
        fall = float(-np.diff(table["second_eigenvalue"].to_numpy()).max())
        law = compare.below(f"{where}: error of the law", error, MAX_LAW_ERROR)
        what = f"{where}: smallest decrease of the second eigenvalue"
        margins += [replace(law, exact=True), compare.Margin(what, (fall,), exact=True)]
    if not margins:
        raise LookupError("no record of task=unlearning")
    return Finding(margins, note="exact, for small chains")
