"""Draw the figures and write the tables of an experiment from its records.

An experiment declares a set of runs. A command that asks for some of these redraws the figures of
all of them, in `figures/` and `tables/`. A command with other settings draws only its own runs, in
`figures/own/<overrides>/` and `tables/own/<overrides>/`, and leaves the experiment's figures
unchanged.
"""

import hashlib
import json
import logging
import shlex
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import pandas as pd
from hydra.utils import instantiate
from matplotlib.figure import Figure
from omegaconf import DictConfig, open_dict

from latticework.experiments.figures.plot import Plot
from latticework.experiments.figures.style import mark_substitute
from latticework.experiments.papers.rendering import save_figure, write_table
from latticework.experiments.papers.sweep_table import sweep_table
from latticework.experiments.records.escapes import escape_terminal
from latticework.experiments.records.identity import FIGURE_GROUPS, run_name
from latticework.experiments.records.record import Record, versions
from latticework.experiments.runs import errors, sweeps

log = logging.getLogger(__name__)
PACKAGES = ("latticework", "matplotlib", "numpy", "pandas")  # packages that draw
OWN_RUNS_FOLDER = "own"  # the folder of figures of runs with other settings
SWEEP_TABLE = "sweep"  # the name of the table of all of these runs
PAPER_LIMITS = {"bottom", "top"}  # ends of a vertical axis that fit the paper's settings


class Written(NamedTuple):
    """The PNGs and CSVs that were written, and a line for each figure or table that failed."""

    files: list[Path]
    failed: list[str]


class DrawnItem(NamedTuple):
    """A figure or table of an experiment, or the error that prevented it."""

    name: str
    kind: str  # figures or tables
    content: Plot | pd.DataFrame | None
    error: Exception | None = None

    @property
    def failed(self) -> bool:
        """Whether there is a mistake in the code or the settings of the figure.

        Other errors say that the records do not suffice: LookupError, if it is raised as such, and
        FileNotFoundError, of an array that a bundle leaves out.
        """
        if isinstance(self.error, KeyError | IndexError):
            return True
        return not isinstance(self.error, LookupError | FileNotFoundError | None)

    @property
    def reason_not_made(self) -> str:
        """The reason why it could not be made, in one line; else ""."""
        if self.error is None:
            return ""
        return errors.describe_error(self.error) if self.failed else str(self.error)


def make_all(
    config: DictConfig,
    records: list[Record],
    words: Sequence[str] = (),
    *,
    paper_limits: bool = True,
) -> Iterator[DrawnItem]:
    """Yield every figure, then every table, of the experiment `config`, made from `records`.

    An entry of `config.figures` or `config.tables` is a function of the records with its settings.
    It returns a Plot or a DataFrame. An error does not prevent the other entries. An entry of
    null is skipped. Without `paper_limits`, the settings PAPER_LIMITS of an entry are null.
    The caller must close the figures.
    """
    mpl.use("Agg")
    for kind in FIGURE_GROUPS:
        for key, spec in (config.get(kind) or {}).items():
            if spec is None:
                continue
            name = str(key)
            without = {} if paper_limits else dict.fromkeys(PAPER_LIMITS & spec.keys())
            try:
                content = instantiate(spec, _convert_="all", _partial_=True, **without)(records)
                if kind == "figures":
                    content = _with_provenance(
                        content, name, drawing_command(config, words), records
                    )
            except Exception as error:  # noqa: BLE001 - the others are to be made all the same
                failure = DrawnItem(name, kind, None, error)
                if failure.failed and errors.wants_traceback():
                    traceback.print_exception(error)
                yield failure
                continue
            yield DrawnItem(name, kind, content)


def _with_provenance(content: Any, name: str, command: str, records: list[Record]) -> Plot:
    """The figure with its provenance, and marked if it shows substitute data."""
    if isinstance(content, Figure):
        advice = f"{name} is a Figure without its table: return experiments.figures.plot.Plot"
        warnings.warn(advice, FutureWarning, stacklevel=2)
        content = Plot(content)
    mark_substitute(content.figure, records)
    return replace(content, provenance=provenance_json(name, command, records))


def drawing_command(config: DictConfig, words: Sequence[str] = ()) -> str:
    """The command that draws the figures of `config` from its records again.

    `words` are the overrides of a command with its own settings.
    """
    shown = [f"experiment={config.name}", f"scale={config.get('scale', 'paper')}"]
    shown += [word for word in words if not word.startswith(("experiment=", "scale="))]
    return shlex.join(["python", "-m", "latticework.scripts.figures", *shown])


def provenance_json(figure: str, command: str, records: Sequence[Record]) -> str:
    """The JSON text beside a figure that `command` draws from `records` now.

    `records` has the fingerprint of each record by its place, and the SHA-256 of each bundle.
    """
    prints: dict[str, str] = {}
    for record in records:
        if record.bundle is None:
            prints[record.display_path] = record.fingerprint
        elif record.bundle.name not in prints:
            content = record.bundle.read_bytes()
            prints[record.bundle.name] = hashlib.sha256(content).hexdigest()
    provenance = {
        "figure": figure,
        "command": command,
        "records": prints,
        "versions": versions(PACKAGES),
    }
    return json.dumps(provenance, indent=1, sort_keys=True) + "\n"


def draw_for_command(
    config: DictConfig, words: Sequence[str], folder: Path, records: Sequence[Record]
) -> Written:
    """Draw the figures and tables of `config` for a command with the overrides `words`.

    `config` includes `hydra`. `records` are those in `folder`, below which the files are written.
    """
    if not records:
        log.warning("no figures: no finished run under %s", folder)
        return Written([], [])
    command = sweeps.sweep_of_command(config, words)
    if sweeps.experiment_exists(config.name):
        sweep = sweeps.declared_sweep(config.name, config.scale)
    else:  # an experiment outside of conf/ declares what its YAML has
        sweep = sweeps.sweep_of_command(config)
    config = _leave_out_other_tasks(config, sweep.config)
    declared, with_other_settings = sweep.split_records(records)
    if not (declared or words):  # redrawing an experiment that has only runs with other settings
        return draw_all(config, folder, with_other_settings, OWN_RUNS_FOLDER)
    wanted = command.select_records(records) if command.runs else with_other_settings
    declares_all = bool(command.runs) and command.override_sets <= sweep.override_sets
    declared_ids = {id(record) for record in declared}
    if declares_all or (wanted and {id(record) for record in wanted} <= declared_ids):
        return draw_all(config, folder, declared)
    within = f"{OWN_RUNS_FOLDER}/{run_name(words, command.skipped)}"
    return draw_all(config, folder, wanted, within, words)


def _leave_out_other_tasks(config: DictConfig, declared: DictConfig) -> DictConfig:
    """`config` without figures and tables that the experiment declares for another task.

    `experiment=rbm_sampling task=tune` has the figures of a search, and no samples to draw.
    """
    if config.task._target_ == declared.task._target_:
        return config
    fitting = config.copy()
    with open_dict(fitting):
        for kind in FIGURE_GROUPS:
            for name in declared.get(kind) or ():
                (fitting.get(kind) or {}).pop(name, None)
    return fitting


def draw_all(
    config: DictConfig,
    folder: Path,
    records: list[Record],
    within: str = "",
    words: Sequence[str] = (),
) -> Written:
    """Write the figures and tables of the experiment `config`.

    Figures go to `folder/figures/<name>.{png,pdf,csv}`, tables to `folder/tables/<name>.{csv,md,
    tex}`, or to their subfolder `within`, for runs with other settings than the experiment's; their
    axes have no limits of the paper. `words` are the overrides of a command with its own settings.
    An entry that cannot be made is skipped, with a warning if the records do not suffice for it.
    If several runs have other settings, the table SWEEP_TABLE has a row for each setting.
    """
    written = Written([], [])
    items = make_all(config, records, words, paper_limits=not within)
    if within and len(records) > 1:
        items = chain(items, [DrawnItem(SWEEP_TABLE, "tables", sweep_table(records))])
    for item in items:
        if item.content is None:
            if item.failed:
                written.failed.append(
                    f"{item.name} was not drawn: {item.reason_not_made} {_name_records(records)}"
                )
            else:
                reason = escape_terminal(item.reason_not_made)
                log.warning("%s was not drawn: %s", item.name, reason)
            continue
        try:
            written.files.append(_write_item(item.content, folder / item.kind / within, item.name))
        except Exception as error:  # noqa: BLE001 - such as a label that cannot be typeset
            reason = errors.describe_error(error)
            written.failed.append(f"{item.name} was not written: {reason} {_name_records(records)}")
    return written


def _name_records(records: Sequence[Record], most: int = 3) -> str:
    """The records of a figure, for a message."""
    more = f" and {len(records) - most} more" if len(records) > most else ""
    return f"(records: {'; '.join(record.display_path for record in records[:most])}{more})"


def _write_item(content: Plot | pd.DataFrame, folder: Path, name: str) -> Path:
    """Write a figure or a table below `folder`; return the path of its PNG or CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(content, pd.DataFrame):
        return write_table(content, folder / f"{name}.csv")[0]
    return save_figure(content, folder / f"{name}.png")
