"""Figure of A_lambda (Breuleux et al. 2011, Section 3): eigenvalue and mixing against lambda."""

import numpy as np
from matplotlib.figure import Figure

from latticework.experiments.figures.style import explain, key_of_dashes, new_figure, series
from latticework.experiments.records.grouping import groups, holding, named
from latticework.experiments.records.record import Record


def unlearning(records: list[Record]) -> Figure:
    """Left: second eigenvalue against lambda. Right: distance to the stationary law against steps.

    One line per coupling and setting. The chains are enumerated, so seeds do not matter.
    """
    records = holding(records, "mixing", task="unlearning")
    figure, (left, right) = new_figure(2)
    chains = {
        named(f"a = {record.config['model']['coupling']}", group.differs): record
        for group in groups(records, ["model.coupling"])
        for record in sorted(group.records, key=lambda one: one.config["model"]["coupling"])
    }
    for i, (text, record) in enumerate(chains.items()):
        metrics, mixing = record.metrics, record.arrays("mixing")
        left.plot(metrics["lambda"], metrics["second_eigenvalue"], label=text, **series(i))
        for name, style in (("chain", "-"), ("staying_less", "--")):
            shown = text if name == "chain" else f"_{text}, {name}"
            look = {"label": shown, "linewidth": 1.4, **series(i)}
            right.plot(np.maximum(mixing[name], 1e-16), style, **look)
    left.set(
        xlabel=r"$\lambda$", ylabel=r"second eigenvalue of $A_\lambda$", title="how fast it mixes"
    )
    right.set(xlabel="steps", ylabel="total variation", title="distance to the stationary law")
    right.set_yscale("log")
    dashes = key_of_dashes(**{r"$\lambda = 0$": "-", r"the largest $\lambda$": "--"})
    explain(figure, "Exact: no seeds, no bands.", dashes)
    return figure
