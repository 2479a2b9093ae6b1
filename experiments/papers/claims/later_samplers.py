"""Claims of the papers after Zhang et al. (2022), from the benchmark's records.

Samplers are named by their option in conf/sampler. Effective sample sizes are compared only where
the chains of both samplers agree.
"""

import math
from collections.abc import Sequence
from itertools import product

from latticework.experiments.figures.benchmark_cells import Cell, by_target, growths, rate
from latticework.experiments.papers.claims import compare, readings, thresholds
from latticework.experiments.papers.claims.verdict import Finding, Number, numbers
from latticework.experiments.records.record import Record

MULTIMODAL = "rbm_mnist_25"
QUADRATIC = ("ising_5x5", "sk_16", "sk_200")
LINEAR = "product"
ROUNDING = 1e-3  # rounding of an acceptance rate in float32
GAIN = 2 / 3  # Sun et al. (NeurIPS 2022)
OURS, THEIRS = ("pafs", "dlmc"), ("gwg", "dmala")
# Seeds do not show how far another search of the settings moves a difference.
ONE_SEARCH = "all seeds share one search of the settings, and other searches have moved differences"


def cell(cells: Sequence[Cell], sampler: str, target: str) -> Cell:
    """The cell of `sampler`. Raises LookupError if there is none."""
    for candidate in cells:
        if candidate.sampler == sampler:
            return candidate
    raise LookupError(f"no record of {sampler} on {target}")


def later_paths(records: list[Record]) -> Finding:
    """PAFS and DLMC against GWG and DMALA: ESS of the worst site per iteration."""
    margins: list[compare.Margin] = []
    shown: list[Number] = []
    for target, cells in by_target(records).items():
        mixed = {each.sampler: each.records for each in cells if each.has_mixed}
        if not {*OURS, *THEIRS} <= set(mixed):
            continue
        named = {name: mixed[name] for name in (*OURS, *THEIRS)}
        values = readings.by_sampler_and_seed(named, _log_ess_per_iteration)
        quantity = f"log ESS/iteration on {target}"
        margins += compare.differences(quantity, values, product(OURS, THEIRS))
        shown += numbers(f"{quantity}: {{}}", values)
    if not margins:
        raise LookupError("no target on which the chains of pafs, dlmc, gwg and dmala agree")
    return Finding(margins, shown, f"the worst site, where the chains of all agree; {ONE_SEARCH}")


def _log_ess_per_iteration(record: Record) -> float:
    return math.log(rate(record, "min", "iteration"))


def later_cyclical(records: list[Record]) -> Finding:
    """ACS against DMALA on an RBM: the error of the means after equal iterations."""
    cells = by_target(records).get(MULTIMODAL, ())
    groups = {name: cell(cells, name, MULTIMODAL).records for name in ("acs", "dmala")}
    place, values = readings.values_at_common_end(groups, "log_rmse", "step")
    return Finding(
        compare.differences("log RMSE of the means", values, [("dmala", "acs")]),
        numbers(f"log RMSE after {place:.0f} iterations: {{}}", values),
        f"the error of the means is defined for chains that disagree too; {ONE_SEARCH}",
    )


def later_preconditioned(records: list[Record]) -> Finding:
    """PAVG's acceptance rate on targets whose Hessian is constant."""
    cells, groups = by_target(records), {}
    for target in QUADRATIC:
        if target in cells:
            groups[target] = cell(cells[target], "pavg", target).records
    least = 1 - thresholds.LEARNED_REJECTION.value()
    return _accepts(groups, least, f"the matrix is learned, so we ask for {least:g}")


def later_linear(records: list[Record]) -> Finding:
    """DHAMS' acceptance rate on a product of independent sites."""
    measured = []
    for record in readings.with_choices(records, target=LINEAR, sampler="dhams"):
        if "acceptance" in record.document:
            measured.append(record)
    measured.sort(key=lambda record: record.document["sites"])
    sizes = readings.by_choice(measured, (), "", lambda r: f"{r.document['sites']} sites")
    return _accepts(sizes, 1 - ROUNDING, "up to rounding in float32")


def _accepts(groups: dict[str, list[Record]], least: float, note: str) -> Finding:
    """Whether every acceptance rate is above `least`. Raises LookupError without records."""
    if not groups:
        raise LookupError("no record of the targets that the claim is about")
    rates = readings.by_sampler_and_seed(groups, readings.run_json_value("acceptance"))
    margins = [compare.margin_above(f"acceptance on {name}", r, least) for name, r in rates.items()]
    return Finding(margins, numbers("acceptance on {}", rates), note)


def later_scaling(records: list[Record]) -> Finding:
    """How much faster a random walk's cost grows than that of PAFS.

    The theorem is about proposals of several moves by one set of weights, which PAFS makes. DLMC
    moves all sites at once and is shown beside it: on independent binary sites it accepts every
    move.
    """
    linear = {}
    for growth in growths(records, "iteration"):
        if growth.target == LINEAR:
            linear[growth.sampler] = growth
    exponents: dict[str, readings.Seeds] = {}
    for name in ("random_walk", "pafs", "dlmc"):
        if name not in linear:
            raise LookupError(f"no record of {name} on {LINEAR}")
        if note := linear[name].note:
            raise LookupError(f"{name} on {LINEAR}: {note}")
        exponents[name] = linear[name].exponents()
    gains = {}
    for name in ("pafs", "dlmc"):
        gains[name] = readings.paired_differences(exponents["random_walk"], exponents[name])
    tolerance = thresholds.EXPONENT.value()
    note = f"iterations for an effective sample; within {tolerance:g} of 2/3, which is our choice"
    return Finding(
        compare.equivalence("exponent, random_walk - pafs", gains["pafs"], GAIN, tolerance),
        numbers("exponent, random_walk - {}", gains),
        note,
    )
