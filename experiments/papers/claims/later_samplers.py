"""Claims of the papers after Zhang et al. (2022), from the benchmark's records.

Samplers are named by their option in conf/sampler. Effective sample sizes are compared only where
the chains of both samplers agree.
"""

import math
from collections.abc import Sequence

from latticework.experiments.figures.tables.benchmark import Cell, Growth, by_target, growths, rate
from latticework.experiments.papers.claims.pairing import (
    after,
    by_seed,
    common,
    difference,
    within,
)
from latticework.experiments.papers.claims.verdict import Finding, Margin, Number
from latticework.experiments.records.estimate import estimate
from latticework.experiments.records.record import Record

MULTIMODAL = "rbm_mnist_25"
QUADRATIC = ("ising_5x5", "sk_16", "sk_200")
LINEAR = "product"
NEARLY = 0.99  # our reading of an acceptance rate of 1 with a matrix that is learned
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
    """PAFS and DLMC against GWG and DMALA: ESS of the worst site for an iteration."""
    margins, numbers = [], []
    for target, some in by_target(records).items():
        agreeing = [one for one in some if one.mixed]
        values = {one.sampler: by_seed(one.records, log_rate) for one in agreeing}
        if not {"pafs", "dlmc", "gwg", "dmala"} <= set(values):
            continue
        for ours in ("pafs", "dlmc"):
            for theirs in ("gwg", "dmala"):
                what = f"log ESS/iteration on {target}, {ours} - {theirs}"
                margins.append(difference(what, values[ours], values[theirs]))
        numbers += [
            Number(f"log ESS/iteration on {target}: {name}", estimate(values[name].values()))
            for name in ("pafs", "dlmc", "gwg", "dmala")
        ]
    if not margins:
        raise LookupError("no target on which the chains of pafs, dlmc, gwg and dmala agree")
    return Finding(tuple(margins), tuple(numbers), "the worst site; where the chains of all agree")


def log_rate(record: Record) -> float:
    """Log ESS of the worst site for an iteration."""
    return math.log(rate(record, "min", "iteration"))


def later_cyclical(records: list[Record]) -> Finding:
    """ACS against DMALA on an RBM: the error of the means after equal iterations."""
    some = by_target(records).get(MULTIMODAL, ())
    groups = {name: cell(some, name, MULTIMODAL).records for name in ("acs", "dmala")}
    place, ends = after(groups, "log_rmse", "step")
    return Finding(
        (difference("log RMSE of the means, dmala - acs", ends["dmala"], ends["acs"]),),
        tuple(
            Number(f"log RMSE after {place:.0f} iterations: {name}", estimate(v.values()))
            for name, v in ends.items()
        ),
        "the error of the means is defined for chains that disagree too",
    )


def later_preconditioned(records: list[Record]) -> Finding:
    """PAVG's acceptance rate on targets whose Hessian is constant."""
    parts = by_target(records)
    found = [
        (target, cell(parts[target], "pavg", target)) for target in QUADRATIC if target in parts
    ]
    return _accepts(found, NEARLY, "the matrix is learned, so we ask for 0.99")


def later_linear(records: list[Record]) -> Finding:
    """DHAMS' acceptance rate on a product of independent sites."""
    there = [r for r in records if r.choices.get("target") == LINEAR and "acceptance" in r.document]
    sizes: dict[int, list[Record]] = {}
    for record in there:
        if record.choices["sampler"] == "dhams":
            sizes.setdefault(record.document["sites"], []).append(record)
    found = [(f"{count} sites", Cell(LINEAR, "dhams", sizes[count])) for count in sorted(sizes)]
    return _accepts(found, 1 - ROUNDING, "up to rounding in float32")


def _accepts(found: Sequence[tuple[str, Cell]], least: float, note: str) -> Finding:
    """Whether every acceptance rate is above `least`. Raises LookupError without cells."""
    if not found:
        raise LookupError("no record of the targets that the claim is about")
    rates = {
        name: by_seed(one.records, lambda record: float(record.document["acceptance"]))
        for name, one in found
    }
    return Finding(
        tuple(
            Margin(f"(acceptance on {name}) - {least:g}", tuple(v - least for v in seeds.values()))
            for name, seeds in rates.items()
        ),
        tuple(Number(f"acceptance on {n}", estimate(s.values())) for n, s in rates.items()),
        note,
    )


def later_scaling(records: list[Record]) -> Finding:
    """How much faster a random walk's cost grows than that of PAFS.

    The theorem is about proposals of several moves by one set of weights, which PAFS makes. DLMC
    moves all sites at once and is shown beside it: on independent binary sites it accepts every
    move.
    """
    found = {one.sampler: one for one in growths(records, "iteration") if one.target == LINEAR}
    walk, gains = exponents(found, "random_walk"), {}
    for name in ("pafs", "dlmc"):
        own = exponents(found, name)
        gains[name] = {seed: walk[seed] - own[seed] for seed in common(walk, own)}
    margins = within("exponent, random_walk - pafs", gains["pafs"], GAIN, REACH)
    numbers = (
        Number(f"exponent, random_walk - {name}", estimate(gain.values()))
        for name, gain in gains.items()
    )
    note = f"iterations for an effective sample; within {REACH:g} of 2/3, which is our choice"
    return Finding(tuple(margins), tuple(numbers), note)


def exponents(found: dict[str, Growth], sampler: str) -> dict[int, float]:
    """The exponents of `sampler` by seed. Raises LookupError if none is fitted."""
    if sampler not in found:
        raise LookupError(f"no record of {sampler} on {LINEAR}")
    if note := found[sampler].note:
        raise LookupError(f"{sampler} on {LINEAR}: {note}")
    return found[sampler].exponents()
