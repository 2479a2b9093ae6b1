"""The runs that an experiment's YAML declares or that a command asks for, and how many are done.

A run belongs to the declared sweep if it has the overrides of a declared run, up to seeds and
variants of the data. It also belongs if its resolved configuration is equal, however it was
spelled. All other runs have "other settings".
"""

import os
import socket
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from latticework.experiments import CONF
from latticework.experiments.records.identity import (
    SEEDS,
    digest,
    is_of_a_run,
    joined,
    run_name,
    text_of,
)
from latticework.experiments.records.numbers import duration
from latticework.experiments.records.record import VARIANTS, Record
from latticework.experiments.runs import configuration

Run = tuple[str, ...]  # its overrides
Kind = frozenset[str]  # a run's overrides without seeds; variants of data replaced by the data


@dataclass(frozen=True)
class Sweep:
    """Runs of an experiment at a scale: their overrides, by folder name.

    `config` is the configuration without the swept values. `skipped` are keys that do not
    distinguish runs, such as outputs.
    """

    config: DictConfig
    overrides: dict[str, Run]
    skipped: frozenset[str]

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(self.overrides)

    @cached_property
    def kinds(self) -> frozenset[Kind]:
        return frozenset(kind(run, self.skipped) for run in self.overrides.values())

    @cached_property
    def by_settings(self) -> dict[frozenset[str], dict[str, Run]]:
        """The runs by name, in groups that differ in seeds only."""
        found: dict[frozenset[str], dict[str, Run]] = {}
        for name, run in self.overrides.items():
            found.setdefault(settings(run, self.skipped), {})[name] = run
        return found

    def stands_for(self, record: Record) -> set[str] | None:
        """The runs of the sweep to which the record belongs; None if it has other settings.

        The set is empty for a record with an additional seed, or a variant of the data.
        """
        words = record.document["overrides"]
        if kind(words, self.skipped) in self.kinds:
            same = self.by_settings.get(settings(words, self.skipped), {})
            return {name for name, run in same.items() if _has_seeds(record, run)}
        mine = digest(record.config, seeds=False)
        for one in self.kinds:
            of_kind = {n: r for n, r in self.overrides.items() if kind(r, self.skipped) == one}
            first = next(iter(of_kind.values()))
            if _could_be(record, first) and self.identity(first, seeds=False) == mine:
                return {name for name, run in of_kind.items() if _has_seeds(record, run)}
        return None

    def divided(self, records: Iterable[Record]) -> tuple[list[Record], list[Record]]:
        """The records that belong to the sweep (with additional seeds), and the others."""
        mine: list[Record] = []
        others: list[Record] = []
        for record in records:
            (others if self.stands_for(record) is None else mine).append(record)
        return mine, others

    def found(self, records: Sequence[Record]) -> list[Record]:
        """The records of the sweep's runs, found by folder name or else by identity."""
        named = {run_name(r.document["overrides"], self.skipped): r for r in records}
        digests: dict[str | None, Record] = {}
        result: dict[Path, Record] = {}
        for name, run in self.overrides.items():
            record = named.get(name)
            if record is None:
                digests = digests or {digest(r.config): r for r in records}
                record = digests.get(self.identity(run))
            if record is not None:
                result[Path(str(record.path))] = record
        return list(result.values())

    def identity(self, run: Run, *, seeds: bool = True) -> str | None:
        """The digest of a run's configuration; None if it cannot be composed."""
        experiment = self.config.hydra.runtime.choices.get("experiment")
        words = [f"scale={self.config.scale}", *run]
        if experiment is not None:
            words.insert(0, f"experiment={experiment}")
        return _digest(tuple(words), seeds)


@cache
def _digest(words: Run, seeds: bool) -> str | None:
    try:
        return digest(configuration.resolved(configuration.composed(words)), seeds=seeds)
    except (HydraException, OmegaConfBaseException):
        return None


def _could_be(record: Record, run: Run) -> bool:
    """Whether the record has the options and the numbers that the run names."""
    for word in run:
        key, _, value = word.partition("=")
        if record.choices.get(key, value) != value:
            return False
        with suppress(ValueError):  # not a number
            if float(record.settings.get(key, value)) != float(value):
                return False
    return True


def _has_seeds(record: Record, run: Run) -> bool:
    """Whether the record has the seeds that the run names, and was asked for no other seed."""
    named, asked = (
        {key: value for key, _, value in (word.partition("=") for word in words) if key in SEEDS}
        for words in (run, record.document["overrides"])
    )
    return set(asked) <= set(named) and all(
        str(record.config[key]) == value for key, value in named.items()
    )


def settings(overrides: Sequence[str], skipped: Collection[str] = ()) -> frozenset[str]:
    """The overrides that identify a run up to seeds."""
    left_out = {*skipped, *SEEDS}
    return frozenset(o for o in overrides if is_of_a_run(o.split("=")[0].lstrip("+~"), left_out))


def kind(overrides: Sequence[str], skipped: Collection[str] = ()) -> Kind:
    """The overrides that identify a run up to seeds and variants of the data."""
    published = {f"data={variant}": f"data={data}" for variant, data in VARIANTS.items()}
    return frozenset(published.get(word, word) for word in settings(overrides, skipped))


def exists(experiment: str) -> bool:
    return (CONF / "experiment" / f"{experiment}.yaml").is_file()


def also(experiment: str) -> list[list[str]]:
    """Sets of overrides with which the experiment is run too: `also` in its YAML."""
    content: Any = OmegaConf.load(CONF / "experiment" / f"{experiment}.yaml")
    return [list(words) for words in content.get("also") or ()]


@cache
def declared(experiment: str, scale: str) -> Sweep:
    """The sweep of the experiment's YAML, repeated with each set of overrides in its `also`.

    The overrides may choose options and values, and must leave `hydra.sweeper` as it is.
    """
    config = configuration.composed((f"experiment={experiment}", f"scale={scale}"))
    sweep = asked(config)
    overrides = dict(sweep.overrides)
    for words in also(experiment):
        overrides |= asked(config, words).overrides
    return replace(sweep, overrides=overrides)


def asked(config: DictConfig, words: Sequence[str] = ()) -> Sweep:
    """The runs of a command: the sweep in `config`, overridden by the command's `words`.

    Empty if a sweep has no list of values, as in a search over an interval.
    """
    params = {} if config.hydra.mode is RunMode.RUN else config.hydra.sweeper.get("params") or {}
    skipped = frozenset(config.hydra.job.config.override_dirname.exclude_keys)
    parsed = OverridesParser.create().parse_overrides(
        [*(f"{key}={params[key]}" for key in params), *words]
    )
    last = {override.get_key_element(): override for override in parsed}
    choices = []
    for key, override in last.items():
        if not is_of_a_run(override.key_or_group, skipped):
            continue
        if override.is_discrete_sweep():
            choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        elif override.is_sweep_override():
            return Sweep(config, {}, skipped)
        else:
            choices.append([text_of(key, override)])
    runs = [tuple(sorted(run)) for run in product(*choices)]
    return Sweep(config, {joined(run): run for run in runs}, skipped)


@dataclass(frozen=True)
class SweepClock:
    """Counts the finished runs of a sweep over all processes.

    Each run appends a line to `file`: its process, the end by that machine's monotonic clock, and
    whether it was executed. Processes that share the folder therefore share the counts.
    """

    file: Path
    runs: int  # 0 if the sweep does not say how many there are

    @classmethod
    def started(cls, folder: Path, runs: int) -> "SweepClock":
        """Start a count in `folder`. Removes counts left by killed processes of this machine."""
        folder.mkdir(parents=True, exist_ok=True)
        name = f".sweep-{socket.gethostname()}-"
        for left in folder.glob(f"{name}*-*"):
            try:
                os.kill(int(left.name.split("-")[-2]), 0)
            except ProcessLookupError:
                left.unlink(missing_ok=True)
            except OSError:  # another user's
                pass
        return cls(folder / f"{name}{os.getpid()}-{time.time_ns()}", runs)

    def ended(self, executed: bool) -> str:
        """Count a run; return the progress: `3 of 20 runs, about 4 min to go`.

        The estimate leaves out runs that were not `executed`, because their record existed, and the
        first run of a process, which imports packages and compiles kernels.
        """
        with self.file.open("a") as file:
            file.write(f"{socket.gethostname()}/{os.getpid()} {time.monotonic()} {executed:d}\n")
        lines = [line.rsplit(" ", 2) for line in self.file.read_text().splitlines()]
        if not self.runs:
            return f"{len(lines)} runs so far"
        ends: dict[str, list[float]] = {}
        for process, end, counts in lines:
            if int(counts):
                ends.setdefault(process, []).append(float(end))
        rate = sum((len(one) - 1) / (one[-1] - one[0]) for one in ends.values() if one[-1] > one[0])
        text, left = f"{len(lines)} of {self.runs} runs", self.runs - len(lines)
        return f"{text}, about {duration(left / rate)} to go" if rate and left > 0 else text

    def remove(self) -> None:
        self.file.unlink(missing_ok=True)
