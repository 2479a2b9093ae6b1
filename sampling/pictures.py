"""Pictures of results, by Matplotlib: `result.plot()`, `race(...).plot()`, `result.log_z.plot()`.

Chains differ in line style as well as in colour, from the palette of M. Okabe and K. Ito ("Color
Universal Design", 2008), so pictures can be read in grey and by colour-blind readers.
"""

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from latticework.sampling.diagnostics import largest_r_hat, quantities, round_noise
from latticework.sampling.ladder_estimates import Ladders, LogZ
from latticework.sampling.result import SampleResult
from latticework.sampling.summary_result import SummaryResult
from latticework.sampling.verdict import entry_name

if TYPE_CHECKING:
    import pandas as pd

COLOURS = ("#0072B2", "#C44E00", "#00785A", "#A8457F", "#555555", "#000000")
STYLES = ("-", "--", "-.", ":")
FAINT = "#BBBBBB"
MAX_TRACES = 8  # chains whose traces are shown
MAX_POINTS = 1000  # draws of a trace that are shown, evenly spaced
MAX_ENTRIES = 200  # entries that are shown, evenly spaced
MAX_WORST = 10  # entries with the largest R-hat
RANK_BINS = 20
NORMAL_95 = 1.96  # standard errors of a 95 % interval


class ResultPicture(Figure):
    """A figure that a notebook shows and `savefig` writes; pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


class Entries:
    """Entries of x and their diagnostics, of which at most `MAX_ENTRIES` are read."""

    def __init__(self, result: SampleResult) -> None:
        shape = result.domain.shape
        count = int(np.prod(shape))
        places = np.unique(np.linspace(0, count - 1, min(count, MAX_ENTRIES)).astype(int))
        if isinstance(result, SummaryResult):
            columns = {name: values[places] for name, values in result.numbers.items()}
        else:
            columns = quantities(result.stored.select_entries(places).astype(np.float64))
        indices = np.stack(np.unravel_index(places, shape), -1)
        self.names = [entry_name(index, result.names, result.labels) for index in indices]
        self.sites, self.places, self.shown_all = indices[:, 0], places, len(places) == count
        self.mean, self.error = columns["mean"], columns["mcse_mean"]
        self.r_hat, self.ess = columns["r_hat"], columns["ess_bulk"]


def draw_result(result: SampleResult) -> ResultPicture:
    """The trace and the ranks of log pi, the means of entries with intervals, and the worst."""
    picture = ResultPicture(figsize=(10, 6.4), layout="constrained")
    trace, ranks, means, worst = picture.subplots(2, 2).flat
    entries = Entries(result)
    log_prob = round_noise(result.log_prob.numpy())
    _draw_trace(trace, log_prob)
    _draw_ranks(ranks, log_prob)
    _draw_means(means, entries)
    _draw_worst(worst, entries, len(log_prob))
    picture.suptitle(result.verdict.text, fontsize=9, wrap=True)
    return picture


def _draw_trace(axes: Any, log_prob: NDArray) -> None:
    """The log-probability of each chain, thin, and its running mean, thick."""
    chains, draws = log_prob.shape
    shown = np.unique(np.linspace(0, draws - 1, min(draws, MAX_POINTS)).astype(int))
    running = np.cumsum(log_prob, 1) / np.arange(1, draws + 1)
    for number in range(min(chains, MAX_TRACES)):
        look = _look_of(number)
        axes.plot(shown, log_prob[number, shown], color=look["color"], lw=0.4, alpha=0.4)
        axes.plot(shown, running[number, shown], lw=1.8, **look)
    more = f" (the first {MAX_TRACES} of {chains} chains)" if chains > MAX_TRACES else ""
    axes.set(xlabel="draw", ylabel="log pi", title=f"Trace and running mean{more}")


def _draw_ranks(axes: Any, log_prob: NDArray) -> None:
    """How the draws of each chain rank among all: equal bars if chains have one law."""
    from scipy.stats import rankdata

    chains, draws = log_prob.shape
    ranks = rankdata(log_prob, axis=None).reshape(log_prob.shape) / log_prob.size
    for number in range(min(chains, MAX_TRACES)):
        counts, edges = np.histogram(ranks[number], RANK_BINS, (0, 1))
        axes.stairs(counts / draws * RANK_BINS, edges, baseline=None, lw=1.4, **_look_of(number))
    axes.axhline(1, color="black", lw=0.6)
    axes.set(xlabel="rank among all draws", ylabel="share of a chain", ylim=(0, None))
    axes.set_title("Ranks of log pi (1: chains agree)")


def _draw_means(axes: Any, entries: Entries) -> None:
    """The mean of each entry with its 95 % interval."""
    width = NORMAL_95 * np.nan_to_num(entries.error)
    axes.errorbar(
        np.arange(len(entries.mean)), entries.mean, width, fmt="o", ms=3, lw=1, color=COLOURS[0]
    )
    ticks = np.unique(np.linspace(0, len(entries.mean) - 1, 5).astype(int))
    axes.set_xticks(ticks, [entries.names[tick] for tick in ticks])
    note = "" if entries.shown_all else f" ({len(entries.mean)} of them)"
    axes.set(ylabel="mean", title=f"Means of entries with 95 % intervals{note}")


def _draw_worst(axes: Any, entries: Entries, chains: int) -> None:
    """The entries with the largest R-hat, beside the limit, with their ESS."""
    r_hat = np.where(np.isposinf(entries.r_hat), np.nan, entries.r_hat)
    worst = [place for place in np.argsort(-np.nan_to_num(r_hat)) if not np.isnan(r_hat[place])]
    worst = worst[:MAX_WORST][::-1]
    rows = np.arange(len(worst))
    axes.plot(r_hat[worst], rows, "o", color=COLOURS[0])
    for row, place in enumerate(worst):
        text = f" ESS {entries.ess[place]:.0f}"
        axes.annotate(text, (r_hat[place], row), (4, 0), textcoords="offset points", va="center",
                      fontsize=8)  # fmt: skip
    axes.axvline(largest_r_hat(chains), color=COLOURS[1], ls="--", lw=1.2)
    axes.margins(x=0.25)
    axes.set_yticks(rows, [entries.names[place] for place in worst])
    axes.set(xlabel="R-hat (dashed: the largest that is allowed)", title="Worst entries")


def draw_race_rates(table: "pd.DataFrame", unit: str) -> ResultPicture:
    """Effective samples of each sampler, with intervals; hollow marks have no rank."""
    column = f"ess_per_{unit.removesuffix('s')}"
    table = table.iloc[::-1]
    rate, low, high = (table[column + end].to_numpy(float) for end in ("", "_low", "_high"))
    picture = ResultPicture(figsize=(7, 1.2 + 0.35 * len(table)), layout="constrained")
    axes = picture.subplots()
    for row, rank in enumerate(table["rank"]):
        fill = "none" if rank == "-" else COLOURS[0]
        axes.plot([low[row], high[row]], [row, row], color=COLOURS[0] if rank != "-" else FAINT)
        axes.plot(rate[row], row, "o", mfc=fill, mec=COLOURS[0] if rank != "-" else "#777777")
    texts = (f"{rank}  {name}" for rank, name in zip(table["rank"], table["sampler"], strict=True))
    axes.set_yticks(np.arange(len(table)), texts)
    if np.isfinite(rate).any() and (rate[np.isfinite(rate)] > 0).all():
        axes.set_xscale("log")
    words = {"seconds": "a second", "evaluations": "an evaluation of each chain"}
    axes.set_xlabel(f"effective samples for {words[unit]}")
    axes.set_title("Mean over seeds with 95 % interval; hollow: no rank", fontsize=10)
    return picture


def draw_ladders(ladders: Ladders, log_z: LogZ) -> ResultPicture:
    """The barrier and log Z along the temperatures."""
    picture = ResultPicture(figsize=(9, 3.6), layout="constrained")
    left, right = picture.subplots(1, 2)
    b = ladders.schedule
    left.stairs(ladders.rejections, b, fill=True, color=FAINT, label="rejection of a swap")
    cumulative = np.concatenate(([0], np.cumsum(ladders.rejections)))
    left.plot(b, cumulative, "o-", ms=4, color=COLOURS[0], label="their sum, the barrier")
    trips = f"{ladders.trips.mean():.1f} round trips, {ladders.predicted_trips:.0f} predicted"
    left.set(xlabel="inverse temperature b", title=f"Barrier {ladders.barrier:.2f}; {trips}")
    left.legend(frameon=False)
    rows = {"forward": log_z.forward, "Bennett": log_z.value, "backward": log_z.backward}
    right.plot([*rows.values()], range(3), "o", color=COLOURS[0])
    if np.isfinite([log_z.low, log_z.high]).all():
        right.plot([log_z.low, log_z.high], [1, 1], "|-", ms=12, color="black")
    right.set_yticks(range(3), [*rows])
    right.set_ylim(-0.6, 2.6)
    right.ticklabel_format(axis="x", useOffset=False)
    right.set(xlabel="log Z (bar: 95 % interval)", title=f"log Z {log_z.value:.2f}")
    if log_z.doubt:
        picture.suptitle(log_z.doubt, fontsize=9, wrap=True)
    return picture


def _look_of(number: int) -> dict[str, Any]:
    """The colour and the line style of a chain."""
    return {"color": COLOURS[number % len(COLOURS)], "ls": STYLES[number % len(STYLES)]}
