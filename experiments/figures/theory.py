"""Theorems of Zhang et al. (2022), their Appendices B and H, and A_lambda, from enumerated chains.

Lines without a band are exact. Dots and bands are simulations, with the spread over seeds (over
chains where stated).
"""

import math
from typing import Any

import numpy as np
import pandas as pd

from latticework.experiments.figures import plot, style
from latticework.experiments.figures.means import Means
from latticework.experiments.figures.plot import Level, Panel, Plot, Series, finish_plot
from latticework.experiments.records import grouping, labels
from latticework.experiments.records.estimates import published_if_same_data
from latticework.experiments.records.record import Record

DOTS: dict[str, Any] = {"marker": "o", "markersize": 3.5, "linestyle": "none"}
THIN: dict[str, Any] = {"linestyle": "--", "linewidth": 0.8}  # the line of a bound


def _metrics_of_all(records: list[Record], column: str) -> pd.DataFrame:
    """All metrics.csv with `column` as one table, with the seed. LookupError if there is none."""
    tables = []
    for record in grouping.require_records_with(records, column):
        tables.append(record.metrics.assign(seed=record.config["seed"]))
    return pd.concat(tables)


def _simulated_dots(name: str, table: pd.DataFrame, x: str, **look: Any) -> Series:
    """Mean and standard deviation over seeds of `simulated`, at each value of the column `x`."""
    means = table.dropna(subset="simulated").groupby(x)["simulated"].agg(["mean", "std"])
    spread = means["std"].fillna(0)
    low, high = means["mean"] - spread, means["mean"] + spread
    return plot.ErrorBars(name, means.index, means["mean"], low, high, **{**DOTS, **look})


def bias_against_step_size(
    records: list[Record], bottom: float | None = None, top: float | None = None
) -> Plot:
    """Figure 1a: |pi_alpha - pi|_1 against alpha, and against 1 / (2 alpha) in both coordinates.

    `bottom` and `top` are the ends of the first vertical axis.
    """
    solved = [record for record in records if "closed_form" in record.metrics]
    records = grouping.require_one_setting(solved, ["model.low"])
    tables = dict(list(_metrics_of_all(records, "closed_form").groupby("unit")))
    against_alpha = _enumerated_lines(tables)
    against_rate: list[Series] = []
    for number, (unit, table) in enumerate(tables.items()):
        look = {**style.numbered_style(number), "markersize": 4}
        exact = table.groupby("step_size").first().reset_index()
        name = {1.0: "{0, 1}", 4.0: "{-1, 1}"}.get(unit, f"squared distance {unit:g}")
        scaled, theorem = exact["step_size"] / unit, exact["theorem"]
        dashed = look | {"linewidth": 1, "linestyle": "--"}
        against_alpha.append(Series(f"Theorem 5.1 on {name}", scaled, theorem, **dashed))
        slopes = [r.document["slope"] for r in records if r.metrics["unit"][0] == unit]
        rate = 1 / (2 * exact["step_size"])
        text = f"{name}: slope {np.mean(slopes):.3f}"
        bias = np.log(exact["closed_form"])
        against_rate.append(Series(text, rate, bias, linewidth=1.4, **look))
        bound = f"{name}: Theorem 5.1"
        against_rate.append(Series(bound, rate, np.log(theorem), named=False, **dashed))
    panels = [
        Panel(
            against_alpha,
            xscale="log",
            yscale="log",
            ylim=(bottom, top),
            xlabel=r"step size $\alpha$ on {0, 1} ($4\alpha$ on {-1, 1})",
            ylabel=r"$\|\pi_\alpha - \pi\|_1$",
        ),
        Panel(
            against_rate,
            xlabel=r"$1 / (2 \alpha)$, $\alpha$ in the coordinates' own units",
            ylabel=r"$\ln \|\pi_\alpha - \pi\|_1$",
        ),
    ]
    note = f"Lines are exact; simulations have {labels.format_seeds(records)}."
    return _draw_row(panels, note, {"Theorem 5.1": "--"}, height=3.2)


def _enumerated_lines(tables: dict[float, pd.DataFrame]) -> list[Series]:
    """Enumerated and simulated bias against alpha on {0, 1}, the noise, and the repaired bound.

    `tables` are by the squared distance of a site's two values.
    """
    exact = next(iter(tables.values())).groupby("step_size").first().reset_index()
    alpha = exact["step_size"] / exact["unit"]
    simulated = pd.concat(tables.values()).assign(alpha=lambda t: t["step_size"] / t["unit"])
    noise = simulated.dropna(subset="noise").groupby("alpha")["noise"].mean()
    spread = "simulated, with the spread over seeds"
    bound: dict[str, Any] = {"color": style.INKS[2], "linestyle": "-.", "linewidth": 1}
    dotted: dict[str, Any] = {"color": style.GREY, "linestyle": ":", "linewidth": 1}
    return [
        Series("enumerated", alpha, exact["exact"], color="black", linewidth=1.4),
        _simulated_dots(spread, simulated, "alpha", color=style.INKS[0]),
        Series("sampling noise", noise.index, noise, **dotted),
        Series("bound, any coordinates", alpha, exact["repaired"], **bound),
    ]


def _draw_row(panels: list[Panel], note: str, dashes: dict[str, str], height: float = 2.8) -> Plot:
    """Draw the panels side by side. `dashes` are texts of the legend, with the dashes they name."""
    figure, axes = style.new_figure(len(panels), height=height, squeeze=False)
    plot.draw_panels(axes[0], panels)
    return finish_plot(figure, axes[0], panels, note, style.key_of_dashes(**dashes))


def bias_against_epsilon(
    records: list[Record], bottom: float | None = None, top: float | None = None
) -> Plot:
    """Figure 1b: |pi_alpha - pi|_1 against epsilon, one panel for each a and b.

    `bottom` and `top` are the ends of the vertical axes.
    """
    with_epsilon = [record for record in records if "epsilon" in record.config["model"]]
    if not with_epsilon:
        raise LookupError("no record has a target with epsilon")
    axes = ["model.epsilon", "model.a", "model.b"]
    shown = grouping.require_one_setting(with_epsilon, axes)
    by_target = grouping.group_by(lambda r: (r.setting("model.a"), r.setting("model.b")), shown)
    panels = []
    for (a, b), runs in sorted(by_target.items(), reverse=True):
        tables = [r.metrics.assign(epsilon=r.setting("model.epsilon")) for r in runs]
        panel = Panel(
            _epsilon_lines(pd.concat(tables)),
            xscale="log",
            yscale="log",
            ylim=(bottom, top),
            title=f"a = {a:g}, b = {b:g}",
            xlabel=r"$\epsilon$",
        )
        panels.append(panel)
    panels[0].axes["ylabel"] = r"$\|\pi_\alpha - \pi\|_1$ ($\alpha$ in {0, 1} units)"
    runs_text = style.describe_runs(with_epsilon)
    note = f"Lines are exact; markers are simulated, with the spread over {runs_text}."
    worst = max(record.metrics["adjusted"].max() for record in shown)
    note += f" The enumerated bias of DMALA is at most {worst:.0e}."
    return _draw_row(panels, note, {"Theorem 5.2, its proof's constants": "--"}, height=3.2)


def _epsilon_lines(table: pd.DataFrame) -> list[Series]:
    """The bias of DULA at each step size, its bound, and its simulation."""
    lines: list[Series] = []
    step_sizes = table.groupby(["unit", "step_size"])
    for number, ((unit, alpha), rows) in enumerate(step_sizes):
        exact, look = rows.groupby("epsilon").first(), style.numbered_style(number)
        ink = look["color"]
        text = rf"DULA, $\alpha$ = {alpha / unit:g}"
        width = 1.2 + 1.5 * (len(step_sizes) - number - 1)  # curves that agree stay visible
        bound, dots = f"{text}, Theorem 5.2", {"color": ink, "marker": look["marker"]}
        lines += [
            Series(text, exact.index, exact["exact"], linewidth=width, color=ink),
            Series(bound, exact.index, exact["theorem"], named=False, color=ink, **THIN),
            _simulated_dots(f"{text}, simulated", rows, "epsilon", named=False, **dots),
        ]
    return lines


def proposal_bias(
    records: list[Record],
    step_sizes: list[float],
    deviations: list[float],
    bottom: float | None = None,
    top: float | None = None,
) -> Plot:
    """Theorem 6.1: |E[q-hat_i] - q_i|_1 and its bounds against sigma and against 1 / (2 alpha).

    `bottom` and `top` are the ends of the first vertical axis.
    """
    with_half = [record for record in records if "with_half" in record.metrics]
    table = _metrics_of_all(grouping.require_one_setting(with_half), "with_half")
    against_sigma, against_rate = [], []
    for number, alpha in enumerate(step_sizes):
        rows = table[table["step_size"] == alpha].sort_values("sigma")
        against_sigma += _with_bounds(rows["sigma"], rows, rf"$\alpha$ = {alpha:g}", number)
    for number, sigma in enumerate(deviations, len(step_sizes)):
        rows = table[table["sigma"] == sigma].sort_values("step_size")
        rate = 1 / (2 * rows["step_size"])
        against_rate += _with_bounds(rate, rows, rf"$\sigma$ = {sigma:g}", number)
    panels = [
        Panel(
            against_sigma,
            xscale="log",
            yscale="log",
            ylim=(bottom, top),
            xlabel=r"standard deviation of the gradient, $\sigma$",
            ylabel=r"largest $\|E[\hat q_i] - q_i\|_1$",
        ),
        Panel(against_rate, yscale="log", xlabel=r"$1 / (2 \alpha)$"),
    ]
    bounds = {"Theorem 6.1": "--", "Theorem 6.1 with Eq. (2)'s 1/2": ":"}
    return _draw_row(panels, "Exact: no seeds, no bands.", bounds, height=3.2)


def _with_bounds(x: pd.Series, rows: pd.DataFrame, text: str, number: int) -> list[Series]:
    """The bias against `x` as a solid line, and its two bounds as thin ones."""
    look = {**style.numbered_style(number), "markersize": 4}
    thin = {**THIN, "color": look["color"], "named": False}
    dotted = thin | {"linestyle": ":"}
    return [
        Series(text, x, rows["bias"], **look),
        Series(f"{text}, Theorem 6.1", x, rows["theorem"], **thin),
        Series(f"{text}, with 1/2", x, rows["with_half"], **dotted),
    ]


def preconditioning(records: list[Record]) -> Plot:
    """Appendix H: log RMSE of the mean against alpha, and against iterations; bands over chains.

    Lines and the ends of bands are means over seeds.
    """
    records = grouping.require_records_with(records, "thinned")
    by_sampler = grouping.by_sampler(records)
    against_alpha: list[Series] = []
    against_step: list[Series] = []
    for number, (key, runs) in enumerate(by_sampler.items()):
        means = _metrics_of_all(runs, "thinned").groupby(["power", "step_size", "step"]).mean()
        table = means.reset_index()
        name = labels.sampler_label(key)
        dots = {
            "color": style.colour(key),
            "marker": style.sampler_line_style(key)["marker"],
            "markersize": 4,
            "linewidth": max(1, 3.2 - 2 * number),  # lines that coincide stay visible
        }
        against_alpha += _step_size_lines(table, name, number, dots)
        against_step += _preconditioned_lines(table, name, dots)
    steps = np.array(sorted(table["step"].unique()))
    independent = -np.log(steps) / 2
    thin: dict[str, Any] = {"color": "black", "linewidth": 0.8}
    against_step.append(Series("independent draws", steps, independent, **thin))
    stuck = math.log(0.5) / 2
    for lines, entry, text in (
        (against_alpha, "standard", "the paper, at best"),
        (against_step, "preconditioned", "the paper"),
    ):
        if printed := published_if_same_data(records, "appH", entry):
            lines.append(plot.published_point(None, printed.mean, text))
        grey = {"color": style.GREY, "linewidth": 0.8}
        lines.append(Level("one of two sites stuck", stuck, **grey))
    panels = [
        Panel(
            against_alpha,
            xscale="log",
            xlabel=r"step size $\alpha$",
            title="without preconditioner",
            ylabel="ln RMSE of the mean",
        ),
        Panel(against_step, xscale="log", xlabel="iterations", title="with preconditioner"),
    ]
    figure, axes = style.new_figure(2, height=3.6)
    for series in against_step:  # the last values with a preconditioner, beside those without
        if "low" in series.points:
            look = {"ls": series.style["linestyle"], "color": series.style["color"], "lw": 0.8}
            axes[0].axhline(series.points["y"].iloc[-1], **look)
    plot.draw_panels(axes, panels)
    several = any(len(runs) > 1 for runs in by_sampler.values())
    runs_text = f"One run, {labels.format_seeds(records)}"
    if several:
        runs_text = f"Mean over {style.describe_runs(records)}"
    note = f"{runs_text}; band: the middle 80 % of the chains."
    return finish_plot(figure, axes, panels, note)


def _step_size_lines(
    table: pd.DataFrame, name: str, number: int, dots: dict[str, Any]
) -> list[Series]:
    """The last values without preconditioner against alpha, of all steps and of every other."""
    last = table[table["step"] == table["step"].max()]
    plain = last[last["power"] == 0].set_index("step_size")
    x = plain.index * 1.06**number  # keeps equal points visible
    edges = plain["log_rmse_low"], plain["log_rmse_high"]
    return [
        Series(f"{name}, every step", x, plain["log_rmse"], *edges, **dots),
        Series(f"{name}, every other step", x, plain["thinned"], linestyle="--", **dots),
    ]


def _preconditioned_lines(table: pd.DataFrame, name: str, dots: dict[str, Any]) -> list[Series]:
    """The values with each preconditioner against iterations."""
    lines = []
    for power, symbol, dash in ((1, "g", "-."), (2, "g^2", ":")):
        rows = table[table["power"] == power].set_index("step")
        text = f"{name}, $2\\alpha{{}}{symbol}$"
        edges = rows["log_rmse_low"], rows["log_rmse_high"]
        look = dots | {"linestyle": dash, "markevery": 0.1}
        lines.append(Series(text, rows.index, rows["log_rmse"], *edges, **look))
    return lines


def law_against_iterations(records: list[Record]) -> Plot:
    """Appendix B: errors of the joint law and of the marginals against enumeration, by size.

    DULA is also compared with its own stationary law, to which it converges.
    """
    holding = grouping.require_records_with(records, "to_unadjusted")
    by_size = grouping.group_by(lambda record: record.document["states"], holding)
    panels = []
    for states, runs in sorted(by_size.items()):
        axes = {"xscale": "log", "yscale": "log", "xlabel": "iterations"}
        joint, marginal = _law_lines(runs)
        title = f"{states} states"
        panels += [
            Panel(joint, title=title, ylabel="total variation to the target", **axes),
            Panel(marginal, title=title, ylabel="largest error of a marginal", **axes),
        ]
    figure, _ = style.new_figure(2, rows=len(by_size))
    plot.draw_panels(figure.axes, panels)
    return finish_plot(figure, figure.axes, panels, style.describe_band(holding))


def _law_lines(records: list[Record]) -> tuple[list[Series], list[Series]]:
    """The errors of the joint law and of the marginals, for each sampler, against steps."""
    joint, marginal = [], []
    for group in grouping.groups(records):
        look, name = style.group_line_style(group), group.label
        table = _metrics_of_all(group.records, "total_variation")
        joint.append(plot.mean_line(name, _means_by_step(table, "total_variation"), **look))
        marginal.append(plot.mean_line(name, _means_by_step(table, "marginal_error"), **look))
        if group.key[0] == "dula":
            means = _means_by_step(table, "to_unadjusted")
            dashed = look | {"linestyle": "--"}
            joint.append(plot.mean_line(f"{name}, to its own law", means, **dashed))
            bias = group.records[0].document["unadjusted_bias"]
            dotted = {"color": look["color"], "linestyle": ":"}
            joint.append(Level(f"{name}'s own law", bias, **dotted))
    independent = table.groupby("step")["independent"].mean()
    thin: dict[str, Any] = {"color": "black", "linewidth": 0.8}
    joint.append(Series("independent draws", independent.index, independent, **thin))
    return joint, marginal


def _means_by_step(table: pd.DataFrame, column: str) -> Means:
    """Mean over seeds of a column against steps, and one standard deviation."""
    values = table.groupby("step")[column].agg(["mean", "std"]).fillna(0)
    return Means(values.index.to_numpy(), values["mean"].to_numpy(), values["std"].to_numpy())


def unlearning(records: list[Record]) -> Plot:
    """A_lambda (Breuleux et al. 2011, Section 3): eigenvalue and mixing against lambda.

    Left: second eigenvalue against lambda. Right: distance to the stationary law against steps.

    One line per coupling and setting. The chains are enumerated, so seeds do not matter.
    """
    records = grouping.require_records_with(records, "mixing", task="unlearning")
    eigenvalues, distances = [], []
    for number, (text, record) in enumerate(_chains_by_label(records).items()):
        metrics, mixing = record.metrics, record.arrays("mixing")
        look = style.numbered_style(number)
        eigenvalues.append(Series(text, metrics["lambda"], metrics["second_eigenvalue"], **look))
        for name, dash in (("chain", "-"), ("staying_less", "--")):
            line_name = text if name == "chain" else f"{text}, {name}"
            values = np.maximum(mixing[name], 1e-16)
            drawn = look | {"linewidth": 1.4, "linestyle": dash, "named": name == "chain"}
            distances.append(Series(line_name, np.arange(len(values)), values, **drawn))
    panels = [
        Panel(
            eigenvalues,
            xlabel=r"$\lambda$",
            ylabel=r"second eigenvalue of $A_\lambda$",
            title="how fast it mixes",
        ),
        Panel(
            distances,
            xlabel="steps",
            ylabel="total variation",
            title="distance to the stationary law",
            yscale="log",
        ),
    ]
    dashes = {r"$\lambda = 0$": "-", r"the largest $\lambda$": "--"}
    return _draw_row(panels, "Exact: no seeds, no bands.", dashes)


def _chains_by_label(records: list[Record]) -> dict[str, Record]:
    """One record for each coupling and setting, in the order of the couplings."""
    chains = {}
    for group in grouping.groups(records, ["model.coupling"]):
        for record in sorted(group.records, key=lambda record: record.setting("model.coupling")):
            text = grouping.join_label(f"a = {record.setting('model.coupling')}", group.differs)
            chains[text] = record
    return chains
