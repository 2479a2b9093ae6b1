"""The benchmark of all samplers: cells of a target and a sampler, and what was measured in each.

Chains that disagree have no effective sample size. Their cells show R-hat in its place.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from latticework.experiments.records.grouping import alone, by, in_order, look
from latticework.experiments.records.record import Record
from latticework.sampling.diagnostics import MIXED
from latticework.sampling.tuning.ranking import Interval, geometric, ranks, student

QUANTITIES = {"min": "worst site", "median": "median site", "energy": "energy"}
UNITS = ("iteration", "evaluation", "second")
FEWEST_SIZES = 3  # numbers of sites that an exponent is fitted to


@dataclass(frozen=True)
class Cell:
    """The runs of one sampler on one target, which differ in their seed."""

    target: str
    sampler: str  # its name in conf/sampler
    records: list[Record]

    @property
    def label(self) -> str:
        return look(self.sampler).label

    @property
    def absent(self) -> str:
        """Why nothing was measured; "" if it was."""
        return next((str(r.document["absent"]) for r in self.records if absent(r)), "")

    @property
    def r_hat(self) -> float:
        """The largest R-hat of any run; infinite if chains are stuck."""
        return max(r_hat(record) for record in self.records)

    @property
    def mixed(self) -> bool:
        return not self.absent and self.r_hat <= MIXED

    def interval(self, quantity: str, unit: str) -> Interval:
        """Effective samples of `quantity` for each `unit`: geometric mean over seeds."""
        return geometric(rate(record, quantity, unit) for record in self.records)

    def text(self, quantity: str, unit: str) -> str:
        """`0.276 [0.233, 0.327]`, or why there is no such number."""
        if self.absent:
            return "not measured"
        if not self.mixed:
            return f"R-hat {self.r_hat:.3g}"
        if self.records[0].document["ess"][quantity] is None:
            return "flat"
        middle, low, high = self.interval(quantity, unit)
        return f"{middle:.3g} [{low:.3g}, {high:.3g}]"


def absent(record: Record) -> bool:
    return "absent" in record.document


def r_hat(record: Record) -> float:
    found = record.document["r_hat"]
    return math.inf if found is None else float(found)


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
    found = _runs(records)
    targets = list(dict.fromkeys(target for target, _ in found))
    keys = sorted(found, key=lambda key: (targets.index(key[0]), in_order((key[1], 0)), key[1]))
    return [Cell(*key, alone(found[key])) for key in keys]


def _runs(records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    """The records of the benchmark by target and sampler. Raises LookupError if there are none."""
    some = (record for record in records if "target" in record.choices)
    found = by(lambda record: (record.choices["target"], record.choices["sampler"]), some)
    if not found:
        raise LookupError("no record of the benchmark")
    return found


def by_target(records: Sequence[Record]) -> dict[str, list[Cell]]:
    """The cells of each target, without samplers that do not support it."""
    return by(lambda cell: cell.target, (cell for cell in cells(records) if not cell.absent))


def placed(some: Sequence[Cell], quantity: str, unit: str) -> dict[str, str]:
    """The rank of each sampler whose chains agree, with "=" for ties."""
    mixed = [cell for cell in some if cell.mixed]
    places = ranks([cell.interval(quantity, unit) for cell in mixed])
    return {cell.sampler: place for cell, place in zip(mixed, places, strict=True)}


def efficiency(records: list[Record]) -> pd.DataFrame:
    """Effective samples per iteration, per evaluation and per second, with 95 % intervals.

    One row for each target and sampler that supports it. Ranks are those of the worst site.
    """
    rows = []
    for target, some in by_target(records).items():
        places = {unit: placed(some, "min", unit) for unit in ("evaluation", "second")}
        for cell in some:
            document = cell.records[0].document
            row = {"target": target, "sampler": cell.label}
            row |= {f"rank/{unit}": places[unit].get(cell.sampler, "-") for unit in places}
            row |= {
                f"{words}, ESS/{unit}": cell.text(quantity, unit)
                for unit in UNITS
                for quantity, words in QUANTITIES.items()
            }
            row["R-hat"] = f"{cell.r_hat:.3f}"
            row["settings"] = ", ".join(f"{k}={v}" for k, v in document["tuned"].items())
            rows.append({**row, "engine": document["engine"], "seeds": len(cell.records)})
    return pd.DataFrame(rows)


def winners(records: list[Record]) -> pd.DataFrame:
    """Which sampler for which target: those of rank 1 per evaluation and per second.

    `chains agree` counts the samplers that can be ranked, of those that support the target.
    """
    rows = []
    for target, some in by_target(records).items():
        row: dict[str, object] = {"target": target}
        for unit in ("evaluation", "second"):
            places = placed(some, "min", unit)
            first = [one.label for one in some if places.get(one.sampler, "").strip("=") == "1"]
            row[f"most effective samples/{unit}"] = ", ".join(first) or "none"
        row["chains agree"] = f"{sum(one.mixed for one in some)} of {len(some)}"
        rows.append(row)
    return pd.DataFrame(rows)


def left_out(records: list[Record]) -> pd.DataFrame:
    """Samplers that were not measured on a target, and why."""
    some = [cell for cell in cells(records) if cell.absent]
    return pd.DataFrame(
        {"target": cell.target, "sampler": cell.label, "reason": cell.absent} for cell in some
    )


@dataclass(frozen=True)
class Growth:
    """How the cost of an effective sample of one sampler grows with the number of sites."""

    target: str
    sampler: str
    costs: dict[int, dict[int, float]]  # by number of sites and seed
    records: list[Record]  # of `costs`
    note: str = ""  # why no exponent is fitted

    @property
    def label(self) -> str:
        return look(self.sampler).label

    def exponents(self) -> dict[int, float]:
        """The slope of log cost against log sites, by least squares, for each seed."""
        seeds = sorted(set.intersection(*(set(one) for one in self.costs.values())))
        logs = np.log(list(self.costs))
        return {
            seed: float(np.polyfit(logs, np.log([c[seed] for c in self.costs.values()]), 1)[0])
            for seed in seeds
        }


def growths(records: Sequence[Record], unit: str) -> list[Growth]:
    """The growth of `unit`s for an effective sample of the worst site, by target and sampler.

    Sizes at which chains disagree are left out; fewer than FEWEST_SIZES give no exponent.
    """
    result = []
    for (target, sampler), some in _runs(r for r in records if not absent(r)).items():
        sizes = sorted({record.document["sites"] for record in some})
        parts = [[r for r in some if r.document["sites"] == size] for size in sizes]
        kept = [Cell(target, sampler, alone(part)) for part in parts]
        mixed = [cell for cell in kept if cell.mixed]
        costs = {
            cell.records[0].document["sites"]: {
                record.config["seed"]: 1 / rate(record, "min", unit) for record in cell.records
            }
            for cell in mixed
        }
        few = len(costs) < FEWEST_SIZES
        note = f"chains agree at {len(costs)} of {len(kept)} sizes" if few else ""
        used = [record for cell in mixed for record in cell.records]
        result.append(Growth(target, sampler, costs, used, note))
    return sorted(result, key=lambda one: (one.target, in_order((one.sampler, 0)), one.sampler))


def exponents(records: list[Record]) -> pd.DataFrame:
    """Exponents of the cost of an effective sample in the number of sites, with 95 % intervals.

    The cost is in iterations, evaluations and seconds; an exponent of 1 means as many per site.
    """
    parts = {unit: growths(records, unit) for unit in UNITS}
    rows = []
    for grown in zip(*parts.values(), strict=True):
        row = {"target": grown[0].target, "sampler": grown[0].label}
        for unit, one in zip(parts, grown, strict=True):
            row[f"{unit}s"] = one.note or ranged(student(list(one.exponents().values())))
        row["sizes"] = ", ".join(map(str, grown[0].costs))
        rows.append(row)
    return pd.DataFrame(rows)


def ranged(interval: Interval) -> str:
    """`0.34 [0.29, 0.39]`; the mean alone if there is a single run."""
    if math.isinf(interval.high):
        return f"{interval.middle:.2f}"
    return f"{interval.middle:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
