"""Log-likelihoods of models by AIS: tables, how chains come to the target, how models improved."""

import warnings
from collections import defaultdict
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import pandas as pd

from latticework.experiments.figures import log_z, plot, style
from latticework.experiments.figures.means import means_by_setting
from latticework.experiments.records import estimates, grouping, labels, likelihood
from latticework.experiments.records.estimates import Estimate
from latticework.experiments.records.record import DATA_OF_VARIANT, Record

RATE = "task.candidates.learn.optimiser.lr"  # where the records of a row differ in it
PAPER = {"gibbs": "Gibbs", "gwg": "GWG", "dula": "DULA", "dmala": "DMALA"}  # columns of its Table 1
DIRECTIONS = {"forward_AIS": "-", "reverse_AIS": "--"}
MOVED_TO_LOG_Z = ("ladders", "normalisers")


def __getattr__(name: str) -> Any:
    """The functions that moved to `log_z`, with a warning."""
    if name not in MOVED_TO_LOG_Z:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{name} moved to {log_z.__name__}", DeprecationWarning, stacklevel=2)
    return getattr(log_z, name)


# Tables.


def likelihoods(records: list[Record]) -> pd.DataFrame:
    """One row per record: mean log-likelihoods in nats, and the estimates of log Z behind them.

    The number after ± is a standard error, not a 95 % interval. Cells of estimates are empty where
    the run is not reliable (`experiments.records.likelihood.is_value_reliable`); then only the ends
    are known. "At most" follows from the lower bound on log Z, "from rows" from chains that start
    at training rows: a bound as far as these are like draws of the model. Raises LookupError if no
    record has log-likelihoods.
    """
    holding = grouping.require_records_with(records, "log_likelihood", task="ais")
    records = grouping.drop_repeated_runs(holding)
    targets = grouping.group_by(lambda r: (r.choices["model"], r.choices.get("data")), records)
    names = {}
    for runs in targets.values():
        for group in grouping.groups(runs, [RATE]):
            for record in group.records:
                names[id(record)] = group.label
    rows = []
    for record in records:
        rows.append(_likelihood_row(record, names[id(record)]))
    return pd.DataFrame(rows)


def _likelihood_row(record: Record, sampler: str) -> dict[str, object]:
    """The row of a record whose sampler and settings are `sampler`."""
    document, budget = record.document, record.budget
    known = likelihood.is_value_reliable(record)
    row: dict[str, object] = {
        "model": record.choices["model"],
        "sampler": sampler,
        "data": record.variant,
    }
    if "learning" in record.config:
        row["learning rate"] = learning_rate(record)
    return row | {
        "seed": record.config["seed"],
        "validation": likelihood.likelihood(record, "valid") if known else None,
        "test": likelihood.likelihood(record) if known else None,
        "test, from rows": likelihood.likelihood_lower_end(record),
        "test, at most": likelihood.likelihood_upper_bound(record),
        "log Z, at least": likelihood.log_z_lower_bound(record),
        "log Z": likelihood.log_z_or_ends(record) if known else None,
        "log Z, from rows": likelihood.log_z_upper_end(record),
        "ends apart": likelihood.log_z_gap(record),
        "log Z, exact": document["log_z_exact"],
        "effective chains": f"{document['ess']:.1f} of {budget.chains}",
        "betas": budget.steps,
        "remark": likelihood.caveat_text(record),
    }


def learned_model_records(records: list[Record]) -> list[Record]:
    """The records with log-likelihoods of learned models. Raises LookupError if there are none."""
    scored = grouping.require_records_with(records, "log_likelihood", task="ais")
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

    def score(runs: list[Record]) -> tuple[int, float]:
        total = 0.0
        for record in runs:
            total += likelihood.likelihood(record, "valid").mean
        return len(runs), total / len(runs)

    return max(grouping.group_by(learning_rate, records).values(), key=score)


def paper_comparison(records: list[Record]) -> pd.DataFrame:
    """Test log-likelihoods as in Zhang et al. (2022), Table 1: `here / paper`, data by samplers.

    Here: what is known of each sampler's models at its own learning rate (`records_at_best_rate`),
    as a value or as the ends of an interval; ± is over models, or for one model a standard error.
    The VAE was not run here. Raises LookupError if no record has log-likelihoods of a learned
    model.
    """
    by_column = grouping.group_by(
        lambda record: (record.choices["data"], record.choices["sampler"]),
        learned_model_records(records),
    )
    rows = []
    for data in dict.fromkeys(data for data, _ in by_column):
        paper_data = DATA_OF_VARIANT.get(data, data)
        row: dict[str, str] = {"data": data}
        for sampler, heading in PAPER.items():
            runs = by_column.get((data, sampler), [])
            printed = estimates.published_if_same_data(runs, "table1", paper_data, sampler)
            row[heading] = f"{_best_text(runs)} / {_published_text(printed)}"
        printed = estimates.published_estimate("table1", paper_data, "vae")
        row["VAE"] = f"not run / {_published_text(printed)}"
        rows.append(row)
    return pd.DataFrame(rows)


def _best_text(records: list[Record]) -> str:
    """The log-likelihood at the best learning rate, or the ends of its interval."""
    if not records:
        return "not run"
    value = likelihood.likelihood_or_ends(records_at_best_rate(records))
    return value.text() if isinstance(value, Estimate) else value


def _published_text(printed: Estimate | None) -> str:
    return "not comparable" if printed is None else f"{printed.mean:.2f}"


def table1(records: list[Record]) -> pd.DataFrame:
    """Test log-likelihoods: one row per data set, rate and budget, one column per learning sampler.

    A sampler with several settings has several columns. Next to each are its two ends (see
    `likelihoods`) and the number of Zhang et al. (2022), Table 1, unless the data are substitutes
    or the experiment is not compared with it. An estimate is empty unless all runs behind it are
    settled. With several seeds, ± is their spread; with one, a standard error. Raises LookupError
    if no record has log-likelihoods of a learned model.
    """
    keys: dict[str, tuple[str, int]] = {}  # keys of samplers, by label
    groups: dict[tuple, dict[str, list[Record]]] = {}  # by row and label
    for place, runs in grouping.group_by(_row_key, learned_model_records(records)).items():
        groups[place] = {}
        for group in grouping.groups(runs):
            groups[place][group.label] = group.records
            keys[group.label] = group.key
    names = sorted(keys, key=lambda name: (labels.sampler_order(keys[name]), name))
    rows = []
    for (data, variant, rate, *budget), by_label in sorted(groups.items()):
        row: dict[str, object] = {"data": data, "variant": variant, "learning rate": rate}
        first = next(iter(by_label.values()))[0]
        if _is_compared(first):
            row["VAE, paper"] = estimates.published_if_same_data([first], "table1", data, "vae")
        for name in names:
            row |= _model_columns(name, by_label.get(name, []))
            if _is_compared(first):
                printed = estimates.published_if_same_data([first], "table1", data, keys[name][0])
                row[f"{name}, paper"] = printed
        rows.append(row | dict(zip(BUDGET, budget, strict=True)))
    return pd.DataFrame(rows)


def _model_columns(name: str, records: list[Record]) -> dict[str, Estimate | None]:
    """The value and the two ends of the models that the sampler `name` learned."""
    reliable = [r for r in records if likelihood.is_value_reliable(r)]
    values = map(likelihood.likelihood, reliable if len(reliable) == len(records) else [])
    return {
        name: _mean_of_all(list(values)),
        f"{name}, from rows": _mean_of_all(list(map(likelihood.likelihood_lower_end, records))),
        f"{name}, at most": _mean_of_all(list(map(likelihood.likelihood_upper_bound, records))),
    }


def _mean_of_all(values: Sequence[Estimate | None]) -> Estimate | None:
    """The mean over runs; None if there is no run, or one without an estimate."""
    known = [value for value in values if value is not None]
    return likelihood.mean(known) if known and len(known) == len(values) else None


def _is_compared(record: Record) -> bool:
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


def _row_key(record: Record) -> tuple:
    """The data, the variant of the data, the learning rate and the budget."""
    budget = [read(record) for read in BUDGET.values()]
    return record.choices["data"], record.variant, learning_rate(record), *budget


# Figures.


def progress(records: list[Record]) -> plot.Plot:
    """The effective fraction of chains against beta: solid forward AIS, dashed reverse AIS.

    One panel per sampler, one line per run. Raises LookupError if no record is of task=ais.
    """
    records = grouping.require_records_with(records, "beta", "forward", "ess", task="ais")
    by_sampler = grouping.group_by(labels.sampler_key, records)
    line_numbers: dict[str, int] = {}  # places of the settings, equal in all panels
    panels = []
    for key in sorted(by_sampler, key=labels.sampler_order):
        series = []
        for group in grouping.groups(by_sampler[key]):
            number = line_numbers.setdefault(group.differs, len(line_numbers))
            series += _ais_lines(group, style.numbered_style(number))
        title = labels.sampler_label(key)
        panels.append(plot.Panel(series, xlabel="beta", ylim=(0, 1.02), title=title))
    panels[0].axes["ylabel"] = "effective fraction of chains"
    figure, axes = style.new_panel_grid(len(panels))
    plot.draw_panels(axes, panels)
    note = f"One line a run, {labels.format_seeds(records)}."
    return plot.finish_plot(figure, axes, panels, note, style.key_of_dashes(**DIRECTIONS))


def _ais_lines(group: grouping.Group, look: dict[str, Any]) -> list[plot.Series]:
    """The lines of both directions of each run. The first one is named by the settings."""
    lines = []
    forth, back = DIRECTIONS.values()
    for record in group.records:
        directions = ((1, forth, record.budget.chains), (0, back, record.config["task"]["back"]))
        for forward, dash, chains in directions:
            readings = record.metrics[record.metrics["forward"] == forward]
            is_first = forward == 1 and record is group.records[0]
            named = is_first and bool(group.differs)
            name = group.differs
            if not named:
                way = "forward" if forward else "reverse"
                name = f"{group.differs} {way} {record.config['seed']}".strip()
            drawn = look | {"markersize": 4, "linewidth": 1.2, "linestyle": dash}
            share = readings["ess"] / chains
            lines.append(plot.Series(name, readings["beta"], share, named=named, **drawn))
    return lines


def improvement(records: list[Record]) -> plot.Plot:
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
        key = labels.sampler_key(record)
        return labels.sampler_order(key), learning_rate(record), key, record.choices["data"]

    runs_by_line = grouping.group_by(place, records)
    rates = sorted({rate for _, rate, _, _ in runs_by_line}, reverse=True)
    dashes = dict(zip(rates, cycle(style.DASHES), strict=False))
    lines: dict[str, list[plot.Series]] = {}  # by data set, in the order of the records
    for record in records:
        lines[record.choices["data"]] = []
    shown = []
    for (_, rate, key, data), runs in sorted(runs_by_line.items()):
        longest = _with_longest_trials(runs)
        shown += longest
        look = style.sampler_line_style(key) | {"markevery": None, "linestyle": dashes[rate]}
        text = grouping.join_label(labels.sampler_label(key), f"rate {rate:g}")
        values = _values_by_steps(grouping.require_one_setting(longest))
        lines[data].append(plot.mean_line(text, means_by_setting(values), **look))
    panels = []
    for data, series in lines.items():
        axes = {"xlabel": "sampling steps in learning", "yscale": "log"}
        panels.append(plot.Panel(series, title=labels.spell_name(data), **axes))
    panels[0].axes["ylabel"] = "minus log-likelihood of\nvalidation rows, nats"
    figure, axes_of_panels = style.new_panel_grid(len(panels))
    plot.draw_panels(axes_of_panels, panels)
    betas = sorted({record.config["task"]["trial_steps"] for record in shown})
    steps = " or ".join(f"{count:,}" for count in betas)
    note = f"Trial values: AIS of {steps} betas, often too high. A sampling step is one evaluation."
    note += f" {style.describe_band(shown)}"
    return plot.finish_plot(figure, axes_of_panels, panels, note)


def _with_longest_trials(records: list[Record]) -> list[Record]:
    by_length = grouping.group_by(lambda record: record.config["task"]["trial_steps"], records)
    return by_length[max(by_length)]


def _values_by_steps(records: list[Record]) -> dict[float, list[float]]:
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
