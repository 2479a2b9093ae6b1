"""Build the report from records, `exhibits.yaml` and `published.yaml`."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

import latticework.experiments.papers.run_facts as run_facts
import latticework.experiments.papers.run_status as run_status
from latticework.experiments.papers.claims.ledger import Entry, judge
from latticework.experiments.papers.draw import csv, html_of, make_all, png, proof_of, svg
from latticework.experiments.papers.drawn import Drawn, Picture
from latticework.experiments.papers.exhibits import Catalogue, Exhibit, catalogue
from latticework.experiments.papers.kept import forget_oldest, kept_or_drawn
from latticework.experiments.papers.report_content import Part, Report, Section
from latticework.experiments.records.record import BUNDLES
from latticework.experiments.runs import errors

log = logging.getLogger(__name__)
DPI = 220  # twice the pixels of a page of 7.2 inches
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
    drawn = _draw_all(statuses, keep) if drawing else {}
    sections = [_section(exhibit, entries, statuses, drawn, known) for exhibit in known.exhibits]
    return Report(
        papers=known.papers,
        entries=entries,
        sections=sections,
        failed=_failures(statuses, drawn),
        notice="" if bundles.is_dir() else NOTICE,
    )


def _draw_all(statuses: Statuses, keep: Path | None) -> DrawnByScale:
    """The figures and tables of each experiment that has records."""
    drawable = []
    for scales in statuses.values():
        drawable += [status for status in scales if status.drawable_records]
    drawn = {}
    for status in track(drawable, "figures", console=Console(stderr=True), transient=True):
        key = status.experiment, status.scale
        drawn[key] = kept_or_drawn(keep, status.stamp, partial(draw, status))
    if keep is not None:
        forget_oldest(keep)
    return drawn


def _failures(statuses: Statuses, drawn: DrawnByScale) -> list[str]:
    """A line for each mistake in the code of a figure or table, and for each damaged record."""
    lines = []
    for (experiment, _), made in drawn.items():
        lines += [f"{experiment}: {text}" for text in made.failed]
    for scales in statuses.values():
        for status in scales:
            lines += status.damaged
    return lines


def draw(held: run_status.ExperimentStatus) -> Drawn:
    """Draw every figure and table of the experiment from the records to be shown."""
    log.info("drawing %s, scale=%s", held.experiment, held.scale)
    drawn = Drawn()
    for item in make_all(held.config, held.drawable_records):
        if isinstance(figure := item.content, Figure):
            try:
                drawn.pictures.append(_rendered(item.name, figure))
            except Exception as error:  # noqa: BLE001 - such as a label that cannot be typeset
                drawn.reasons_not_made.append(
                    f"{item.name} was not made: {errors.describe_error(error)}"
                )
                drawn.failed.append(drawn.reasons_not_made[-1])
            plt.close(figure)
        elif item.content is not None:
            drawn.tables.append((item.name, item.content))
        else:
            drawn.reasons_not_made.append(f"{item.name} was not made: {item.reason_not_made}")
            drawn.failed.extend(drawn.reasons_not_made[-1:] if item.failed else ())
    return drawn


def _rendered(name: str, figure: Figure) -> Picture:
    image = png(figure, DPI)
    texts = {".svg": svg(figure), ".csv": csv(figure), ".html": html_of(figure)}
    texts = {suffix: text for suffix, text in texts.items() if text}
    return Picture(name, image, texts | {".json": proof_of(figure)})


def _section(
    exhibit: Exhibit,
    entries: list[Entry],
    statuses: Statuses,
    drawn: DrawnByScale,
    known: Catalogue,
) -> Section:
    parts: list[Part] = []
    other_scales: list[Part] = []
    for experiment, names in exhibit.of.items():
        scales = statuses.get(experiment, ())
        best = next((status for status in scales if status.drawable_records), None)
        for status in sorted(scales, key=lambda status: status is not best):
            shown = _select(drawn.get((experiment, status.scale), Drawn()), names)
            facts = run_facts.describe_runs(status)
            problems = run_facts.describe_problems(status, shown, known)
            part = Part(experiment, status.command, status, shown, facts, *problems)
            # A better scale that has only begun is listed with the best scale that has records.
            is_other = bool(status.drawable_records) and status is not best
            (other_scales if is_other else parts).append(part)
        if not scales:
            command = run_status.command(experiment)
            parts.append(Part(experiment, command, None, Drawn(), [], []))
    claims = [entry for entry in entries if entry.claim.exhibit == exhibit.name]
    return Section(exhibit, claims, parts, other_scales, _state(parts))


def _select(drawn: Drawn, names: list[str] | None) -> Drawn:
    """The figures and tables with one of `names`; None selects all."""
    if names is None:
        return drawn
    selected = Drawn()
    selected.pictures.extend(picture for picture in drawn.pictures if picture.name in names)
    selected.tables.extend(table for table in drawn.tables if table[0] in names)
    for text in drawn.reasons_not_made:
        if text.split()[0] in names:
            selected.reasons_not_made.append(text)
    return selected


def _state(parts: Sequence[Part]) -> str:
    """A label: "complete" at the paper's scale, or what is missing."""
    statuses = [part.holding for part in parts if part.holding is not None]
    if not statuses:
        return "missing"
    for status in statuses:
        if any(record.substitute for record in status.drawable_records):
            return "substitutes"
    if len(statuses) < len(parts) or any(status.missing for status in statuses):
        return "in part"
    worst = max((status.scale for status in statuses), key=run_status.SCALES.index)
    return "complete" if worst == "paper" else f"{worst} scale"
