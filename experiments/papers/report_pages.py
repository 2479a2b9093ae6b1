"""Lay the report out as Markdown pages, of the same templates for a user's records and for docs/.

README.md is the gallery, `<exhibit>.md` shows a figure or table of a paper, and ledger.md judges
all claims. The pages show the figures and tables that lie in their folder, which `write_files`
fills. GitHub and the site (`docs/hooks.py`) show the Markdown, `report_html.py` makes HTML of it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import latticework.experiments.papers.claims.sensitivity as sensitivity
import latticework.experiments.papers.report_content as report_content
from latticework.experiments.papers.claims.failures import list_failures
from latticework.experiments.papers.claims.ledger import Entry
from latticework.experiments.papers.claims.verdict import Number, Verdict
from latticework.experiments.papers.draw import write_table
from latticework.experiments.papers.exhibits import Exhibit
from latticework.experiments.records.escapes import escape_markdown
from latticework.experiments.records.estimates import format_estimate

HERE = Path(__file__).parent
HIDDEN = ("Scale", "Records")  # facts that are the same in every section of docs/results
TABLES = "tables"  # the folder with the tables
BESIDE = "beside"  # the end of the name of a table that has the paper's numbers beside ours
COST = "-cost"  # the end of the name of a claim about the time of a step, which comes last
NO_NOTES: Mapping[str, str] = MappingProxyType({})
MAX_DIFFERENCES = 5  # bullets that a note may have; the rest of a note is folded
CLASSES = {  # classes of verdicts in site.css
    str(Verdict.HOLDS): "holds",
    str(Verdict.FAILS): "fails",
    str(Verdict.OPEN): "open",
    str(Verdict.NOT_RUN): "unrun",
}


@dataclass(frozen=True)
class PartFiles:
    """An experiment of an exhibit as its page shows it. Files are named without suffix."""

    part: report_content.Part
    facts: list[tuple[str, str]]
    problems: list[str]
    pictures: list[str]
    tables: list[tuple[str, str]]  # names, and their Markdown


@dataclass(frozen=True)
class ExhibitPage:
    """An exhibit as exhibit.md.jinja and results.md.jinja show it."""

    exhibit: Exhibit
    state: str
    entries: list[Entry]  # costs of steps last
    parts: list[PartFiles]
    printed: list[Number]  # numbers that the paper prints too
    unprinted: list[Number]
    headline: Number | None  # the number that the gallery shows beside the paper's
    differences: str  # a list of what differs from the paper
    diary: str  # how the runs were made, by hand
    folder: Path
    prefix: str  # where the pictures lie, as the page links them

    @property
    def claims(self) -> list[Entry]:
        return [entry for entry in self.entries if not entry.claim.own_reading]

    @property
    def readings(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.claim.own_reading]

    @property
    def pictures(self) -> list[str]:
        """The pictures of all experiments, the exhibit's own first."""
        names: list[str] = []
        for part in self.parts:
            names += part.pictures
        return names

    @property
    def lead_tables(self) -> list[tuple[str, str]]:
        """The tables that have the paper's numbers beside ours."""
        tables = []
        for part in self.parts:
            tables += [table for table in part.tables if table[0].endswith(BESIDE)]
        return tables

    @property
    def other_tables(self) -> list[tuple[str, str]]:
        tables = []
        for part in self.parts:
            tables += [table for table in part.tables if not table[0].endswith(BESIDE)]
        return tables

    def has_file(self, name: str, suffix: str) -> bool:
        """Whether a picture lies in the folder in a format, too."""
        return (self.folder / f"{self.prefix}{name}{suffix}").exists()


def write_files(report: report_content.Report, folder: Path, prefix: str = "") -> list[Path]:
    """Write the figures and tables of the report to `folder`, where its pages link them."""
    written = []
    for section in report.sections:
        for part in (*section.parts, *section.other_scales):
            for picture in part.drawn.pictures:
                file = file_stem(section.exhibit, part.experiment, picture.name, scale_of(part))
                target = folder / f"{prefix}{file}.png"
                target.parent.mkdir(parents=True, exist_ok=True)
                written += picture.write(target)
            for name, frame in part.drawn.tables:
                file = file_stem(section.exhibit, part.experiment, name, scale_of(part))
                (folder / TABLES).mkdir(parents=True, exist_ok=True)
                written += write_table(frame, folder / TABLES / f"{file}.csv")
    return written


def render_pages(
    report: report_content.Report,
    folder: Path,
    *,
    prefix: str = "",
    notes: Mapping[str, str] = NO_NOTES,
    committed: bool = False,
) -> dict[str, str]:
    """The pages by file name, given the figures and tables in `folder`.

    `notes` are written by hand, by exhibit: at most `MAX_DIFFERENCES` bullets of what differs from
    the paper, and below them the diary of the committed runs; a page of other records has none.
    `committed` pages are those of docs/results.
    """
    pages = []
    for section in report.sections:
        note = notes.get(section.exhibit.name, "") if section.is_committed else ""
        pages.append(_page(section, folder, prefix, note, committed=committed))
    texts = {}
    for page in pages:
        name = f"{page.exhibit.name}.md"
        texts[name] = fill_template("exhibit.md.jinja", page=page, report=report)
    papers = groupby(pages, lambda page: page.exhibit.cited)
    texts["README.md"] = fill_template(
        "results.md.jinja",
        report=report,
        papers=[(name, list(group)) for name, group in papers],
        committed=committed,
    )
    texts["ledger.md"] = fill_template("ledger.md.jinja", report=report, committed=committed)
    return texts


def file_stem(exhibit: Exhibit, experiment: str, name: str, scale: str = "paper") -> str:
    """File name of a figure or table, without the suffix.

    Figures of the first paper keep their names. If experiments of an exhibit share a name, only
    the first keeps it. Scales other than the paper's are named.
    """
    first = experiment
    for named, names in exhibit.items_by_experiment.items():
        if name in (names or ()):
            first = named
            break
    text = name if exhibit.paper == "langevin" and experiment == first else f"{experiment}-{name}"
    return text if scale == "paper" else f"{text}-{scale}"


def scale_of(part: report_content.Part) -> str:
    return part.holding.scale if part.holding else "paper"


def _page(
    section: report_content.Section, folder: Path, prefix: str, note: str, *, committed: bool
) -> ExhibitPage:
    entries = sorted(section.entries, key=_is_cost)
    printed: list[Number] = []
    unprinted: list[Number] = []
    for number in _distinct_numbers(entries):
        (printed if number.paper else unprinted).append(number)
    parts = []
    for part in (*section.parts, *section.other_scales):
        parts.append(_part_files(section.exhibit, part, folder, prefix, committed=committed))
    differences, diary = split_note(note)
    return ExhibitPage(
        section.exhibit, section.state, entries, parts, printed, unprinted,
        _headline(section.exhibit, entries), differences, diary, folder, prefix,
    )  # fmt: skip


def _is_cost(entry: Entry) -> bool:
    return entry.claim.name.endswith(COST)


def _headline(exhibit: Exhibit, entries: Sequence[Entry]) -> Number | None:
    """The number that the exhibit names, or else the first one that the paper prints too.

    A cost of a step is the headline of an exhibit only if it has no other claims.
    """
    first = None
    for entry in entries:
        if _is_cost(entry) and not _is_cost(entries[0]):
            break
        for number in entry.finding.numbers if entry.finding else ():
            if number.quantity == exhibit.headline:
                return number
            if number.paper and first is None:
                first = number
    return first


def split_note(note: str) -> tuple[str, str]:
    """The bullets with which a note begins, and the rest.

    Raises ValueError if they are more than MAX_DIFFERENCES.
    """
    bullets, _, diary = note.partition("\n\n") if note.startswith("- ") else ("", "", note)
    if bullets.count("\n- ") >= MAX_DIFFERENCES:
        raise ValueError(f"more than {MAX_DIFFERENCES} bullets in the note:\n{bullets}")
    return bullets, diary


def _distinct_numbers(entries: Sequence[Entry]) -> list[Number]:
    """The numbers of the entries, each once; where two experiments share a name, with theirs."""
    origins: dict[str, set[str]] = defaultdict(set)
    for experiment, number in _numbers(entries):
        origins[number.quantity].add(experiment)
    numbers: dict[Number, None] = {}  # in their order
    for experiment, number in _numbers(entries):
        if len(origins[number.quantity]) > 1:
            number = replace(number, quantity=f"{number.quantity} ({experiment})")
        numbers[number] = None
    return list(numbers)


def _numbers(entries: Sequence[Entry]) -> Iterator[tuple[str, Number]]:
    """Each number of the entries with its experiment."""
    for entry in entries:
        for number in entry.finding.numbers if entry.finding else ():
            yield entry.claim.experiment, number


def _part_files(
    exhibit: Exhibit, part: report_content.Part, folder: Path, prefix: str, *, committed: bool
) -> PartFiles:
    """The files in `folder` that its page shows of an experiment.

    Committed pages leave out what is the same for all of them, and why a figure is missing.
    """
    pictures, tables = [], []
    for name in _list_stems(exhibit, part, "figures"):
        if (folder / f"{prefix}{name}.png").exists():
            pictures.append(name)
    for name in _list_stems(exhibit, part, "tables"):
        if (file := folder / TABLES / f"{name}.md").exists():
            tables.append((name, file.read_text().strip()))
    facts, problems = part.facts, part.problems
    if committed:
        facts = [fact for fact in facts if fact[0] not in HIDDEN]
        problems = [text for text in problems if text not in part.drawn.reasons_not_made]
    return PartFiles(part, facts, problems, pictures, tables)


def _list_stems(exhibit: Exhibit, part: report_content.Part, kind: str) -> list[str]:
    """The stems of the figures or tables of an experiment that the exhibit shows."""
    if part.holding is None:
        return []
    stems = []
    selected = exhibit.items_by_experiment[part.experiment]
    for name in part.holding.config.get(kind) or ():
        if selected is None or name in selected:
            stems.append(file_stem(exhibit, part.experiment, str(name), scale_of(part)))
    return stems


def fill_template(template: str, **values: Any) -> str:
    """A template of this folder, filled with `values`."""
    environment = Environment(loader=FileSystemLoader(HERE), undefined=StrictUndefined)
    environment.filters |= {
        "changes": sensitivity.list_changes,
        "failures": list_failures,
        "classes": CLASSES.__getitem__,
        "fresh": _fresh,
        "number": format_estimate,
        "phrases": report_content.verdict_phrases,
        "plain": escape_markdown,  # what a record or a claim says
        "sensitivity": sensitivity.describe_sensitivity,
        "thresholds": sensitivity.list_thresholds,
    }
    return environment.get_template(template).render(**values)


def _fresh(entry: Entry) -> str:
    """The verdict of the fresh runs alone, with its closest margin; "" without fresh runs."""
    if entry.fresh is None or entry.claim.fresh is None:
        return ""
    verdict, _ = entry.fresh.verdict()
    return f"Only {entry.claim.fresh.description}: {verdict}, {entry.fresh.weakest_margin.text()}"
