"""What happens at the start and at the end of a run or a sweep, and the tables that this prints.

At the start, the configuration is checked before anything is written. At the end of a run, its
headline is shown. At the end of a command, figures are drawn from the records, a sweep's runs are
compared in a table, and failures are reported.
"""

from __future__ import annotations

import atexit
import dataclasses
import re
import traceback
from collections.abc import Callable, Sequence
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig

from latticework.experiments.records.archive import DamagedError
from latticework.experiments.records.escapes import escape_terminal
from latticework.experiments.records.estimates import (
    BEST,
    TIE,
    Estimate,
    KeyNumber,
    costs,
    duration,
    estimate,
    format_estimate,
    headline,
    mark_best,
)
from latticework.experiments.records.files import read_file
from latticework.experiments.records.grouping import TARGET_GROUPS, settings_table
from latticework.experiments.records.identity import FIGURE_GROUPS, SEEDS, strip_digest
from latticework.experiments.records.record import Record, load_record, read_records
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

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

FINISHED_OUTCOMES = ("finished", "finished before")  # of an Outcome
WIDTH = 120  # columns where the output is no terminal
MAX_TABLE_NUMBERS = 6  # numbers of a headline in the table of a sweep, as far as they fit
MAX_LINE_NUMBERS = 3  # and in the line of a run in a sweep
TABLE_REFERENCES = ("exact", "paper")  # of what a number is compared with, in the table of a sweep
SIGNS = {BEST: " *", TIE: " =", "": ""}
ARROWS = {"higher": " ↑", "lower": " ↓", None: ""}
MIN_SEEDS_TO_COMPARE = 3  # seeds a row, from which on rows are compared
LEGEND = "* best, = not significantly different from the best (Welch's t-test, 5 %)."
UNDECIDED = "{seeds}: not tested; the best is marked from {fewest} seeds a row."
MAX_HEADING_CHARACTERS = 9  # characters from which on a heading is broken into lines

Cell = Estimate | str | None
Rows = list[tuple[list[str], list[Record]]]  # texts of the settings, and their records


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


# The tables, for the terminal.


def show_run(record: Record) -> None:
    """Print a row for each number of the run's headline: its value, and what to compare it with."""
    heads = headline(record)
    names = [record.choices.get(group) for group in ("task", "model", "data", "sampler")]
    table = _empty(["result", "value", "compare with"], left=(0, 2))
    for one in heads:
        beside = ", ".join(f"{name} {format_estimate(value)}" for name, value in one.beside.items())
        table.add_row(*map(_plain, (one.label, _with_unit(one), beside)))
    spent = costs(record)
    evaluations = _evaluations([spent])
    cost = _time([spent]) + (f", {evaluations} evaluations a chain" if evaluations else "")
    title = ", ".join([*filter(None, names), f"seed {record.config['seed']}"])
    _show(title, table, f"{cost}. {_error_of([heads])}")


def run_line(record: Record) -> str:
    """The first numbers of the headline and the time: `log RMSE -3.293 ± 0.038, 7 s`."""
    numbers = [f"{one.label} {_with_unit(one)}" for one in headline(record)[:MAX_LINE_NUMBERS]]
    return ", ".join([*numbers, _time([costs(record)])])


def show_sweep(records: Sequence[Record]) -> None:
    """Print a row for each setting of the records: how it differs, and its headline over seeds.

    A single setting gets a row for each seed and one for all seeds. The table has as
    many numbers of the headline as fit. Rows are compared if they have the same data and model.
    """
    headings, rows = settings_table(records)
    places = [place for place, key in enumerate(headings) if key.split(".")[0] in TARGET_GROUPS]
    targets = [tuple(texts[place] for place in places) for texts, _ in rows]
    if len(rows) == 1:
        headings, rows = _by_seed(rows[0][1])
        targets = [(str(place),) for place in range(len(rows))]  # seeds are not compared
    heads = [[headline(record) for record in some] for _, some in rows]
    several = sorted({len(some) for _, some in rows if len(some) > 1})
    if several:  # a table has one kind of ±: here the standard deviation over seeds
        heads = [_without_errors(some) if len(some) == 1 else some for some in heads]
    for most in range(MAX_TABLE_NUMBERS, 0, -1):
        columns = _columns(heads, targets, most) | _cost_columns(rows)
        table = _empty([*headings, *columns], left=range(len(headings)))
        for place, (texts, _) in enumerate(rows):
            cells = [*texts, *(column[place] for column in columns.values())]
            table.add_row(*map(_plain, cells))
        if _width(table) <= _console().width:
            break
    marked = any(cell.endswith(SIGNS[BEST]) for column in columns.values() for cell in column)
    legend = LEGEND if marked else ""
    if not marked and len(set(targets)) < len(rows):
        seeds = f"{several[0]} seeds" if several else "1 seed"
        legend = UNDECIDED.format(seeds=seeds, fewest=MIN_SEEDS_TO_COMPARE)
    _show(f"{len(records)} runs", table, f"{legend} {_spread_of(several, heads)}")


def _without_errors(heads: list[list[KeyNumber]]) -> list[list[KeyNumber]]:
    """The headlines without standard errors, for a row of one seed beside rows of several."""
    return [[dataclasses.replace(number, error=None) for number in head] for head in heads]


def show_table(file: Path) -> None:
    """Print a table that was written as Markdown: as many of its columns as fit, from the left."""
    lines = file.read_text(encoding="utf-8").splitlines()
    cells = [[unescape(cell.strip()) for cell in line.strip("|").split("|")] for line in lines]
    headings, _, *rows = cells
    for count in range(len(headings), 0, -1):
        table = _empty([_wrap_heading(text) for text in headings[:count]], left=range(count))
        for row in rows:
            table.add_row(*map(_plain, row[:count]))
        if _width(table) <= _console().width:
            break
    left_out = f"Further columns: {', '.join(headings[count:])}. " if headings[count:] else ""
    _show(file.stem, table, f"{left_out}The file is {file}.")


def _by_seed(records: list[Record]) -> tuple[list[str], Rows]:
    """A row for each seed of `records`, which agree in the rest, and one for all."""
    keys = [key for key in SEEDS if len({record.config.get(key) for record in records}) > 1]
    ordered = sorted(records, key=lambda record: [record.config[key] for key in keys])
    seeds = [([str(record.config[key]) for key in keys], [record]) for record in ordered]
    return keys, [*seeds, (["all", *[""] * (len(keys) - 1)], ordered)]


def _columns(
    heads: list[list[list[KeyNumber]]], targets: Sequence[tuple[str, ...]], most: int
) -> dict[str, list[str]]:
    """The columns of the first numbers, by heading.

    `heads` holds the headlines of the records of each row, `targets` what is sampled there.
    """
    first: dict[str, KeyNumber] = {}
    for one in (one for some in heads for head in some for one in head):
        first.setdefault(one.name, one)
    columns: dict[str, list[str]] = {}
    for name, one in list(first.items())[:most]:
        found = [[n for head in some for n in head if n.name == name] for some in heads]
        cells = [_cell(numbers) for numbers in found]
        texts = [_text(cell) for cell in cells]
        for target in set(targets):
            rows = [row for row, own in enumerate(targets) if own == target]
            known = [
                cell if isinstance(cell, Estimate) else None for cell in (cells[r] for r in rows)
            ]
            if any(each and 1 < (each.runs or 1) < MIN_SEEDS_TO_COMPARE for each in known):
                continue
            for row, sign in zip(rows, mark_best(known, one.better), strict=True):
                texts[row] += SIGNS[sign]
        unit = f", {one.unit}" if one.unit else ""
        columns[_wrap_heading(f"{one.label}{unit}{ARROWS[one.better]}")] = texts
        for key in TABLE_REFERENCES:
            beside = [[n.beside[key] for n in numbers if key in n.beside] for numbers in found]
            if any(beside):
                # Runs of several model seeds may have several: then none is that of the mean.
                found_there = [{format_estimate(value) for value in values} for values in beside]
                columns[_wrap_heading(f"{one.label}, {key}")] = [
                    "".join(some) if len(some) == 1 else "" for some in found_there
                ]
    return columns


def _cost_columns(rows: Rows) -> dict[str, list[str]]:
    spent = [[costs(record) for record in some] for _, some in rows]
    evaluations = [_evaluations(some) for some in spent]
    columns = {"time": [_time(some) for some in spent]}
    return columns | ({"evaluations": evaluations} if any(evaluations) else {})


def _cell(numbers: Sequence[KeyNumber]) -> Cell:
    """One run's number with its error, or the mean and standard deviation over several runs."""
    if not numbers:
        return None
    values = [one.value for one in numbers]
    if any(isinstance(value, str) for value in values):
        texts = sorted({v if isinstance(v, str) else format_estimate(Estimate(v)) for v in values})
        return ", ".join(texts) if len(texts) < 3 else f"{texts[0]} and {len(texts) - 1} others"
    if len(numbers) == 1:
        return Estimate(float(values[0]), numbers[0].error)
    return estimate(values)


def _text(cell: Cell) -> str:
    """A number without its count of runs, which is in the note below the table."""
    return format_estimate(cell._replace(runs=None)) if isinstance(cell, Estimate) else cell or ""


def _with_unit(one: KeyNumber) -> str:
    return f"{_text(_cell([one]))} {one.unit}".rstrip()


def _time(spent: list[dict[str, float]]) -> str:
    return duration(float(np.mean([each["seconds"] for each in spent])))


def _evaluations(spent: list[dict[str, float]]) -> str:
    """The mean number of evaluations per chain: of the whole model, and of local changes.

    "" for a task that does not count them.
    """
    parts = []
    for name, what in (("evaluations", ""), ("local_evaluations", " local")):
        found = [each[name] for each in spent if each.get(name)]
        if found:
            parts.append(f"{np.mean(found):,.0f}{what}")
    return " + ".join(parts)


def _error_of(heads: Sequence[Sequence[KeyNumber]]) -> str:
    """What the errors within a run are taken over, such as chains."""
    over = sorted({one.over for head in heads for one in head if one.error and one.over})
    return f"± is a standard error over {' or '.join(over)}." if over else ""


def _spread_of(several: Sequence[int], heads: list[list[list[KeyNumber]]]) -> str:
    """What ± means in the table of a sweep; `several` are the numbers of seeds, in order."""
    if not several:
        return _error_of([head for some in heads for head in some])
    span = str(several[0]) if len(several) == 1 else f"{several[0]} to {several[-1]}"
    return f"± is the standard deviation over {span} seeds."


def _wrap_heading(heading: str) -> str:
    """The heading in lines, which keeps the column narrow."""
    return heading if len(heading) <= MAX_HEADING_CHARACTERS else re.sub(r" (?=\w)", "\n", heading)


def _empty(headings: Sequence[str], left: Sequence[int]) -> Table:
    """A table without rows. The columns `left` are set left, the others right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False)
    for place, heading in enumerate(headings):
        justify = "left" if place in left else "right"
        text = Text("\n").join(map(_plain, heading.split("\n")))
        table.add_column(text, justify=justify, no_wrap=True, vertical="bottom")  # type: ignore[arg-type]
    return table


def _width(table: Table) -> int:
    """The columns that the table takes if there is room."""
    from rich.console import Console

    return Console(width=10 * WIDTH).measure(table).maximum


def _console() -> Console:
    """The terminal; WIDTH columns if the output is none."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)


def _show(title: str, table: RenderableType, note: str) -> None:
    console = _console()
    heading = _plain(title)
    heading.stylize("bold")
    console.print("", heading, table, _plain(note.strip()), "", sep="\n")


def _plain(text: str) -> Text:
    """A text of records for the terminal: without markup and without control characters."""
    from rich.text import Text

    return Text(escape_terminal(text))
