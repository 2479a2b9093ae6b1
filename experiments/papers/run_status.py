"""The state of an experiment at a scale: finished, failed, stopped and missing runs.

Runs count if they belong to the sweep in the experiment's YAML. Other seeds and variants of the
data set count as well; a variant keeps its own name (`sweeps.Sweep`).
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from omegaconf import DictConfig

from latticework.experiments import CONF
from latticework.experiments.papers.claims.ledger import Pool
from latticework.experiments.papers.draw import PACKAGES
from latticework.experiments.records.files import read_file
from latticework.experiments.records.grouping import drop_repeated_runs
from latticework.experiments.records.identity import strip_digest
from latticework.experiments.records.record import BUNDLES, Record, read_records, versions
from latticework.experiments.runs.sweeps import declared_sweep

SCALES = ("paper", "cpu", "quick", "smoke")  # the best first
SOURCES = (CONF, CONF.parent / "experiments", CONF.parent / "sampling")
OUTPUTS = "outputs"  # the place of records that are not committed
FILES = (".py", ".yaml")  # suffixes in SOURCES, which decide how records are sorted and drawn


def hash_records(records: Iterable[Record]) -> str:
    """A hash of the records and of everything that decides how they are drawn."""
    prints = []
    for record in records:
        prints.append(f"{record.display_path} {record.fingerprint}")
    return _digest_of_texts([hash_drawing_code(), *sorted(prints)])


@cache
def hash_drawing_code() -> str:
    """A hash of `SOURCES` and of the packages that draw; constant while the process runs."""
    prints = []
    for folder in SOURCES:
        for file in folder.rglob("*"):
            if file.suffix in FILES:
                prints.append(f"{file} {hashlib.sha256(file.read_bytes()).hexdigest()}")
    return _digest_of_texts([str(versions(PACKAGES)), *sorted(prints)])


def _digest_of_texts(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


@dataclass(frozen=True)
class ExperimentStatus:
    """The records of an experiment at a scale. `others` have settings outside the sweep."""

    experiment: str
    scale: str
    config: DictConfig
    place: str  # OUTPUTS, or the bundle's file name
    runs: tuple[str, ...]
    records: list[Record]
    undeclared: list[Record] = field(default_factory=list)  # with other settings
    failed: dict[str, str] = field(default_factory=dict)  # run: the first line of its error
    damaged: tuple[str, ...] = ()  # a line for each record that cannot be read
    stopped: list[str] = field(default_factory=list)  # begun and not finished
    done: frozenset[str] = frozenset()  # those of `runs` that have a record

    @property
    def stamp(self) -> str:
        """A hash of everything that decides how the holding is drawn."""
        return f"{self.experiment} {self.scale} {hash_records(self.drawable_records)}"

    @property
    def missing(self) -> list[str]:
        return [run for run in self.runs if run not in self.done]

    @property
    def drawable_records(self) -> list[Record]:
        """The records for figures: the runs that count, or the others if there are none."""
        return self.records or self.undeclared

    @property
    def command(self) -> str:
        return running_command(self.experiment, self.scale)

    def pools(self) -> list[Pool]:
        """The records in pools for the ledger, the best first."""
        real = [record for record in self.records if record.substitute is None]
        pools = [Pool(self.scale, self.scale == "paper", real)] if real else []
        if len(real) < len(self.records):
            pools.append(Pool(f"{self.scale}, substitutes", False, self.records))
        if self.undeclared:
            pools.append(Pool(f"{self.scale}, other settings", False, self.undeclared))
        return pools


def running_command(experiment: str, scale: str = "paper", also: Sequence[str] = ()) -> str:
    """The command that runs the experiment. It skips finished runs."""
    words = ["python run.py", f"experiment={experiment}", *also]
    if scale != "paper":
        words.append(f"scale={scale}")
    return " ".join(words)


def load_status(
    experiment: str,
    scale: str,
    outputs: Path | None,
    bundles: Path = BUNDLES,
) -> ExperimentStatus | None:
    """The runs in `outputs`; if none finished there, those of the bundle (paper scale only).

    None if the experiment left no runs. With `outputs=None`, only the bundle is read.
    """
    folder = None if outputs is None else outputs / experiment / scale
    bundle = bundles / f"{experiment}.zip"
    records, damaged = ([], {}) if folder is None else read_records(folder)
    place = OUTPUTS
    if not records and scale == "paper" and bundle.is_file():
        (records, _), place, folder = read_records(bundle), bundle.name, None
    failed, stopped = _unfinished(folder) if folder is not None else ({}, [])
    for name, fault in damaged.items():
        failed[strip_digest(name)] = fault
    if not (records or failed or stopped):
        return None
    sweep = declared_sweep(experiment, scale)
    declared, undeclared = sweep.split_records(drop_repeated_runs(records))
    done: set[str] = set()
    for record in declared:
        done.update(sweep.runs_of_record(record) or ())
    return ExperimentStatus(
        experiment, scale, sweep.config, place, sweep.runs, declared, undeclared, failed,
        tuple(damaged.values()), stopped, frozenset(done),
    )  # fmt: skip


def _unfinished(folder: Path) -> tuple[dict[str, str], list[str]]:
    failed, stopped = {}, []
    for run in sorted(path.parent for path in folder.glob("*/.hydra")):
        if (run / "run.json").exists():
            continue
        name = strip_digest(run.name)
        try:
            cause = read_file(run / "error.txt").decode(errors="replace")
        except FileNotFoundError:
            stopped.append(name)
        except OSError as error:  # another user's file, a pipe
            failed[name] = f"error.txt cannot be read ({type(error).__name__})"
        else:
            failed[name] = (cause.splitlines() or ["no reason given"])[0]
    return failed, stopped


def load_statuses(
    experiments: Sequence[str],
    outputs: Path | None,
    bundles: Path = BUNDLES,
    scales: Sequence[str] = SCALES,
) -> dict[str, list[ExperimentStatus]]:
    """The holdings of each experiment at all scales that have runs, the best scale first."""
    statuses: dict[str, list[ExperimentStatus]] = {}
    for experiment in experiments:
        statuses[experiment] = []
        for scale in scales:
            status = load_status(experiment, scale, outputs, bundles)
            if status is not None:
                statuses[experiment].append(status)
    return statuses


def pools(statuses: Mapping[str, Sequence[ExperimentStatus]]) -> dict[str, list[Pool]]:
    """The pools that the ledger judges, by experiment, the best first."""
    by_experiment: dict[str, list[Pool]] = {}
    for experiment, scales in statuses.items():
        by_experiment[experiment] = []
        for status in scales:
            by_experiment[experiment] += status.pools()
    return by_experiment
