"""Log-likelihoods and log Z: tables, how chains come to the target, and how models improved."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latticework.experiments.figures.style import (
    DASHES,
    INKS,
    describe_band,
    key_of_dashes,
    label_lines_and_legend,
    line_and_band,
    means_by_setting,
    new_figure,
    new_panel_grid,
    numbered_style,
    sampler_line_style,
)
from latticework.experiments.records.estimates import (
    Estimate,
    published_estimate,
    published_if_same_data,
)
from latticework.experiments.records.grouping import (
    Group,
    drop_repeated_runs,
    group_by,
    groups,
    join_label,
    require_one_setting,
    require_records_with,
    settings_table,
)
from latticework.experiments.records.labels import (
    format_seeds,
    sampler_key,
    sampler_label,
    sampler_order,
    spell_name,
)
from latticework.experiments.records.likelihood import (
    caveat_text,
    is_value_reliable,
    likelihood,
    likelihood_lower_end,
    likelihood_or_ends,
    likelihood_upper_bound,
    log_z_gap,
    log_z_lower_bound,
    log_z_or_ends,
    log_z_upper_end,
    mean,
)
from latticework.experiments.records.record import DATA_OF_VARIANT, Record

RATE = "task.candidates.learn.optimiser.lr"  # of learning, where the records of a row differ in it
PAPER = {"gibbs": "Gibbs", "gwg": "GWG", "dula": "DULA", "dmala": "DMALA"}  # columns of its Table 1
WALKS = 3  # replicas of a ladder that are drawn
DRAWS = 300  # of them, the last ones
DIRECTIONS = {"forward_AIS": "-", "reverse_AIS": "--"}


def likelihoods(records: list[Record]) -> pd.DataFrame:
    """One row per record: mean log-likelihoods in nats, and the estimates of log Z behind them.

    The number after ± is a standard error, not a 95 % interval. Cells of estimates are empty where
    the run is not reliable (`experiments.records.likelihood.is_value_reliable`); then only the ends
    are known. "At most" follows from the lower bound on log Z, "from rows" from chains that start
    at training rows: a bound as far as these are like draws of the model. Raises LookupError if no
    record has log-likelihoods.
    """
    records = drop_repeated_runs(require_records_with(records, "log_likelihood", task="ais"))
    targets = group_by(lambda r: (r.choices["model"], r.choices.get("data")), records).values()
    parts = [group for some in targets for group in groups(some, [RATE])]
    names = {id(record): group.label for group in parts for record in group.records}
    rows = []
    for record in records:
        found, budget = record.document, record.budget
        known = is_value_reliable(record)
        rows.append(
            {
                "model": record.choices["model"],
                "sampler": names[id(record)],
                "data": record.variant,
                **({"learning rate": learning_rate(record)} if "learning" in record.config else {}),
                "seed": record.config["seed"],
                "validation": likelihood(record, "valid") if known else None,
                "test": likelihood(record) if known else None,
                "test, from rows": likelihood_lower_end(record),
                "test, at most": likelihood_upper_bound(record),
                "log Z, at least": log_z_lower_bound(record),
                "log Z": log_z_or_ends(record) if known else None,
                "log Z, from rows": log_z_upper_end(record),
                "ends apart": log_z_gap(record),
                "log Z, exact": found["log_z_exact"],
                "effective chains": f"{found['ess']:.1f} of {budget.chains}",
                "betas": budget.steps,
                "remark": caveat_text(record),
            }
        )
    return pd.DataFrame(rows)


def learned_model_records(records: list[Record]) -> list[Record]:
    """The records with log-likelihoods of learned models. Raises LookupError if there are none."""
    scored = require_records_with(records, "log_likelihood", task="ais")
    records = [record for record in scored if "learning" in record.config]
    if not records:
        raise LookupError("no record is of a learned model; run experiment=ais")
    return records


def learning_rate(record: Record) -> float:
    """The rate at which the model of a record of task=ais was learned."""
    return float(record.config["learning"]["optimiser"]["lr"])


def records_at_best_rate(records: list[Record]) -> list[Record]:
    """The records of a sampler at one learning rate: its best one by the validation rows.

    It has the highest log-likelihood of the validation rows, in the mean over seeds. Only rates
    with the largest number of seeds take part.
    """

    def score(some: list[Record]) -> tuple[int, float]:
        return len(some), float(np.mean([likelihood(record, "valid").mean for record in some]))

    return max(group_by(learning_rate, records).values(), key=score)


def paper_comparison(records: list[Record]) -> pd.DataFrame:
    """Test log-likelihoods as in Zhang et al. (2022), Table 1: `here / paper`, data by samplers.

    Here: what is known of each sampler's models at its own learning rate (`records_at_best_rate`),
    as a value or as the ends of an interval; ± is over models, or for one model a standard error.
    The VAE was not run here. Raises LookupError if no record has log-likelihoods of a learned
    model.
    """
    found = group_by(
        lambda one: (one.choices["data"], one.choices["sampler"]), learned_model_records(records)
    )
    rows = []
    for data in dict.fromkeys(data for data, _ in found):
        of = DATA_OF_VARIANT.get(data, data)  # the paper's data set
        row: dict[str, str] = {"data": data}
        for sampler, heading in PAPER.items():
            some = found.get((data, sampler), [])
            cell = likelihood_or_ends(records_at_best_rate(some)) if some else "not run"
            here = cell.text() if isinstance(cell, Estimate) else cell
            row[heading] = f"{here} / {_text(published_if_same_data(some, 'table1', of, sampler))}"
        rows.append(row | {"VAE": f"not run / {_text(published_estimate('table1', of, 'vae'))}"})
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
    records = learned_model_records(records)
    parts = {key: {g.label: g for g in groups(part)} for key, part in _grouped(records).items()}
    columns = {name: group.key for part in parts.values() for name, group in part.items()}
    frame = []
    for (data, variant, rate, *budget), part in sorted(parts.items()):
        row: dict[str, object] = {"data": data, "variant": variant, "learning rate": rate}
        first = next(iter(part.values())).records[0]
        papers = _compared(first)
        if papers:
            row["VAE, paper"] = published_if_same_data([first], "table1", data, "vae")
        for name in sorted(columns, key=lambda name: (sampler_order(columns[name]), name)):
            own = part[name].records if name in part else []
            row[name] = _mean([likelihood(one) if is_value_reliable(one) else None for one in own])
            row[f"{name}, from rows"] = _mean([likelihood_lower_end(record) for record in own])
            row[f"{name}, at most"] = _mean([likelihood_upper_bound(record) for record in own])
            if papers:
                key = columns[name][0]
                row[f"{name}, paper"] = published_if_same_data([first], "table1", data, key)
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

    return group_by(key, records)


def normalisers(records: list[Record]) -> pd.DataFrame:
    """One row a record, in nats: log Z, its 95 % interval, and how far the exact value is.

    The interval of SMC and AIS has no upper end where it is not plain that more than half of their
    runs or chains count; the lower end is then that of Markov's inequality. Tempering has no such
    bound. Its interval is the hull of its estimates where the barrier is not known, and it has none
    where ladders made few round trips or their chains have not converged. "Counts" are effective
    chains of AIS or runs of SMC, and round trips of a ladder beside those that moves would make if
    each forgot its start. Raises LookupError if no record is of task=log_z.
    """
    found = require_records_with(records, "log_z_low", task="log_z")
    headings, rows = settings_table(found)
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


def progress(records: list[Record]) -> Figure:
    """The effective fraction of chains against beta: solid forward AIS, dashed reverse AIS.

    One panel per sampler, one line per run. Raises LookupError if no record is of task=ais.
    """
    records = require_records_with(records, "beta", "forward", "ess", task="ais")
    keys = list(dict.fromkeys(group.key for group in groups(records)))
    figure, axes = new_panel_grid(len(keys))
    order: dict[str, int] = {}  # of the settings, the same in all panels
    for ax, key in zip(axes, keys, strict=True):
        for group in groups(record for record in records if sampler_key(record) == key):
            _lines(ax, group, numbered_style(order.setdefault(group.differs, len(order))))
        ax.set(xlabel="beta", ylim=(0, 1.02))
        ax.set_title(sampler_label(key))
    axes[0].set_ylabel("effective fraction of chains")
    label_lines_and_legend(
        figure, f"One line a run, {format_seeds(records)}.", key_of_dashes(**DIRECTIONS)
    )
    return figure


def improvement(records: list[Record]) -> Figure:
    """Validation log-likelihood of the stored models against the sampling steps they learned from.

    One panel per data set, one colour per sampler, one dash per learning rate. The vertical axis is
    minus the log-likelihood in nats, on a log scale. The log-likelihoods are those by which
    task=ais chooses among the stored models: trial values of short AIS runs, which tend to be too
    high; where runs differ in the betas of their trials, a line has those with most. Values above
    0, which are impossible, are left out. A sampling step evaluates the model once. Lines are means
    over seeds and bands one standard deviation. Raises LookupError if no record chose among several
    models.
    """
    records = [r for r in records if r.document.get("validation_by_candidate")]
    if not records:
        raise LookupError("no record of task=ais chose among several stored models")

    def place(record: Record) -> tuple:
        key = sampler_key(record)
        return sampler_order(key), learning_rate(record), key, record.choices["data"]

    found = {key: _with_longest_trials(some) for key, some in group_by(place, records).items()}
    records = [record for some in found.values() for record in some]
    tables = list(dict.fromkeys(record.choices["data"] for record in records))
    figure, axes = new_panel_grid(len(tables))
    panels = dict(zip(tables, axes, strict=True))
    rates = sorted({rate for _, rate, _, _ in found}, reverse=True)
    dashes = dict(zip(rates, cycle(DASHES), strict=False))
    for (_, rate, key, data), some in sorted(found.items()):
        drawn = sampler_line_style(key) | {"markevery": None, "linestyle": dashes[rate]}
        text = join_label(sampler_label(key), f"rate {rate:g}")
        line_and_band(
            panels[data], means_by_setting(_trials(require_one_setting(some))), label=text, **drawn
        )
    for data, ax in panels.items():
        ax.set(xlabel="sampling steps in learning", yscale="log", title=spell_name(data))
    axes[0].set_ylabel("minus log-likelihood of\nvalidation rows, nats")
    betas = sorted({record.config["task"]["trial_steps"] for record in records})
    steps = " or ".join(f"{count:,}" for count in betas)
    note = f"Trial values: AIS of {steps} betas, often too high. A sampling step is one evaluation."
    label_lines_and_legend(figure, f"{note} {describe_band(records)}")
    return figure


def _with_longest_trials(records: list[Record]) -> list[Record]:
    most = max(record.config["task"]["trial_steps"] for record in records)
    return [record for record in records if record.config["task"]["trial_steps"] == most]


def _trials(records: list[Record]) -> dict[float, list[float]]:
    """Minus the validation log-likelihoods of the stored models, by sampling steps.

    Estimates above 0 are left out.
    """
    values: dict[float, list[float]] = defaultdict(list)
    for record in records:
        for name, value in record.document["validation_by_candidate"].items():
            updates = int(name.rpartition("_")[2])
            if value <= 0:
                values[updates * record.config["learning"]["steps"]].append(-value)
    return values


def _lines(ax: Axes, group: Group, style: dict[str, Any]) -> None:
    points = style | {"markersize": 4, "linewidth": 1.2}
    forth, back = DIRECTIONS.values()
    for record in group.records:
        directions = ((1, forth, record.budget.chains), (0, back, record.config["task"]["back"]))
        for forward, dash, chains in directions:
            part = record.metrics[record.metrics["forward"] == forward]
            first = forward and record is group.records[0]
            way = "forward" if forward else "reverse"
            name = group.differs if first else f"_{group.differs} {way} {record.config['seed']}"
            ax.plot(part["beta"], part["ess"] / chains, linestyle=dash, label=name, **points)


def ladders(records: list[Record]) -> Figure:
    """The local barrier along b, and the level of each replica of one ladder, a row a setting.

    The local barrier is the rejected share of swaps over the step of b (Syed et al. 2022, Section
    4); its integral is the barrier. Of several seeds the first is drawn. Raises LookupError if no
    record has ladders.
    """
    _, rows = settings_table(require_records_with(records, "ladders", task="log_z"))
    figure, _ = new_figure(2, rows=len(rows), height=2.4)
    for row, (texts, (record, *_)) in enumerate(rows):
        barrier, walk = figure.axes[2 * row : 2 * row + 2]
        arrays = record.arrays("ladders")
        b, level = arrays["schedule"], arrays["level"][-DRAWS:, :, 0]
        rejected = 1 - np.exp(np.minimum(arrays["up"] + arrays["down"], 0)).mean((0, 2))
        barrier.stairs(rejected / np.diff(b), b, color=INKS[0])
        barrier.set(xlabel="b", ylabel="local barrier", ylim=(0, None))
        own = [text for text in texts if text] or [record.choices["model"]]
        barrier.set_title(f"{', '.join(own)}: barrier {rejected.sum():.1f}")
        for replica in range(min(WALKS, level.shape[1])):
            walk.plot(level[:, replica], color=numbered_style(replica)["color"], lw=0.9)
        walk.set(xlabel="draw", ylabel="level")
        walk.set_title(f"one ladder, {arrays['trips'].mean():.1f} round trips a ladder")
    label_lines_and_legend(
        figure, "Level 0 is p0, the highest the target. Three of the replicas are drawn."
    )
    return figure
