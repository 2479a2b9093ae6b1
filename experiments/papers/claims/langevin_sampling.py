"""Claims of Zhang et al. (2022), Section 7.1 and 7.2: Ising models and an RBM."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from latticework.experiments.figures.ess import rates
from latticework.experiments.papers.claims.pairing import (
    Value,
    after,
    at,
    by_seed,
    common,
    difference,
    labelled,
    last,
    quiet,
    seconds_per_step,
    shortest,
    within,
)
from latticework.experiments.papers.claims.verdict import Finding, Number
from latticework.experiments.records.estimate import Estimate, estimate
from latticework.experiments.records.labels import sampler_key
from latticework.experiments.records.pace import idle, pace, undisturbed
from latticework.experiments.records.published import printed, published
from latticework.experiments.records.record import VARIANTS, Record

BASELINES = ("Gibbs-1", "HB-10-1", "DSVGD", "R-MALA", "LB-1", "GWG-1", "GWG-4")
MMD = "mmd_to_data"  # of run.json
FIG7 = ("DMALA", "Gibbs-1", "GWG-1", "DULA")
EXACT = ("Gibbs-1", "HB-10-1", "LB-1", "GWG-1", "GWG-4")  # of them, and in Figure 2
LEVEL = 0.03  # of an acceptance rate, and SITES of sites changed: our reading of a printed level
SITES = 0.5
SIMILAR = 0.25  # in log RMSE, a factor of 1.28: our reading of "a similar result"
ABOUT = 0.5  # in log MMD: our reading of "about"
FACTOR = 2.0  # in time: our reading of "roughly" and "similar"


def fig2_acceptance(records: list[Record]) -> Finding:
    """At alpha = 0.6, DMALA proposes more changes than GWG-6 and is accepted more often."""
    found = _fig2(records)
    margins = (
        difference("acceptance, DMALA - GWG-6", *(found[n]["acceptance"] for n in found)),
        difference("sites proposed, DMALA - GWG-6", *(found[n]["proposed"] for n in found)),
    )
    note = "mean acceptance probability, and distinct sites that a proposal changes"
    return Finding(margins, _fig2_numbers(found), note)


def fig2_levels(records: list[Record]) -> Finding:
    """At alpha = 0.6 DMALA changes six sites and accepts 52 %; GWG-6 accepts 43 %."""
    found, margins = _fig2(records), []
    for name, column, field, reach in (
        ("dmala", "acceptance", "acceptance", LEVEL),
        ("dmala", "proposed", "changed", SITES),
        ("gwg", "acceptance", "acceptance", LEVEL),
    ):
        what = f"{column} of {name.upper()}"
        margins += within(what, found[name][column], printed("fig2", name, field), reach)
    note = f"acceptance within {LEVEL:g} and sites within {SITES:g} of the paper's; our choice"
    return Finding(tuple(margins), _fig2_numbers(found), note)


def _fig2(records: list[Record]) -> dict[str, dict[str, dict[int, float]]]:
    """Acceptance and sites proposed by seed, of DMALA and GWG at the paper's settings."""
    found = {}
    for name, field, what in (("dmala", "step_size", "alpha"), ("gwg", "flips", "X")):
        size = printed("fig2", name, "size")
        some = [
            record
            for record in records
            if sampler_key(record)[0] == name
            and math.isclose(record.config["sampler"].get(field) or 0, size)
        ]
        if not some:
            raise LookupError(f"no record of {name.upper()} at {what} = {size:g}")
        found[name] = {c: by_seed(some, last(c)) for c in ("acceptance", "proposed")}
    return found


def _fig2_numbers(found: dict[str, dict[str, dict[int, float]]]) -> tuple[Number, ...]:
    return (
        Number(
            "DMALA, alpha = 0.6: acceptance", _mean(found["dmala"]["acceptance"]), _rate("dmala")
        ),
        Number(
            "DMALA, alpha = 0.6: sites changed by a proposal",
            _mean(found["dmala"]["proposed"]),
            published("fig2", "dmala", "changed"),
        ),
        Number("GWG-6: acceptance", _mean(found["gwg"]["acceptance"]), _rate("gwg")),
        Number("GWG-6: sites changed by a proposal", _mean(found["gwg"]["proposed"])),
    )


def fig2_ess(records: list[Record]) -> Finding:
    """DMALA has the largest ESS per second: medians over sites, compared in logarithms."""
    groups = labelled(idle([r for r in records if r.has("convergence")]), [*EXACT, "DMALA"])
    medians: dict[str, dict[int, float]] = {}
    for name in (*EXACT, "DMALA"):
        rate = by_seed(groups[name], lambda record: float(np.nanmedian(rates(record))))
        cost = by_seed(groups[name], lambda record: record.document["seconds_per_step"])
        usual = float(np.median(list(cost.values())))
        medians[name] = {seed: rate[seed] * cost[seed] / usual for seed in rate}
    logs = {name: {s: math.log(v) for s, v in seeds.items()} for name, seeds in medians.items()}
    return Finding(
        tuple(
            difference(f"log ESS/s, DMALA - {name}", logs["DMALA"], logs[name]) for name in EXACT
        ),
        tuple(
            Number(f"ESS per second, median over sites: {name}", estimate(seeds.values()))
            for name, seeds in medians.items()
        ),
        "of all chains; median over sites, median over runs of seconds per step; in logarithms; "
        "timed once on an idle core, earlier timings are listed on the page",
    )


def fig3_iterations(records: list[Record]) -> Finding:
    """DMALA has the lowest log RMSE at equal iterations (as many as all samplers have run)."""
    return _fig3(records, "step")


def fig3_seconds(records: list[Record]) -> Finding:
    """DMALA has the lowest log RMSE at equal seconds (as many as all samplers have run)."""
    return _fig3(records, "seconds")


def fig3_seconds_compiled(records: list[Record]) -> Finding:
    """`fig3_seconds` among the samplers that have compiled kernels."""
    return _first(records, "log_rmse", "log RMSE", "seconds", "DMALA", (*EXACT, "DULA"))


def _fig3(records: list[Record], axis: str) -> Finding:
    """Compare DMALA with all others. DSVGD has two errors: of its time average and its ensemble."""
    rivals = (*BASELINES, "DULA")
    found = _first(records, "log_rmse", "log RMSE", axis, "DMALA", rivals)
    names = [*rivals, "DMALA"]
    labels = labelled(records, names, ["log_rmse"])
    groups = {name: labels[name] for name in names}
    if any("log_rmse_ensemble" not in record.metrics for record in groups["DSVGD"]):
        return found  # older records
    place, ends = after(groups, "log_rmse", axis)
    steps = place if axis == "step" else place / seconds_per_step(groups)["DSVGD"]
    particles = by_seed(groups["DSVGD"], at("log_rmse_ensemble", "step", steps))
    margin = difference("log RMSE, DSVGD's ensemble - DMALA", particles, ends["DMALA"])
    number = Number(f"log RMSE {_after(axis, place)}: DSVGD's ensemble", _mean(particles))
    return replace(found, margins=(*found.margins, margin), numbers=(*found.numbers, number))


def step_cost(
    seconds: Value, chosen: Callable[[list[Record]], list[Record]] = list
) -> Callable[[list[Record]], Finding]:
    """Time of a step of DMALA and DULA relative to GWG-1 and Gibbs-1 is about the paper's.

    `seconds` is the time of a step of a record; `chosen` are the records that count.
    """

    def judge(records: list[Record]) -> Finding:
        names = ("Gibbs-1", "GWG-1", "DULA", "DMALA")
        groups = labelled(chosen(records), names)
        times = quiet({name: groups[name] for name in names}, seconds)
        margins, numbers = [], []
        for ours, theirs in (("DMALA", "Gibbs-1"), ("DMALA", "GWG-1"), ("DULA", "Gibbs-1")):
            paper = published("langevin_cost", ours.lower(), theirs.partition("-")[0].lower())
            assert paper is not None
            shared = common(times[ours], times[theirs])
            ratio = {seed: times[ours][seed] / times[theirs][seed] for seed in shared}
            logs = {seed: math.log(value) for seed, value in ratio.items()}
            what = f"log(time of {ours} / {theirs})"
            margins += within(what, logs, math.log(paper.mean), math.log(FACTOR))
            numbers.append(Number(f"time of a step, {ours} / {theirs}", _mean(ratio), paper))
        found = ", ".join(
            f"{one.what.partition(', ')[2]} {one.here.mean:.3g} (paper {one.paper.mean:g})"
            for one in numbers
            if one.here and one.paper
        )
        note = (
            f"{found}; runs beside other work do not count; about: within a factor of {FACTOR:g}, "
            "which is our choice"
        )
        return Finding(tuple(margins), tuple(numbers), note)

    return judge


def timed(record: Record) -> float:
    """Seconds per step from the timing pass of a run. Raises LookupError if it has none."""
    if "seconds_per_step" not in record.document:
        raise LookupError(f"{record.path.name} has no seconds per step")
    return float(record.document["seconds_per_step"])


def fig3_dula(records: list[Record]) -> Finding:
    """DULA ends above DMALA in log RMSE, and close to LB-1 and GWG-1."""
    rivals = ("LB-1", "GWG-1")
    groups = labelled(records, ["DULA", "DMALA", *rivals], ["log_rmse"])
    value = at("log_rmse", "step", shortest([r for g in groups.values() for r in g], "step"))
    dula = by_seed(groups["DULA"], value)
    margins = [difference("log RMSE, DULA - DMALA", dula, by_seed(groups["DMALA"], value))]
    for name in rivals:
        other = by_seed(groups[name], value)
        gap = {seed: dula[seed] - other[seed] for seed in common(dula, other)}
        margins += within(f"log RMSE, DULA - {name}", gap, 0.0, SIMILAR)
    note = f"log RMSE of the means after all iterations; similar: within {SIMILAR:g}, our choice"
    return Finding(tuple(margins), note=note)


def fig7_every_connectivity(records: list[Record]) -> Finding:
    """DMALA has the lowest final log RMSE at each connectivity, among the figure's samplers."""
    note = "log RMSE at the end; Gibbs-1 and DULA take more iterations, as in the paper"
    return _fig7(records, {}, note)


def fig7_equal_cost(records: list[Record]) -> Finding:
    """`fig7_every_connectivity`, with as many iterations of the others as take DMALA's time.

    The error of a mean of an exact sampler falls with the root of the number of iterations. That of
    DULA is mostly its bias, so it stays as it is. A step costs the same at each connectivity.
    """
    groups = labelled(records, FIG7, ["log_rmse"])
    spent = {}
    for name in FIG7:
        each = float(np.median([pace(record) for record in undisturbed(idle(groups[name]))]))
        spent[name] = each * last("step")(groups[name][0])
    longer = {name: spent["DMALA"] / spent[name] for name in ("Gibbs-1", "GWG-1")}
    found = ", ".join(f"{name} takes {times:.3g} times" for name, times in longer.items())
    note = (
        f"log RMSE at DMALA's time: {found} the iterations of its run, and its error falls with "
        "their root; median cost of a step over undisturbed runs; its spread is not in the interval"
    )
    return _fig7(records, {name: math.log(times) / 2 for name, times in longer.items()}, note)


def _fig7(records: list[Record], falls: Mapping[str, float], note: str) -> Finding:
    """DMALA's final log RMSE against that of the others, from which `falls` are subtracted."""
    couplings = sorted({record.config["model"]["coupling"] for record in records})
    margins, numbers = [], []
    for coupling in couplings:
        some = [r for r in records if r.config["model"]["coupling"] == coupling]
        groups = labelled(some, FIG7, ["log_rmse"])
        for name in FIG7:
            found = by_seed(groups[name], last("log_rmse"))
            ends = {seed: value - falls.get(name, 0.0) for seed, value in found.items()}
            if name == "DMALA":
                best = ends
            else:
                what = f"a = {coupling:g}: log RMSE, {name} - DMALA"
                margins.append(difference(what, ends, best))
            at_cost = ", at DMALA's time" * (name in falls)
            numbers.append(Number(f"a = {coupling:g}, {name}{at_cost}", estimate(ends.values())))
    if len(couplings) < 2:
        raise LookupError("no records of several connectivities")
    return Finding(tuple(margins), tuple(numbers), note)


def fig7_ahead_of_gwg(records: list[Record]) -> Finding:
    """DMALA ends below GWG-1, for runs of these two that were added at one connectivity."""
    groups = labelled(records, ["GWG-1", "DMALA"], ["log_rmse"])
    gwg, dmala = (by_seed(groups[name], last("log_rmse")) for name in ("GWG-1", "DMALA"))
    return Finding((difference("log RMSE, GWG-1 - DMALA", gwg, dmala),))


def fig9_mediocre(records: list[Record]) -> Finding:
    """On Omniglot and Caltech the images of DULA are farther from the data than those of DMALA."""
    margins, numbers = [], []
    for data in ("omniglot", "caltech"):
        names = (data, *(variant for variant, of in VARIANTS.items() if of == data))
        some = [r for r in records if r.choices.get("data") in names and MMD in r.document]
        if not some:
            raise LookupError(f"no record of images of {data} has their {MMD}")
        groups = labelled(some, ["DULA", "DMALA"])
        away = {n: by_seed(groups[n], lambda r: float(r.document[MMD])) for n in ("DULA", "DMALA")}
        margins.append(difference(f"{data}: MMD^2, DULA - DMALA", away["DULA"], away["DMALA"]))
        numbers += [
            Number(f"{data}: MMD^2 to the data, {name}", _mean(seeds))
            for name, seeds in away.items()
        ]
    return Finding(tuple(margins), tuple(numbers), "unbiased MMD^2 of the images to the test rows")


def fig4_iterations(records: list[Record]) -> Finding:
    """DULA and DMALA are below the baselines at equal iterations (as many as all have run)."""
    return _both(records, "step")


def fig4_seconds(records: list[Record]) -> Finding:
    """DULA and DMALA are below the baselines at equal seconds (as many as all have run)."""
    return _both(records, "seconds")


def fig4_lowest(records: list[Record]) -> Finding:
    """DMALA has the lowest MMD of all samplers except block Gibbs, which is the reference."""
    return _first(
        records, "log_mmd", "log MMD^2", "step", "DMALA", ("Gibbs-1", "HB-10-1", "GWG-1", "DULA")
    )


def fig4_level(records: list[Record]) -> Finding:
    """DMALA's final log MMD is about the paper's."""
    ends = by_seed(labelled(records, ["DMALA"], ["log_mmd"])["DMALA"], last("log_mmd"))
    floors = by_seed(labelled(records, ["DMALA"])["DMALA"], last("log_mmd_floor"))
    paper = published("fig4", "dmala")
    numbers = (
        Number("DMALA: log MMD^2 at the end", estimate(ends.values()), paper),
        Number("equally many independent samples: log MMD^2", estimate(floors.values())),
    )
    margins = within("log MMD^2 of DMALA", ends, printed("fig4", "dmala"), ABOUT)
    note = f"log MMD^2 at the end; about: within {ABOUT:g}, which is our choice"
    return Finding(tuple(margins), numbers, note)


def app_d(records: list[Record]) -> Finding:
    """Acceptance with and without the step-size term, each within a factor of 2 of the paper's."""
    dmala = [r for r in records if sampler_key(r)[0] == "dmala" and "acceptance" in r.metrics]
    margins, numbers = [], []
    for name, infinite in (("with", False), ("without", True)):
        some = [r for r in dmala if np.isinf(r.config["sampler"]["step_size"]) == infinite]
        if not some:
            raise LookupError(f"no record of DMALA {name} the step-size term")
        rates_ = by_seed(some, last("acceptance"))
        paper = printed("appD", name)
        logs = {seed: math.log(max(rate, 1e-300)) for seed, rate in rates_.items()}
        what = f"log acceptance {name} the term"
        margins += within(what, logs, math.log(paper), math.log(2))
        here = estimate(100 * rate for rate in rates_.values())
        numbers.append(Number(f"acceptance {name} the term, %", here, Estimate(100 * paper)))
    return Finding(tuple(margins), tuple(numbers), "each within a factor of 2 of the paper's")


def _first(
    records: list[Record], column: str, title: str, axis: str, ours: str, others: tuple[str, ...]
) -> Finding:
    """`ours` is lowest in `column`, at the largest value of `axis` that all samplers reach."""
    groups = labelled(records, [ours, *others], [column])
    kept = {name: groups[name] for name in (*others, ours)}
    place, ends = after(kept, column, axis)
    margins = tuple(
        difference(f"{title}, {name} - {ours}", ends[name], ends[ours]) for name in others
    )
    note = f"{title} {_after(axis, place)}"
    return Finding(margins, _numbers(ends, title, axis, place), note)


def _both(records: list[Record], axis: str) -> Finding:
    baselines, ours = ("Gibbs-1", "HB-10-1", "GWG-1"), ("DULA", "DMALA")
    groups = labelled(records, [*baselines, *ours], ["log_mmd"])
    kept = {name: groups[name] for name in (*baselines, *ours)}
    place, ends = after(kept, "log_mmd", axis)
    margins = tuple(
        difference(f"log MMD^2, {name} - {own}", ends[name], ends[own])
        for own in ours
        for name in baselines
    )
    note = f"log MMD^2 {_after(axis, place)}"
    return Finding(margins, _numbers(ends, "log MMD^2", axis, place), note)


def _numbers(
    ends: dict[str, dict[int, float]], title: str, axis: str, place: float
) -> tuple[Number, ...]:
    return tuple(
        Number(f"{title} {_after(axis, place)}: {name}", estimate(seeds.values()))
        for name, seeds in sorted(ends.items(), key=lambda item: np.mean(list(item[1].values())))
    )


def _after(axis: str, place: float) -> str:
    return f"after {place:,.0f} iterations" if axis == "step" else f"after {place:.3g} seconds"


def _mean(seeds: Mapping[int, float]) -> Estimate:
    return estimate(seeds.values())


def _rate(name: str) -> Estimate | None:
    return published("fig2", name, "acceptance")
