"""Searches by task=tune: their history, and which fields mattered, computed by Optuna.

A study is rebuilt from the trials of a record, so the figures need no storage.
"""

import math
from typing import Any

import numpy as np
import optuna
from matplotlib.figure import Figure
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState, create_trial

from latticework.experiments.figures.style import colour, label_lines_and_legend, new_figure
from latticework.experiments.records.grouping import groups
from latticework.experiments.records.labels import format_seeds, sampler_style
from latticework.experiments.records.record import Record

FEWEST = 2  # trials of which an importance can be computed


def history(records: list[Record]) -> Figure:
    """The value of each trial (dots) and the best so far (lines), one colour a search.

    A trial without a value, which is NaN, leaves its place on the x axis empty.
    Raises LookupError if no record is of a search.
    """
    figure, ax = new_figure(width=5)
    for place, (key, name, study) in enumerate(found := _searches(records)):
        same = [other for other, (own, _, _) in enumerate(found) if own == key]
        shade = colour(key, same.index(place), len(same))
        trials = _complete(study)
        values = np.array([trial.value for trial in trials])
        lowest = study.direction == optuna.study.StudyDirection.MINIMIZE
        best = (np.minimum if lowest else np.maximum).accumulate(values)
        numbers = [trial.number + 1 for trial in trials]
        dots = {"color": shade, "marker": sampler_style(key[0]).marker, "linestyle": "none"}
        ax.plot(numbers, values, markersize=3, **dots)
        ax.plot(numbers, best, color=shade, drawstyle="steps-post", label=name)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set(xlabel="trial", ylabel=_aim(records))
    label_lines_and_legend(
        figure, f"Dots: trials; lines: the best so far. {format_seeds(records)}."
    )
    return figure


def importance(records: list[Record]) -> Figure:
    """The share of each field in the variance of the objective, one panel a search (fANOVA).

    F. Hutter, H. Hoos and K. Leyton-Brown, "An Efficient Approach for Assessing Hyperparameter
    Importance", ICML 2014. Raises LookupError if no search has FEWEST different values.
    """
    found = [each for each in _searches(records) if len({t.value for t in _complete(each[2])}) > 1]
    if not found:
        raise LookupError(f"an importance needs {FEWEST} trials of different value")
    figure, panels = new_figure(len(found))
    for ax, (key, name, study) in zip(figure.axes, found, strict=True):
        shares = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0))
        ax.barh(list(shares)[::-1], list(shares.values())[::-1], color=colour(key))
        ax.set_xlim(0, 1)
        ax.set_title(name, fontsize=9)
        ax.set_xlabel("share of the variance", fontsize=8)
    return figure


def _searches(records: list[Record]) -> list[tuple[tuple[str, int], str, optuna.Study]]:
    """The sampler's key, a label and the study of each search. Raises LookupError without any."""
    found = []
    for group in groups([record for record in records if "tuning" in record.document]):
        for record in group.records:
            several = len(group.records) > 1
            name = f"{group.label}, seed {record.config['seed']}" if several else group.label
            found.append((group.key, name, _study(record, name)))
    if not found:
        raise LookupError("no record is of a search; run task=tune")
    return found


def _study(record: Record, name: str) -> optuna.Study:
    """A study in memory with the trials of metrics.csv; one whose value is NaN has failed."""
    task = record.config["task"]
    space = {
        field: _distribution(bounds, record.metrics[field].tolist())
        for field, bounds in task["search"][record.choices["sampler"]].items()
    }
    goal = task["goal"]
    study = optuna.create_study(direction=record.document["tuning"]["direction"], study_name=name)
    for _, row in record.metrics.iterrows():
        value = float(row["value"] if goal is None else abs(row["value"] - goal))
        found: dict[str, Any] = {"value": value}
        if math.isnan(value):
            found = {"state": TrialState.FAIL}
        params = {
            field: row[field] if isinstance(kind, FloatDistribution) else int(row[field])
            for field, kind in space.items()
        }
        study.add_trial(create_trial(params=params, distributions=space, **found))
    return study


def _complete(study: optuna.Study) -> list[FrozenTrial]:
    """The trials with a value, with their numbers from 0."""
    return study.get_trials(states=[TrialState.COMPLETE])


def _distribution(bounds: dict[str, Any], values: list[float]) -> BaseDistribution:
    """The range of a field, with values that rounding took out of it; a choice is an index."""
    if "choices" in bounds:
        return CategoricalDistribution(range(len(bounds["choices"])))
    numbers = [bounds["low"], bounds["high"], *values]
    low, high, log = min(numbers), max(numbers), bounds.get("log", False)
    if all(float(number).is_integer() for number in numbers):
        return IntDistribution(int(low), int(high), log)
    return FloatDistribution(low, high, log)


def _aim(records: list[Record]) -> str:
    """The objective, as a label of an axis."""
    aims = {r.document["tuning"]["objective"] for r in records if "tuning" in r.document}
    return ", ".join(sorted(aims)).replace("_", " ")
