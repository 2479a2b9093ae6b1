"""Build the report from records, `exhibits.yaml` and `published.yaml`."""

import logging
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import latticework.experiments.papers.run_facts as run_facts
import latticework.experiments.papers.run_status as run_status
from latticework.experiments.papers.claims.ledger import Entry, judge
from latticework.experiments.papers.drawn import Drawn
from latticework.experiments.papers.exhibits import Catalogue, Exhibit, catalogue
from latticework.experiments.papers.report_content import Part, Report, Section
from latticework.experiments.papers.report_figures import draw_experiments
from latticework.experiments.records.record import BUNDLES

log = logging.getLogger(__name__)
NOTICE = (
    "An installed package does not contain the committed records, so this report has only those of "
    "your outputs folder. In a checkout of the repository it shows all."
)
Statuses = Mapping[str, Sequence[run_status.ExperimentStatus]]  # by experiment, best scale first
DrawnByScale = Mapping[tuple[str, str], Drawn]  # by experiment and scale


def build_report(
    outputs: Path | None,
    *,
    scales: Sequence[str] = run_status.SCALES,
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
    statuses = run_status.load_statuses(known.experiments(), outputs, bundles, scales)
    entries = judge(run_status.pools(statuses))
    all_statuses = chain.from_iterable(statuses.values())
    drawn = draw_experiments(all_statuses, keep) if drawing else {}
    sections = []
    for exhibit in known.exhibits:
        sections.append(_section(exhibit, entries, statuses, drawn, known))
    return Report(
        papers=known.papers,
        entries=entries,
        sections=sections,
        failed=_failures(statuses, drawn),
        notice="" if bundles.is_dir() else NOTICE,
    )


def _failures(statuses: Statuses, drawn: DrawnByScale) -> list[str]:
    """A line for each mistake in the code of a figure or table, and for each damaged record."""
    lines = []
    for (experiment, _), experiment_drawn in drawn.items():
        for text in experiment_drawn.failed:
            lines.append(f"{experiment}: {text}")
    for status in chain.from_iterable(statuses.values()):
        lines += status.damaged
    return lines


def _section(
    exhibit: Exhibit,
    entries: list[Entry],
    statuses: Statuses,
    drawn: DrawnByScale,
    known: Catalogue,
) -> Section:
    parts: list[Part] = []
    other_scales: list[Part] = []
    for experiment, names in exhibit.items_by_experiment.items():
        scales = statuses.get(experiment, ())
        with_records: list[Part] = []
        begun: list[Part] = []
        for status in scales:
            shown = _select_drawn(drawn.get((experiment, status.scale), Drawn()), names)
            facts = run_facts.list_facts(status)
            problems = run_facts.describe_problems(status, shown, known)
            part = Part(experiment, status.command, status, shown, facts, *problems)
            (with_records if status.drawable_records else begun).append(part)
        # A better scale that has only begun is listed with the best scale that has records.
        parts += with_records[:1] + begun
        other_scales += with_records[1:]
        if not scales:
            command = run_status.running_command(experiment)
            parts.append(Part(experiment, command, None, Drawn(), [], []))
    claims = [entry for entry in entries if entry.claim.exhibit == exhibit.name]
    return Section(exhibit, claims, parts, other_scales, _state(parts))


def _select_drawn(drawn: Drawn, names: list[str] | None) -> Drawn:
    """The figures and tables with one of `names`; None selects all."""
    if names is None:
        return drawn
    selected = Drawn()
    for picture in drawn.pictures:
        if picture.name in names:
            selected.pictures.append(picture)
    for name, frame in drawn.tables:
        if name in names:
            selected.tables.append((name, frame))
    for text in drawn.reasons_not_made:
        if text.split()[0] in names:
            selected.reasons_not_made.append(text)
    return selected


def _state(parts: Sequence[Part]) -> str:
    """A label: "complete" at the paper's scale, or what is missing."""
    scales, has_substitutes, is_complete = [], False, True
    for part in parts:
        if part.holding is None:
            is_complete = False
            continue
        scales.append(part.holding.scale)
        is_complete &= not part.holding.missing
        for record in part.holding.drawable_records:
            has_substitutes |= bool(record.substitute)
    if not scales:
        return "missing"
    if has_substitutes:
        return "substitutes"
    if not is_complete:
        return "in part"
    worst = max(scales, key=run_status.SCALES.index)
    return "complete" if worst == "paper" else f"{worst} scale"
