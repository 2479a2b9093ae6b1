"""Generate the pages of docs/ from the records committed in docs/results/records.

docs/results/<exhibit>.md shows a figure or table of a paper; README.md there lists them. Numbers,
commands and facts come from the records. Causes and caveats are in a short hand-written note per
exhibit, docs/results/notes/<exhibit>.md: bullets of what differs from the paper, and below them the
diary of the runs. A note types numbers of the paper, of settings and of the data; a number of runs
is computed from the committed records, by `{{ last(...) }}`
and the like (`note_numbers.py`).
"""

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, StrictUndefined

import latticework.experiments.papers.note_numbers as note_numbers
import latticework.experiments.papers.report_pages as report_pages
import latticework.experiments.records.estimates as estimates
from latticework.experiments import CONF
from latticework.experiments.papers.docs_blocks import blocks, replace_block
from latticework.experiments.papers.exhibits import catalogue
from latticework.experiments.papers.report_builder import build_report
from latticework.experiments.papers.report_content import Report
from latticework.experiments.records.grouping import require_one_setting
from latticework.experiments.records.record import BUNDLES

ROOT = CONF.parent
NOTES = "notes"  # the folder of docs/results with the notes
BENCH_COLUMNS = ("turns", "ours_low", "ours_high", "plain_low", "plain_high")  # left out


def refresh_pages(root: Path = ROOT, bundles: Path = BUNDLES) -> list[Path]:
    """Write docs/results, except its notes, and the generated blocks of other pages.

    Raises RuntimeError before it writes anything if a figure or table fails.
    """
    known = catalogue()
    report = build_report(None, bundles=bundles, known=known)
    if report.failed:
        raise RuntimeError(f"nothing was written: {'; '.join(report.failed)}")
    results = root / "docs" / "results"
    written = report_pages.write_files(report, results)
    for name, text in results_pages(report, results, bundles).items():
        written.append(results / name)
        written[-1].write_text(text)
    for file, name, text in blocks(report, known, root, bundles):
        file.write_text(replace_block(file.read_text(), name, text))
        written.append(file)
    return written


def results_pages(report: Report, folder: Path, bundles: Path = BUNDLES) -> dict[str, str]:
    """The pages of docs/results by file name, given the figures and tables in `folder`.

    bench.md has what `workshop.bench` measured, in bench.csv and bench_*.csv.
    """
    notes = read_notes(bundles, folder / NOTES)
    pages = report_pages.render_pages(report, folder, notes=notes, committed=True)
    pages["bench.md"] = bench_page(folder, notes.get("bench", ""))
    return pages


def read_notes(bundles: Path = BUNDLES, folder: Path = BUNDLES.parent / NOTES) -> dict[str, str]:
    """The hand-written notes on the committed records; none in an installed package."""
    notes = {}
    for file in folder.glob("*.md"):
        notes[file.stem] = fill_note(file.read_text().strip(), bundles)
    return notes


def fill_note(text: str, bundles: Path) -> str:
    """The hand-written note with its expressions `{{ last(...) }}` computed."""
    template = Environment(undefined=StrictUndefined).from_string(text)
    return template.render(
        last=partial(format_last_reading, bundles),
        likelihood=partial(note_numbers.format_likelihood, bundles),
        factor=partial(note_numbers.format_factor, bundles),
        gap=partial(note_numbers.format_gap, bundles),
    )


def format_last_reading(
    bundles: Path, experiment: str, column: str, settings: dict[str, Any]
) -> str:
    """Format the last reading of a column of metrics.csv, the mean over some committed runs.

    `settings` are dotted keys of the configuration, or groups with their options, such as
    {"sampler": "dmala", "task.steps": 100}. Raises LookupError if no run has them, or if the runs
    with them differ in more than their seed.
    """
    records = note_numbers.select_records(bundles, experiment, settings)
    readings = []
    for record in require_one_setting(records):
        readings.append(estimates.last_reading(record, column))
    return estimates.format_estimate(estimates.estimate(readings))


# Speeds.


def bench_page(folder: Path, note: str) -> str:
    """The page of the speeds in bench.csv and bench_*.csv."""
    benches = [_bench(file) for file in sorted(folder.glob("bench[._]*csv"))]
    pictures = [file.stem for file in sorted(folder.glob("bench_*.png"))]
    return report_pages.fill_template(
        "bench.md.jinja", benches=benches, pictures=pictures, note=note
    )


def _bench(file: Path) -> tuple[str, str, str]:
    """A benchmark's file name, its command with the machine, and its table."""
    head = file.read_text().splitlines()[0].removeprefix("# ")
    command, _, machine = head.partition("; ")
    frame = pd.read_csv(file, comment="#")
    if "steps_per_second" in frame:
        frame = _contenders(frame)
    frame = frame.drop(columns=list(BENCH_COLUMNS), errors="ignore")
    return file.name, f"{command}  # {machine}", frame.to_markdown(index=False)


def _contenders(frame: pd.DataFrame) -> pd.DataFrame:
    """Steps per second with a column per contender, and our share of the limit.

    Without a limit, the speed of compiled kernels as a multiple of eager ones. Without compiled
    kernels, the speed of fused steps as a multiple of the others.
    """
    keys = ["model", "chains", "sampler", "threads"]
    names = list(dict.fromkeys(frame["contender"]))

    def pivot(column: str) -> pd.DataFrame:
        return frame.pivot(index=keys, columns="contender", values=column)[names]

    ours = "compiled" if "compiled" in names else "eager"
    speeds = pivot("steps_per_second")
    if "fused" in names and ours == "eager":
        ratios = pivot("ours_ratio").drop(columns="fused")
        for name in ratios:
            speeds[f"fused / {name}"] = ratios[name]
    elif "limit" in names or "eager" not in names:
        speeds[f"{ours} / limit"] = pivot("of_limit")[ours]
    else:
        speeds[f"{ours} / eager"] = pivot("ours_ratio")["eager"]
    order = pd.MultiIndex.from_frame(frame[keys].drop_duplicates())
    texts = speeds.map(lambda value: f"{value:.4g}").replace("nan", "")
    return texts.loc[order].reset_index()
