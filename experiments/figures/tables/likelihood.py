"""Log-likelihoods and estimates of log Z, from records of task=ais and task=log_z."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from latticework.experiments.records.grouping import by, differing, groups, holding, in_order, once
from latticework.experiments.records.likelihood import (
    at_most,
    ends_apart,
    from_rows,
    likelihood,
    log_z_at_least,
    log_z_from_rows,
    mean,
    remark,
    settled,
    shown,
    shown_log_z,
)
from latticework.experiments.records.numbers import Estimate, comparable, published
from latticework.experiments.records.record import VARIANTS, Record

RATE = "task.candidates.learn.optimiser.lr"  # of learning, where the records of a row differ in it
PAPER = {"gibbs": "Gibbs", "gwg": "GWG", "dula": "DULA", "dmala": "DMALA"}  # columns of its Table 1


def likelihoods(records: list[Record]) -> pd.DataFrame:
    """One row per record: mean log-likelihoods in nats, and the estimates of log Z behind them.

    The number after ± is a standard error, not a 95 % interval. Cells of estimates are empty where
    the run is not `settled` (`experiments.records.likelihood`); then only the ends are known. "At
    most" follows from the lower bound on log Z, "from rows" from chains that start at training
    rows: a bound as far as these are like draws of the model. Raises LookupError if no record has
    log-likelihoods.
    """
    records = once(holding(records, "log_likelihood", task="ais"))
    names: dict[int, str] = {}
    for choice in {(record.choices["model"], record.choices.get("data")) for record in records}:
        some = [r for r in records if (r.choices["model"], r.choices.get("data")) == choice]
        found_here = groups(some, [RATE])
        names |= {id(record): group.label for group in found_here for record in group.records}
    rows = []
    for record in records:
        found, budget = record.document, record.budget
        known = settled(record)
        rows.append(
            {
                "model": record.choices["model"],
                "sampler": names[id(record)],
                "data": record.variant,
                **({"learning rate": learning_rate(record)} if "learning" in record.config else {}),
                "seed": record.config["seed"],
                "validation": likelihood(record, "valid") if known else None,
                "test": likelihood(record) if known else None,
                "test, from rows": from_rows(record),
                "test, at most": at_most(record),
                "log Z, at least": log_z_at_least(record),
                "log Z": shown_log_z(record) if known else None,
                "log Z, from rows": log_z_from_rows(record),
                "ends apart": ends_apart(record),
                "log Z, exact": found["log_z_exact"],
                "effective chains": f"{found['ess']:.1f} of {budget.chains}",
                "betas": budget.steps,
                "remark": remark(record),
            }
        )
    return pd.DataFrame(rows)


def learned(records: list[Record]) -> list[Record]:
    """The records with log-likelihoods of learned models. Raises LookupError if there are none."""
    scored = holding(records, "log_likelihood", task="ais")
    records = [record for record in scored if "learning" in record.config]
    if not records:
        raise LookupError("no record is of a learned model; run experiment=ais")
    return records


def learning_rate(record: Record) -> float:
    """The rate at which the model of a record of task=ais was learned."""
    return float(record.config["learning"]["optimiser"]["lr"])


def own_rate(records: list[Record]) -> list[Record]:
    """The records of a sampler at one learning rate: its best one by the validation rows.

    It has the highest log-likelihood of the validation rows, in the mean over seeds. Only rates
    with the largest number of seeds take part.
    """

    def score(some: list[Record]) -> tuple[int, float]:
        return len(some), float(np.mean([likelihood(record, "valid").mean for record in some]))

    return max(by(learning_rate, records).values(), key=score)


def beside(records: list[Record]) -> pd.DataFrame:
    """Test log-likelihoods as in Zhang et al. (2022), Table 1: `here / paper`, data by samplers.

    Here: what is known of each sampler's models at its own learning rate (`own_rate`), as a value
    or as the ends of an interval; ± is over models, or for one model a standard error. The VAE was
    not run here. Raises LookupError if no record has log-likelihoods of a learned model.
    """
    found = by(lambda one: (one.choices["data"], one.choices["sampler"]), learned(records))
    rows = []
    for data in dict.fromkeys(data for data, _ in found):
        of = VARIANTS.get(data, data)  # the paper's data set
        row: dict[str, str] = {"data": data}
        for sampler, heading in PAPER.items():
            some = found.get((data, sampler), [])
            cell = shown(own_rate(some)) if some else "not run"
            here = cell.text() if isinstance(cell, Estimate) else cell
            row[heading] = f"{here} / {_text(comparable(some, 'table1', of, sampler))}"
        rows.append(row | {"VAE": f"not run / {_text(published('table1', of, 'vae'))}"})
    return pd.DataFrame(rows)


def _text(printed: Estimate | None) -> str:
    return "not comparable" if printed is None else f"{printed.mean:.2f}"


def table1(records: list[Record]) -> pd.DataFrame:
    """Test log-likelihoods: one row per data set, rate and budget, one column per learning sampler.

    A sampler with several settings has several columns. Next to each are its two ends (see
    `likelihoods`) and the number of Zhang et al. (2022), Table 1, unless the data are substitutes
    or the experiment is not compared with it. An estimate is empty unless all runs behind it are
    settled. With several seeds, ± is their spread; with one, a standard error. Raises LookupError
    if no record has log-likelihoods of a learned model.
    """
    records = learned(records)
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
            own = part[label].records if label in part else []
            row[label] = _mean([likelihood(one) if settled(one) else None for one in own])
            row[f"{label}, from rows"] = _mean([from_rows(record) for record in own])
            row[f"{label}, at most"] = _mean([at_most(record) for record in own])
            if papers:
                key = columns[label][0]
                row[f"{label}, paper"] = comparable([first], "table1", data, key)
        frame.append(row | dict(zip(BUDGET, budget, strict=True)))
    return pd.DataFrame(frame)


def _mean(estimates: Sequence[Estimate | None]) -> Estimate | None:
    """The mean over runs; None if there is no run, or one without an estimate."""
    found = [one for one in estimates if one is not None]
    return mean(found) if found and len(found) == len(estimates) else None


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

    def key(record: Record) -> tuple:
        budget = (read(record) for read in BUDGET.values())
        return record.choices["data"], record.variant, learning_rate(record), *budget

    return by(key, records)


def normalisers(records: list[Record]) -> pd.DataFrame:
    """One row a record, in nats: log Z, its 95 % interval, and how far the exact value is.

    The interval of SMC and AIS has no upper end where it is not plain that more than half of their
    runs or chains count; the lower end is then that of Markov's inequality. Tempering has no such
    bound. Its interval is the hull of its estimates where they disagree, and it has none where
    ladders made fewer than two round trips. "Counts" are effective
    chains of AIS or runs of SMC, and round trips of a ladder beside those that moves would make
    if each forgot its start. Raises LookupError if no record is of
    task=log_z.
    """
    found = holding(records, "log_z_low", task="log_z")
    headings, rows = differing(found)
    frame = []
    for texts, some in rows:
        for record in some:
            document = record.document
            low, high = document["log_z_low"], document["log_z_high"]
            exact = document["log_z_exact"]
            wide = high is None or not document.get("plain", True)
            tempered = "barrier" in document
            counts = (
                f"{document['round_trips']:.1f} of {document['predicted_round_trips']:.0f} trips, "
                f"barrier {document['barrier']:.2f}"
                if tempered
                else f"{document['ess']:.1f} of {document['effective_of']}"
            )
            frame.append(
                {
                    **dict(zip(headings, texts, strict=True)),
                    "seed": record.config["seed"],
                    "log Z": f"{document['log_z']:.3f}",
                    "95 % from": _nats(low, "no bound"),
                    "to": _nats(high, "no bound"),
                    "plain": "no" if wide else "yes",
                    "at least (Markov)": _nats(document.get("log_z_at_least")),
                    "from the other side": _nats(
                        document.get("log_z_backward", document.get("log_z_upper"))
                    ),
                    "exact": _nats(exact),
                    "error": "" if exact is None else f"{document['log_z'] - exact:+.3f}",
                    "counts": counts,
                    "seconds": f"{document['estimation_seconds']:.1f}",
                    "evaluations": f"{document['evaluations']:.3g}",
                }
            )
    return pd.DataFrame(frame)


def _nats(value: float | None, missing: str = "") -> str:
    return missing if value is None else f"{value:.3f}"
