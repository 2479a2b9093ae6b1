"""The start and the end of a run or a sweep: checks before, figures and tables after.

At the start, the configuration is checked before anything is written. At the end of a run, its
headline is shown. At the end of a command, figures are drawn from the records, a sweep's runs are
compared in a table, and failures are reported.
"""

from __future__ import annotations

import atexit
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from latticework.experiments import result_tables
from latticework.experiments.records.archive import DamagedError
from latticework.experiments.records.escapes import escape_terminal
from latticework.experiments.records.files import read_file
from latticework.experiments.records.identity import FIGURE_GROUPS, strip_digest
from latticework.experiments.records.record import load_record, read_records
from latticework.experiments.runs import configuration, errors, loggers
from latticework.experiments.runs.outcomes import Outcome, RunCounter, collect_results
from latticework.experiments.runs.sweeps import sweep_of_command
from latticework.experiments.runs.validation import check_command

FINISHED_OUTCOMES = ("finished", "finished before")  # what an Outcome may say


class RunCallback(Callback):
    """Hydra callback: checks the configuration; shows results, draws figures, reports failures.

    Exits with status 1 if a run or a figure failed. Runs hand their outcomes over: nothing is
    concluded from the times of files, which another machine may have written.
    """

    counter: RunCounter | None = None  # counts a sweep's runs

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        self.outcomes: list[Outcome] = []
        HydraConfig.instance().set_config(config)  # for interpolations of ${hydra:...}
        try:
            check_command(config)
        except (errors.ConfigurationError, OSError) as error:
            errors.exit_with_message(error)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check what all runs share; `recording` checks each run of the sweep."""
        self.on_run_start(config)
        if str(config.hydra.launcher._target_).endswith(".RayLauncher"):  # Hydra makes it next
            from latticework.experiments.runs import ray_launcher

            ray_launcher.register()
        jobs = sweep_of_command(config, configuration.command_words(config.hydra)).jobs
        if jobs:
            print(f"{jobs} runs in {configuration.records_folder(config)}", flush=True)
        self.counter = RunCounter.start(configuration.records_folder(config), jobs)
        atexit.register(self.counter.remove)  # a signal may end the sweep
        own_logs = "submitit" in str(config.hydra.launcher._target_)  # its runs print into them
        collect_results(
            lambda result: self.outcomes.append(_outcome_of(result)),
            self.counter.follow if own_logs else nullcontext,
        )

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Show the headline of a run that has ended: a table, or a line in a sweep.

        In a sweep this happens in the process of the run, which has a copy of this object.
        """
        outcome = _outcome_of(job_return)
        if self.counter is None:
            self.outcomes.append(outcome)
            _call_or_print_error(_show_outcome, outcome)
        else:
            line = _call_or_print_error(_describe_outcome, outcome)
            print(self.counter.count_run(str(line)), flush=True)

    def on_run_end(self, config: DictConfig, **kwargs: Any) -> None:
        undrawn = not _draw_figures(config, configuration.records_folder(config))
        outcomes = [_update_outcome(outcome) for outcome in dict.fromkeys(self.outcomes)]
        if self.counter is not None:
            self.counter.remove()
            _call_or_print_error(_show_sweep, outcomes)
        failed = [outcome for outcome in outcomes if outcome.how == "failed"]
        if self.counter is not None:
            _report_failed_runs(failed)
        if failed or undrawn:
            raise SystemExit(1)

    on_multirun_end = on_run_end


def _outcome_of(result: JobReturn | None) -> Outcome:
    """Return the outcome that a run handed over; a failed one if it handed over anything else."""
    if result is None:
        return Outcome(Path(), "failed", "the launcher returned no result")
    value: Any = result._return_value
    if isinstance(value, Outcome):
        return value
    if isinstance(value, BaseException):
        return Outcome(Path(), "failed", errors.describe_error(value))
    return Outcome(Path(), "failed", "the run returned no outcome")


def _show_outcome(outcome: Outcome) -> None:
    """Print how a single run ended: its table, or why it failed."""
    if outcome.how in FINISHED_OUTCOMES:
        if outcome.how == "finished":
            print(f"finished: {outcome.path}")
        result_tables.show_run(load_record(outcome.path))
    elif outcome.how == "failed":
        print(f"failed: {escape_terminal(outcome.cause)}")
        print(f"the traceback is in {outcome.path / 'error.txt'}")


def _describe_outcome(outcome: Outcome) -> str:
    """Say in a line how a run of a sweep ended: `seed=1: mean 0.730 ± 0.017, 0.059 s`."""
    name = strip_digest(outcome.path.name) or "a run"
    if outcome.how == "finished":
        line = f"{name}: {result_tables.run_line(load_record(outcome.path))}"
    elif outcome.how == "finished before":
        line = f"{name} (finished before): {result_tables.run_line(load_record(outcome.path))}"
    elif outcome.how == "failed":
        line = f"{name}: failed: {outcome.cause}"
    else:
        line = f"{name}: {outcome.how}"
    return escape_terminal(line)


def _update_outcome(outcome: Outcome) -> Outcome:
    """Return the outcome of a run that another process was executing, if that has ended since."""
    if outcome.how != "skipped":
        return outcome
    if (outcome.path / "run.json").exists():
        return outcome._replace(how="finished before")
    try:
        cause = read_file(outcome.path / "error.txt").decode(errors="replace")
    except FileNotFoundError:
        return outcome
    except OSError as error:
        cause = f"error.txt cannot be read ({error.strerror})"
    return outcome._replace(how="failed", cause=(cause.splitlines() or ["no reason given"])[0])


def _report_failed_runs(failed: Sequence[Outcome]) -> None:
    """Print which runs of a sweep failed and why."""
    if not failed:
        return
    print(f"\n{len(failed)} failed:")
    names = [str(outcome.path) if outcome.path.name else "a run" for outcome in failed]
    width = max(map(len, names))
    for name, outcome in zip(names, failed, strict=True):
        print(f"  {name:{width}}  {escape_terminal(outcome.cause)}")
    print("the traceback of each is in its error.txt")


def _call_or_print_error(
    call: Callable[..., Any],
    *args: Any,
    fault: str = "the results are complete, but could not be shown",
) -> Any:
    """Return call(*args), or print its error: the results are written already."""
    try:
        return call(*args)
    except Exception as error:  # noqa: BLE001 - a display must not make a good run fail
        if errors.wants_traceback():
            traceback.print_exception(error)
        print(f"{fault}: {escape_terminal(errors.describe_error(error))}")
        return None


def _show_sweep(outcomes: Sequence[Outcome]) -> None:
    """Show the table of the finished runs of a sweep. A record that cannot be read is named."""
    records = []
    finished = [outcome.path for outcome in outcomes if outcome.how in FINISHED_OUTCOMES]
    for path in dict.fromkeys(finished):
        try:
            records.append(load_record(path))
        except DamagedError as error:
            print(f"left out of the table: {error}")
    if len(records) == 1:
        result_tables.show_run(records[0])
    elif records:
        result_tables.show_sweep(records)


def _draw_figures(config: DictConfig, folder: Path) -> bool:
    """Draw the figures and tables from the records in `folder`; whether none failed."""
    has_figures = any(config.get(kind) for kind in FIGURE_GROUPS)
    if not has_figures and config.hydra.mode is not RunMode.MULTIRUN:
        return True
    written = _call_or_print_error(_draw, config, folder, fault="figures and tables")
    if written is None:
        return False
    for file in written.files:
        print(f"{file.relative_to(folder).parts[0][:-1]}: {file}")
    for fault in written.failed:
        print(f"figures and tables: {escape_terminal(fault)}")
    if written.files:
        _call_or_print_error(_track, config, folder, written.files)
    return not written.failed


def _draw(config: DictConfig, folder: Path) -> Any:
    # Imports Matplotlib and pandas, which a command without figures does not need.
    from latticework.experiments.papers.draw import draw_for_command

    records, damaged = read_records(folder)
    for fault in damaged.values():
        print(f"left out of figures and tables: {fault}")
    return draw_for_command(config, configuration.command_words(config.hydra), folder, records)


def _track(config: DictConfig, folder: Path, files: Sequence[Path]) -> None:
    """Give the figures and tables to the trackers (`experiments.runs.loggers`)."""
    plain = {"name": config.name, "scale": config.scale}
    for settings in (config.get("logger") or {}).values():
        loggers.build_logger(settings).log_files(files, folder, plain)
