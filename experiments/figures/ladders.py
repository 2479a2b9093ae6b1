"""Ladders of tempered chains: where replicas are held up between p0 and the target, their walks."""

import numpy as np
from matplotlib.figure import Figure

from latticework.experiments.figures.style import GREY, INKS, explain, new_figure, series
from latticework.experiments.records.grouping import by_setting, holding
from latticework.experiments.records.record import Record

WALKS = 3  # replicas that are drawn in colour
DRAWS = 300  # that are drawn, the last ones


def ladders(records: list[Record]) -> Figure:
    """The local barrier along b, and the level of each replica of one ladder, a row a setting.

    The local barrier is the rejected share of swaps over the step of b (Syed et al. 2022, Section
    4); its integral is the barrier. Of several seeds the first is drawn. Raises LookupError if no
    record has ladders.
    """
    found = [some[0] for some in by_setting(holding(records, "ladders", task="log_z"))]
    figure, _ = new_figure(2, rows=len(found), height=2.4)
    for row, record in enumerate(found):
        barrier, walk = figure.axes[2 * row : 2 * row + 2]
        arrays = record.arrays("ladders")
        b, level = arrays["schedule"], arrays["level"][-DRAWS:, :, 0]
        rejected = 1 - np.exp(np.minimum(arrays["up"] + arrays["down"], 0)).mean((0, 2))
        barrier.stairs(rejected / np.diff(b), b, color=INKS[0])
        barrier.set(xlabel="b", ylabel="local barrier", ylim=(0, None))
        barrier.set_title(f"{record.choices['model']}: barrier {rejected.sum():.1f}")
        walk.plot(level[:, WALKS:], color=GREY, lw=0.3, alpha=0.4)
        for replica in range(min(WALKS, level.shape[1])):
            walk.plot(level[:, replica], color=series(replica)["color"], lw=0.9)
        walk.set(xlabel="draw", ylabel="level")
        walk.set_title(f"one ladder, {arrays['trips'].mean():.1f} round trips a ladder")
    explain(figure, "Level 0 is p0, the highest the target. Three replicas in colour, others grey.")
    return figure
