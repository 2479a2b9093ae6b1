"""The figure of a race: effective samples per second and per evaluation, with intervals."""

import pandas as pd
from matplotlib.figure import Figure

from latticework.experiments.figures.style import explain, new_figure
from latticework.experiments.records.grouping import look

UNITS = {"second": "effective samples a second", "evaluation": "effective samples an evaluation"}


def race(table: pd.DataFrame, title: str) -> Figure:
    """One row a ranked sampler, best at the top; a dot is the mean over seeds, a bar its interval.

    `table` has the columns sampler, rank, r_hat, note, and for each of UNITS ess_per_<unit>, _low
    and _high. The text below names samplers that ran and whose note says why they have no rank.
    """
    shown = table[table["rank"] != "-"].iloc[::-1]
    left = table[(table["rank"] == "-") & table["r_hat"].notna() & (table["note"] != "")]
    figure, axes = new_figure(2, height=0.8 + 0.32 * max(2, len(shown)))
    for ax, (unit, label) in zip(axes, UNITS.items(), strict=True):
        for place, row in enumerate(shown.to_dict("records")):
            mean, low, high = (row[f"ess_per_{unit}{part}"] for part in ("", "_low", "_high"))
            error = [[mean - low], [high - mean]]
            own = look(row["sampler"])
            style = {"color": own.colour, "marker": own.marker, "markersize": 5, "capsize": 3}
            ax.errorbar(mean, place, xerr=error, linestyle="none", **style)
        names = [look(name).label for name in shown["sampler"]]
        labels = [f"{rank}  {name}" for rank, name in zip(shown["rank"], names, strict=True)]
        ax.set_yticks(range(len(shown)), labels if ax is axes[0] else [])
        ax.set_ylim(-0.6, max(1, len(shown)) - 0.4)
        if len(shown):
            ax.set_xscale("log")
        ax.tick_params(which="both", labelsize=8)
        ax.set_xlabel(label, fontsize=8)
        ax.grid(axis="x", linewidth=0.4)
    figure.suptitle(title, fontsize=9)
    unranked = [f"No rank: {row.sampler}, which {row.note}." for row in left.itertuples()]
    explain(figure, " ".join(["Mean over seeds; bar: its interval.", *unranked]))
    return figure
