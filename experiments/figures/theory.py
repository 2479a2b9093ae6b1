"""Theorems of Zhang et al. (2022), their Appendices B and H, and A_lambda, from enumerated chains.

Lines without a band are exact. Dots and bands are simulations, with the spread over seeds (over
chains where stated).
"""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latticework.experiments.figures.style import (
    GREY,
    INKS,
    Means,
    attach_band,
    band,
    colour,
    describe_band,
    describe_runs,
    draw_published,
    key_of_dashes,
    label_lines_and_legend,
    line_and_band,
    new_figure,
    numbered_style,
    sampler_line_style,
)
from latticework.experiments.records.estimates import published_if_same_data
from latticework.experiments.records.grouping import (
    by_sampler,
    group_by,
    groups,
    join_label,
    require_one_setting,
    require_records_with,
)
from latticework.experiments.records.labels import format_seeds, sampler_label
from latticework.experiments.records.record import Record


def _table(records: list[Record], column: str) -> pd.DataFrame:
    """All metrics.csv with `column` as one table, with the seed. LookupError if there is none."""
    return pd.concat(
        record.metrics.assign(seed=record.config["seed"])
        for record in require_records_with(records, column)
    )


def _dots(ax: Axes, table: pd.DataFrame, x: str, **style: Any) -> None:
    """Mean and standard deviation over seeds of `simulated`."""
    found = table.dropna(subset="simulated").groupby(x)["simulated"].agg(["mean", "std"])
    spread = found["std"].fillna(0)
    look = {"marker": "o", "markersize": 3.5, "linestyle": "none", **style}
    bars = ax.errorbar(found.index, found["mean"], yerr=spread, **look)
    attach_band(bars.lines[0], found["mean"] - spread, found["mean"] + spread)


def bias_against_step_size(records: list[Record]) -> Figure:
    """Figure 1a: |pi_alpha - pi|_1 against alpha, and against 1 / (2 alpha) in both coordinates."""
    records = require_one_setting((r for r in records if "closed_form" in r.metrics), ["model.low"])
    units = dict(list(_table(records, "closed_form").groupby("unit")))
    figure, (left, right) = new_figure(2, height=3.2)
    first = next(iter(units.values()))
    one = first.groupby("step_size").first().reset_index()
    alpha = one["step_size"] / one["unit"]
    left.plot(alpha, one["exact"], color="black", lw=1.4, label="enumerated")
    every = pd.concat(units.values()).assign(alpha=lambda t: t["step_size"] / t["unit"])
    _dots(left, every, "alpha", color=INKS[0], label="simulated, with the spread over seeds")
    noise = every.dropna(subset="noise").groupby("alpha")["noise"].mean()
    left.plot(noise.index, noise, ":", color=GREY, lw=1, label="sampling noise")
    left.plot(alpha, one["repaired"], "-.", color=INKS[2], lw=1, label="bound, any coordinates")
    for number, (unit, table) in enumerate(units.items()):
        style = {**numbered_style(number), "markersize": 4, "linewidth": 1}
        exact = table.groupby("step_size").first().reset_index()
        name = {1.0: "{0, 1}", 4.0: "{-1, 1}"}.get(unit, f"squared distance {unit:g}")
        scaled = exact["step_size"] / unit
        left.plot(scaled, exact["theorem"], "--", **style, label=f"Theorem 5.1 on {name}")
        slopes = [r.document["slope"] for r in records if r.metrics["unit"][0] == unit]
        rate = 1 / (2 * exact["step_size"])
        text = f"{name}: slope {np.mean(slopes):.3f}"
        right.plot(rate, np.log(exact["closed_form"]), label=text, **{**style, "linewidth": 1.4})
        right.plot(rate, np.log(exact["theorem"]), "--", label=f"_{name}: Theorem 5.1", **style)
    left.set(
        xscale="log",
        yscale="log",
        ylim=(1e-12, 100),
        xlabel=r"step size $\alpha$ on {0, 1} ($4\alpha$ on {-1, 1})",
        ylabel=r"$\|\pi_\alpha - \pi\|_1$",
    )
    right.set(
        xlabel=r"$1 / (2 \alpha)$, $\alpha$ in the coordinates' own units",
        ylabel=r"$\ln \|\pi_\alpha - \pi\|_1$",
    )
    note = f"Lines are exact; simulations have {format_seeds(records)}."
    label_lines_and_legend(figure, note, key_of_dashes(**{"Theorem 5.1": "--"}))
    return figure


def bias_against_epsilon(records: list[Record]) -> Figure:
    """Figure 1b: |pi_alpha - pi|_1 against epsilon, one panel for each a and b."""
    kept = [record for record in records if "epsilon" in record.config["model"]]
    if not kept:
        raise LookupError("no record has a target with epsilon")
    shown = require_one_setting(kept, ["model.epsilon", "model.a", "model.b"])
    panels = group_by(lambda record: (record.setting("model.a"), record.setting("model.b")), shown)
    figure, axes = new_figure(len(panels), height=3.2)
    ordered = sorted(panels.items(), reverse=True)
    for ax, ((a, b), some) in zip(np.atleast_1d(axes), ordered, strict=True):
        tables = [r.metrics.assign(epsilon=r.setting("model.epsilon")) for r in some]
        curves = pd.concat(tables).groupby(["unit", "step_size"])
        for number, ((unit, alpha), table) in enumerate(curves):
            exact, style = table.groupby("epsilon").first(), numbered_style(number)
            text = rf"DULA, $\alpha$ = {alpha / unit:g}"
            width = 1.2 + 1.5 * (len(curves) - number - 1)  # curves that agree stay visible
            ax.plot(exact.index, exact["exact"], lw=width, label=text, color=style["color"])
            thin = {"lw": 0.8, "color": style["color"], "label": f"_{text}, Theorem 5.2"}
            ax.plot(exact.index, exact["theorem"], "--", **thin)
            dots = {"marker": style["marker"], "label": f"_{text}, simulated"}
            _dots(ax, table, "epsilon", color=style["color"], **dots)
        ax.set(xscale="log", yscale="log", ylim=(3e-4, 300))
        ax.set(title=f"a = {a:g}, b = {b:g}", xlabel=r"$\epsilon$")
    first = np.atleast_1d(axes)[0]
    first.set_ylabel(r"$\|\pi_\alpha - \pi\|_1$ ($\alpha$ in {0, 1} units)")
    worst = max(record.metrics["adjusted"].max() for record in shown)
    note = f"Lines are exact; markers are simulated, with the spread over {describe_runs(kept)}."
    note += f" The enumerated bias of DMALA is at most {worst:.0e}."
    label_lines_and_legend(
        figure, note, key_of_dashes(**{"Theorem 5.2, its proof's constants": "--"})
    )
    return figure


def proposal_bias(
    records: list[Record], step_sizes: list[float], deviations: list[float]
) -> Figure:
    """Theorem 6.1: |E[q-hat_i] - q_i|_1 and its bounds against sigma and against 1 / (2 alpha)."""
    table = _table(require_one_setting(r for r in records if "with_half" in r.metrics), "with_half")
    figure, (left, right) = new_figure(2, height=3.2)
    for number, alpha in enumerate(step_sizes):
        rows = table[table["step_size"] == alpha].sort_values("sigma")
        _with_bounds(left, rows["sigma"], rows, rf"$\alpha$ = {alpha:g}", number)
    for number, sigma in enumerate(deviations, len(step_sizes)):
        rows = table[table["sigma"] == sigma].sort_values("step_size")
        rate = 1 / (2 * rows["step_size"])
        _with_bounds(right, rate, rows, rf"$\sigma$ = {sigma:g}", number)
    left.set(xscale="log", yscale="log", ylim=(1e-9, 1e3))
    right.set(yscale="log")
    left.set_xlabel(r"standard deviation of the gradient, $\sigma$")
    right.set_xlabel(r"$1 / (2 \alpha)$")
    left.set_ylabel(r"largest $\|E[\hat q_i] - q_i\|_1$")
    bounds = {"Theorem 6.1": "--", "Theorem 6.1 with Eq. (2)'s 1/2": ":"}
    label_lines_and_legend(figure, "Exact: no seeds, no bands.", key_of_dashes(**bounds))
    return figure


def _with_bounds(ax: Axes, x: pd.Series, rows: pd.DataFrame, text: str, number: int) -> None:
    """The bias against `x` as a solid line, and its two bounds as thin ones."""
    style = {**numbered_style(number), "markersize": 4}
    ax.plot(x, rows["bias"], label=text, **style)
    thin = {"color": style["color"], "lw": 0.8}
    ax.plot(x, rows["theorem"], "--", label=f"_{text}, Theorem 6.1", **thin)
    ax.plot(x, rows["with_half"], ":", label=f"_{text}, with 1/2", **thin)


def preconditioning(records: list[Record]) -> Figure:
    """Appendix H: log RMSE of the mean against alpha, and against iterations; bands over chains.

    Lines and the ends of bands are means over seeds.
    """
    records = require_records_with(records, "thinned")
    figure, (left, right) = new_figure(2, height=3.6)
    found = by_sampler(records)
    for number, (key, group) in enumerate(found.items()):
        tint, name = colour(key), sampler_label(key)
        table = _table(group, "thinned").groupby(["power", "step_size", "step"]).mean()
        table = table.reset_index()
        last = table[table["step"] == table["step"].max()]
        plain = last[last["power"] == 0].set_index("step_size")
        shift = 1.06**number  # keeps equal points visible
        x = plain.index * shift
        wide = 3.2 - 2 * number  # lines that coincide stay visible
        dots = {
            "color": tint,
            "marker": sampler_line_style(key)["marker"],
            "markersize": 4,
            "lw": max(1, wide),
        }
        (drawn,) = left.plot(x, plain["log_rmse"], label=f"{name}, every step", **dots)
        band(left, drawn, plain["log_rmse_low"], plain["log_rmse_high"])
        left.plot(x, plain["thinned"], "--", label=f"{name}, every other step", **dots)
        for power, dash in ((1, "-."), (2, ":")):
            scaled = table[table["power"] == power].set_index("step")
            text = f"{name}, $2\\alpha{{}}g{'^2' if power == 2 else ''}$"
            (drawn,) = right.plot(scaled["log_rmse"], dash, label=text, markevery=0.1, **dots)
            band(right, drawn, scaled["log_rmse_low"], scaled["log_rmse_high"])
            left.axhline(scaled["log_rmse"].iloc[-1], color=tint, ls=dash, lw=0.8)
    steps = np.array(sorted(table["step"].unique()))
    right.plot(steps, -np.log(steps) / 2, color="black", lw=0.8, label="independent draws")
    for ax, name, text in ((left, "standard", ", at best"), (right, "preconditioned", "")):
        if theirs := published_if_same_data(records, "appH", name):
            draw_published(ax, None, theirs.mean, f"the paper{text}")
        ax.axhline(math.log(0.5) / 2, color=GREY, lw=0.8, label="one of two sites stuck")
        ax.set_xscale("log")
    left.set(xlabel=r"step size $\alpha$", title="without preconditioner")
    right.set(xlabel="iterations", title="with preconditioner")
    left.set_ylabel("ln RMSE of the mean")
    several = any(len(group) > 1 for group in found.values())
    runs = f"Mean over {describe_runs(records)}" if several else f"One run, {format_seeds(records)}"
    label_lines_and_legend(figure, f"{runs}; band: the middle 80 % of the chains.")
    return figure


def law_against_iterations(records: list[Record]) -> Figure:
    """Appendix B: errors of the joint law and of the marginals against enumeration, by size.

    DULA is also compared with its own stationary law, to which it converges.
    """
    sizes = group_by(
        lambda record: record.document["states"], require_records_with(records, "to_unadjusted")
    )
    figure, axes = new_figure(2, rows=len(sizes))
    for (joint, marginal), (states, some) in zip(
        axes.reshape(-1, 2), sorted(sizes.items()), strict=True
    ):
        for group in groups(some):
            style, name = (
                sampler_line_style(group.key, group.line_index, group.line_count),
                group.label,
            )
            table = _table(group.records, "total_variation")
            _band(joint, table, "total_variation", name, style)
            _band(marginal, table, "marginal_error", name, style)
            if group.key[0] == "dula":
                dashed = {**style, "linestyle": "--"}
                _band(joint, table, "to_unadjusted", f"{name}, to its own law", dashed)
                own = group.records[0].document["unadjusted_bias"]
                joint.axhline(own, color=style["color"], ls=":", label=f"{name}'s own law")
        joint.plot(
            table.groupby("step")["independent"].mean(), "k", lw=0.8, label="independent draws"
        )
        for ax in (joint, marginal):
            ax.set(xscale="log", yscale="log", xlabel="iterations", title=f"{states} states")
        joint.set_ylabel("total variation to the target")
        marginal.set_ylabel("largest error of a marginal")
    label_lines_and_legend(
        figure, describe_band([record for some in sizes.values() for record in some])
    )
    return figure


def _band(ax: Axes, table: pd.DataFrame, column: str, text: str, style: dict[str, Any]) -> None:
    """Mean over seeds of a column against steps, and one standard deviation."""
    found = table.groupby("step")[column].agg(["mean", "std"]).fillna(0)
    means = Means(found.index.to_numpy(), found["mean"].to_numpy(), found["std"].to_numpy())
    line_and_band(ax, means, label=text, **style)


def unlearning(records: list[Record]) -> Figure:
    """A_lambda (Breuleux et al. 2011, Section 3): eigenvalue and mixing against lambda.

    Left: second eigenvalue against lambda. Right: distance to the stationary law against steps.

    One line per coupling and setting. The chains are enumerated, so seeds do not matter.
    """
    records = require_records_with(records, "mixing", task="unlearning")
    figure, (left, right) = new_figure(2)
    chains = {
        join_label(f"a = {record.config['model']['coupling']}", group.differs): record
        for group in groups(records, ["model.coupling"])
        for record in sorted(group.records, key=lambda one: one.config["model"]["coupling"])
    }
    for i, (text, record) in enumerate(chains.items()):
        metrics, mixing = record.metrics, record.arrays("mixing")
        left.plot(metrics["lambda"], metrics["second_eigenvalue"], label=text, **numbered_style(i))
        for name, style in (("chain", "-"), ("staying_less", "--")):
            shown = text if name == "chain" else f"_{text}, {name}"
            look = {"label": shown, "linewidth": 1.4, **numbered_style(i)}
            right.plot(np.maximum(mixing[name], 1e-16), style, **look)
    left.set(
        xlabel=r"$\lambda$", ylabel=r"second eigenvalue of $A_\lambda$", title="how fast it mixes"
    )
    right.set(xlabel="steps", ylabel="total variation", title="distance to the stationary law")
    right.set_yscale("log")
    dashes = key_of_dashes(**{r"$\lambda = 0$": "-", r"the largest $\lambda$": "--"})
    label_lines_and_legend(figure, "Exact: no seeds, no bands.", dashes)
    return figure
