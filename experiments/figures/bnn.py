"""Training log-likelihood and test RMSE of binary networks against steps or seconds.

One row of panels per data set. The paper has no such figure; its Tables 2 and 4 print the final
values, which crosses show. A part of a data set has none.
"""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from latticework.experiments.figures.style import (
    GREY,
    at_readings,
    explain,
    line,
    line_and_band,
    new_figure,
    printed,
    series,
    spread_over,
)
from latticework.experiments.figures.tables.bnn import HEADINGS, grouped
from latticework.experiments.records.grouping import sampler_key, words
from latticework.experiments.records.numbers import comparable, published, timed
from latticework.experiments.records.record import Record

AXES = {"step": "steps", "seconds": "seconds"}


def curves(records: list[Record], against: str = "step", paper: str | None = None) -> Figure:
    """Means over seeds, with a band of one standard deviation. `against` is a key of AXES.

    `paper` names an entry of published.yaml with values after so many `steps`. Raises LookupError
    if no record has the metrics.
    """
    steps = published(paper, "steps") if paper else None
    records, without = timed(records) if against == "seconds" else (records, "")
    groups = grouped(records)
    tables = list(dict.fromkeys(data for data, _, _ in groups))
    names = list(dict.fromkeys(text for _, _, text in groups))
    figure, axes = new_figure(len(HEADINGS), height=2.0, rows=len(tables))
    for row, data in zip(axes.reshape(len(tables), -1), tables, strict=True):
        chosen = {key: group for key, group in groups.items() if key[0] == data}
        for ax, (metric, heading) in zip(row, HEADINGS.items(), strict=True):
            for (_, name, text), group in chosen.items():
                of = [key for key in chosen if key[1] == name]  # the settings of this method
                style = _style(group[0], names.index(text), of.index((data, name, text)), len(of))
                shown = slice(1 if against == "seconds" else 0, None)  # the start is at 0
                means = at_readings(group, metric, against, shown)
                line_and_band(ax, means, label=text, **style)
                theirs = comparable(group, paper, metric, data, name) if paper else None
                if steps and theirs:
                    ink = style["color"]
                    printed(ax, steps.mean, theirs.mean, f"_{text}, the paper", color=ink)
            ax.set_title(f"{words(data)}: {heading}")
            ax.set_xlabel(AXES[against])
            if against == "seconds":
                ax.set_xscale("log")
    cross = Line2D([], [], color=GREY, marker="x", linestyle="none", label="the paper, at the end")
    explain(figure, spread_over(records) + without, [cross] if paper else [])
    return figure


def _style(record: Record, place: int, own: int, of: int) -> dict[str, Any]:
    """The sampler's style; for stochastic DULA, one for each batch size."""
    if "batch" in record.config["sampler"]:
        return series(place)
    return line(sampler_key(record), own, of)
