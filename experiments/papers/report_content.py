"""Gather the content of the report: the ledger, and the figures, tables and facts of each exhibit.

Everything is computed from records, `exhibits.yaml` and `published.yaml`. `page.py` lays it out.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from rich.console import Console
from rich.progress import track

from latticework.experiments.figures.plot import Plot
from latticework.experiments.papers.claims.ledger import GROUPS, OURS, Entry, judge
from latticework.experiments.papers.claims.verdict import Verdict
from latticework.experiments.papers.draw import make_all
from latticework.experiments.papers.drawn import Drawn
from latticework.experiments.papers.exhibits import Catalogue, Exhibit, catalogue
from latticework.experiments.papers.kept import forget_oldest, kept_or_drawn
from latticework.experiments.papers.rendering import render
from latticework.experiments.papers.run_status import (
    SCALES,
    ExperimentStatus,
    command,
    load_statuses,
    pools,
)
from latticework.experiments.records.estimates import duration, share_text
from latticework.experiments.records.record import BUNDLES
from latticework.experiments.runs import errors
from latticework.experiments.runs.sweeps import extra_override_sets

log = logging.getLogger(__name__)
VERDICT_ORDER = (Verdict.FAILS, Verdict.OPEN, Verdict.HOLDS, Verdict.NOT_RUN)  # order of the report
MAX_NAMED_PLACES = 3  # places that a sentence can name
VERDICT_WORDS = {  # of one claim, and of several
    "holds": ("holds", "hold"),
    "does not hold": ("does not", "do not"),
    "not decided": ("is undecided", "are undecided"),
    "not run": ("was not run", "were not run"),
}
ALONE = VERDICT_WORDS | {
    "not run": ("has no records", "have no records")
}  # without the committed records
NOTICE = (
    "An installed package does not contain the committed records, so this report has only those of "
    "your outputs folder. In a checkout of the repository it shows all."
)


@dataclass(frozen=True)
class Part:
    """An experiment of an exhibit at a scale; `holding` is None if it has no runs."""

    experiment: str
    command: str
    holding: ExperimentStatus | None
    drawn: Drawn
    facts: list[tuple[str, str]]
    problems: list[str]
    remedies: list[tuple[str, str]] = field(default_factory=list)  # commands, and what each does


@dataclass(frozen=True)
class Section:
    """An exhibit: `parts` at each experiment's best scale, `other_scales` at the others."""

    exhibit: Exhibit
    entries: list[Entry]
    parts: list[Part]
    other_scales: list[Part]
    state: str


@dataclass(frozen=True)
class Report:
    papers: dict[str, str]
    entries: list[Entry]
    sections: list[Section]
    failed: list[str]  # mistakes in the code of figures and tables, and damaged records
    notice: str = ""  # that no records are committed here

    def word(self, verdict: str) -> str:
        """The word for a verdict. Without the committed records, "not run" would be wrong."""
        return "no records" if self.notice and verdict == str(Verdict.NOT_RUN) else str(verdict)

    @property
    def paper_counts(self) -> dict[str, int]:
        """The verdicts on the papers' own claims, counted."""
        return count_verdicts([entry for entry in self.entries if not entry.claim.own_reading])

    @property
    def tested(self) -> str:
        """The verdicts on the papers' own claims, in a sentence."""
        entries = [entry for entry in self.entries if not entry.claim.own_reading]
        left = {entry.claim.exhibit for entry in entries if entry.verdict is Verdict.NOT_RUN}
        places = [one.exhibit.place for one in self.sections if one.exhibit.name in left]
        where = f" ({', '.join(places)})" if 0 < len(places) <= MAX_NAMED_PLACES else ""
        told = verdicts(entries, ALONE if self.notice else VERDICT_WORDS)
        return f"We tested {len(entries)} claims of the papers: {told}{where}."

    @property
    def sentences(self) -> list[tuple[str, str]]:
        """For each paper: its name; where its claims hold, where not, and what was not run."""
        found = []
        for name, entries, _ in self.groups:
            if name == OURS:
                continue
            seen: dict[str, set[Verdict]] = defaultdict(set)
            for section in self.sections:
                own = [entry.verdict for entry in section.entries if entry.claim.group == name]
                if own:
                    seen[section.exhibit.place or section.exhibit.title].update(own)
            parts = {
                "All claims hold": [place for place, v in seen.items() if v == {Verdict.HOLDS}],
                "Some do not hold": [place for place, v in seen.items() if Verdict.FAILS in v],
                "Some are undecided": [
                    place
                    for place, v in seen.items()
                    if Verdict.OPEN in v and Verdict.FAILS not in v
                ],
                "Not run": [place for place, v in seen.items() if v == {Verdict.NOT_RUN}],
            }
            text = ". ".join(f"{what}: {', '.join(at)}" for what, at in parts.items() if at)
            found.append((name, f"{verdicts(entries)}. {text}."))
        return found

    @property
    def ranked(self) -> list[tuple[str, list[Entry]]]:
        """The entries that are no cells of a grid, by verdict: first what does not hold."""
        lines = [entry for entry in self.entries if entry.claim.cell is None]
        return [
            (self.word(v), some)
            for v in VERDICT_ORDER
            if (some := [e for e in lines if e.verdict is v])
        ]

    @property
    def grids(self) -> list[tuple[Exhibit, list[str], list[tuple[str, list[Entry]]]]]:
        """Claims that are alike, as tables: the exhibit, the columns, and the rows."""
        found = []
        for section in self.sections:
            cells = {e.claim.cell: e for e in section.entries if e.claim.cell}
            columns = list(dict.fromkeys(column for _, column in cells))
            rows = dict.fromkeys(row for row, _ in cells)
            if cells:
                table = [(row, [cells[row, column] for column in columns]) for row in rows]
                found.append((section.exhibit, columns, table))
        return found

    @property
    def groups(self) -> list[tuple[str, list[Entry], dict[str, int]]]:
        """The claims of each paper, and our readings: name, entries and their verdicts counted."""
        parts = [(name, [e for e in self.entries if e.claim.group == name]) for name in GROUPS]
        return [(name, entries, count_verdicts(entries)) for name, entries in parts]


def count_verdicts(entries: Sequence[Entry]) -> dict[str, int]:
    """How many claims have each verdict."""
    return {str(v): sum(entry.verdict is v for entry in entries) for v in Verdict}


def verdicts(entries: Sequence[Entry], said: Mapping[str, tuple[str, str]] = VERDICT_WORDS) -> str:
    """The verdicts counted in words: "3 hold, 1 does not, 2 are undecided, 1 was not run"."""
    counts = count_verdicts(entries)
    words = [f"{n} {said[verdict][n != 1]}" for verdict, n in counts.items() if n]
    return ", ".join(words)


def build_report(
    outputs: Path | None,
    *,
    scales: Sequence[str] = SCALES,
    bundles: Path = BUNDLES,
    known: Catalogue | None = None,
    drawing: bool = True,
    keep: Path | None = None,
) -> Report:
    """The report from the records in `outputs` and those committed in `bundles`.

    With `drawing=False`, it has the ledger and the facts, but no figures or tables. With a folder
    `keep`, the figures of unchanged records are taken from there.
    """
    known = known or catalogue()
    log.info("reading the records and judging the claims")
    held = load_statuses(known.experiments(), outputs, bundles, scales)
    entries = judge(pools(held))
    shown = [one for some in held.values() for one in some if one.drawable_records and drawing]
    bar = track(shown, "figures", console=Console(stderr=True), transient=True)
    drawn = {
        (one.experiment, one.scale): kept_or_drawn(keep, one.stamp, partial(draw, one))
        for one in bar
    }
    if keep is not None:
        forget_oldest(keep)
    sections = [_section(exhibit, entries, held, drawn, known) for exhibit in known.exhibits]
    return Report(
        papers=known.papers,
        entries=entries,
        sections=sections,
        failed=[
            *(f"{name}: {text}" for (name, _), made in drawn.items() for text in made.failed),
            *(text for some in held.values() for one in some for text in one.damaged),
        ],
        notice="" if bundles.is_dir() else NOTICE,
    )


def draw(held: ExperimentStatus) -> Drawn:
    """Draw every figure and table of the experiment from the records to be shown."""
    log.info("drawing %s, scale=%s", held.experiment, held.scale)
    made = Drawn()
    for one in make_all(held.config, held.drawable_records):
        if isinstance(plot := one.content, Plot):
            try:
                made.pictures.append(render(one.name, plot))
            except Exception as error:  # noqa: BLE001 - such as a label that cannot be typeset
                made.reasons_not_made.append(
                    f"{one.name} was not made: {errors.describe_error(error)}"
                )
                made.failed.append(made.reasons_not_made[-1])
            plt.close(plot.figure)
        elif one.content is not None:
            made.tables.append((one.name, one.content))
        else:
            made.reasons_not_made.append(f"{one.name} was not made: {one.reason_not_made}")
            made.failed.extend(made.reasons_not_made[-1:] if one.failed else ())
    return made


def _section(
    exhibit: Exhibit,
    entries: list[Entry],
    held: dict[str, list[ExperimentStatus]],
    drawn: dict[tuple[str, str], Drawn],
    known: Catalogue,
) -> Section:
    parts: list[Part] = []
    other_scales: list[Part] = []
    for experiment, names in exhibit.of.items():
        some = held.get(experiment, [])
        best = next((one for one in some if one.drawable_records), None)
        for one in sorted(some, key=lambda one: one is not best):
            made = _chosen(drawn.get((experiment, one.scale), Drawn()), names)
            part = Part(
                experiment, one.command, one, made, facts(one), *_problems(one, made, known)
            )
            # A better scale that has only begun is listed with the best scale that has records.
            (other_scales if one.drawable_records and one is not best else parts).append(part)
        if not some:
            parts.append(Part(experiment, command(experiment), None, Drawn(), [], []))
    own = [entry for entry in entries if entry.claim.exhibit == exhibit.name]
    return Section(exhibit, own, parts, other_scales, _state(parts))


def _chosen(made: Drawn, names: list[str] | None) -> Drawn:
    if names is None:
        return made
    wanting = [text for text in made.reasons_not_made if text.split()[0] in names]
    pictures = [one for one in made.pictures if one.name in names]
    tables = [(name, frame) for name, frame in made.tables if name in names]
    return Drawn(pictures, tables, wanting)


def _state(parts: list[Part]) -> str:
    """A label: "complete" at the paper's scale, or what is missing."""
    held = [part.holding for part in parts]
    if all(one is None for one in held):
        return "missing"
    if any(record.substitute for one in held if one for record in one.drawable_records):
        return "substitutes"
    if any(one is None or one.missing for one in held):
        return "in part"
    scales = {one.scale for one in held if one}
    return "complete" if scales == {"paper"} else f"{max(scales, key=SCALES.index)} scale"


def facts(held: ExperimentStatus) -> list[tuple[str, str]]:
    """Scale, runs, data, seeds, device, time, memory and commits of the records shown."""
    documents = [record.document for record in held.drawable_records]
    if not documents:
        return [("Scale", held.scale)]
    done = len(held.runs) - len(held.missing)
    more = len(held.drawable_records) - done
    own = "other seeds or variants of the data" if held.records else "other settings"
    rows = [
        ("Scale", held.scale),
        ("Runs", f"{done} of {len(held.runs)}" + (f", and {more} with {own}" if more else "")),
        ("Data", _distinct(_data(document) for document in documents)),
        ("Seeds", _seeds(documents)),
        ("Device", _distinct(_device(document) for document in documents)),
        ("Time", duration(sum(document["seconds"] for document in documents))),
        ("Timing", share_text(held.drawable_records)),
        ("Memory", f"at most {most}" if (most := peak_memory(documents)) else ""),
        ("Commit", _distinct(_commit(document) for document in documents)),
        ("Records", held.place),
    ]
    return [(name, text) for name, text in rows if text]


def _problems(
    held: ExperimentStatus, made: Drawn, known: Catalogue
) -> tuple[list[str], list[tuple[str, str]]]:
    """Describe what is missing or failed, and give the commands that mend some of it."""
    remedies = []
    problems = [f"{name} failed: {why}" for name, why in list(held.failed.items())[:5]]
    if held.stopped:
        problems.append(f"stopped or still running: {_listed(held.stopped)}")
    if rest := [run for run in held.missing if run not in held.failed and run not in held.stopped]:
        problems.append(f"not run: {_listed(rest)}")
        for words in extra_override_sets(held.experiment):
            if any(set(words) <= set(run.split(",")) for run in rest):
                remedy = command(held.experiment, held.scale, words)
                remedies.append((remedy, "makes some of the missing runs"))
    setting = known.settings.get(held.experiment)
    if setting and (earlier := sum(one.setting(setting) is None for one in held.drawable_records)):
        problems.append(
            f"{earlier} of {len(held.drawable_records)} records are outdated: "
            f"they lack the setting {setting}"
        )
        remedies.append((held.command, "makes the outdated runs again"))
    if held.others and held.records:
        problems.append(f"{len(held.others)} more with other settings are not shown")
    return problems + made.reasons_not_made, remedies


def _listed(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more


def _distinct(values: Any) -> str:
    return ", ".join(sorted({value for value in values if value}))


def _data(document: dict[str, Any]) -> str:
    data, language = (document.get(key) or {} for key in ("data", "language"))
    texts = [
        f"{name}{' — SUBSTITUTE' if one.get('substitute') else ''}"
        for one, name in ((data, data.get("variant")), (language, language.get("used")))
        if name
    ]
    return " with ".join(texts) or "none"


def _seeds(documents: list[dict[str, Any]]) -> str:
    texts = []
    for key, name in (("seed", ""), ("model_seed", "models ")):
        seeds = sorted({document["config"].get(key) for document in documents} - {None})
        if len(seeds) > (key == "model_seed"):
            texts.append(name + ", ".join(_spans(seeds)))
    return "; ".join(texts)


def _spans(numbers: Sequence[int]) -> list[str]:
    """Ascending `numbers`, three or more successive ones as a span: `0 to 4`, `7`."""
    spans: list[list[int]] = []
    for one in numbers:
        if not spans or one != spans[-1][-1] + 1:
            spans.append([])
        spans[-1].append(one)
    short = [[f"{s[0]} to {s[-1]}"] if len(s) > 2 else map(str, s) for s in spans]
    return [text for texts in short for text in texts]


def _device(document: dict[str, Any]) -> str:
    threads = document.get("threads")
    count = f", {threads} thread{'s' * (threads != 1)}" if threads else ""
    torch = document["versions"].get("torch", "unknown")
    return f"{document.get('device', 'unknown')}{count}, PyTorch {torch}"


def peak_memory(documents: list[dict[str, Any]]) -> str:
    """The largest peak of the runs; "" if it is not known."""
    peak = max((document.get("peak_memory_bytes") or 0 for document in documents), default=0)
    return f"{peak / 2**30:.2g} GiB" if peak else ""


def _commit(document: dict[str, Any]) -> str:
    commit = document.get("commit")
    return f"{commit[:8]}{'+changes' if document.get('dirty') else ''}" if commit else "unknown"
