"""Searches by task=tune: their history, and which fields mattered, computed by Optuna.

A study is rebuilt from the trials of a record, so the figures need no storage.
"""

import math
from typing import Any

import numpy as np
import optuna
import pandas as pd
from optuna import distributions
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import TrialState, create_trial

from latticework.experiments.figures import style
from latticework.experiments.figures.plot import (
    HorizontalBars,
    Panel,
    Plot,
    Series,
    draw_panels,
    finish_plot,
    points_table,
)
from latticework.experiments.records import grouping, labels
from latticework.experiments.records.record import Record

MIN_VALUES = 2  # different values of trials of which an importance can be computed
SearchStudy = tuple[tuple[str, int], str, optuna.Study]  # the sampler's key, a label, the study


def history(records: list[Record]) -> Plot:
    """The value of each trial (dots) and the best so far (lines), one colour a search.

    A trial without a value, which is NaN, leaves its place on the x axis empty.
    Raises LookupError if no record is of a search.
    """
    searches = _searches(records)
    keys = [key for key, _, _ in searches]
    series = []
    for place, (key, name, study) in enumerate(searches):
        ink = style.colour(key, keys[:place].count(key), keys.count(key))
        values = _trial_values(study)
        lowest = study.direction == optuna.study.StudyDirection.MINIMIZE
        best = (np.minimum if lowest else np.maximum).accumulate(values)
        numbers = values.index
        marker = labels.sampler_style(key[0]).marker
        dots = {"color": ink, "marker": marker, "linestyle": "none", "markersize": 3}
        series.append(Series(f"{name}, trials", numbers, values, named=False, **dots))
        series.append(Series(name, numbers, best, color=ink, drawstyle="steps-post"))
    panel = Panel(series, xlabel="trial", ylabel=_aim(records))
    figure, ax = style.new_figure(width=5)
    panel.draw(ax)
    ax.xaxis.get_major_locator().set_params(integer=True)
    note = f"Dots: trials; lines: the best so far. {labels.format_seeds(records)}."
    return finish_plot(figure, [ax], [panel], note)


def importance(records: list[Record]) -> Plot:
    """The share of each field in the variance of the objective, one panel a search (fANOVA).

    F. Hutter, H. Hoos and K. Leyton-Brown, "An Efficient Approach for Assessing Hyperparameter
    Importance", ICML 2014. Raises LookupError if no search has MIN_VALUES different values.
    """
    panels = []
    for key, name, study in _searches(records):
        if _trial_values(study).nunique() < MIN_VALUES:
            continue
        shares = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0))
        fields, parts = list(shares)[::-1], list(shares.values())[::-1]
        label = "share of the variance"
        bars = HorizontalBars(label, fields, parts, named=False, color=style.colour(key))
        panels.append(Panel([bars], title=name, xlabel=label, xlim=(0, 1)))
    if not panels:
        raise LookupError(f"an importance needs {MIN_VALUES} trials of different value")
    figure, _ = style.new_figure(len(panels))
    draw_panels(figure.axes, panels)
    for ax in figure.axes:
        ax.title.set_fontsize(9)
    return Plot(figure, points_table(panels))


def _searches(records: list[Record]) -> list[SearchStudy]:
    """The studies of all searches. Raises LookupError if there are none."""
    searches = []
    tuned = [record for record in records if "tuning" in record.document]
    for group in grouping.groups(tuned):
        for record in group.records:
            name = group.label
            if len(group.records) > 1:
                name += f", seed {record.config['seed']}"
            searches.append((group.key, name, _study(record, name)))
    if not searches:
        raise LookupError("no record is of a search; run task=tune")
    return searches


def _study(record: Record, name: str) -> optuna.Study:
    """A study in memory with the trials of metrics.csv; one whose value is NaN has failed."""
    task = record.config["task"]
    space = {}
    for field, bounds in task["search"][record.choices["sampler"]].items():
        space[field] = _distribution(bounds, record.metrics[field].tolist())
    goal = task["goal"]
    study = optuna.create_study(direction=record.document["tuning"]["direction"], study_name=name)
    for _, row in record.metrics.iterrows():
        value = float(row["value"] if goal is None else abs(row["value"] - goal))
        outcome: dict[str, Any] = {"value": value}
        if math.isnan(value):
            outcome = {"state": TrialState.FAIL}
        fields = {}
        for field, kind in space.items():
            is_float = isinstance(kind, distributions.FloatDistribution)
            fields[field] = row[field] if is_float else int(row[field])
        study.add_trial(create_trial(params=fields, distributions=space, **outcome))
    return study


def _trial_values(study: optuna.Study) -> pd.Series:
    """The values of the trials that have one, by their numbers from 1."""
    values = {}
    for trial in study.get_trials(states=[TrialState.COMPLETE]):
        values[trial.number + 1] = trial.value
    return pd.Series(values, dtype=float)


def _distribution(bounds: dict[str, Any], values: list[float]) -> distributions.BaseDistribution:
    """The range of a field, with values that rounding took out of it; a choice is an index."""
    if "choices" in bounds:
        return distributions.CategoricalDistribution(range(len(bounds["choices"])))
    numbers = [bounds["low"], bounds["high"], *values]
    low, high, log = min(numbers), max(numbers), bounds.get("log", False)
    if all(float(number).is_integer() for number in numbers):
        return distributions.IntDistribution(int(low), int(high), log)
    return distributions.FloatDistribution(low, high, log)


def _aim(records: list[Record]) -> str:
    """The objective, as a label of an axis."""
    aims = {r.document["tuning"]["objective"] for r in records if "tuning" in r.document}
    return ", ".join(sorted(aims)).replace("_", " ")
