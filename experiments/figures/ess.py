"""Effective samples a second, coordinate by coordinate: Figure 2 (right) of Zhang et al. (2022)."""

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments.figures.style import colour, new_figure
from experiments.grouping import groups
from experiments.record import Record


def ess_per_second(records: list[Record], samplers: list[str]) -> Figure:
    """One box a sampler and setting over coordinates, each at its median over seeds.

    `samplers` are the choices of `sampler` to show. The rate is that of all chains of a run
    together (see `rates`), so runs must agree in their number of chains. A coordinate that is
    constant in a seed has no ESS: it is left out for that seed, and counted below the name.
    Raises LookupError when no record suffices or the numbers of chains differ.
    """
    kept = [r for r in records if r.choices["sampler"] in samplers and r.has("convergence")]
    if not kept:
        raise LookupError(f"no record of {', '.join(samplers)} holds a trace (metrics.Trace)")
    if len(chains := {record.budget.chains for record in kept}) > 1:
        raise LookupError(f"the runs differ in their number of chains: {sorted(chains)}")
    figure, ax = new_figure(width=4.6)
    names = []
    for place, group in enumerate(groups(kept)):
        by_seed = np.array([rates(record) for record in group.records])  # [seeds, coordinates]
        undefined = np.isnan(by_seed)
        middle = np.nanmedian(by_seed[:, ~undefined.all(0)], axis=0)
        name = group.label.replace(", ", ",\n")
        names.append(name + (f"\n{undefined.sum()} constant" if undefined.any() else ""))
        box = ax.boxplot(
            middle, positions=[place], widths=0.6, patch_artist=True, flierprops={"markersize": 3}
        )
        box["boxes"][0].set_facecolor(colour(group.key, group.place, group.of))
        box["medians"][0].set_color("black")
    ax.set_xticks(range(len(names)), names)
    ax.set_ylim(bottom=0)
    ax.set_ylabel(f"ESS a second, {chains.pop()} chains", fontsize=9)
    return figure


def rates(record: Record) -> NDArray:
    """ESS a second of each coordinate, NaN where it is constant, of all chains of the run.

    The seconds of a step are those of all chains, without metrics; where only some chains were
    traced, the others are taken to be worth as much.
    """
    stored = record.arrays("convergence")
    share = stored["chains"] / record.budget.chains
    seconds = record.document["seconds_per_step"] * stored["draws"] * share
    return stored["ess"].ravel() / seconds
