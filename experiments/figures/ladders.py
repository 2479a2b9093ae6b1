"""Ladders of tempered chains: where replicas are held up between p0 and the target, their walks."""

import numpy as np
from matplotlib.figure import Figure

from latticework.experiments.figures.style import INKS, explain, new_figure, series
from latticework.experiments.records.grouping import differing, holding
from latticework.experiments.records.record import Record

WALKS = 3  # replicas that are drawn
DRAWS = 300  # of them, the last ones


def ladders(records: list[Record]) -> Figure:
    """The local barrier along b, and the level of each replica of one ladder, a row a setting.

    The local barrier is the rejected share of swaps over the step of b (Syed et al. 2022, Section
    4); its integral is the barrier. Of several seeds the first is drawn. Raises LookupError if no
    record has ladders.
    """
    _, rows = differing(holding(records, "ladders", task="log_z"))
    figure, _ = new_figure(2, rows=len(rows), height=2.4)
    for row, (texts, (record, *_)) in enumerate(rows):
        barrier, walk = figure.axes[2 * row : 2 * row + 2]
        arrays = record.arrays("ladders")
        b, level = arrays["schedule"], arrays["level"][-DRAWS:, :, 0]
        rejected = 1 - np.exp(np.minimum(arrays["up"] + arrays["down"], 0)).mean((0, 2))
        barrier.stairs(rejected / np.diff(b), b, color=INKS[0])
        barrier.set(xlabel="b", ylabel="local barrier", ylim=(0, None))
        words = [text for text in texts if text] or [record.choices["model"]]
        barrier.set_title(f"{', '.join(words)}: barrier {rejected.sum():.1f}")
        for replica in range(min(WALKS, level.shape[1])):
            walk.plot(level[:, replica], color=series(replica)["color"], lw=0.9)
        walk.set(xlabel="draw", ylabel="level")
        walk.set_title(f"one ladder, {arrays['trips'].mean():.1f} round trips a ladder")
    explain(figure, "Level 0 is p0, the highest the target. Three of the replicas are drawn.")
    return figure
