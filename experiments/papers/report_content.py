"""The content of the report: the verdicts, and the figures, tables and facts of each exhibit.

`report_builder.py` computes it from records, and `report_pages.py` lays it out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from latticework.experiments.papers.claims.ledger import DLP, GROUPS, RATES, Entry
from latticework.experiments.papers.claims.verdict import Verdict
from latticework.experiments.papers.drawn import Drawn
from latticework.experiments.papers.exhibits import Exhibit
from latticework.experiments.papers.run_status import OUTPUTS, ExperimentStatus

MAX_NAMED_PLACES = 3  # places that a sentence can name
VERDICT_WORDS = {  # words for one claim, and for several
    "holds": ("holds", "hold"),
    "does not hold": ("does not", "do not"),
    "not decided": ("is undecided", "are undecided"),
    "not run": ("was not run", "were not run"),
}
ALONE = VERDICT_WORDS | {
    "not run": ("has no records", "have no records")
}  # without the committed records


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

    @property
    def is_committed(self) -> bool:
        """Whether the entry shows committed records only."""
        places = set()
        for part in (*self.parts, *self.other_scales):
            if part.holding is not None:
                places.add(part.holding.place)
        return bool(places) and OUTPUTS not in places


@dataclass(frozen=True)
class Report:
    papers: dict[str, str]
    entries: list[Entry]
    sections: list[Section]
    failed: list[str]  # mistakes in the code of figures and tables, and damaged records
    notice: str = ""  # says that no records are committed here

    @property
    def words(self) -> Mapping[str, tuple[str, str]]:
        """The words for verdicts. Without the committed records, "not run" would be wrong."""
        return ALONE if self.notice else VERDICT_WORDS

    def word(self, verdict: str) -> str:
        """The word for one verdict."""
        return "no records" if self.notice and verdict == str(Verdict.NOT_RUN) else str(verdict)

    @property
    def paper_entries(self) -> list[Entry]:
        """The claims of the two papers, without those of later ones and our readings."""
        return [entry for entry in self.entries if entry.claim.group in (DLP, RATES)]

    @property
    def paper_counts(self) -> dict[str, int]:
        """The verdicts on the papers' own claims, counted."""
        return count_verdicts(self.paper_entries)

    @property
    def tested(self) -> str:
        """The verdicts on the papers' own claims, in a sentence."""
        not_run = set()
        for entry in self.paper_entries:
            if entry.verdict is Verdict.NOT_RUN:
                not_run.add(entry.claim.exhibit)
        places = [s.exhibit.place for s in self.sections if s.exhibit.name in not_run]
        where = f" ({', '.join(places)})" if 0 < len(places) <= MAX_NAMED_PLACES else ""
        counts = format_verdicts(self.paper_entries, self.words)
        return f"We tested {len(self.paper_entries)} claims of the two papers: {counts}{where}."

    @property
    def groups(self) -> list[tuple[str, list[Entry], dict[str, int]]]:
        """The claims of each paper, and our readings: name, entries and their verdicts counted."""
        groups = []
        for name in GROUPS:
            entries = [entry for entry in self.entries if entry.claim.group == name]
            groups.append((name, entries, count_verdicts(entries)))
        return groups


def count_verdicts(entries: Sequence[Entry]) -> dict[str, int]:
    """How many claims have each verdict."""
    counts = dict.fromkeys(map(str, Verdict), 0)
    for entry in entries:
        counts[str(entry.verdict)] += 1
    return counts


def verdict_phrases(
    entries: Sequence[Entry], words: Mapping[str, tuple[str, str]] = VERDICT_WORDS
) -> list[tuple[str, str]]:
    """The verdicts that occur, each with its count in words: ("holds", "3 hold")."""
    phrases = []
    for verdict, count in count_verdicts(entries).items():
        if count:
            phrases.append((verdict, f"{count} {words[verdict][count != 1]}"))
    return phrases


def format_verdicts(
    entries: Sequence[Entry], words: Mapping[str, tuple[str, str]] = VERDICT_WORDS
) -> str:
    """The verdicts counted in words: "3 hold, 1 does not, 2 are undecided, 1 was not run"."""
    return ", ".join(phrase for _, phrase in verdict_phrases(entries, words))
