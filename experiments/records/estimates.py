"""The numbers of runs: estimates over several, the headline of one, and which seconds count.

An estimate is a mean over runs with its spread, as numbers and as text. The papers' estimates are
read from `published.yaml`.

The headline of a run are the few numbers that summarise it. A task declares its own: its module
defines `headline(record)`, which returns a list of `KeyNumber`. The table at the end of a run, the
table at the end of a sweep and the experiment trackers show them. An experiment names the papers'
numbers beside them under `published` in its YAML.
"""

import logging
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from itertools import filterfalse
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import yaml
from omegaconf import OmegaConf

from latticework.experiments import CONF
from latticework.experiments.records.identity import short_name
from latticework.experiments.records.record import Record
from latticework.moved import rename_fields

log = logging.getLogger(__name__)
PUBLISHED = Path(__file__).with_name("published.yaml")
MAX_DEFAULT_NUMBERS = 5  # numbers of a task that declares none
Better = Literal["higher", "lower"] | None
COSTS = ("step", "seconds", "evaluations")  # columns of metrics.csv that are no results
# Step time is this quantile over readings, because other work only adds time.
STEP_TIME_QUANTILE = 0.1
DAY = 86_400
MAX_SLOWDOWN = 1.25  # times the seconds of a run that has its core to itself: longer is refused


class Estimate(NamedTuple):
    """A mean over runs. `spread` is the standard deviation between runs, or None for one run."""

    mean: float
    spread: float | None = None
    runs: int | None = None

    def text(self) -> str:
        """`-0.3590 ± 0.0014 (5)`: two digits of the spread, and the number of runs in brackets.

        Where the number of runs is not known, there are no brackets, and a spread of one digit, as
        in published tables, gets no second one.
        """
        runs = "" if self.runs is None else f" ({self.runs})"
        if not self.spread or not math.isfinite(self.spread):  # one run, or runs that are all alike
            return f"{self.mean:.6g}{runs}"
        places = max(0, 1 - math.floor(math.log10(self.spread)))
        if self.runs is None and float(f"{self.spread:.1g}") == self.spread:
            places = max(0, places - 1)
        return f"{self.mean:,.{places}f} ± {self.spread:,.{places}f}{runs}"


def finite_or_none(value: float) -> float | None:
    """`value` as JSON holds it: None if it is infinite or no number."""
    return value if math.isfinite(value) else None


def format_estimate(value: Estimate | None) -> str:
    """`-6.85 ± 0.13 (5)`, as in tables. Without a spread, four digits and no `(1)`."""
    if value is None:
        return ""
    if value.spread and math.isfinite(value.spread):
        return value.text()
    runs = f" ({value.runs})" if value.runs and value.runs > 1 else ""
    return f"{value.mean:,.4g}{runs}" if abs(value.mean) < 1e4 else f"{value.mean:,.0f}{runs}"


def duration(seconds: float) -> str:
    """`0.05 s`, `42 s`, `13 min`, `2.5 h`, `3.1 days`: every time that a user reads."""
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 3 * DAY else f"{seconds / DAY:.1f} days"


def estimate(values: Any) -> Estimate:
    """Mean and spread of `values`, one per run. A single run has no spread.

    With an infinite value, such as the R-hat of chains that are stuck, the spread is NaN.
    """
    values = np.asarray(list(values), dtype=float)
    with np.errstate(invalid="ignore"):
        spread = float(values.std(ddof=1)) if len(values) > 1 else None
        if spread is not None and (values == values[0]).all():
            spread = 0.0  # and not the rounding of the mean
        return Estimate(float(values.mean()), spread, len(values))


def published_estimate(name: str, *keys: str) -> Estimate | None:
    """The number at `keys` of the table or figure `name`; None if the paper does not print it.

    Raises KeyError for a name that is not in the file.
    """
    node: Any = _published()[name]["values"]
    for key in keys:
        if not isinstance(node, dict) or key not in node:
            return None
        node = node[key]
    return Estimate(*node) if isinstance(node, list) else Estimate(float(node))


def published_if_same_data(records: Iterable[Record], name: str, *keys: str) -> Estimate | None:
    """`published_estimate(name, *keys)` for comparison with `records`.

    None if they used substitute data, or are smoke runs, which only check that the code runs.
    """
    for record in records:
        if record.substitute is not None or record.config.get("scale") == "smoke":
            return None
    return published_estimate(name, *keys)


def published_mean(name: str, *keys: str) -> float:
    """The mean of a printed number (`published_estimate`). Raises KeyError if there is none."""
    printed = published_estimate(name, *keys)
    if printed is None:
        raise KeyError(f"published.yaml has no {name} {' '.join(keys)}")
    return printed.mean


@cache
def _published() -> Any:
    return OmegaConf.to_container(OmegaConf.load(PUBLISHED))


@rename_fields(beside="references", over="error_over")
@dataclass(frozen=True)
class KeyNumber:
    """One number of a run's headline.

    `error` is its standard error within the run, taken over `error_over`: chains, test rows.
    `better` is the direction of better values, or None. `references` holds reference values by
    name: the exact value, the value of independent draws. `unit` is written after the value.
    """

    name: str
    value: float | str
    error: float | None = None
    error_over: str = ""
    better: Better = None
    references: Mapping[str, Estimate] = field(default_factory=dict)
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
        numbers = _find_headline(record)(record)
    except LookupError:
        numbers = last_row(record)
    paths = record.config.get("published") or {}
    return [_with_paper(number, paths.get(number.name) or [None], record) for number in numbers]


def _find_headline(record: Record) -> Callable[[Record], list[KeyNumber]]:
    """The function `headline` of the task's module, or `last_row` if there is none.

    A task of this package is found by its name, wherever it was when the record was made. Another
    module is used only if the running command has imported it: a record must not choose which code
    is executed.
    """
    target = str((record.config.get("task") or {}).get("_target_"))
    if known := _tasks().get(short_name(target)):
        module: Any = import_module(known.rpartition(".")[0])
    else:
        is_own = target.startswith("latticework.")  # a task that was removed
        module = None if is_own else sys.modules.get(target.rpartition(".")[0])
    if module is None:
        log.warning("%s is not a task of conf/task: %s shows its last row", target, record.path)
    return getattr(module, "headline", last_row)


@cache
def _tasks() -> dict[str, str]:
    """The whole path of each task in conf/task, by its name."""
    files = (CONF / "task").glob("*.yaml")
    paths = (yaml.safe_load(file.read_text())["_target_"] for file in files)
    return {short_name(path): path for path in paths}


def last_row(record: Record) -> list[KeyNumber]:
    """The last readings of the first columns of metrics.csv, without costs."""
    names = [name for name in metric_columns(record) if name not in COSTS]
    return [KeyNumber(name, last_reading(record, name)) for name in names[:MAX_DEFAULT_NUMBERS]]


def metric_columns(record: Record) -> list[str]:
    """The columns of metrics.csv; none if the task logs nothing."""
    try:
        return list(record.metrics.columns)
    except (FileNotFoundError, KeyError):  # the latter: not in a bundle
        return []


def last_reading(record: Record, name: str) -> float:
    """The last reading of a column of metrics.csv. Raises KeyError if there is none."""
    return float(record.metrics[name].iloc[-1])


def last_readings(record: Record, better: Mapping[str, Better]) -> list[KeyNumber]:
    """The last readings of the columns that `better` names, as far as the record has them."""
    there = (name for name in better if name in metric_columns(record))
    return [KeyNumber(name, last_reading(record, name), better=better[name]) for name in there]


def fact_number(record: Record, name: str, **more: Any) -> KeyNumber:
    """The fact `name` of run.json, with `name_error` as its error if present.

    Raises KeyError if the record has no such fact.
    """
    return KeyNumber(name, record.document[name], record.document.get(f"{name}_error"), **more)


def _with_paper(number: KeyNumber, path: list[Any], record: Record) -> KeyNumber:
    """`number` with the paper's value at `path`, if the run may be compared with it."""
    if None in path:
        return number
    paper = published_if_same_data([record], *map(str, path))
    if paper is None:
        return number
    return replace(number, references={**number.references, "paper": paper})


def costs(record: Record) -> dict[str, float]:
    """The costs of the run: `seconds`, and evaluations per chain if the task counts them.

    `evaluations` are of the whole model, `local_evaluations` of the change of a site.
    """
    totals = {"seconds": float(record.document["seconds"])}
    if "evaluations" in metric_columns(record):
        totals["evaluations"] = last_reading(record, "evaluations")
        local = record.document.get("local_evaluations_per_step") or 0
        totals["local_evaluations"] = local * last_reading(record, "step")
    return totals


def step_seconds(record: Record) -> float:
    """Seconds per step of a run: a low quantile over the intervals between readings.

    A low quantile is used because other work on the machine only adds time, perhaps for most of a
    run.
    """
    readings = record.metrics[["step", "seconds"]].to_numpy(float)
    steps, seconds = np.diff(readings, axis=0).T
    return float(np.quantile(seconds / steps, STEP_TIME_QUANTILE))


def had_shared_core(record: Record) -> bool:
    """Whether a timed run took `MAX_SLOWDOWN` times its CPU time or longer, beside other work.

    `cpu_share` of a record is its CPU time over its seconds (`sampling.clock.Clock`). False where
    it is not known: in older records, on a GPU, with several threads, or after a short timing.
    """
    share = record.document.get("cpu_share")
    return share is not None and share * MAX_SLOWDOWN < 1


def drop_shared_core(records: Sequence[Record]) -> list[Record]:
    """The runs that had a core to themselves. Raises LookupError if none had."""
    alone = list(filterfalse(had_shared_core, records))
    if records and not alone:
        names = ", ".join(sorted({record.choices["sampler"] for record in records}))
        raise LookupError(
            f"other work took the core of every run of {names} (cpu_share in run.json), so their "
            "seconds do not count; run them again, alone on a core"
        )
    return alone


def share_text(records: Sequence[Record]) -> str:
    """The smallest `cpu_share` of the records, in words; empty if none is known."""
    shares = [share for r in records if (share := r.document.get("cpu_share")) is not None]
    if not shares:
        return ""
    text = f"timed with {min(shares):.0%} of a core or more"
    count = sum(map(had_shared_core, records))
    if not count:
        return text
    return f"{text}; {count} of {len(records)} had a busy core, and their seconds do not count"


def timed_runs_and_note(records: list[Record]) -> tuple[list[Record], str]:
    """The runs that a figure against seconds shows, and a sentence about those that it leaves out.

    If all had a busy core, it shows them and says so; claims refuse them.
    """
    alone = list(filterfalse(had_shared_core, records))
    count = len(records) - len(alone)
    if not alone:
        return records, " Other work took the core of every run: all seconds are too long."
    if not count:
        return alone, ""
    return alone, f" Without {count} of {len(records)} runs, whose core was busy."


def drop_slow_runs(
    records: Sequence[Record], seconds: Callable[[Record], float] = step_seconds
) -> list[Record]:
    """The runs of one setting whose timing is used.

    They are at most `MAX_SLOWDOWN` times as slow as the fastest. Other work on the machine only
    adds time, so a slower run was made beside other work, also where `cpu_share` is not known.
    """
    times = [seconds(record) for record in records]
    return [r for r, time in zip(records, times, strict=True) if time <= MAX_SLOWDOWN * min(times)]
