"""Write the report as Markdown with its figures, and the same as one HTML page."""

import base64
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt

from latticework.experiments.papers.claims.ledger import Entry
from latticework.experiments.papers.rendering import markdown as table
from latticework.experiments.papers.report_content import Part, Report
from latticework.experiments.records.escapes import escape_markdown
from latticework.experiments.records.estimates import format_estimate
from latticework.experiments.records.files import write_file

HERE = Path(__file__).parent
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Latticework: results beside the papers</title>
<style>
{css}</style>
{body}
<script>
{js}</script>
</html>
"""
PARTS = ("tables", "report")  # .css and .js


def write(report: Report, folder: Path) -> tuple[Path, Path]:
    """Write `report.md` with its `figures/`, and `index.html`, which holds its figures itself."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    page, text = folder / "index.html", folder / "report.md"
    for section in report.sections:
        for part in (*section.parts, *section.other_scales):
            for picture in part.drawn.pictures:
                picture.write(folder / file_name(part, picture.name))
    written = render("page.md.jinja", report=report)
    write_file(text, written)
    write_file(page, html(written, folder))
    return page, text


def html(markdown: str, folder: Path) -> str:
    """The Markdown of a page as HTML that holds its figures, which are in `folder`.

    A figure is an SVG, whose lines can be hidden and tell their values, or else a PNG. Sections
    have the ids to which the page links.
    """
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)

    def embedded(found: re.Match[str]) -> str:
        file = folder / "figures" / found[1]
        if (drawing := file.with_suffix(".svg")).exists():
            text = drawing.read_text()
            return f"<figure>{text[text.index('<svg') :]}</figure>"
        content = base64.b64encode(file.read_bytes()).decode()
        return f'<figure><img alt="{found[2]}" src="data:image/png;base64,{content}" /></figure>'

    body = re.sub(
        r"<h2>(.*)</h2>", lambda found: f'<h2 id="{anchor(found[1])}">{found[1]}</h2>', body
    )
    body = re.sub(r'<p><img src="figures/([^"/]+\.png)" alt="([^"]*)" /></p>', embedded, body)
    css, js = ("".join((HERE / f"{p}.{kind}").read_text() for p in PARTS) for kind in ("css", "js"))
    return PAGE.format(body=body, css=css, js=js)


def ledger(report: Report) -> str:
    """The ledger in Markdown."""
    return render("ledger.md.jinja", report=report)


def filled(text: str, **values: Any) -> str:
    """A text with its expressions `{{ ... }}` of `values` computed."""
    return Environment(undefined=StrictUndefined).from_string(text).render(**values)


def render(template: str, **values: Any) -> str:
    """A Markdown template of this folder, filled with `values`."""
    environment = Environment(loader=FileSystemLoader(HERE), undefined=StrictUndefined)
    environment.filters |= {
        "anchor": anchor,
        "file": file_name,
        "fresh": _fresh,
        "markdown": table,
        "number": format_estimate,
        "plain": escape_markdown,  # what a record or a claim says
    }
    return environment.get_template(template).render(**values)


def anchor(name: str) -> str:
    """The id that GitHub gives a heading."""
    return name.lower().replace(".", "")


def file_name(part: Part, name: str) -> str:
    scale = part.holding.scale if part.holding else ""
    return f"figures/{part.experiment}-{scale}-{name}.png"


def _fresh(entry: Entry) -> str:
    """The verdict of the fresh runs alone, with its closest margin; "" without fresh runs."""
    if entry.fresh is None or entry.claim.fresh is None:
        return ""
    verdict, _ = entry.fresh.verdict()
    return f"Only {entry.claim.fresh.what}: {verdict}, {entry.fresh.weakest_margin.text()}"
