"""Log-likelihoods by annealed importance sampling, from records of task=ais."""

from collections import defaultdict
from collections.abc import Sequence

import pandas as pd

from latticework.experiments.results.estimate import Estimate, estimate
from latticework.experiments.results.grouping import groups, in_order, once
from latticework.experiments.results.published import comparable
from latticework.experiments.results.record import Record

RATE = "task.candidates.learn.optimiser.lr"  # of learning, where the records of a row differ in it


def likelihoods(records: list[Record]) -> pd.DataFrame:
    """One row per record: mean log-likelihoods in nats, and the estimates of log Z behind them.

    The number after ± is the standard error of log Z. The bounds on log Z hold in expectation. The
    lower bound always holds. The upper bound, and the lower bound on the log-likelihood that
    follows from it, assume that reverse AIS starts from draws of the model; training rows only
    approximate such draws. Raises LookupError if no record has log-likelihoods.
    """
    records = once(scored(records))
    names: dict[int, str] = {}
    for choice in {(record.choices["model"], record.choices.get("data")) for record in records}:
        some = [r for r in records if (r.choices["model"], r.choices.get("data")) == choice]
        found_here = groups(some, [RATE])
        names |= {id(record): group.label for group in found_here for record in group.records}
    rows = []
    for record in records:
        found, budget = record.document, record.budget
        rows.append(
            {
                "model": record.choices["model"],
                "sampler": names[id(record)],
                "data": record.variant,
                **({"learning rate": learning_rate(record)} if "learning" in record.config else {}),
                "seed": record.config["seed"],
                "validation": likelihood(record, "valid"),
                "test": likelihood(record, "test"),
                "test, at least": at_least(record),
                "log Z, lower": Estimate(found["log_z_lower"], found["log_z_lower_error"]),
                "log Z": Estimate(found["log_z"], found["log_z_error"]),
                "log Z, back": _optional(found, "log_z_back"),
                "log Z, upper": _optional(found, "log_z_upper"),
                "log Z, exact": found["log_z_exact"],
                "effective chains": f"{found['ess']:.1f} of {budget.chains}",
                "betas": budget.steps,
            }
        )
    return pd.DataFrame(rows)


def scored(records: list[Record]) -> list[Record]:
    """The records with log-likelihoods. Raises LookupError if there are none."""
    records = [record for record in records if "log_likelihood" in record.document]
    if not records:
        raise LookupError("no record holds a log-likelihood; run task=ais with a data set")
    return records


def learning_rate(record: Record) -> float:
    """The rate at which the model of a record of task=ais was learned."""
    return float(record.config["learning"]["optimiser"]["lr"])


def likelihood(record: Record, rows: str) -> Estimate:
    """The mean log-likelihood of the `test` or `valid` rows, with the standard error of log Z."""
    found = record.document
    return Estimate(found["log_likelihood"][rows]["mean"], found["log_z_error"])


def at_least(record: Record) -> Estimate | None:
    """Lower bound on the mean test log-likelihood, from the upper bound on log Z.

    It is far below the estimate if there are too few betas. None without reverse AIS.
    """
    upper = _optional(record.document, "log_z_upper")
    if upper is None:
        return None
    unnormalised = record.document["log_likelihood"]["test"]["mean"] + record.document["log_z"]
    return Estimate(unnormalised - upper.mean, upper.spread)


def _optional(found: dict, name: str) -> Estimate | None:
    return Estimate(found[name], found[f"{name}_error"]) if name in found else None


def table1(records: list[Record]) -> pd.DataFrame:
    """Test log-likelihoods: one row per data set, rate and budget, one column per learning sampler.

    A sampler with several settings has several columns. Next to each are its lower bound
    (`at_least`) and the number of Zhang et al. (2022), Table 1, unless the data are substitutes or
    the experiment is not compared with it. With several seeds, ± is their spread; with one, the
    standard error of log Z. Raises LookupError if no record has log-likelihoods of a learned model.
    """
    records = [record for record in scored(records) if "learning" in record.config]
    if not records:
        raise LookupError("no record is of a learned model; run experiment=ais")
    parts = {key: {g.label: g for g in groups(part)} for key, part in _grouped(records).items()}
    columns = {label: group.key for part in parts.values() for label, group in part.items()}
    frame = []
    for (data, variant, rate, *budget), part in sorted(parts.items()):
        row: dict[str, object] = {"data": data, "variant": variant, "learning rate": rate}
        first = next(iter(part.values())).records[0]
        papers = _compared(first)
        if papers:
            row["VAE, paper"] = comparable([first], "table1", data, "vae")
        for label in sorted(columns, key=lambda label: (in_order(columns[label]), label)):
            own_records = part[label].records if label in part else []
            row[label] = _mean([likelihood(record, "test") for record in own_records])
            row[f"{label}, at least"] = _mean([at_least(record) for record in own_records])
            if papers:
                key = columns[label][0]
                row[f"{label}, paper"] = comparable([first], "table1", data, key)
        frame.append(row | dict(zip(BUDGET, budget, strict=True)))
    return pd.DataFrame(frame)


def _compared(record: Record) -> bool:
    """False if its experiment says that the paper's numbers are of other networks."""
    return (record.config.get("published") or {}).get("test_log_likelihood", True) is not None


BUDGET = {
    "updates": lambda record: record.config["learning"]["iterations"],
    "steps an update": lambda record: record.config["learning"]["steps"],
    "maps": lambda record: record.config["model"]["maps"],
    "blocks": lambda record: record.config["model"]["blocks"],
    "AIS chains": lambda record: record.budget.chains,
    "AIS betas": lambda record: record.budget.steps,
}


def _grouped(records: list[Record]) -> dict[tuple, list[Record]]:
    """The records by data, variant of the data, learning rate and budget."""
    groups: dict[tuple, list[Record]] = defaultdict(list)
    for record in records:
        budget = (read(record) for read in BUDGET.values())
        key = (record.choices["data"], record.variant, learning_rate(record), *budget)
        groups[key].append(record)
    return groups


def _mean(estimates: Sequence[Estimate | None]) -> Estimate | None:
    """The mean and spread over runs; a single estimate with its own error; None without any."""
    found = [one for one in estimates if one is not None]
    if len(found) < 2:
        return found[0] if found else None
    return estimate([one.mean for one in found])
