"""Write the report: one self-contained HTML page, and Markdown with figures."""

import base64
import math
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from latticework.experiments.papers.axis import axis, interval
from latticework.experiments.papers.claims.ledger import Entry
from latticework.experiments.papers.claims.verdict import Verdict
from latticework.experiments.papers.table_files import csv
from latticework.experiments.papers.view import Part, Report, cell, number, sort_key

HERE = Path(__file__).parent


def write(report: Report, folder: Path) -> tuple[Path, Path]:
    """Write `index.html`, which is self-contained, and `report.md` with its `figures/`."""
    folder.mkdir(parents=True, exist_ok=True)
    page, twin = folder / "index.html", folder / "report.md"
    page.write_text(html(report))
    twin.write_text(markdown(report))
    (folder / "figures").mkdir(exist_ok=True)
    for section in report.sections:
        for part in (*section.parts, *section.below):
            for picture in part.drawn.pictures:
                file = folder / file_name(part, picture.name)
                file.write_bytes(picture.png)
                file.with_suffix(".json").write_text(picture.proof)
    return page, twin


def html(report: Report) -> str:
    """The HTML page. Images, style and script are embedded, so it loads no other file."""
    style, script = ((HERE / f"page.{suffix}").read_text() for suffix in ("css", "js"))
    template = _environment(escape=True).get_template("page.html.jinja")
    return template.render(report=report, axis=axis(), style=Markup(style), script=Markup(script))


def markdown(report: Report) -> str:
    """The report in Markdown."""
    return render("page.md.jinja", report=report)


def ledger(report: Report) -> str:
    """The ledger in Markdown."""
    return render("ledger.md.jinja", report=report)


def render(template: str, **values: Any) -> str:
    """A Markdown template of this folder, filled with `values`."""
    return _environment(escape=False).get_template(template).render(**values)


def file_name(part: Part, name: str) -> str:
    scale = part.holding.scale if part.holding else ""
    return f"figures/{part.experiment}-{scale}-{name}.png"


def _environment(*, escape: bool) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=escape, undefined=StrictUndefined
    )
    environment.filters |= {
        "anchor": lambda name: name.lower().replace(".", ""),
        "address": _address,
        "cell": cell,
        "csv": csv,
        "file": file_name,
        "fresh": _fresh,
        "interval": interval,
        "markdown": _markdown,
        "number": number,
        "order": lambda verdict: list(Verdict).index(verdict),
        "safe_cell": lambda text: text.replace("|", "\\|"),  # in a Markdown table
        "sort_key": sort_key,
        "strength": _strength,
    }
    return environment


def _address(content: bytes | str, kind: str) -> str:
    """A data: address that holds `content` of the media type `kind`."""
    raw = content.encode() if isinstance(content, str) else content
    return f"data:{kind};base64,{base64.b64encode(raw).decode()}"


def _fresh(entry: Entry) -> str:
    """The verdict of the fresh runs alone, with its closest margin; "" without fresh runs."""
    if entry.fresh is None or entry.claim.fresh is None:
        return ""
    verdict, _ = entry.fresh.verdict()
    return f"Only {entry.claim.fresh.what}: {verdict}, {entry.fresh.binding.text()}"


def _strength(entry: Entry) -> str:
    """The sort key of the column of margins: the mean divided by the interval's half-width."""
    if entry.finding is None:
        return ""
    margin = entry.finding.binding
    low, high = margin.interval()
    if math.isinf(low):
        return "0"
    return f"{max(-1e6, min(1e6, 2 * margin.mean / max(high - low, 1e-12))):.6g}"


def _markdown(frame: pd.DataFrame) -> str:
    return frame.map(cell).to_markdown(index=False, disable_numparse=True)
