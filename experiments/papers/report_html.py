"""Write the report as a folder of HTML pages that opens from disk.

The pages are the Markdown ones of `report_pages.py`, which docs/results has too, and `site.css` is
the style that the site shares.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePath

from markdown_it import MarkdownIt
from markdown_it.token import Token

import latticework.experiments.papers.report_pages as report_pages
from latticework.experiments.papers.report_content import Report
from latticework.experiments.records.files import write_file

STYLE = "site.css"
FIGURES = "figures/"  # apart from the pages, because a page of text has HTML of its own
HOME = "index.html"


def write_report(
    report: Report, folder: Path, notes: Mapping[str, str] = report_pages.NO_NOTES
) -> Path:
    """Write the pages with their figures and tables to `folder`; return the first page.

    Figures and tables of an earlier report are deleted. `notes` are those on the committed records.
    """
    for name in (FIGURES, report_pages.TABLES):
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
    folder.mkdir(parents=True, exist_ok=True)
    report_pages.write_files(report, folder, FIGURES)
    write_file(folder / STYLE, (report_pages.HERE / STYLE).read_text())
    pages = report_pages.render_pages(report, folder, prefix=FIGURES, notes=notes)
    for name, text in pages.items():
        write_file(folder / html_name(name), html_page(text))
    return folder / HOME


def html_page(markdown: str) -> str:
    """A Markdown page as HTML. Links to other pages lead to their HTML.

    The Markdown may hold HTML of its template; text of records is escaped there.
    """
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    tokens = parser.parse(markdown)
    for token in tokens:
        for child in token.children or ():
            _link_html(child)
    body = parser.renderer.render(tokens, parser.options, {})
    title = markdown.partition("\n")[0].removeprefix("# ")
    return report_pages.fill_template("page.html.jinja", title=title, body=body)


def _link_html(token: Token) -> None:
    """Let a link to a Markdown page beside the page lead to its HTML."""
    target = str(token.attrGet("href") or "")
    if token.type == "link_open" and target.endswith(".md") and "/" not in target:
        token.attrSet("href", html_name(target))


def html_name(name: str) -> str:
    """The file of a page, as HTML."""
    return HOME if name == "README.md" else PurePath(name).with_suffix(".html").name
