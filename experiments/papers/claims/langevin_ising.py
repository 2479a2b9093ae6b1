"""Claims of Zhang et al. (2022), Section 7.1: Ising models, and the cost of a step."""

import math
from collections.abc import Sequence

import numpy as np

from latticework.experiments.figures.acceptance import rates
from latticework.experiments.papers.claims import compare, readings, thresholds
from latticework.experiments.papers.claims.equal_times import lowest_at_equal_times
from latticework.experiments.papers.claims.verdict import Finding, Number, Verdict, numbers
from latticework.experiments.records import estimates, grouping
from latticework.experiments.records.estimates import Estimate, published_mean
from latticework.experiments.records.labels import sampler_key
from latticework.experiments.records.record import Record

EXACT = ("Gibbs-1", "HB-10-1", "LB-1", "GWG-1", "GWG-4")  # in Figures 2 and 3
RIVALS = ("Gibbs-1", "HB-10-1", "DSVGD", "R-MALA", "LB-1", "GWG-1", "GWG-4", "DULA")
FIG7 = ("DMALA", "Gibbs-1", "GWG-1", "DULA")
HORIZONS = (0.01, 0.02, 0.04, 0.1, 0.2, 0.4, 1.0)  # shares of all iterations of a run
TIMED = readings.run_json_value("seconds_per_step")
SeedsByColumn = dict[tuple[str, str], readings.Seeds]  # sampler and column: values by seed


def lowest(
    records: list[Record],
    column: str,
    title: str,
    axis: str,
    others: Sequence[str],
    ours: Sequence[str] = ("DMALA",),
) -> Finding:
    """`ours` are below `others` in `column`, at the largest `axis` value that all reach."""
    groups = readings.records_by_sampler(records, [*others, *ours], [column])
    place, values = readings.values_at_common_end(groups, column, axis)
    pairs = [(reference, name) for name in ours for reference in others]
    ranked = dict(sorted(values.items(), key=lambda item: np.mean(list(item[1].values()))))
    note = f"{title} {_describe_place(axis, place)}"
    margins = compare.differences(title, values, pairs)
    return Finding(margins, numbers(f"{note}: {{}}", ranked), note)


def fig2_acceptance(records: list[Record]) -> Finding:
    """The mean acceptance probability and the number of sites proposed, both larger of DMALA."""
    values, shown = _fig2(records)
    margins = []
    for quantity, column in (("acceptance", "acceptance"), ("sites proposed", "proposed")):
        ours, theirs = values["dmala", column], values["gwg", column]
        margins.append(compare.difference(f"{quantity}, DMALA - GWG-6", ours, theirs))
    note = "mean acceptance probability, and distinct sites that a proposal changes"
    return Finding(margins, shown, note)


def fig2_levels(records: list[Record]) -> Finding:
    """The printed levels of acceptance and of sites changed, within their tolerances."""
    (values, shown), margins = _fig2(records), []
    acceptance, sites = thresholds.ACCEPTANCE.value(), thresholds.CHANGED_SITES.value()
    for name, column, field, tolerance in (
        ("dmala", "acceptance", "acceptance", acceptance),
        ("dmala", "proposed", "changed", sites),
        ("gwg", "acceptance", "acceptance", acceptance),
    ):
        quantity, paper = f"{column} of {name.upper()}", published_mean("fig2", name, field)
        margins += compare.equivalence(quantity, values[name, column], paper, tolerance)
    note = f"acceptance within {acceptance:g} and sites within {sites:g} of the paper's; our choice"
    return Finding(margins, shown, note)


def fig2_gwg_cost(records: list[Record]) -> Finding:
    """A step of GWG-6 takes six times as long as one of DMALA, within a factor."""
    chosen = {name: _at_paper_size(records, name) for name in ("dmala", "gwg")}
    times = readings.undisturbed_seconds(chosen, TIMED)
    paper, factor = published_mean("fig2", "gwg", "cost"), thresholds.TIME.value()
    ratios = readings.paired_ratios(times["gwg"], times["dmala"])
    margins = compare.equivalence(
        "log(time of GWG-6 / DMALA)", readings.logs(ratios), math.log(paper), math.log(factor)
    )
    number = Number(
        "time of a step, GWG-6 / DMALA", estimates.estimate(ratios.values()), Estimate(paper)
    )
    return Finding(margins, [number], f"within a factor of {factor:g} of the paper's")


def _at_paper_size(records: list[Record], name: str) -> list[Record]:
    """The records of DMALA at alpha = 0.6, or of GWG with six flips."""
    field, quantity = {"dmala": ("step_size", "alpha"), "gwg": ("flips", "X")}[name]
    size = published_mean("fig2", name, "size")
    chosen = []
    for record in records:
        near = math.isclose(record.config["sampler"].get(field) or 0, size)
        if near and sampler_key(record)[0] == name:
            chosen.append(record)
    if not chosen:
        raise LookupError(f"no record of {name.upper()} at {quantity} = {size:g}")
    return chosen


def _fig2(records: list[Record]) -> tuple[SeedsByColumn, list[Number]]:
    """Acceptance and sites proposed of DMALA and GWG at the paper's settings."""
    values: SeedsByColumn = {}
    shown = []
    for name, title in (("dmala", "DMALA, alpha = 0.6"), ("gwg", "GWG-6")):
        chosen = _at_paper_size(records, name)
        for column, text, key in (
            ("acceptance", "acceptance", "acceptance"),
            ("proposed", "sites changed by a proposal", "changed"),
        ):
            seeds = readings.by_seed(chosen, readings.last_value(column))
            paper = estimates.published_estimate("fig2", name, key)
            shown.append(Number(f"{title}: {text}", estimates.estimate(seeds.values()), paper))
            values[name, column] = seeds
    return values, shown


def fig2_ess(records: list[Record]) -> Finding:
    """Medians of the ESS per second over sites, compared in logarithms."""
    measured = [record for record in records if record.has_array("convergence")]
    timed = estimates.drop_shared_core(measured)
    medians, log_medians = {}, {}
    for name, group in readings.records_by_sampler(timed, (*EXACT, "DMALA")).items():
        rate = readings.by_seed(group, lambda record: float(np.nanmedian(rates(record))))
        cost = readings.by_seed(group, TIMED)
        usual = float(np.median(list(cost.values())))
        medians[name] = {seed: rate[seed] * cost[seed] / usual for seed in rate}
        log_medians[name] = readings.logs(medians[name])
    return Finding(
        compare.differences("log ESS/s", log_medians, [("DMALA", name) for name in EXACT]),
        numbers("ESS per second, median over sites: {}", medians),
        "of all chains; median over sites, median over runs of seconds per step; in logarithms; "
        "timed once on an idle core, earlier timings are listed on the page",
    )


def fig3(records: list[Record], axis: str) -> Finding:
    """DMALA is below all others. DSVGD has two errors: of its time average and its ensemble."""
    if axis == "seconds":
        finding = lowest_at_equal_times(records, "log_rmse", "log RMSE", RIVALS)
    else:
        finding = lowest(records, "log_rmse", "log RMSE", axis, RIVALS)
    groups = readings.records_by_sampler(records, (*RIVALS, "DMALA"), ["log_rmse"])
    place, values = readings.values_at_common_end(groups, "log_rmse", axis)
    steps = (
        place if axis == "step" else place / readings.seconds_per_step_of_samplers(groups)["DSVGD"]
    )
    column = "log_rmse_ensemble"
    ensembles = readings.records_by_sampler(records, ["DSVGD"], [column])["DSVGD"]
    particles = readings.by_seed(ensembles, readings.value_at(column, "step", steps))
    quantity = "log RMSE, DSVGD's ensemble - DMALA"
    margin = compare.difference(quantity, particles, values["DMALA"])
    text = f"log RMSE {_describe_place(axis, place)}: DSVGD's ensemble"
    number = Number(text, estimates.estimate(particles.values()))
    return Finding([*finding.margins, margin], [*finding.numbers, number], finding.note)


def step_cost(records: list[Record], seconds: readings.Value = TIMED) -> Finding:
    """The time of a step relative to GWG-1 and Gibbs-1 is near the paper's.

    `seconds` is the time of a step of a record.
    """
    names = ("Gibbs-1", "GWG-1", "DULA", "DMALA")
    groups = readings.records_by_sampler(records, names)
    times = readings.undisturbed_seconds(groups, seconds)
    margins, shown, texts = [], [], []
    factor = thresholds.TIME.value()
    for ours, theirs in (("DMALA", "Gibbs-1"), ("DMALA", "GWG-1"), ("DULA", "Gibbs-1")):
        keys = "langevin_cost", ours.lower(), theirs.partition("-")[0].lower()
        paper, ratios = published_mean(*keys), readings.paired_ratios(times[ours], times[theirs])
        quantity, logs = f"log(time of {ours} / {theirs})", readings.logs(ratios)
        margins += compare.equivalence(quantity, logs, math.log(paper), math.log(factor))
        here = estimates.estimate(ratios.values())
        number = Number(
            f"time of a step, {ours} / {theirs}", here, estimates.published_estimate(*keys)
        )
        shown.append(number)
        texts.append(f"{ours} / {theirs} {here.mean:.3g} (paper {paper:g})")
    note = (
        f"{', '.join(texts)}; runs beside other work are left out; tolerance: a factor of "
        f"{factor:.3g} (ours)"
    )
    return Finding(margins, shown, note)


def fig3_dula(records: list[Record]) -> Finding:
    """DULA's log RMSE is about level with that of LB-1 and GWG-1, over the horizon of the run.

    The paper prints no number of iterations for Figure 3, and the 50,000 of Figure 7 are not it.
    So the claim is judged at several horizons, and is not decided if they disagree. That DULA is
    worse than DMALA is judged by `fig3`.
    """
    names = ("DULA", "LB-1", "GWG-1")
    groups = readings.records_by_sampler(records, names, ["log_rmse"])
    end = min(readings.shortest(group, "step") for group in groups.values())
    tolerance = thresholds.LOG_RMSE.value()
    margins, shown = [], []
    agreeing: list[str] = []  # horizons at which all margins hold
    apart: list[str] = []
    for share in HORIZONS:
        horizon = share * end
        at_horizon = readings.value_at("log_rmse", "step", horizon)
        values = readings.by_sampler_and_seed(groups, at_horizon)
        here = []
        for name in names[1:]:
            gaps = readings.paired_differences(values["DULA"], values[name])
            quantity = f"log RMSE after {horizon:,.0f} iterations, DULA - {name}"
            here += compare.equivalence(quantity, gaps, 0.0, tolerance)
            shown.append(Number(quantity, estimates.estimate(gaps.values())))
        is_level = Finding(here).verdict()[0] is Verdict.HOLDS
        (agreeing if is_level else apart).append(f"{horizon:,.0f}")
        margins += here
    note = f"log RMSE of the means; about as well: within {tolerance:g}, our choice"
    undecidable = ""
    if agreeing and apart:
        undecidable = (
            f"the number of iterations of Figure 3, which the paper does not print: level after "
            f"{', '.join(agreeing)} iterations and not after {', '.join(apart)}"
        )
    return Finding(margins, shown, note, undecidable=undecidable)


def fig7_every_connectivity(records: list[Record]) -> Finding:
    """DMALA has the lowest final log RMSE at each connectivity, among the figure's samplers."""
    note = "log RMSE at the end; Gibbs-1 and DULA take more iterations, as in the paper"
    return _fig7(records, {}, note)


def fig7_equal_cost(records: list[Record]) -> Finding:
    """DMALA is lowest with as many iterations of the others as take DMALA's time.

    The error of a mean of an exact sampler falls with the root of the number of iterations. That of
    DULA is mostly its bias, so it stays as it is. A step costs the same at each connectivity.
    """
    spent = {}
    for name, group in readings.records_by_sampler(records, FIG7, ["log_rmse"]).items():
        timed = estimates.drop_slow_runs(estimates.drop_shared_core(group))
        step = float(np.median(list(map(estimates.step_seconds, timed))))
        spent[name] = step * readings.last_value("step")(group[0])
    falls, texts = {}, []
    for name in ("Gibbs-1", "GWG-1"):
        times = spent["DMALA"] / spent[name]
        falls[name] = math.log(times) / 2
        texts.append(f"{name} takes {times:.3g} times")
    note = (
        f"log RMSE at DMALA's time: {', '.join(texts)} the iterations of its run, and its error "
        "falls with their root; median cost of a step over undisturbed runs; its spread is not in "
        "the interval"
    )
    return _fig7(records, falls, note)


def _fig7(records: list[Record], falls: dict[str, float], note: str) -> Finding:
    """DMALA's final log RMSE against that of the others, from which `falls` are subtracted."""
    couplings = grouping.group_by(lambda record: record.config["model"]["coupling"], records)
    if len(couplings) < 2:
        raise LookupError("no records of several connectivities")
    margins: list[compare.Margin] = []
    shown: list[Number] = []
    pairs = [(name, "DMALA") for name in FIG7[1:]]
    for coupling, at_coupling in sorted(couplings.items()):
        where, values = f"a = {coupling:g}", {}
        for name, seeds in readings.final_values(at_coupling, FIG7, "log_rmse").items():
            fall = falls.get(name, 0.0)
            values[name] = {seed: value - fall for seed, value in seeds.items()}
            at_cost = ", at DMALA's time" if name in falls else ""
            here = estimates.estimate(values[name].values())
            shown.append(Number(f"{where}, {name}{at_cost}", here))
        margins += compare.differences(f"{where}: log RMSE", values, pairs)
    return Finding(margins, shown, note)


def fig7_ahead_of_gwg(records: list[Record]) -> Finding:
    """DMALA ends below GWG-1, for runs of these two that were added at one connectivity."""
    values = readings.final_values(records, ("GWG-1", "DMALA"), "log_rmse")
    return Finding(compare.differences("log RMSE", values, [("GWG-1", "DMALA")]))


def _describe_place(axis: str, place: float) -> str:
    return f"after {place:,.0f} iterations" if axis == "step" else f"after {place:.3g} seconds"
