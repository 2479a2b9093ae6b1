"""The cells of the benchmark, their ranks, and the growth of costs with the number of sites.

A cell is a target and a sampler. Chains that disagree have no effective sample size. Their cells
show R-hat in its place.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from latticework.experiments.records import grouping, labels
from latticework.experiments.records.record import Record
from latticework.sampling.diagnostics import largest_r_hat
from latticework.sampling.intervals import Interval, geometric_interval
from latticework.sampling.tuning.ranking import ranks

MIN_SIZES = 3  # numbers of sites that an exponent is fitted to


@dataclass(frozen=True)
class Cell:
    """The runs of one sampler on one target, which differ in their seed."""

    target: str
    sampler: str  # its name in conf/sampler
    records: list[Record]

    @property
    def label(self) -> str:
        return labels.sampler_style(self.sampler).label

    @property
    def absent(self) -> str:
        """Why nothing was measured; "" if it was."""
        for record in self.records:
            if was_skipped(record):
                return str(record.document["absent"])
        return ""

    @property
    def r_hat(self) -> float:
        """The largest R-hat of any run; infinite if chains are stuck."""
        return max(r_hat(record) for record in self.records)

    @property
    def has_mixed(self) -> bool:
        """Whether the largest R-hat of any run is below the bound for its number of chains."""
        if self.absent:
            return False
        return self.r_hat <= min(largest_r_hat(r.config["task"]["chains"]) for r in self.records)

    def interval(self, quantity: str, unit: str) -> Interval:
        """Effective samples of `quantity` for each `unit`: geometric mean over seeds."""
        return geometric_interval(rate(record, quantity, unit) for record in self.records)

    def text(self, quantity: str, unit: str) -> str:
        """`0.276 [0.233, 0.327]`, or why there is no such number."""
        if self.absent:
            return "not measured"
        if not self.has_mixed:
            return f"R-hat {self.r_hat:.3g}"
        if self.records[0].document["ess"][quantity] is None:
            return "flat"
        middle, low, high = self.interval(quantity, unit)
        return f"{middle:.3g} [{low:.3g}, {high:.3g}]"


def was_skipped(record: Record) -> bool:
    """Whether the record says why its sampler was not measured."""
    return "absent" in record.document


def r_hat(record: Record) -> float:
    """The R-hat of a run; infinite if chains are stuck."""
    value = record.document["r_hat"]
    return math.inf if value is None else float(value)


def rate(record: Record, quantity: str, unit: str) -> float:
    """Effective samples of all chains, per step or evaluation of one chain, or per second.

    0 for the energy of a flat target. Costs include the burn-in.
    """
    document = record.document
    chains = record.config["task"]["chains"]
    per_step = {
        "iteration": chains,
        "evaluation": chains * document["evaluations_per_step"],
        "second": document["seconds_per_step"],
    }[unit]
    return (document["ess"][quantity] or 0.0) / (document["steps"] * per_step)


def cells(records: Sequence[Record]) -> list[Cell]:
    """One cell for each target and sampler, in the order of targets as they come.

    Raises LookupError if there are no records of the benchmark, or if those of a cell differ in
    more than their seed.
    """
    runs = _runs_by_cell(records)
    targets = list(dict.fromkeys(target for target, _ in runs))

    def place(key: tuple[str, str]) -> tuple:
        target, sampler = key
        return targets.index(target), labels.sampler_order((sampler, 0)), sampler

    ordered = []
    for key in sorted(runs, key=place):
        ordered.append(Cell(*key, grouping.require_one_setting(runs[key])))
    return ordered


def _runs_by_cell(records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    """The records of the benchmark by target and sampler. Raises LookupError if there are none."""
    measured = [record for record in records if "target" in record.choices]
    if not measured:
        raise LookupError("no record of the benchmark")
    return grouping.group_by(lambda r: (r.choices["target"], r.choices["sampler"]), measured)


def by_target(records: Sequence[Record]) -> dict[str, list[Cell]]:
    """The cells of each target, without samplers that do not support it."""
    measured: dict[str, list[Cell]] = {}
    for cell in cells(records):
        if not cell.absent:
            measured.setdefault(cell.target, []).append(cell)
    return measured


def rank_cells(candidates: Sequence[Cell], quantity: str, unit: str) -> dict[str, str]:
    """The rank of each sampler whose chains agree, with "=" for ties."""
    intervals = {}
    for cell in candidates:
        if cell.has_mixed:
            intervals[cell.sampler] = cell.interval(quantity, unit)
    return dict(zip(intervals, ranks(list(intervals.values())), strict=True))


@dataclass(frozen=True)
class Growth:
    """How the cost of an effective sample of one sampler grows with the number of sites."""

    target: str
    sampler: str
    costs: dict[int, dict[int, float]]  # by number of sites and seed
    records: list[Record]  # the records behind `costs`
    note: str = ""  # why no exponent is fitted

    @property
    def label(self) -> str:
        return labels.sampler_style(self.sampler).label

    def exponents(self) -> dict[int, float]:
        """The slope of log cost against log sites, by least squares, for each seed."""
        by_size = list(self.costs.values())
        seeds = set(by_size[0]).intersection(*by_size[1:])
        log_sizes = np.log(list(self.costs))
        slopes = {}
        for seed in sorted(seeds):
            log_costs = np.log([costs[seed] for costs in by_size])
            slopes[seed] = float(np.polyfit(log_sizes, log_costs, 1)[0])
        return slopes


def growths(records: Sequence[Record], unit: str) -> list[Growth]:
    """The growth of `unit`s for an effective sample of the worst site, by target and sampler.

    Sizes at which chains disagree are left out; fewer than MIN_SIZES give no exponent.
    """
    measured = [record for record in records if not was_skipped(record)]
    result = []
    for (target, sampler), runs in _runs_by_cell(measured).items():
        by_size = grouping.group_by(lambda record: record.document["sites"], runs)
        costs: dict[int, dict[int, float]] = {}
        mixed_runs: list[Record] = []
        for size, alike in sorted(by_size.items()):
            cell = Cell(target, sampler, grouping.require_one_setting(alike))
            if cell.has_mixed:
                mixed_runs += cell.records
                costs[size] = {}
                for record in cell.records:
                    costs[size][record.config["seed"]] = 1 / rate(record, "min", unit)
        note = ""
        if len(costs) < MIN_SIZES:
            note = f"chains agree at {len(costs)} of {len(by_size)} sizes"
        result.append(Growth(target, sampler, costs, mixed_runs, note))
    return sorted(result, key=_growth_order)


def _growth_order(growth: Growth) -> tuple:
    return growth.target, labels.sampler_order((growth.sampler, 0)), growth.sampler
