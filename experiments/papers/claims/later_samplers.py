"""Claims of the papers after Zhang et al. (2022), from the benchmark's records.

Samplers are named by their option in conf/sampler. Effective sample sizes are compared only where
the chains of both samplers agree.
"""

import math
from collections.abc import Sequence
from itertools import product

from latticework.experiments.figures.benchmark_cells import Cell, by_target, growths, rate
from latticework.experiments.papers.claims.verdict import (
    Finding,
    Margin,
    Number,
    Seeds,
    by_choice,
    by_seed,
    differences,
    equivalence_margins,
    margin_above,
    numbers,
    paired_differences,
    run_json_value,
    values_at_common_end,
)
from latticework.experiments.records.record import Record

MULTIMODAL = "rbm_mnist_25"
QUADRATIC = ("ising_5x5", "sk_16", "sk_200")
LINEAR = "product"
# Our reading of an acceptance rate of 1 with a learned matrix.
MIN_LEARNED_ACCEPTANCE = 0.99
ROUNDING = 1e-3  # of an acceptance rate in float32
GAIN = 2 / 3  # Sun et al. (NeurIPS 2022)
REACH = 0.15  # our reading of the same exponent at finite sizes


def cell(some: Sequence[Cell], sampler: str, target: str) -> Cell:
    """The cell of `sampler`. Raises LookupError if there is none."""
    for one in some:
        if one.sampler == sampler:
            return one
    raise LookupError(f"no record of {sampler} on {target}")


def later_paths(records: list[Record]) -> Finding:
    """PAFS and DLMC against GWG and DMALA: ESS of the worst site per iteration."""
    ours, theirs = ("pafs", "dlmc"), ("gwg", "dmala")
    margins: list[Margin] = []
    shown: list[Number] = []
    for target, some in by_target(records).items():
        found = {
            one.sampler: by_seed(one.records, lambda r: math.log(rate(r, "min", "iteration")))
            for one in some
            if one.mixed
        }
        if not {*ours, *theirs} <= set(found):
            continue
        what = f"log ESS/iteration on {target}"
        margins += differences(what, found, product(ours, theirs))
        shown += numbers(f"{what}: {{}}", {name: found[name] for name in (*ours, *theirs)})
    if not margins:
        raise LookupError("no target on which the chains of pafs, dlmc, gwg and dmala agree")
    return Finding(margins, shown, "the worst site; where the chains of all agree")


def later_cyclical(records: list[Record]) -> Finding:
    """ACS against DMALA on an RBM: the error of the means after equal iterations."""
    some = by_target(records).get(MULTIMODAL, ())
    groups = {name: cell(some, name, MULTIMODAL).records for name in ("acs", "dmala")}
    place, found = values_at_common_end(groups, "log_rmse", "step")
    return Finding(
        differences("log RMSE of the means", found, [("dmala", "acs")]),
        numbers(f"log RMSE after {place:.0f} iterations: {{}}", found),
        "the error of the means is defined for chains that disagree too",
    )


def later_preconditioned(records: list[Record]) -> Finding:
    """PAVG's acceptance rate on targets whose Hessian is constant."""
    parts = by_target(records)
    found = {name: cell(parts[name], "pavg", name).records for name in QUADRATIC if name in parts}
    return _accepts(found, MIN_LEARNED_ACCEPTANCE, "the matrix is learned, so we ask for 0.99")


def later_linear(records: list[Record]) -> Finding:
    """DHAMS' acceptance rate on a product of independent sites."""
    some = [
        record
        for record in records
        if record.choices.get("target") == LINEAR
        and "acceptance" in record.document
        and record.choices["sampler"] == "dhams"
    ]
    some.sort(key=lambda record: record.document["sites"])
    found = by_choice(some, (), "", lambda record: f"{record.document['sites']} sites")
    return _accepts(found, 1 - ROUNDING, "up to rounding in float32")


def _accepts(found: dict[str, list[Record]], least: float, note: str) -> Finding:
    """Whether every acceptance rate is above `least`. Raises LookupError without records."""
    if not found:
        raise LookupError("no record of the targets that the claim is about")
    rates = {name: by_seed(some, run_json_value("acceptance")) for name, some in found.items()}
    margins = [margin_above(f"acceptance on {n}", r, least) for n, r in rates.items()]
    return Finding(margins, numbers("acceptance on {}", rates), note)


def later_scaling(records: list[Record]) -> Finding:
    """How much faster a random walk's cost grows than that of PAFS.

    The theorem is about proposals of several moves by one set of weights, which PAFS makes. DLMC
    moves all sites at once and is shown beside it: on independent binary sites it accepts every
    move.
    """
    found = {one.sampler: one for one in growths(records, "iteration") if one.target == LINEAR}
    exponents: dict[str, Seeds] = {}
    for name in ("random_walk", "pafs", "dlmc"):
        if name not in found:
            raise LookupError(f"no record of {name} on {LINEAR}")
        if note := found[name].note:
            raise LookupError(f"{name} on {LINEAR}: {note}")
        exponents[name] = found[name].exponents()
    walk = exponents.pop("random_walk")
    gains = {name: paired_differences(walk, own) for name, own in exponents.items()}
    note = f"iterations for an effective sample; within {REACH:g} of 2/3, which is our choice"
    return Finding(
        equivalence_margins("exponent, random_walk - pafs", gains["pafs"], GAIN, REACH),
        numbers("exponent, random_walk - {}", gains),
        note,
    )
