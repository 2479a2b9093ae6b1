"""Effective samples per second of each coordinate: Figure 2 (right) of Zhang et al. (2022)."""

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from latticework.experiments.figures.style import averaged, colour, explain, new_figure
from latticework.experiments.records.grouping import groups, look
from latticework.experiments.records.numbers import timed
from latticework.experiments.records.record import Record


def ess_per_second(records: list[Record], samplers: list[str]) -> Figure:
    """One box per sampler and setting; it shows coordinates, each by its median over seeds.

    `samplers` are the choices of `sampler` to show. The rate is that of all chains of a run
    together (see `rates`), so all runs must have the same number of chains. A coordinate that is
    constant in a run has no ESS: it is left out for that run, and counted below the name. Raises
    LookupError if no record has a trace, or if the numbers of chains differ.
    """
    kept = [r for r in records if r.choices["sampler"] in samplers and r.has("convergence")]
    if not kept:
        raise LookupError(f"no record of {', '.join(samplers)} holds a trace (metrics.Trace)")
    kept, without = timed(kept)
    if len(chains := {record.budget.chains for record in kept}) > 1:
        raise LookupError(f"the runs differ in their number of chains: {sorted(chains)}")
    figure, ax = new_figure(width=4.6)
    names = []
    budget = f"{chains.pop()} chains"
    for place, group in enumerate(groups(kept)):
        by_seed = np.array([rates(record) for record in group.records])  # [seeds, coordinates]
        undefined = np.isnan(by_seed)
        middle = np.nanmedian(by_seed[:, ~undefined.all(0)], axis=0)
        name = group.label.replace(", ", ",\n")
        names.append(name + (f"\n{undefined.sum()} constant" if undefined.any() else ""))
        box = ax.boxplot(
            middle, positions=[place], widths=0.6, patch_artist=True, flierprops={"markersize": 3}
        )
        ink = colour(group.key, group.place, group.of)
        box["boxes"][0].set(facecolor="white", edgecolor=ink)
        box["medians"][0].set_color("black")
        side = np.full(len(middle), place + 0.4)
        dots = {"color": ink, "marker": look(group.key[0]).marker, "linestyle": "none"}
        ax.plot(side, middle, markersize=3, label=f"_{group.label}", **dots)
    ax.set_xticks(range(len(names)), names)
    ax.set_ylim(bottom=0)
    ax.set_ylabel(f"ESS per second, {budget}")
    note = f"One value a coordinate, the median over {averaged(kept)}; boxes: quartiles."
    explain(figure, note + without)
    return figure


def rates(record: Record) -> NDArray:
    """ESS per second of each coordinate, for all chains of the run; NaN for constant coordinates.

    Seconds per step are for all chains, without metrics. If only some chains were traced, the
    others are assumed to have the same ESS per chain.
    """
    stored = record.arrays("convergence")
    share = stored["chains"] / record.budget.chains
    seconds = record.document["seconds_per_step"] * stored.get("steps", stored["draws"]) * share
    return stored["ess"].ravel() / seconds
