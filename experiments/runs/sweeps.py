"""The runs that an experiment's YAML declares, or that a command asks for.

A record belongs to a declared run if their settings agree: the digests of both resolved
configurations without seeds (`identity.digest`), however the record was spelled. So a record of
before a default was changed has "other settings", unless the experiment lists the former values
under `earlier` in its YAML. Variants of a data set count as the data set.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from latticework.experiments import CONF
from latticework.experiments.records.identity import (
    SEEDS,
    affects_run,
    canonical_override,
    digest,
    name_from_overrides,
)
from latticework.experiments.records.record import DATA_OF_VARIANT, Record
from latticework.experiments.runs import configuration

DECLARED = Path(__file__).with_name("declared.json")  # made by workshop/declared.py
COMMENT = re.compile(r"\s*#(?! @)")
SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"  # a run for each combination
Overrides = tuple[str, ...]  # overrides of one run
# The overrides of a run without its seeds, and with the data set in place of its variant.
OverrideSet = frozenset[str]


class Settings(NamedTuple):
    """The digest of a run's settings without seeds, and the seeds of a run that names none.

    A seed may be `${seed}`, which is the run's seed.
    """

    digest: str
    seed: int | str
    model_seed: int | str


@dataclass(frozen=True)
class Sweep:
    """Runs of an experiment at a scale: their overrides, by folder name.

    `config` is the configuration without the swept values. `skipped` are keys that do not
    distinguish runs, such as outputs. `jobs` is the number of runs that Hydra starts, which is
    larger if two spellings are one run. `earlier` are sets of overrides with which older records
    of the experiment were made.
    """

    config: DictConfig
    overrides: dict[str, Overrides]
    skipped: frozenset[str]
    jobs: int = 0
    earlier: tuple[Overrides, ...] = ()

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(self.overrides)

    @property
    def override_sets(self) -> frozenset[OverrideSet]:
        return frozenset(self.by_kind)

    @cached_property
    def by_kind(self) -> dict[OverrideSet, dict[str, Overrides]]:
        """The runs by name, in groups that differ in seeds only."""
        groups: dict[OverrideSet, dict[str, Overrides]] = {}
        for name, run in self.overrides.items():
            kind = overrides_without_seeds_or_variants(run, self.skipped)
            groups.setdefault(kind, {})[name] = run
        return groups

    def runs_of_record(self, record: Record) -> set[str] | None:
        """The runs of the sweep to which the record belongs; None if it has other settings.

        The set is empty for a record with an additional seed, or a variant of the data.
        """
        mine = record.document.get("settings_digest") or digest(record.config, seeds=False)
        named = overrides_without_seeds_or_variants(record.document["overrides"], self.skipped)
        for words in sorted(self.by_kind, key=lambda words: words != named):  # the likely one first
            variant = _with_variant(words, record)
            for earlier in ((), *self.earlier):
                if words != named and not (earlier or _could_be(record, variant)):
                    continue
                settings = self.settings(variant, earlier)
                if settings is not None and settings.digest == mine:
                    runs = self.by_kind[words] if variant == words else {}
                    return {name for name in runs if _has_seeds(record, runs[name], settings)}
        return None

    def split_records(self, records: Iterable[Record]) -> tuple[list[Record], list[Record]]:
        """The records that belong to the sweep (with additional seeds), and the others."""
        mine: list[Record] = []
        undeclared: list[Record] = []
        for record in records:
            (undeclared if self.runs_of_record(record) is None else mine).append(record)
        return mine, undeclared

    def select_records(self, records: Sequence[Record]) -> list[Record]:
        """The first record of each of the sweep's runs, in the order of the runs."""
        by_run: dict[str, Record] = {}
        for record in records:
            for name in self.runs_of_record(record) or ():
                by_run.setdefault(name, record)
        chosen: dict[int, Record] = {}
        for name in self.runs:
            if name in by_run:
                chosen[id(by_run[name])] = by_run[name]
        return list(chosen.values())

    def settings(self, words: OverrideSet, earlier: Overrides = ()) -> Settings | None:
        """The settings of a run with the overrides `words`; None if it cannot be composed."""
        return settings_of(self._command(words, earlier))

    def spellings(self) -> Iterator[Overrides]:
        """The words of each of the sweep's settings, also with variants of data and earlier ones.

        Without seeds, which settings leave out.
        """
        for words in self.by_kind:
            for variant in (words, *_variants(words)):
                for earlier in ((), *self.earlier):
                    yield self._command(variant, earlier)

    def _command(self, words: OverrideSet, earlier: Overrides) -> Overrides:
        experiment = self.config.hydra.runtime.choices.get("experiment")
        chosen = [] if experiment is None else [f"experiment={experiment}"]
        return (*chosen, f"scale={self.config.scale}", *sorted(words), *earlier)


@cache
def settings_of(words: Overrides) -> Settings | None:
    """The settings of the run with the overrides `words`; None if it cannot be composed.

    Composing takes 0.1 s, so those of declared runs are stored (DECLARED).
    """
    if (known := stored_settings().get(" ".join(words))) is not None:
        return known
    return compose_settings(words)


def compose_settings(words: Overrides) -> Settings | None:
    """`settings_of`, without the stored ones."""
    try:
        config = configuration.compose_config(words)
        mine = digest(configuration.resolve_config(config), seeds=False)
    except (HydraException, OmegaConfBaseException):
        return None
    written: Any = OmegaConf.to_container(
        OmegaConf.masked_copy(config, [key for key in SEEDS if key in config])
    )
    seed = config.seed
    return Settings(mine, seed, written.get("model_seed", seed))


@cache
def stored_settings() -> dict[str, Settings]:
    """The stored settings of declared runs, by their words; none if conf/ has changed since."""
    try:
        document = json.loads(DECLARED.read_text())
    except FileNotFoundError:
        return {}
    if document["made_of"] != settings_stamp():
        return {}
    return {words: Settings(*entry) for words, entry in document["settings"].items()}


def settings_stamp() -> str:
    """A hash of the settings in conf/, which decide the digests of declared runs.

    A comment counts only if Hydra reads it, as `# @package`.
    """
    marks = []
    for file in sorted(CONF.rglob("*.yaml")):
        lines = file.read_text().splitlines()
        settings = [line for line in lines if not COMMENT.match(line)]
        content = hashlib.sha256("\n".join(settings).encode()).hexdigest()
        marks.append(f"{file.relative_to(CONF).as_posix()} {content}")
    return hashlib.sha256("\n".join(marks).encode()).hexdigest()


def _variants(words: OverrideSet) -> Iterator[OverrideSet]:
    """`words` with each variant of their data set."""
    for variant, data in DATA_OF_VARIANT.items():
        if f"data={data}" in words:
            yield words - {f"data={data}"} | {f"data={variant}"}


def _with_variant(words: OverrideSet, record: Record) -> OverrideSet:
    """`words` with the variant of the data set that the record used."""
    variant = str(record.choices.get("data"))
    published = f"data={DATA_OF_VARIANT.get(variant)}"
    return frozenset(f"data={variant}" if word == published else word for word in words)


def _could_be(record: Record, words: OverrideSet) -> bool:
    """Whether the record has the options and the numbers that `words` name."""
    for word in words:
        key, _, value = word.partition("=")
        if record.choices.get(key, value) != value:
            return False
        with suppress(ValueError):  # not a number
            if float(record.settings.get(key, value)) != float(value):
                return False
    return True


def _has_seeds(record: Record, run: Overrides, settings: Settings) -> bool:
    """Whether the record has the seeds of the run. Older records may lack one."""
    seeds: dict[str, int | str] = {"seed": settings.seed, "model_seed": settings.model_seed}
    for word in run:
        key, _, value = word.partition("=")
        if key in seeds:
            seeds[key] = value
    for key, seed in seeds.items():
        wanted = seeds["seed"] if seed == "${seed}" else seed
        if str(record.config.get(key, wanted)) != str(wanted):
            return False
    return True


def overrides_without_seeds(
    overrides: Sequence[str], skipped: Collection[str] = ()
) -> frozenset[str]:
    """The overrides that identify a run up to seeds."""
    left_out = {*skipped, *SEEDS}
    words = set()
    for word in overrides:
        if affects_run(word.partition("=")[0].lstrip("+~"), left_out):
            words.add(word)
    return frozenset(words)


def overrides_without_seeds_or_variants(
    overrides: Sequence[str], skipped: Collection[str] = ()
) -> OverrideSet:
    """The overrides that identify a run up to seeds and variants of the data."""
    words = overrides_without_seeds(overrides, skipped)
    for variant, data in DATA_OF_VARIANT.items():
        if f"data={variant}" in words:
            words = words - {f"data={variant}"} | {f"data={data}"}
    return words


def experiment_exists(experiment: str) -> bool:
    return (CONF / "experiment" / f"{experiment}.yaml").is_file()


def extra_override_sets(experiment: str) -> list[list[str]]:
    """Sets of overrides with which the experiment is run too: `also` in its YAML."""
    return _override_sets(experiment, "also")


def earlier_override_sets(experiment: str) -> list[list[str]]:
    """Sets of overrides with which older records were made that count: `earlier` in its YAML."""
    return _override_sets(experiment, "earlier")


def _override_sets(experiment: str, key: str) -> list[list[str]]:
    content: Any = OmegaConf.load(CONF / "experiment" / f"{experiment}.yaml")
    return [list(words) for words in content.get(key) or ()]


@cache
def declared_sweep(experiment: str, scale: str) -> Sweep:
    """The sweep of the experiment's YAML, repeated with each set of overrides in its `also`.

    The overrides may choose options and values, and must leave `hydra.sweeper` as it is. Records at
    the paper's scale may have been made with the values in its `earlier`.
    """
    config = configuration.compose_config((f"experiment={experiment}", f"scale={scale}"))
    sweep = sweep_of_command(config)
    overrides = dict(sweep.overrides)
    for words in extra_override_sets(experiment):
        overrides |= sweep_of_command(config, words).overrides
    former = tuple(map(tuple, earlier_override_sets(experiment))) if scale == "paper" else ()
    return replace(sweep, overrides=overrides, jobs=len(overrides), earlier=former)


def sweep_of_command(config: DictConfig, words: Sequence[str] = ()) -> Sweep:
    """The runs of a command: the sweep in `config`, overridden by the command's `words`.

    Empty if a sweep has no list of values, as in a search over an interval, and if another sweeper
    than Hydra's own chooses the runs.
    """
    is_sweep = config.hydra.mode is not RunMode.RUN
    params = (config.hydra.sweeper.get("params") or {}) if is_sweep else {}
    skipped = frozenset(config.hydra.job.config.override_dirname.exclude_keys)
    if is_sweep and config.hydra.sweeper.get("_target_", SWEEPER) != SWEEPER:
        return Sweep(config, {}, skipped)
    parsed = configuration.parse_overrides([*(f"{key}={params[key]}" for key in params), *words])
    last: dict[str, Override] = {}
    for override in parsed:
        last[override.get_key_element()] = override
    choices, jobs = [], 1
    for key, override in last.items():
        if override.is_discrete_sweep():
            values = [f"{key}={value}" for value in override.sweep_string_iterator()]
        elif override.is_sweep_override():
            return Sweep(config, {}, skipped)
        else:
            values = [canonical_override(key, override)]
        jobs *= len(values)
        if affects_run(override.key_or_group, skipped):
            choices.append(values)
    runs: dict[str, Overrides] = {}
    for combination in product(*choices):
        run = tuple(sorted(combination))
        runs[name_from_overrides(run)] = run
    return Sweep(config, runs, skipped, jobs)
