"""Actions at the start and at the end of a run or a sweep.

At the start, the configuration is checked before anything is written. At the end of a run, its
headline is shown. At the end of a command, figures are drawn from the records, a sweep's runs are
compared in a table, and failures are reported.
"""

import atexit
import os
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from latticework.experiments.finish.endings import run_line, show_run, show_sweep
from latticework.experiments.records.identity import DIGITS, DRAWING, without_digits
from latticework.experiments.records.record import Record, load, load_all
from latticework.experiments.runs import errors
from latticework.experiments.runs.checks import check_added, checked
from latticework.experiments.runs.progress import SweepClock
from latticework.experiments.runs.sweeps import asked

DONE = ("finished", "finished before")  # experiments.runs.recording.Outcome


class Finish(Callback):
    """Hydra callback: checks the configuration; shows results, draws figures, reports failures.

    Exits with status 1 if a run or a figure failed. Hydra turns exceptions raised here into
    warnings, so the methods raise SystemExit instead.
    """

    clock: SweepClock | None = None  # of a sweep

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        self.started = time.time()
        HydraConfig.instance().set_config(config)  # for interpolations of ${hydra:...}
        try:
            check_added(config)
            checked(config)
            check_folder(config)
            if config.hydra.mode is RunMode.MULTIRUN:
                check_sweep(config)
        except (errors.ConfigurationError, OSError) as error:
            errors.end(error)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check what all runs share; `recording` checks each run of the sweep."""
        self.on_run_start(config)
        runs = asked(config, config.hydra.overrides.task).runs
        if runs:
            print(f"{len(runs)} runs in {_folder(config)}", flush=True)
        self.clock = SweepClock.started(_folder(config), len(runs))
        atexit.register(self.clock.remove)  # a signal may end the sweep

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Show the headline of a run that has ended: a table, or a line in a sweep.

        In a sweep this happens in the process of the run, which has a copy of this object.
        """
        outcome = job_return._return_value  # an exception if no record could be written
        path, how = outcome if isinstance(outcome, tuple) else (Path(), "failed")
        record = load(path) if how in DONE else None
        if self.clock is not None:
            progress = self.clock.ended(how in ("finished", "failed"))
            line = _shown(run_line, record) if record else _cause(path) if how == "failed" else how
            before = " (finished before)" if how == "finished before" else ""
            name = without_digits(path.name) or "a run"
            print(f"{progress}: {name}{before}: {line}", flush=True)
        elif record is not None:
            if how == "finished":
                print(f"finished: {path}")
            _shown(show_run, record)

    def on_run_end(self, config: DictConfig, **kwargs: Any) -> None:
        folder = _folder(config)
        try:
            records = load_all(folder)
        except FileNotFoundError:
            records = []
        undrawn = not _drawn(config, folder, records)
        if self.clock is not None:
            self.clock.remove()
            _shown(_show_sweep, config, records, self.started)
        recent = [p for p in folder.rglob("error.txt") if p.stat().st_mtime >= self.started]
        failed = _of_command(config, recent)
        _report(failed, sweep=self.clock is not None)
        if failed or undrawn:
            raise SystemExit(1)

    on_multirun_end = on_run_end


def _of_command(config: DictConfig, found: Sequence[Path]) -> list[Path]:
    """The errors of this command's runs, without those of other processes in the same folder.

    A search has no list of its runs, so all errors count.
    """
    command = asked(config, config.hydra.overrides.task)
    if not command.runs or not found:
        return list(found)
    mine = [path for path in found if without_digits(path.parent.name) in command.overrides]
    others = [path for path in found if path not in mine]  # perhaps under another spelling
    runs = command.overrides.values() if others else ()  # each is composed, which takes 0.1 s
    digests = {str(command.identity(run))[:DIGITS] for run in runs}
    return mine + [path for path in others if path.parent.name[-DIGITS:] in digests]


def _cause(folder: Path) -> str:
    """Why the run of this folder failed, from its error.txt."""
    file = folder / "error.txt"
    return f"failed: {file.read_text().splitlines()[0]}" if file.is_file() else "failed"


def _report(failed: Sequence[Path], *, sweep: bool) -> None:
    """Print which runs failed and why."""
    if failed and sweep:
        print(f"\n{len(failed)} failed:")
        width = max(len(str(path.parent)) for path in failed)
        for path in failed:
            cause = _cause(path.parent).removeprefix("failed: ")
            print(f"  {str(path.parent):{width}}  {cause}")
        print("the traceback of each is in its error.txt")
    elif failed:
        for path in failed:
            print(f"{_cause(path.parent)}\nthe traceback is in {path}")


def _shown(
    call: Callable[..., Any],
    *args: Any,
    fault: str = "the results are complete, but could not be shown",
) -> Any:
    """What `call` returns. An error is printed, and not raised: the results are already written."""
    try:
        return call(*args)
    except Exception as error:  # noqa: BLE001 - a display must not make a good run fail
        if errors.wants_traceback():
            traceback.print_exception(error)
        print(f"{fault}: {errors.summary(error)}")
        return None


def _folder(config: DictConfig) -> Path:
    """Where the records of the command are."""
    return Path(config.outputs) / config.name / config.scale


def _show_sweep(config: DictConfig, records: Sequence[Record], started: float) -> None:
    """Show the table of the command's runs, or of a search's runs that ended after `started`."""
    command = asked(config, config.hydra.overrides.task)
    if command.runs:
        mine = command.found(records)
    else:
        mine = [r for r in records if Path(str(r.path), "run.json").stat().st_mtime >= started]
    if len(mine) == 1:
        show_run(mine[0])
    elif mine:
        show_sweep(mine)


def check_folder(config: DictConfig) -> None:
    """Raise ConfigurationError if Hydra's folder for a run is not where records are looked for."""
    hydra, wanted = config.hydra, _folder(config)
    if hydra.mode is RunMode.MULTIRUN:
        key, given = "hydra.sweep.dir", Path(hydra.sweep.dir)
        sweep: Any = OmegaConf.to_container(hydra.sweep)
        if os.sep in (subfolder := sweep["subdir"]):
            key, given = "hydra.sweep.subdir", given / subfolder
    else:
        key, given = "hydra.run.dir", Path(hydra.run.dir).parent
    if os.path.abspath(given) != os.path.abspath(wanted):  # noqa: PTH100 - links are not resolved
        raise errors.ConfigurationError(
            f"{key} must lead to a folder in {wanted}, where records are looked for, got {given}: "
            "outputs=... and name=... choose another place"
        )


def check_sweep(config: DictConfig) -> None:
    """Raise ConfigurationError for an empty sweep in `config`, or one over a key of `SINGLE`."""
    params = OmegaConf.select(config, "hydra.sweeper.params") or {}
    words = [*(f"{k}={v}" for k, v in params.items()), *config.hydra.overrides.task]
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    last = {override.get_key_element(): override for override in parser.parse_overrides(words)}
    for key, override in last.items():
        if key in errors.SINGLE and override.is_sweep_override():
            several = f"{override.input_line} gives several values"
            raise errors.ConfigurationError(
                f"{several}, and a command has one {key}: give a command for each"
                if key != "logger"
                else f"{several}; for all of them at once, write logger=[...]"
            )
        if override.is_discrete_sweep() and next(override.sweep_string_iterator(), None) is None:
            raise errors.ConfigurationError(
                f"{override.input_line} is an empty sweep: give it one value or more"
            )


def _drawn(config: DictConfig, folder: Path, records: Sequence[Record]) -> bool:
    """Draw the figures and tables; whether none failed."""
    if not any(config.get(kind) for kind in DRAWING):
        return True
    written = _shown(_draw, config, folder, records, fault="figures and tables")
    if written is None:
        return False
    for file in written.files:
        print(f"{file.relative_to(folder).parts[0][:-1]}: {file}")
    for fault in written.failed:
        print(f"figures and tables: {fault}")
    if written.files:
        _shown(_track, config, folder, written.files)
    return not written.failed


def _draw(config: DictConfig, folder: Path, records: Sequence[Record]) -> Any:
    from latticework.experiments.papers.draw import drawn  # imports Matplotlib and pandas

    return drawn(config, config.hydra.overrides.task, folder, records)


def _track(config: DictConfig, folder: Path, files: Sequence[Path]) -> None:
    """Give the figures and tables to the trackers (`experiments.runs.loggers`)."""
    plain = {"name": config.name, "scale": config.scale}
    for logger in (config.get("logger") or {}).values():
        instantiate(logger).show(files, folder, plain)
