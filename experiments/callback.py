"""What happens at the start and at the end of a run or a sweep.

At the start, the configuration is checked before anything is written. At the end of a run, its
headline is shown. At the end of a command, figures are drawn from the records, a sweep's runs are
compared in a table, and failures are reported.
"""

from __future__ import annotations

import atexit
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig

from latticework.experiments.records.archive import DamagedError
from latticework.experiments.records.escapes import escape_terminal
from latticework.experiments.records.files import read_file
from latticework.experiments.records.identity import FIGURE_GROUPS, strip_digest
from latticework.experiments.records.record import load_record, read_records
from latticework.experiments.result_tables import run_line, show_run, show_sweep
from latticework.experiments.runs import errors
from latticework.experiments.runs.configuration import (
    check_added_keys,
    check_folder,
    check_sweep,
    command_words,
    records_folder,
    validate_config,
)
from latticework.experiments.runs.sweeps import (
    Outcome,
    SweepProgress,
    collect_outcomes,
    outcome_of,
    sweep_of_command,
)

FINISHED_OUTCOMES = ("finished", "finished before")  # of an Outcome


class RunCallback(Callback):
    """Hydra callback: checks the configuration; shows results, draws figures, reports failures.

    Exits with status 1 if a run or a figure failed. Runs hand their outcomes over: nothing is
    concluded from the times of files, which another machine may have written.
    """

    clock: SweepProgress | None = None  # of a sweep

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        self.outcomes: list[Outcome] = []
        HydraConfig.instance().set_config(config)  # for interpolations of ${hydra:...}
        try:
            check_added_keys(config)
            validate_config(config)
            check_folder(config)
            if config.hydra.mode is RunMode.MULTIRUN:
                check_sweep(config)
        except (errors.ConfigurationError, OSError) as error:
            errors.exit_with_message(error)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check what all runs share; `recording` checks each run of the sweep."""
        self.on_run_start(config)
        if str(config.hydra.launcher._target_).endswith(".RayLauncher"):  # Hydra makes it next
            from latticework.experiments.runs import ray_launcher

            ray_launcher.register()
        collect_outcomes(self.outcomes)
        jobs = sweep_of_command(config, command_words(config.hydra)).jobs
        if jobs:
            print(f"{jobs} runs in {records_folder(config)}", flush=True)
        self.clock = SweepProgress.start_count(records_folder(config), jobs)
        atexit.register(self.clock.remove)  # a signal may end the sweep

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Show the headline of a run that has ended: a table, or a line in a sweep.

        In a sweep this happens in the process of the run, which has a copy of this object.
        """
        outcome = outcome_of(job_return)
        if self.clock is None:
            self.outcomes.append(outcome)
        _call_or_print_error(self._show_job, outcome)

    def _show_job(self, outcome: Outcome) -> None:
        progress = self.clock.count_run(outcome.how in ("finished", "failed")) if self.clock else ""
        record = (
            _call_or_print_error(load_record, outcome.path)
            if outcome.how in FINISHED_OUTCOMES
            else None
        )
        if self.clock is not None:
            line = _call_or_print_error(run_line, record) if record else _told(outcome)
            before = " (finished before)" if outcome.how == "finished before" else ""
            name = strip_digest(outcome.path.name) or "a run"
            print(f"{progress}: {name}{before}: {escape_terminal(line)}", flush=True)
        elif record is not None:
            if outcome.how == "finished":
                print(f"finished: {outcome.path}")
            _call_or_print_error(show_run, record)

    def on_run_end(self, config: DictConfig, **kwargs: Any) -> None:
        undrawn = not _draw_figures(config, records_folder(config))
        outcomes = [_by_now(outcome) for outcome in dict.fromkeys(self.outcomes)]
        if self.clock is not None:
            self.clock.remove()
            _call_or_print_error(_show_sweep, outcomes)
        failed = [outcome for outcome in outcomes if outcome.how == "failed"]
        _report(failed, sweep=self.clock is not None)
        if failed or undrawn:
            raise SystemExit(1)

    on_multirun_end = on_run_end


def _by_now(outcome: Outcome) -> Outcome:
    """The outcome of a run that another process was executing, if that has ended since."""
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


def _told(outcome: Outcome) -> str:
    """How a run ended, in a line: `failed: its cause`."""
    return f"failed: {outcome.cause}" if outcome.how == "failed" else outcome.how


def _report(failed: Sequence[Outcome], *, sweep: bool) -> None:
    """Print which runs failed and why."""
    if failed and sweep:
        print(f"\n{len(failed)} failed:")
        names = [str(outcome.path) if outcome.path.name else "a run" for outcome in failed]
        width = max(map(len, names))
        for name, outcome in zip(names, failed, strict=True):
            print(f"  {name:{width}}  {escape_terminal(outcome.cause)}")
        print("the traceback of each is in its error.txt")
    elif failed:
        for outcome in failed:
            print(escape_terminal(_told(outcome)))
            print(f"the traceback is in {outcome.path / 'error.txt'}")


def _call_or_print_error(
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
        print(f"{fault}: {escape_terminal(errors.describe_error(error))}")
        return None


def _show_sweep(outcomes: Sequence[Outcome]) -> None:
    """Show the table of the finished runs of a sweep. A record that cannot be read is named."""
    records = []
    for path in dict.fromkeys(
        outcome.path for outcome in outcomes if outcome.how in FINISHED_OUTCOMES
    ):
        try:
            records.append(load_record(path))
        except DamagedError as error:
            print(f"left out of the table: {error}")
    if len(records) == 1:
        show_run(records[0])
    elif records:
        show_sweep(records)


def _draw_figures(config: DictConfig, folder: Path) -> bool:
    """Draw the figures and tables from the records in `folder`; whether none failed."""
    if not any(config.get(kind) for kind in FIGURE_GROUPS):
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
    from latticework.experiments.papers.draw import (
        draw_for_command,  # imports Matplotlib and pandas
    )

    records, damaged = read_records(folder)
    for fault in damaged.values():
        print(f"left out of figures and tables: {fault}")
    return draw_for_command(config, command_words(config.hydra), folder, records)


def _track(config: DictConfig, folder: Path, files: Sequence[Path]) -> None:
    """Give the figures and tables to the trackers (`experiments.runs.loggers`)."""
    plain = {"name": config.name, "scale": config.scale}
    for logger in (config.get("logger") or {}).values():
        instantiate(logger).show(files, folder, plain)
