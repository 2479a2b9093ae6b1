"""The headline of a run: the few numbers that summarise it.

A task declares its own. Its module defines `headline(record)`, which returns a list of `KeyNumber`.
The table at the end of a run, the table at the end of a sweep and the experiment trackers show
them. An experiment names the papers' numbers beside them under `published` in its YAML.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import Any, Literal

import yaml

from latticework.experiments import CONF
from latticework.experiments.records.estimate import Estimate, comparable
from latticework.experiments.records.identity import short_name
from latticework.experiments.records.record import Record

log = logging.getLogger(__name__)
MOST = 5  # numbers of a task that declares none
Better = Literal["higher", "lower"] | None
COSTS = ("step", "seconds", "evaluations")  # columns of metrics.csv that are no results


@dataclass(frozen=True)
class KeyNumber:
    """One number of a run's headline.

    `error` is its standard error within the run, taken over `over`: chains, test rows. `better` is
    the direction of better values, or None. `beside` holds reference values by name: the exact
    value, the value of independent draws. `unit` is written after the value.
    """

    name: str
    value: float | str
    error: float | None = None
    over: str = ""
    better: Better = None
    beside: Mapping[str, Estimate] = field(default_factory=dict)
    unit: str = ""

    @property
    def label(self) -> str:
        """The name in words: `log_rmse` becomes `log RMSE`. A name with blanks stays as it is."""
        if " " in self.name:
            return self.name
        return " ".join(WORDS.get(word, word) for word in self.name.split("_"))

    @property
    def estimate(self) -> Estimate | None:
        """The value with its error; None for a text."""
        return None if isinstance(self.value, str) else Estimate(self.value, self.error)


WORDS = {word.lower(): word for word in ("RMSE", "MMD", "ISL", "ESS", "R", "Z", "BLEU")}


def headline(record: Record) -> list[KeyNumber]:
    """The numbers that the record's task declares, with the papers' beside them.

    The default, also for older records that lack what the declaration reads, is the last row of
    metrics.csv.
    """
    try:
        numbers = _declared(record)(record)
    except LookupError:
        numbers = last_row(record)
    paths = record.config.get("published") or {}
    return [_with_paper(number, paths.get(number.name) or [None], record) for number in numbers]


def _declared(record: Record) -> Callable[[Record], list[KeyNumber]]:
    """The function `headline` of the task's module, or `last_row` if there is none.

    A task of this package is found by its name, wherever it was when the record was made.
    """
    target = str(record.config["task"]["_target_"])
    try:
        module = import_module(_tasks().get(short_name(target), target).rpartition(".")[0])
    except ImportError:  # a task that was removed, or a user's that is not on the path
        log.warning("%s cannot be imported: %s shows its last row", target, record.path)
        return last_row
    return getattr(module, "headline", last_row)


@cache
def _tasks() -> dict[str, str]:
    """The whole path of each task in conf/task, by its name."""
    files = (CONF / "task").glob("*.yaml")
    paths = (yaml.safe_load(file.read_text())["_target_"] for file in files)
    return {short_name(path): path for path in paths}


def last_row(record: Record) -> list[KeyNumber]:
    """The last readings of the first columns of metrics.csv, without costs."""
    names = [name for name in columns(record) if name not in COSTS]
    return [KeyNumber(name, last(record, name)) for name in names[:MOST]]


def columns(record: Record) -> list[str]:
    """The columns of metrics.csv; none if the task logs nothing."""
    try:
        return list(record.metrics.columns)
    except (FileNotFoundError, KeyError):  # the latter: not in a bundle
        return []


def last(record: Record, name: str) -> float:
    """The last reading of a column of metrics.csv. Raises KeyError if there is none."""
    return float(record.metrics[name].iloc[-1])


def readings(record: Record, better: Mapping[str, Better]) -> list[KeyNumber]:
    """The last readings of the columns that `better` names, as far as the record has them."""
    there = (name for name in better if name in columns(record))
    return [KeyNumber(name, last(record, name), better=better[name]) for name in there]


def noted(record: Record, name: str, **more: Any) -> KeyNumber:
    """The fact `name` of run.json, with `name_error` as its error if present.

    Raises KeyError if the record has no such fact.
    """
    return KeyNumber(name, record.document[name], record.document.get(f"{name}_error"), **more)


def _with_paper(number: KeyNumber, path: list[Any], record: Record) -> KeyNumber:
    """`number` with the paper's value at `path`, unless the run used substitute data."""
    found = None if None in path else comparable([record], *map(str, path))
    return number if found is None else replace(number, beside={**number.beside, "paper": found})


def costs(record: Record) -> dict[str, float]:
    """The costs of the run: `seconds`, and evaluations per chain if the task counts them.

    `evaluations` are of the whole model, `local_evaluations` of the change of a site.
    """
    found = {"seconds": float(record.document["seconds"])}
    if "evaluations" in columns(record):
        found["evaluations"] = last(record, "evaluations")
        local = record.document.get("local_evaluations_per_step") or 0
        found["local_evaluations"] = local * last(record, "step")
    return found
