"""Claims of Zhang et al. (2022), Section 7.1 and 7.2: Ising models and an RBM."""

import math
from collections.abc import Sequence

import numpy as np

from latticework.experiments.figures.acceptance import rates
from latticework.experiments.papers.claims.verdict import (
    Finding,
    Margin,
    Number,
    Seeds,
    Value,
    by_seed,
    differences,
    equivalence_margins,
    final_values,
    last_value,
    logs,
    margin_of_difference,
    numbers,
    paired_differences,
    paired_ratios,
    records_by_sampler,
    run_json_value,
    seconds_per_step,
    shortest,
    undisturbed_seconds,
    value_at,
    values_at_common_end,
)
from latticework.experiments.records.estimates import (
    Estimate,
    drop_shared_core,
    drop_slow_runs,
    estimate,
    published_estimate,
    published_mean,
    step_seconds,
)
from latticework.experiments.records.grouping import group_by
from latticework.experiments.records.labels import sampler_key
from latticework.experiments.records.record import DATA_OF_VARIANT, Record

EXACT = ("Gibbs-1", "HB-10-1", "LB-1", "GWG-1", "GWG-4")  # in Figures 2 and 3
RIVALS = ("Gibbs-1", "HB-10-1", "DSVGD", "R-MALA", "LB-1", "GWG-1", "GWG-4", "DULA")
MMD = "mmd_to_data"  # of run.json
FIG7 = ("DMALA", "Gibbs-1", "GWG-1", "DULA")
FIG4 = ("Gibbs-1", "HB-10-1", "GWG-1")
# Our reading of a printed level:
ACCEPTANCE_TOLERANCE = 0.03  # of an acceptance rate
CHANGED_SITES_TOLERANCE = 0.5  # of the number of sites changed
LOG_RMSE_TOLERANCE = 0.25  # in log RMSE, a factor of 1.28: our reading of "a similar result"
LOG_MMD_TOLERANCE = 0.5  # in log MMD: our reading of "about"
TIME_TOLERANCE_FACTOR = 2.0  # in time: our reading of "roughly" and "similar"
TIMED = run_json_value("seconds_per_step")


def lowest(
    records: list[Record],
    column: str,
    title: str,
    axis: str,
    others: Sequence[str],
    ours: Sequence[str] = ("DMALA",),
) -> Finding:
    """`ours` are below `others` in `column`, at the largest `axis` value that all reach."""
    groups = records_by_sampler(records, [*others, *ours], [column])
    place, found = values_at_common_end(groups, column, axis)
    margins = differences(title, found, [(name, own) for own in ours for name in others])
    ranked = dict(sorted(found.items(), key=lambda item: np.mean(list(item[1].values()))))
    note = f"{title} {_after(axis, place)}"
    return Finding(margins, numbers(f"{note}: {{}}", ranked), note)


def fig2_acceptance(records: list[Record]) -> Finding:
    """The mean acceptance probability and the number of sites proposed, both larger of DMALA."""
    found, shown = _fig2(records)
    margins = [
        margin_of_difference(f"{what}, DMALA - GWG-6", found["dmala", column], found["gwg", column])
        for what, column in (("acceptance", "acceptance"), ("sites proposed", "proposed"))
    ]
    note = "mean acceptance probability, and distinct sites that a proposal changes"
    return Finding(margins, shown, note)


def fig2_levels(records: list[Record]) -> Finding:
    """The printed levels of acceptance and of sites changed, within their tolerances."""
    (found, shown), margins = _fig2(records), []
    for name, column, field, reach in (
        ("dmala", "acceptance", "acceptance", ACCEPTANCE_TOLERANCE),
        ("dmala", "proposed", "changed", CHANGED_SITES_TOLERANCE),
        ("gwg", "acceptance", "acceptance", ACCEPTANCE_TOLERANCE),
    ):
        what = f"{column} of {name.upper()}"
        margins += equivalence_margins(
            what, found[name, column], published_mean("fig2", name, field), reach
        )
    note = f"acceptance within {ACCEPTANCE_TOLERANCE:g} and sites within "
    note += f"{CHANGED_SITES_TOLERANCE:g} of the paper's; our choice"
    return Finding(margins, shown, note)


def _fig2(records: list[Record]) -> tuple[dict[tuple[str, str], Seeds], list[Number]]:
    """Acceptance and sites proposed of DMALA and GWG at the paper's settings."""
    found, shown = {}, []
    for name, field, what, title in (
        ("dmala", "step_size", "alpha", "DMALA, alpha = 0.6"),
        ("gwg", "flips", "X", "GWG-6"),
    ):
        size = published_mean("fig2", name, "size")
        some = [
            record
            for record in records
            if sampler_key(record)[0] == name
            and math.isclose(record.config["sampler"].get(field) or 0, size)
        ]
        if not some:
            raise LookupError(f"no record of {name.upper()} at {what} = {size:g}")
        for column, text, key in (
            ("acceptance", "acceptance", "acceptance"),
            ("proposed", "sites changed by a proposal", "changed"),
        ):
            found[name, column] = by_seed(some, last_value(column))
            here = estimate(found[name, column].values())
            shown.append(Number(f"{title}: {text}", here, published_estimate("fig2", name, key)))
    return found, shown


def fig2_ess(records: list[Record]) -> Finding:
    """Medians of the ESS per second over sites, compared in logarithms."""
    groups = records_by_sampler(
        drop_shared_core([r for r in records if r.has_array("convergence")]), (*EXACT, "DMALA")
    )
    medians: dict[str, Seeds] = {}
    for name, group in groups.items():
        rate = by_seed(group, lambda record: float(np.nanmedian(rates(record))))
        cost = by_seed(group, TIMED)
        usual = float(np.median(list(cost.values())))
        medians[name] = {seed: rate[seed] * cost[seed] / usual for seed in rate}
    found = {name: logs(seeds) for name, seeds in medians.items()}
    return Finding(
        differences("log ESS/s", found, [("DMALA", name) for name in EXACT]),
        numbers("ESS per second, median over sites: {}", medians),
        "of all chains; median over sites, median over runs of seconds per step; in logarithms; "
        "timed once on an idle core, earlier timings are listed on the page",
    )


def fig3(records: list[Record], axis: str) -> Finding:
    """DMALA is below all others. DSVGD has two errors: of its time average and its ensemble."""
    found = lowest(records, "log_rmse", "log RMSE", axis, RIVALS)
    groups = records_by_sampler(records, (*RIVALS, "DMALA"), ["log_rmse"])
    place, dmala = values_at_common_end(groups, "log_rmse", axis)
    steps = place if axis == "step" else place / seconds_per_step(groups)["DSVGD"]
    ensembles = records_by_sampler(records, ["DSVGD"], ["log_rmse_ensemble"])["DSVGD"]
    particles = by_seed(ensembles, value_at("log_rmse_ensemble", "step", steps))
    margin = margin_of_difference("log RMSE, DSVGD's ensemble - DMALA", particles, dmala["DMALA"])
    text = f"log RMSE {_after(axis, place)}: DSVGD's ensemble"
    number = Number(text, estimate(particles.values()))
    return Finding([*found.margins, margin], [*found.numbers, number], found.note)


def step_cost(records: list[Record], seconds: Value = TIMED) -> Finding:
    """The time of a step relative to GWG-1 and Gibbs-1 is near the paper's.

    `seconds` is the time of a step of a record.
    """
    names = ("Gibbs-1", "GWG-1", "DULA", "DMALA")
    times = undisturbed_seconds(records_by_sampler(records, names), seconds)
    margins, shown, texts = [], [], []
    for ours, theirs in (("DMALA", "Gibbs-1"), ("DMALA", "GWG-1"), ("DULA", "Gibbs-1")):
        keys = "langevin_cost", ours.lower(), theirs.partition("-")[0].lower()
        paper, times_as_long = published_mean(*keys), paired_ratios(times[ours], times[theirs])
        what = f"log(time of {ours} / {theirs})"
        margins += equivalence_margins(
            what, logs(times_as_long), math.log(paper), math.log(TIME_TOLERANCE_FACTOR)
        )
        here = estimate(times_as_long.values())
        shown.append(Number(f"time of a step, {ours} / {theirs}", here, published_estimate(*keys)))
        texts.append(f"{ours} / {theirs} {here.mean:.3g} (paper {paper:g})")
    note = (
        f"{', '.join(texts)}; runs beside other work do not count; about: within a factor of "
        f"{TIME_TOLERANCE_FACTOR:g}, which is our choice"
    )
    return Finding(margins, shown, note)


def fig3_dula(records: list[Record]) -> Finding:
    """DULA ends above DMALA in log RMSE, and within `LOG_RMSE_TOLERANCE` of LB-1 and GWG-1."""
    names = ("DULA", "DMALA", "LB-1", "GWG-1")
    groups = records_by_sampler(records, names, ["log_rmse"])
    end = shortest([r for group in groups.values() for r in group], "step")
    found = final_values(records, names, "log_rmse", value_at("log_rmse", "step", end))
    margins = differences("log RMSE", found, [("DULA", "DMALA")])
    for name in names[2:]:
        margins += equivalence_margins(
            f"log RMSE, DULA - {name}",
            paired_differences(found["DULA"], found[name]),
            0.0,
            LOG_RMSE_TOLERANCE,
        )
    note = "log RMSE of the means after all iterations; similar: within "
    note += f"{LOG_RMSE_TOLERANCE:g}, our choice"
    return Finding(margins, note=note)


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
    for name, group in records_by_sampler(records, FIG7, ["log_rmse"]).items():
        each = float(
            np.median([step_seconds(record) for record in drop_slow_runs(drop_shared_core(group))])
        )
        spent[name] = each * last_value("step")(group[0])
    longer = {name: spent["DMALA"] / spent[name] for name in ("Gibbs-1", "GWG-1")}
    found = ", ".join(f"{name} takes {times:.3g} times" for name, times in longer.items())
    note = (
        f"log RMSE at DMALA's time: {found} the iterations of its run, and its error falls with "
        "their root; median cost of a step over undisturbed runs; its spread is not in the interval"
    )
    return _fig7(records, {name: math.log(times) / 2 for name, times in longer.items()}, note)


def _fig7(records: list[Record], falls: dict[str, float], note: str) -> Finding:
    """DMALA's final log RMSE against that of the others, from which `falls` are subtracted."""
    couplings = group_by(lambda record: record.config["model"]["coupling"], records)
    if len(couplings) < 2:
        raise LookupError("no records of several connectivities")
    margins: list[Margin] = []
    shown: list[Number] = []
    for coupling, some in sorted(couplings.items()):
        found = {
            name: {seed: value - falls.get(name, 0.0) for seed, value in seeds.items()}
            for name, seeds in final_values(some, FIG7, "log_rmse").items()
        }
        where = f"a = {coupling:g}"
        margins += differences(f"{where}: log RMSE", found, [(n, "DMALA") for n in FIG7[1:]])
        for name, seeds in found.items():
            at_cost = ", at DMALA's time" * (name in falls)
            shown.append(Number(f"{where}, {name}{at_cost}", estimate(seeds.values())))
    return Finding(margins, shown, note)


def fig7_ahead_of_gwg(records: list[Record]) -> Finding:
    """DMALA ends below GWG-1, for runs of these two that were added at one connectivity."""
    found = final_values(records, ("GWG-1", "DMALA"), "log_rmse")
    return Finding(differences("log RMSE", found, [("GWG-1", "DMALA")]))


def fig9_mediocre(records: list[Record]) -> Finding:
    """The MMD of the images to the test rows is larger for DULA."""
    margins: list[Margin] = []
    shown: list[Number] = []
    for data in ("omniglot", "caltech"):
        names = (data, *(variant for variant, of in DATA_OF_VARIANT.items() if of == data))
        some = [r for r in records if r.choices.get("data") in names and MMD in r.document]
        if not some:
            raise LookupError(f"no record of images of {data} has their {MMD}")
        groups = records_by_sampler(some, ["DULA", "DMALA"])
        found = {name: by_seed(group, run_json_value(MMD)) for name, group in groups.items()}
        margins += differences(f"{data}: MMD^2", found, [("DULA", "DMALA")])
        shown += numbers(f"{data}: MMD^2 to the data, {{}}", found)
    return Finding(margins, shown, "unbiased MMD^2 of the images to the test rows")


def fig4_level(records: list[Record]) -> Finding:
    """DMALA's final log MMD is within `LOG_MMD_TOLERANCE` of the paper's."""
    end = final_values(records, ["DMALA"], "log_mmd")["DMALA"]
    floor = final_values(records, ["DMALA"], "log_mmd_floor")["DMALA"]
    shown = [
        Number(
            "DMALA: log MMD^2 at the end",
            estimate(end.values()),
            published_estimate("fig4", "dmala"),
        ),
        Number("equally many independent samples: log MMD^2", estimate(floor.values())),
    ]
    margins = equivalence_margins(
        "log MMD^2 of DMALA", end, published_mean("fig4", "dmala"), LOG_MMD_TOLERANCE
    )
    note = f"log MMD^2 at the end; about: within {LOG_MMD_TOLERANCE:g}, which is our choice"
    return Finding(margins, shown, note)


def app_d(records: list[Record]) -> Finding:
    """Acceptance with and without the step-size term, each within a factor of 2 of the paper's."""
    dmala = [r for r in records if sampler_key(r)[0] == "dmala" and "acceptance" in r.metrics]
    margins, shown = [], []
    for name, infinite in (("with", False), ("without", True)):
        some = [r for r in dmala if np.isinf(r.config["sampler"]["step_size"]) == infinite]
        if not some:
            raise LookupError(f"no record of DMALA {name} the step-size term")
        found, paper = by_seed(some, last_value("acceptance")), published_mean("appD", name)
        rate = {seed: max(value, 1e-300) for seed, value in found.items()}
        what = f"log acceptance {name} the term"
        margins += equivalence_margins(what, logs(rate), math.log(paper), math.log(2))
        here = estimate(100 * value for value in found.values())
        shown.append(Number(f"acceptance {name} the term, %", here, Estimate(100 * paper)))
    return Finding(margins, shown, "each within a factor of 2 of the paper's")


def _after(axis: str, place: float) -> str:
    return f"after {place:,.0f} iterations" if axis == "step" else f"after {place:.3g} seconds"
