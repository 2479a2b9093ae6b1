"""Training log-likelihood and test RMSE of binary networks against steps and seconds.

One row of panels per data set. The paper has no such figure; its Tables 2 and 4 have the final
values.
"""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latticework.experiments.figures.band import at_readings, line_and_band
from latticework.experiments.results.record import Record
from latticework.experiments.results.style import colour, sampler_key
from latticework.experiments.tables.bnn import HEADINGS, grouped

AXES = {"step": "steps", "seconds": "seconds"}


def curves(records: list[Record]) -> Figure:
    """Means over seeds, with a band of one standard deviation.

    Raises LookupError if no record has the metrics.
    """
    groups = grouped(records)
    tables = list(dict.fromkeys(data for data, _, _ in groups))
    panels = [(metric, axis) for metric in HEADINGS for axis in AXES]
    figure, axes = plt.subplots(
        len(tables), len(panels), figsize=(2.4 * len(panels), 1.8 * len(tables)),
        layout="constrained", squeeze=False,
    )  # fmt: skip
    for line, data in zip(axes, tables, strict=True):
        chosen = {key: group for key, group in groups.items() if key[0] == data}
        for ax, (metric, axis) in zip(line, panels, strict=True):
            for place, ((_, name, text), group) in enumerate(chosen.items()):
                of = [key for key in chosen if key[1] == name]  # the settings of this method
                ink = shade(group[0], place, len(chosen), of.index((data, name, text)), len(of))
                draw(ax, group, metric, axis, ink, text)
            ax.set_title(f"{data}: {HEADINGS[metric]}", fontsize=9)
            ax.set_xlabel(AXES[axis], fontsize=9)
            ax.spines[["top", "right"]].set_visible(False)
            ax.tick_params(labelsize=8)
            if axis == "seconds":
                ax.set_xscale("log")
        line[-1].legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def draw(ax: Axes, group: list[Record], metric: str, axis: str, ink: object, text: str) -> None:
    shown = slice(1 if axis == "seconds" else 0, None)  # the start is at 0
    line_and_band(ax, at_readings(group, metric, axis, shown), ink=ink, label=text)


def shade(record: Record, place: int, count: int, own: int, of: int) -> object:
    """The sampler's colour; for stochastic DULA, a colour on a scale over batch sizes."""
    if "batch" in record.config["sampler"]:
        return plt.get_cmap("viridis")(0.9 * place / max(1, count - 1))
    return colour(sampler_key(record), own, of)
