"""Generate the pages of docs/ from the records committed in docs/results/records.

docs/results/<exhibit>.md shows a figure or table of a paper; README.md there lists them. Numbers,
commands and facts come from the records. Causes and caveats are in a short hand-written note per
exhibit, docs/results/notes/<exhibit>.md: bullets of what differs from the paper, and below them the
diary of the runs. A note types numbers of the paper, of settings and of the data; a number of runs
is computed from the committed records, by `{{ last(...) }}`.
"""

import re
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, StrictUndefined

import latticework.experiments.papers.report_pages as report_pages
import latticework.experiments.records.estimates as estimates
from latticework.experiments import CONF
from latticework.experiments.figures.benchmark import winners
from latticework.experiments.papers.claims.ledger import OURS
from latticework.experiments.papers.draw import markdown
from latticework.experiments.papers.exhibits import Catalogue, catalogue
from latticework.experiments.papers.report_builder import build_report
from latticework.experiments.papers.report_content import Report, format_verdicts
from latticework.experiments.papers.run_facts import peak_memory
from latticework.experiments.papers.run_status import ExperimentStatus, load_statuses
from latticework.experiments.records.grouping import require_one_setting
from latticework.experiments.records.record import BUNDLES, load_all
from latticework.experiments.runs.sweeps import declared_sweep

ROOT = CONF.parent
UNKNOWN = "not measured"
BENCH_COLUMNS = ("turns", "ours_low", "ours_high", "plain_low", "plain_high")  # left out
REQUIREMENTS = (  # of an experiment, in docs/reproducing.md
    "id", "`python run.py experiment=`", "data", "runs", "one core", "GPU", "memory",
)  # fmt: skip


def refresh(root: Path = ROOT, bundles: Path = BUNDLES) -> list[Path]:
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
    notes = {}
    for file in (folder / "notes").glob("*.md"):
        notes[file.stem] = fill_note(file.read_text().strip(), bundles)
    pages = report_pages.render_pages(report, folder, notes=notes, committed=True)
    pages["bench.md"] = bench_page(folder, notes.get("bench", ""))
    return pages


def fill_note(text: str, bundles: Path) -> str:
    """The hand-written note with its expressions `{{ last(...) }}` computed."""
    template = Environment(undefined=StrictUndefined).from_string(text)
    return template.render(last=partial(format_last_reading, bundles))


def format_last_reading(
    bundles: Path, experiment: str, column: str, settings: dict[str, Any]
) -> str:
    """Format the last reading of a column of metrics.csv, the mean over some committed runs.

    `settings` are dotted keys of the configuration, or groups with their options, such as
    {"sampler": "dmala", "task.steps": 100}. Raises LookupError if no run has them, or if the runs
    with them differ in more than their seed.
    """
    records = load_all(bundles / f"{experiment}.zip")
    for key, value in settings.items():
        records = [r for r in records if value in (r.choices.get(key), r.setting(key))]
        if not records:
            raise LookupError(f"no committed run of {experiment} has {key}={value}")
    readings = []
    for record in require_one_setting(records):
        readings.append(estimates.last_reading(record, column))
    return estimates.format_estimate(estimates.estimate(readings))


# Speeds.


def bench_page(folder: Path, note: str) -> str:
    """The page of the speeds in bench.csv and bench_*.csv."""
    benches = [_bench(file) for file in sorted(folder.glob("bench[._]*csv"))]
    pictures = [file.stem for file in sorted(folder.glob("bench_*.png"))]
    return report_pages.render("bench.md.jinja", benches=benches, pictures=pictures, note=note)


def _bench(file: Path) -> tuple[str, str, str]:
    """A benchmark's file name, its command with the machine, and its table."""
    head = file.read_text().splitlines()[0].removeprefix("# ")
    command, _, machine = head.partition("; ")
    frame = pd.read_csv(file, comment="#")
    if "contender" in frame:
        frame = _contenders(frame)
    frame = frame.drop(columns=list(BENCH_COLUMNS), errors="ignore")
    return file.name, f"{command}  # {machine}", frame.to_markdown(index=False)


def _contenders(frame: pd.DataFrame) -> pd.DataFrame:
    """Steps per second with a column per contender, and our share of the limit.

    Without a compiled kernel, the speed of fused steps as a multiple of the others.
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
    else:
        speeds[f"{ours} / limit"] = pivot("of_limit")[ours]
    order = pd.MultiIndex.from_frame(frame[keys].drop_duplicates())
    texts = speeds.map(lambda value: f"{value:.4g}").replace("nan", "")
    return texts.loc[order].reset_index()


# Blocks of other pages.


def blocks(
    report: Report, known: Catalogue, root: Path, bundles: Path
) -> list[tuple[Path, str, str]]:
    """The generated blocks of other pages: the file, the block's name, and its content."""
    return [
        (root / "README.md", "ledger", summary(report)),
        (root / "docs" / "reproducing.md", "times", times(known, bundles)),
        (root / "docs" / "benchmark.md", "winners", best_samplers(bundles)),
    ]


def replace_block(page_text: str, name: str, text: str) -> str:
    """The page with the text between `<!-- name -->` and `<!-- /name -->` replaced.

    Raises ValueError if the page has no such block.
    """
    block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not block.search(page_text):
        raise ValueError(f"the page has no block <!-- {name} --> ... <!-- /{name} -->")
    return block.sub(lambda match: f"{match[1]}\n{text.strip()}\n\n{match[2]}", page_text)


def summary(report: Report) -> str:
    """The ledger in two sentences, one for each paper, and one for our readings."""
    papers, readings = [], ""
    for name, entries, _ in report.groups:
        if name == OURS:
            readings = f"Of {len(entries)} readings of our own, {format_verdicts(entries)}."
        else:
            papers.append(f"{name}: {format_verdicts(entries)}")
    text = f"{report.tested} {'; '.join(papers)}. {readings}"
    return f"{text} See the [ledger](docs/results/ledger.md)."


def best_samplers(bundles: Path = BUNDLES) -> str:
    """A table of the best samplers of each target of the benchmark, at the paper's scale."""
    statuses = load_statuses(["benchmark"], None, bundles, ("paper",))["benchmark"]
    if not (statuses and statuses[0].records):
        return "No records are committed yet: `python run.py experiment=benchmark` makes them."
    return markdown(winners(statuses[0].records))


def times(known: Catalogue, bundles: Path = BUNDLES) -> str:
    """A table of the requirements of each exhibit: data, runs, time, memory (paper scale)."""
    exhibits: dict[str, list[str]] = defaultdict(list)
    for exhibit in known.exhibits:
        for experiment in exhibit.of:
            exhibits[experiment].append(exhibit.name)
    for experiment in known.aside:
        exhibits[experiment] = ["aside"]
    statuses = load_statuses(list(exhibits), None, bundles, ("paper",))
    lines = [f"| {' | '.join(REQUIREMENTS)} |", f"|{'---|' * len(REQUIREMENTS)}"]
    for experiment, names in exhibits.items():
        status = statuses[experiment][0] if statuses[experiment] else None
        cells = _requirements(experiment, status, known.times.get(experiment, {}))
        lines.append(f"| {', '.join(names)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _requirements(
    experiment: str, status: ExperimentStatus | None, noted: dict[str, str]
) -> list[str]:
    """The cells of `times` for an experiment, beside the names of its exhibits."""
    sweep = declared_sweep(experiment, "paper")
    documents = [record.document for record in status.records] if status else []
    return [
        f"`{experiment}`",
        _data(sweep.config),
        str(len(sweep.runs)),
        time_of(status, noted, gpu=False),
        time_of(status, noted, gpu=True),
        peak_memory(documents) or UNKNOWN,
    ]


def _data(config: Any) -> str:
    data = config.get("data")
    choice = config.hydra.runtime.choices.get("data")
    swept = (config.hydra.sweeper.get("params") or {}).get("data")
    return str(swept or choice).replace(",", ", ") if data or swept else "none"


def time_of(status: ExperimentStatus | None, noted: dict[str, str], *, gpu: bool) -> str:
    """Time of all runs of the sweep on a CPU or GPU.

    If declared runs are missing, the time in exhibits.yaml is used, because missing runs may cost
    more, such as those of a larger model. Without such an entry, the mean of the finished runs is
    extrapolated.
    """
    place = "gpu" if gpu else "cpu"
    seconds = []
    for record in status.records if status else ():
        if record.document.get("device", "cpu").startswith("cpu") != gpu:
            seconds.append(record.document["seconds"])
    partly = status is None or status.missing or len(seconds) < len(status.records)
    if status is None or not seconds or (partly and place in noted):
        return str(noted.get(place, UNKNOWN))
    total = estimates.duration(sum(seconds) / len(seconds) * len(status.runs))
    if partly:
        return f"{total}, extrapolated from {len(seconds)} runs"
    return f"{total}, measured"
