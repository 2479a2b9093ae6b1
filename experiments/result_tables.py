"""The tables that are printed at the end of a run, of a sweep, and of `make fig3`.

A run has a row for each number of its headline. A sweep has a row for each setting: the mean of
each number over the seeds, ± their standard deviation. rich fits the columns to the terminal.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from latticework.experiments.records.escapes import escape_terminal
from latticework.experiments.records.estimates import (
    Estimate,
    KeyNumber,
    costs,
    duration,
    estimate,
    format_estimate,
    headline,
)
from latticework.experiments.records.grouping import settings_table
from latticework.experiments.records.record import Record

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

WIDTH = 120  # columns where the output is not a terminal
MAX_TABLE_NUMBERS = 5  # numbers of a headline in the table of a sweep
MAX_LINE_NUMBERS = 3  # numbers of a headline in the line of a run in a sweep
MAX_LISTED_TEXTS = 2  # different texts of a number over seeds


def show_run(record: Record) -> None:
    """Print a row for each number of the run's headline: its value, and what to compare it with."""
    numbers = headline(record)
    table = _new_table(["result", "value", "compare with"], left={0, 2})
    for number in numbers:
        references = []
        for name, value in number.references.items():
            references.append(f"{name} {format_estimate(value)}")
        _add_row(table, [number.label, _format_with_unit(number), ", ".join(references)])
    parts = [record.choices.get(group) for group in ("task", "model", "data", "sampler")]
    title = ", ".join([*filter(None, parts), f"seed {record.config['seed']}"])
    evaluations = _format_evaluations([record])
    cost = _format_time([record]) + (f", {evaluations} evaluations a chain" if evaluations else "")
    _show(title, table, f"{cost}. {_describe_errors(numbers)}")


def run_line(record: Record) -> str:
    """Return the first numbers of the headline, and the time: `log RMSE -3.293 ± 0.038, 7 s`."""
    words = []
    for number in headline(record)[:MAX_LINE_NUMBERS]:
        words.append(f"{number.label} {_format_with_unit(number)}")
    return ", ".join([*words, _format_time([record])])


def show_sweep(records: Sequence[Record]) -> None:
    """Print a row for each setting of the records: how it differs, and its means over seeds."""
    headings, rows = settings_table(records)
    columns: dict[str, list[KeyNumber]] = {}  # the numbers of all runs, by name
    numbers_by_row = []
    for _, members in rows:
        numbers: dict[str, list[KeyNumber]] = {}
        for record in members:
            for number in headline(record):
                numbers.setdefault(number.name, []).append(number)
                columns.setdefault(number.name, []).append(number)
        numbers_by_row.append(numbers)

    names = list(columns)[:MAX_TABLE_NUMBERS]
    titles = list(headings)
    for name in names:
        number = columns[name][0]
        titles.append(f"{number.label}, {number.unit}" if number.unit else number.label)
    seeds = sorted({len(members) for _, members in rows})
    has_spreads = seeds[-1] > 1  # then ± is never an error within a run
    has_evaluations = any(_format_evaluations(members) for _, members in rows)
    titles += ["time", "evaluations"] if has_evaluations else ["time"]
    table = _new_table(titles, left=range(len(headings)))
    for (texts, members), numbers in zip(rows, numbers_by_row, strict=True):
        cells = list(texts)
        for name in names:
            cells.append(_format_numbers(numbers.get(name, []), has_spreads=has_spreads))
        cells.append(_format_time(members))
        if has_evaluations:
            cells.append(_format_evaluations(members))
        _add_row(table, cells)

    if has_spreads:
        span = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
        note = f"Means ± standard deviations over {span} seeds."
    else:
        note = _describe_errors(sum(columns.values(), []))
    _show(f"{len(records)} runs", table, note)


def show_table(file: Path) -> None:
    """Print a table that was written as Markdown."""
    headings, _, *rows = file.read_text(encoding="utf-8").splitlines()
    titles = _split_cells(headings)
    table = _new_table(titles, left=range(len(titles)))
    for row in rows:
        _add_row(table, _split_cells(row))
    _show(file.stem, table, f"The file is {file}.")


def _split_cells(line: str) -> list[str]:
    """Return the cells of a line of a Markdown table."""
    return [unescape(cell.strip()) for cell in line.strip("|").split("|")]


def _format_numbers(numbers: Sequence[KeyNumber], *, has_spreads: bool) -> str:
    """Return one run's number, with its error unless the table has spreads over several runs.

    For several runs, return the mean and the standard deviation, or their texts.
    """
    if not numbers:
        return ""
    texts, values = set(), []
    for number in numbers:
        if isinstance(number.value, str):
            texts.add(number.value)
        else:
            values.append(number.value)
    if texts:  # chains that disagree may each have their own, such as an infinite R-hat
        texts |= {format_estimate(Estimate(value)) for value in values}
        first, *further = sorted(texts)
        is_short = len(texts) <= MAX_LISTED_TEXTS
        return ", ".join([first, *further]) if is_short else f"{first} and {len(further)} others"
    if len(values) > 1:
        return format_estimate(estimate(values)._replace(runs=None))
    return format_estimate(Estimate(values[0], None if has_spreads else numbers[0].error))


def _format_with_unit(number: KeyNumber) -> str:
    return f"{_format_numbers([number], has_spreads=False)} {number.unit}".rstrip()


def _format_time(records: Sequence[Record]) -> str:
    """Return the mean time of a run."""
    return duration(float(np.mean([costs(record)["seconds"] for record in records])))


def _format_evaluations(records: Sequence[Record]) -> str:
    """Return the mean number of evaluations per chain: of the whole model, and of local changes.

    "" for a task that does not count them.
    """
    parts = []
    for name, kind in (("evaluations", ""), ("local_evaluations", " local")):
        counts = list(filter(None, (costs(record).get(name) for record in records)))
        if counts:
            parts.append(f"{np.mean(counts):,.0f}{kind}")
    return " + ".join(parts)


def _describe_errors(numbers: Sequence[KeyNumber]) -> str:
    """Say what the standard errors within a run are taken over, such as chains."""
    units = sorted({number.error_over for number in numbers if number.error and number.error_over})
    return f"± is a standard error over {' or '.join(units)}." if units else ""


def _new_table(headings: Sequence[str], left: Collection[int]) -> Table:
    """Return a table without rows. The columns `left` are aligned left, the others right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False)
    for place, heading in enumerate(headings):
        table.add_column(
            _plain_text(heading), vertical="bottom", overflow="fold"
        )  # nothing is cut off
        if place not in left:
            table.columns[-1].justify = "right"
    return table


def _add_row(table: Table, cells: Sequence[str]) -> None:
    table.add_row(*map(_plain_text, cells))


def _show(title: str, table: Table, note: str) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    heading = _plain_text(title)
    heading.stylize("bold")
    console.print("", heading, table, _plain_text(note.strip()), "", sep="\n")


def _plain_text(text: str) -> Text:
    """Return a text of records for the terminal: without markup and control characters."""
    from rich.text import Text

    return Text(escape_terminal(text))
