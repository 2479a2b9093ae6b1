"""How annealed importance sampling went: the chains that still count, on the way to a model."""

import numpy as np
from matplotlib.figure import Figure

from experiments.figures.style import by_sampler, colour, label, new_figure
from experiments.record import Record


def progress(records: list[Record]) -> Figure:
    """The effective share of the chains against beta; dashed for those on their way back.

    One panel a sampler. Raises LookupError when no record is of task=ais.
    """
    records = [r for r in records if {"beta", "forward", "ess"} <= set(r.metrics)]
    if not records:
        raise LookupError("no record shows how weights degenerate; run task=ais")
    groups = by_sampler(records)
    figure, axes = new_figure(len(groups))
    for ax, (key, group) in zip(np.atleast_1d(axes), groups.items(), strict=True):
        for record in group:
            settings = record.config["task"]
            directions = ((1, "-", settings["chains"]), (0, "--", settings["back"]))
            for forward, style, chains in directions:
                part = record.metrics[record.metrics["forward"] == forward]
                ax.plot(part["beta"], part["ess"] / chains, style, color=colour(key), linewidth=1.2)
        ax.set_title(label(key), fontsize=9)
        ax.set_xlabel("beta", fontsize=9)
        ax.set_ylim(0, 1.02)
    np.atleast_1d(axes)[0].set_ylabel("effective share of the chains", fontsize=9)
    return figure
