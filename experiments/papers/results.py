"""Generate docs/results/README.md from the committed records.

The page has a section per exhibit. Numbers, commands and facts come from the records. Causes and
caveats are in a short hand-written note per exhibit, docs/results/notes/<exhibit>.md.
"""

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from latticework.experiments.papers import page
from latticework.experiments.papers.claims.ledger import Entry
from latticework.experiments.papers.claims.verdict import Number
from latticework.experiments.papers.exhibits import Exhibit
from latticework.experiments.papers.view import Part, Report, Section

HIDDEN = ("Scale", "Records")  # facts that are the same in every section
BESIDE = "beside"  # the end of a table's name that opens its section; the other tables are folded
BENCH_COLUMNS = ("turns", "ours_low", "ours_high", "plain_low", "plain_high")  # left out


@dataclass(frozen=True)
class Shown:
    """An experiment's part of a section. File names are without suffix."""

    command: str
    pictures: list[str]
    pages: list[str]
    numbers: list[str]  # those of `pictures` with a CSV file
    tables: list[tuple[str, str]]  # name, Markdown
    facts: list[tuple[str, str]]
    problems: list[str]


@dataclass(frozen=True)
class ExhibitPage:
    """A section of the results page."""

    exhibit: Exhibit
    state: str
    lead: list[tuple[str, str]]  # the tables of BESIDE
    parts: list[Shown]
    entries: list[Entry]
    printed: list[Number]  # those that the paper prints too, which the section begins with
    others: list[Number]
    note: str


def stem(exhibit: Exhibit, experiment: str, name: str) -> str:
    """File name of a figure or table in docs/results, without the suffix.

    Figures of the first paper keep their names. If experiments of an exhibit share a name, only
    the first keeps it.
    """
    sharing = (other for other, names in exhibit.of.items() if name in (names or ()))
    first = next(sharing, experiment)
    return name if exhibit.paper == "langevin" and experiment == first else f"{experiment}-{name}"


def results_page(report: Report, folder: Path) -> str:
    """The page, given the figures and tables in `folder` (docs/results).

    It ends with the speeds that `tools.bench` measured: bench.csv and bench_*.csv.
    """
    return page.render(
        "results.md.jinja",
        pages=[_page(section, folder) for section in report.sections],
        benches=[_bench(file) for file in sorted(folder.glob("bench[._]*csv"))],
        bench_pictures=[file.stem for file in sorted(folder.glob("bench_*.png"))],
        bench_note=_note(folder, "bench"),
    )


def _page(section: Section, folder: Path) -> ExhibitPage:
    numbers = _numbers(section.entries)
    parts = [_shown(section.exhibit, part, folder) for part in section.parts]
    return ExhibitPage(
        section.exhibit,
        section.state,
        [table for part in parts for table in part.tables if table[0].endswith(BESIDE)],
        parts,
        section.entries,
        [number for number in numbers if number.paper],
        [number for number in numbers if not number.paper],
        _note(folder, section.exhibit.name),
    )


def _numbers(entries: list[Entry]) -> list[Number]:
    """The numbers of the entries, each once; where two experiments share a name, with theirs."""
    found = [(one, e.claim.experiment) for e in entries if e.finding for one in e.finding.numbers]
    origins: dict[str, set[str]] = defaultdict(set)
    for one, experiment in found:
        origins[one.what].add(experiment)
    named = (
        replace(one, what=f"{one.what} ({experiment})") if len(origins[one.what]) > 1 else one
        for one, experiment in found
    )
    return list(dict.fromkeys(named))


def _shown(exhibit: Exhibit, part: Part, folder: Path) -> Shown:
    def files(kind: str) -> list[str]:
        names = (part.holding.config.get(kind) or {}) if part.holding else {}
        wanted = exhibit.of[part.experiment]
        return [
            stem(exhibit, part.experiment, str(name))
            for name in names
            if wanted is None or name in wanted
        ]

    pictures = [name for name in files("figures") if (folder / f"{name}.png").exists()]
    tables = [name for name in files("tables") if (folder / f"{name}.md").exists()]
    return Shown(
        part.command,
        pictures,
        [name for name in pictures if (folder / f"{name}.html").exists()],
        [name for name in pictures if (folder / f"{name}.csv").exists()],
        [(name, (folder / f"{name}.md").read_text().strip()) for name in tables],
        [fact for fact in part.facts if fact[0] not in HIDDEN],
        [text for text in part.problems if text not in part.drawn.wanting],
    )


def _note(folder: Path, name: str) -> str:
    file = folder / "notes" / f"{name}.md"
    return file.read_text().strip() if file.exists() else ""


def _bench(file: Path) -> tuple[str, str, str]:
    """A benchmark's file name, its command with the machine, and its table."""
    head = file.read_text().splitlines()[0].removeprefix("# ")
    command, _, machine = head.partition("; ")
    frame = pd.read_csv(file, comment="#")
    if "contender" in frame:
        return file.name, f"{command}  # {machine}", _contenders(frame).to_markdown(index=False)
    frame = frame.drop(columns=[name for name in BENCH_COLUMNS if name in frame])
    return file.name, f"{command}  # {machine}", frame.to_markdown(index=False)


def _contenders(frame: pd.DataFrame) -> pd.DataFrame:
    """Steps per second with a column per contender, and our share of the limit."""
    keys = ["model", "chains", "sampler", "threads"]
    names = list(dict.fromkeys(frame["contender"]))
    speeds = frame.pivot(index=keys, columns="contender", values="steps_per_second")[names]
    own = "compiled" if "compiled" in names else "eager"
    shares = frame[frame["contender"] == own].set_index(keys)["of_limit"]
    wide = speeds.assign(**{f"{own} / limit": shares}).map(lambda value: f"{value:.4g}")
    order = pd.MultiIndex.from_frame(frame[keys].drop_duplicates())
    return wide.replace("nan", "").loc[order].reset_index()
