"""Figures and tables as files: PNG, SVG, PDF and CSV; CSV, Markdown and LaTeX."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import latticework.experiments.records.escapes as escapes
from latticework.experiments.figures.plot import Plot
from latticework.experiments.figures.style import PAGE_INCHES
from latticework.experiments.papers.drawn import Picture
from latticework.experiments.records.estimates import Estimate
from latticework.experiments.records.files import write_file

DPIS = (160, 130, 100, 80)  # dots an inch of a PNG: the first that keep it small, or the last
MAX_PNG_BYTES = 200_000  # bytes of a PNG that need no fewer dots an inch
MAX_SVG_CHARACTERS = 200_000  # characters of an SVG file; larger figures have none
FIGURE_DIGITS = "%.5g"  # numbers in the CSV file of a figure

# Figures.


def render(name: str, plot: Plot) -> Picture:
    """The figure as PNG and SVG, with its table, its page and its provenance."""
    png = png_bytes(plot.figure)
    texts = _companion_texts(plot)
    if not plot.html and (svg := svg_text(plot.figure)):
        texts[".svg"] = svg
    return Picture(name, png, texts)


def save_figure(plot: Plot, target: Path) -> Path:
    """Write the figure as PNG to `target`, its PDF, table and provenance beside it; close it."""
    write_file(target, png_bytes(plot.figure))
    plot.figure.set_layout_engine("none")  # both files have one layout, which takes time
    with io.BytesIO() as pdf:
        plot.figure.savefig(pdf, format="pdf", metadata={"CreationDate": None})
        write_file(target.with_suffix(".pdf"), pdf.getvalue())
    for suffix, text in _companion_texts(plot).items():
        write_file(target.with_suffix(suffix), text)
    mpl.pyplot.close(plot.figure)
    return target


def png_bytes(figure: Figure) -> bytes:
    """The figure as PNG; one that is wider than a page, or large, has fewer dots an inch."""
    page_share = min(1, PAGE_INCHES / figure.get_figwidth())
    for dpi in DPIS:
        with io.BytesIO() as png:
            settings: dict[str, Any] = {"facecolor": "white", "pil_kwargs": {"optimize": True}}
            figure.savefig(png, dpi=dpi * page_share, **settings)
            content = png.getvalue()
        if len(content) <= MAX_PNG_BYTES:
            break
    return content


def svg_text(figure: Figure) -> str:
    """The figure as SVG, the same each time; "" for more than MAX_SVG_CHARACTERS."""
    with io.StringIO() as svg, mpl.rc_context({"svg.hashsalt": "latticework"}):
        figure.savefig(svg, format="svg", metadata={"Date": None}, facecolor="white")
        text = svg.getvalue()
    return text if len(text) <= MAX_SVG_CHARACTERS else ""


def csv_text(table: pd.DataFrame | None) -> str:
    """The table of a figure as CSV with five digits; "" if it has none."""
    if table is None or table.empty:
        return ""
    escaped = _escape_cells(table, escapes.escape_csv)
    return escaped.to_csv(index=False, float_format=FIGURE_DIGITS, lineterminator="\n")


def _companion_texts(plot: Plot) -> dict[str, str]:
    """The files beside the image, by suffix."""
    texts = {".csv": csv_text(plot.table), ".html": plot.html, ".json": plot.provenance}
    return {suffix: text for suffix, text in texts.items() if text}


# Tables.


def write_table(frame: pd.DataFrame, target: Path) -> list[Path]:
    """Write `frame` to `target` with the suffixes .csv, .md and .tex; return the paths.

    Cells are text, numbers, or an `Estimate`. In the CSV, which is for programs, an estimate takes
    up to three columns, in full precision. The other two formats are for readers.
    """
    written = [target.with_suffix(suffix) for suffix in (".csv", ".md", ".tex")]
    table = _escape_cells(_split_estimates(frame), escapes.escape_csv)
    write_file(written[0], table.to_csv(index=False, lineterminator="\n"))
    write_file(written[1], markdown(frame) + "\n")
    latex = _escape_cells(frame.map(_format_cell), escapes.escape_latex)
    write_file(written[2], latex.to_latex(index=False, escape=False))
    return written


def markdown(frame: pd.DataFrame) -> str:
    """The table as Markdown. Its cells and headings are text, and never markup."""
    escaped = _escape_cells(frame.map(_format_cell), escapes.escape_markdown)
    return escaped.to_markdown(index=False, disable_numparse=True)


def _escape_cells(frame: pd.DataFrame, escape: Callable[[str], str]) -> pd.DataFrame:
    """The table with its texts and headings escaped for a format; numbers stay as they are."""
    escaped = frame.map(lambda cell: escape(cell) if isinstance(cell, str) else cell)
    return escaped.set_axis([escape(str(name)) for name in frame], axis="columns")


def _format_cell(cell: Any) -> str:
    if isinstance(cell, Estimate):
        return cell.text()
    if cell is None or (isinstance(cell, float) and np.isnan(cell)):
        return ""
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _split_estimates(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with a column for the mean, the spread and the runs of estimates, where known."""
    columns: dict[str, Any] = {}
    for name in frame:
        cells = list(frame[name])
        if not any(isinstance(cell, Estimate) for cell in cells):
            columns[str(name)] = cells
            continue
        for part in Estimate._fields:
            values = [getattr(c, part) if isinstance(c, Estimate) else None for c in cells]
            if part == "mean":
                columns[str(name)] = values
            elif any(value is not None for value in values):
                columns[f"{name} ({part})"] = values
    return pd.DataFrame(columns)
