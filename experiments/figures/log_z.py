"""Estimates of log Z by task=log_z: a table of them, and the ladders of tempering."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from latticework.experiments.figures import plot, style
from latticework.experiments.records import grouping
from latticework.experiments.records.record import Record

MAX_REPLICAS = 3  # replicas of a ladder that are drawn
MAX_LEVELS = 300  # levels of a replica that are drawn, the last ones


def normalisers(records: list[Record]) -> pd.DataFrame:
    """One row a record, in nats: log Z, its 95 % interval, and how far the exact value is.

    The interval of SMC and AIS has no upper end where it is not plain that more than half of their
    runs or chains count; the lower end is then that of Markov's inequality. Tempering has no such
    bound. Its interval is the hull of its estimates where the barrier is not known, and it has none
    where ladders made few round trips or their chains have not converged. "Counts" are effective
    chains of AIS or runs of SMC, and round trips of a ladder beside those that moves would make if
    each forgot its start. Raises LookupError if no record is of task=log_z.
    """
    estimated = grouping.require_records_with(records, "log_z_low", task="log_z")
    headings, settings = grouping.settings_table(estimated)
    rows = []
    for texts, runs in settings:
        for record in runs:
            named = dict(zip(headings, texts, strict=True))
            rows.append({**named, "seed": record.config["seed"], **_log_z_columns(record)})
    return pd.DataFrame(rows)


def _log_z_columns(record: Record) -> dict[str, str]:
    """The columns of a record's estimate, its interval and its cost."""
    document = record.document
    low, high = document["log_z_low"], document["log_z_high"]
    exact = document["log_z_exact"]
    wide = high is None or not document.get("plain", True)
    other_side = document.get("log_z_backward", document.get("log_z_upper"))
    if "barrier" in document:
        trips = f"{document['round_trips']:.1f} of {document['predicted_round_trips']:.0f} trips"
        counts = f"{trips}, barrier {document['barrier']:.2f}"
    else:
        counts = f"{document['ess']:.1f} of {document['effective_of']}"
    return {
        "log Z": f"{document['log_z']:.3f}",
        "95 % from": _format_nats(low, "no bound"),
        "to": _format_nats(high, "no bound"),
        "plain": "no" if wide else "yes",
        "at least (Markov)": _format_nats(document.get("log_z_at_least")),
        "from the other side": _format_nats(other_side),
        "exact": _format_nats(exact),
        "error": "" if exact is None else f"{document['log_z'] - exact:+.3f}",
        "counts": counts,
        "seconds": f"{document['estimation_seconds']:.1f}",
        "evaluations": f"{document['evaluations']:.3g}",
    }


def _format_nats(value: float | None, missing: str = "") -> str:
    return missing if value is None else f"{value:.3f}"


class Stairs(plot.Series):
    """A value between each two of the places `x`; the last place has none."""

    def draw(self, ax: Axes) -> None:
        points = self.points
        ax.stairs(points["y"][:-1], points["x"], label=self.label, **self.style)


def ladders(records: list[Record]) -> plot.Plot:
    """The local barrier along b, and the level of each replica of one ladder, a row a setting.

    The local barrier is the rejected share of swaps over the step of b (Syed et al. 2022, Section
    4); its integral is the barrier. If there are several seeds, the first is drawn.
    Raises LookupError if no record has ladders.
    """
    holding = grouping.require_records_with(records, "ladders", task="log_z")
    _, settings = grouping.settings_table(holding)
    panels = []
    for texts, runs in settings:
        name = ", ".join(filter(None, texts)) or runs[0].choices["model"]
        panels += _ladder_panels(name, runs[0])
    figure, _ = style.new_figure(2, rows=len(settings), height=2.4)
    plot.draw_panels(figure.axes, panels)
    note = "Level 0 is p0, the highest the target. Three of the replicas are drawn."
    return plot.finish_plot(figure, figure.axes, panels, note)


def _ladder_panels(name: str, record: Record) -> list[plot.Panel]:
    """The panel of the local barrier, and that of the levels of some replicas."""
    arrays = record.arrays("ladders")
    b, level = arrays["schedule"], arrays["level"][-MAX_LEVELS:, :, 0]
    rejected = 1 - np.exp(np.minimum(arrays["up"] + arrays["down"], 0)).mean((0, 2))
    local = np.append(rejected / np.diff(b), np.nan)
    barrier = Stairs("local barrier", b, local, named=False, color=style.INKS[0])
    walks: list[plot.Series] = []
    draws = np.arange(len(level))
    for replica in range(min(MAX_REPLICAS, level.shape[1])):
        look = {"color": style.numbered_style(replica)["color"], "linewidth": 0.9}
        walks.append(
            plot.Series(f"replica {replica}", draws, level[:, replica], named=False, **look)
        )
    title = f"{name}: barrier {rejected.sum():.1f}"
    trips = f"one ladder, {arrays['trips'].mean():.1f} round trips a ladder"
    return [
        plot.Panel([barrier], xlabel="b", ylabel="local barrier", ylim=(0, None), title=title),
        plot.Panel(walks, xlabel="draw", ylabel="level", title=trips),
    ]
