"""Compare the metrics of two runs."""

import pandas as pd

CLOCK = "seconds"  # in the name of each column that is measured by a clock


def first_difference(metrics: pd.DataFrame, others: pd.DataFrame) -> str:
    """Say where two tables of metrics first differ; "" if they do not.

    Columns of seconds are left out, because they differ from run to run.
    """
    names = [name for name in metrics if CLOCK not in name]
    other_names = [name for name in others if CLOCK not in name]
    if names != other_names:
        return f"columns of metrics.csv: {', '.join(names)} and {', '.join(other_names)}"
    rows = min(len(metrics), len(others))
    left = metrics[names][:rows].reset_index(drop=True)
    right = others[names][:rows].reset_index(drop=True)
    differs = (left != right) & ~(left.isna() & right.isna())
    if differs.any(axis=None):
        row = int(differs.any(axis=1).idxmax())
        name = next(name for name in names if differs.loc[row, name])
        values = f"{left[name][row]} and {right[name][row]}"
        return f"metrics.csv first differs in row {row + 1}, column {name}: {values}"
    if len(metrics) != len(others):
        return f"metrics.csv has {len(metrics)} and {len(others)} rows; the first {rows} are equal"
    return ""
