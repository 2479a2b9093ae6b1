"""Draw the figures and write the tables of an experiment from its records.

An experiment declares a set of runs. A command that asks for some of these redraws the figures of
all of them, in `figures/` and `tables/`. A command with other settings draws only its own runs, in
`figures/own/<overrides>/` and `tables/own/<overrides>/`, and leaves the experiment's figures
unchanged.
"""

import hashlib
import io
import json
import logging
import re
import shlex
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from hydra.utils import instantiate
from matplotlib.axes import Axes
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from omegaconf import DictConfig
from PIL import Image

from latticework.experiments.figures.style import PAGE_INCHES, band_of_line, mark_substitute
from latticework.experiments.records.escapes import (
    escape_csv,
    escape_html,
    escape_latex,
    escape_markdown,
    escape_terminal,
)
from latticework.experiments.records.estimates import Estimate
from latticework.experiments.records.files import write_file
from latticework.experiments.records.identity import FIGURE_GROUPS, run_name
from latticework.experiments.records.record import Record, versions
from latticework.experiments.runs import errors
from latticework.experiments.runs.sweeps import declared_sweep, experiment_exists, sweep_of_command

log = logging.getLogger(__name__)
PACKAGES = ("latticework", "matplotlib", "numpy", "pandas")  # that draw
COLUMNS = ("panel", "series", "x", "y", "low", "high")  # of the numbers of a figure
OWN_RUNS_FOLDER = "own"  # the folder of figures of runs with other settings
MAX_SVG_CHARACTERS = 200_000  # characters of an SVG file
HUNDREDTHS = re.compile(r"(\.\d\d)\d+")  # of a point, beyond which no curve is seen


class Written(NamedTuple):
    """The PNGs and CSVs that were written, and a line for each figure or table that failed."""

    files: list[Path]
    failed: list[str]


class DrawnItem(NamedTuple):
    """A figure or table of an experiment, or the error that prevented it."""

    name: str
    kind: str  # figures or tables
    content: Figure | pd.DataFrame | None
    error: Exception | None = None

    @property
    def failed(self) -> bool:
        """Whether there is a mistake in the code or the settings of the figure.

        Other errors say that the records do not suffice: LookupError, if it is raised as such, and
        FileNotFoundError, of an array that a bundle leaves out.
        """
        if isinstance(self.error, KeyError | IndexError):
            return True
        return not isinstance(self.error, LookupError | FileNotFoundError | None)

    @property
    def reason_not_made(self) -> str:
        """The reason why it could not be made, in one line; else ""."""
        if self.error is None:
            return ""
        return errors.describe_error(self.error) if self.failed else str(self.error)


def make_all(
    config: DictConfig, records: list[Record], words: Sequence[str] = ()
) -> Iterator[DrawnItem]:
    """Yield every figure, then every table, of the experiment `config`, made from `records`.

    An entry of `config.figures` or `config.tables` is a function of the records with its settings.
    It returns a Figure or a DataFrame. An error does not prevent the other entries. An entry of
    null is skipped. The caller must close the figures.
    """
    mpl.use("Agg")
    for kind in FIGURE_GROUPS:
        for name, spec in (config.get(kind) or {}).items():
            if spec is None:
                continue
            try:
                made = instantiate(spec, _convert_="all", _partial_=True)(records)
                if isinstance(made, Figure):
                    mark_substitute(made, records)
                    made.proof = provenance_json(str(name), command(config, words), records)  # type: ignore[attr-defined]
            except Exception as error:  # noqa: BLE001 - the others are to be made all the same
                undone = DrawnItem(str(name), kind, None, error)
                if undone.failed and errors.wants_traceback():
                    traceback.print_exception(error)
                yield undone
                continue
            yield DrawnItem(str(name), kind, made)


def command(config: DictConfig, words: Sequence[str] = ()) -> str:
    """The command that draws the figures of `config` from its records again.

    `words` are the overrides of a command with its own settings.
    """
    shown = [f"experiment={config.name}", f"scale={config.get('scale', 'paper')}"]
    shown += [word for word in words if not word.startswith(("experiment=", "scale="))]
    return shlex.join(["python", "-m", "latticework.scripts.figures", *shown])


def provenance_json(figure: str, command: str, records: Sequence[Record]) -> str:
    """The JSON text beside a figure that `command` draws from `records` now.

    `records` has the fingerprint of each record by its place, and the SHA-256 of each bundle.
    """
    prints: dict[str, str] = {}
    for record in records:
        if record.bundle is None:
            prints[record.display_path] = record.fingerprint
        elif record.bundle.name not in prints:
            content = record.bundle.read_bytes()
            prints[record.bundle.name] = hashlib.sha256(content).hexdigest()
    found = {
        "figure": figure,
        "command": command,
        "records": prints,
        "versions": versions(PACKAGES),
    }
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


def proof_of(figure: Figure) -> str:
    """The `proof` of a figure that `make_all` drew."""
    return getattr(figure, "proof", "")


def html_of(figure: Figure) -> str:
    """The HTML of a figure of text (`experiments.figures.text.Page`); "" for other figures."""
    return getattr(figure, "html", "")


def png(figure: Figure, dpi: int) -> bytes:
    """The figure as a PNG with a palette, which halves its size; a page of text shrinks tenfold.

    A figure wider than a page has fewer dots an inch.
    """
    page = bool(html_of(figure))
    for text in figure.findobj(Text) if page else []:
        text.set_antialiased(False)
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, dpi=dpi * min(1, PAGE_INCHES / figure.get_figwidth()), facecolor="white")
    with Image.open(drawn) as image:
        few = image.convert("RGB").quantize(16 if page else 256, dither=Image.Dither.NONE)
    few.save(small, "PNG", optimize=True)
    return small.getvalue()


def svg(figure: Figure) -> str:
    """The figure as SVG; "" for pages of text, which have HTML, and for more than MOST characters.

    Figures drawn again from the same records have the same text. Lines tell their names and values.
    """
    if html_of(figure):
        return ""
    every = (line for axes in figure.axes for line in axes.lines)
    lines = [line for line in every if not str(line.get_label()).startswith("_")]
    for index, line in enumerate(lines):
        line.set_gid(f"series{index}")
    drawn = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "latticework"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None}, facecolor="white")
    text = re.sub(r' d="[^"]*"', lambda path: HUNDREDTHS.sub(r"\1", path[0]), drawn.getvalue())
    for index, line in enumerate(lines):
        name, told = escape_html(str(line.get_label())), "\n".join(_line_tooltip(line))
        group = f'<g data-name="{name}"><title>{name}\n{told}</title>'
        text = text.replace(f'<g id="series{index}">', group, 1)
    return text if len(text) <= MAX_SVG_CHARACTERS else ""


def _line_tooltip(line: Line2D, most: int = 10) -> list[str]:
    """Some values of a line, which a browser shows below the mouse and below the line's name."""
    pairs: list[tuple[float, float]] = np.asarray(line.get_xydata(), dtype=float).tolist()
    points = [(x, y) for x, y in pairs if np.isfinite(y)]
    shown = points[:: max(1, -(-len(points) // most))]
    if points and shown[-1] != points[-1]:
        shown.append(points[-1])
    return [f"{x:.4g}: {y:.4g}" for x, y in shown]


def draw_for_command(
    config: DictConfig, words: Sequence[str], folder: Path, records: Sequence[Record]
) -> Written:
    """Draw the figures and tables of `config` for a command with the overrides `words`.

    `config` includes `hydra`. `records` are those in `folder`, below which the files are written.
    """
    if not records:
        log.warning("no figures: no finished run under %s", folder)
        return Written([], [])
    command = sweep_of_command(
        config, words
    )  # an experiment outside of conf/ declares what its YAML has
    sweep = (
        declared_sweep(config.name, config.scale)
        if experiment_exists(config.name)
        else sweep_of_command(config)
    )
    mine, others = sweep.split_records(records)
    if not (mine or words):  # redrawing an experiment that has only runs with other settings
        return draw_all(config, folder, others, OWN_RUNS_FOLDER)
    wanted = command.select_records(records) if command.runs else others
    declares_all = bool(command.runs) and command.override_sets <= sweep.override_sets
    if declares_all or (wanted and {id(r) for r in wanted} <= {id(r) for r in mine}):
        return draw_all(config, folder, mine)
    return draw_all(
        config, folder, wanted, f"{OWN_RUNS_FOLDER}/{run_name(words, command.skipped)}", words
    )


def draw_all(
    config: DictConfig,
    folder: Path,
    records: list[Record],
    within: str = "",
    words: Sequence[str] = (),
) -> Written:
    """Write the figures and tables of the experiment `config`.

    Figures go to `folder/figures/<name>.{png,pdf}`, tables to `folder/tables/<name>.{csv,md,tex}`,
    or to their subfolder `within`. `words` are the overrides of a command with its own settings.
    An entry that cannot be made is skipped, with a warning if the records do not suffice for it.
    """
    written = Written([], [])
    for made in make_all(config, records, words):
        if made.content is None:
            if made.failed:
                written.failed.append(
                    f"{made.name} was not drawn: {made.reason_not_made} {_name_records(records)}"
                )
            else:
                log.warning(
                    "%s was not drawn: %s", made.name, escape_terminal(made.reason_not_made)
                )
            continue
        try:
            written.files.append(_written(made.content, folder / made.kind / within, made.name))
        except Exception as error:  # noqa: BLE001 - such as a label that cannot be typeset
            why = errors.describe_error(error)
            written.failed.append(f"{made.name} was not written: {why} {_name_records(records)}")
    return written


def _name_records(records: Sequence[Record], most: int = 3) -> str:
    """The records of a figure, for a message."""
    more = f" and {len(records) - most} more" if len(records) > most else ""
    return f"(records: {'; '.join(record.display_path for record in records[:most])}{more})"


def _written(content: Figure | pd.DataFrame, folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(content, pd.DataFrame):
        return write_table(content, folder / f"{name}.csv")[0]
    return save(content, folder / f"{name}.png")


def save(figure: Figure, target: Path) -> Path:
    """Write the figure as PNG to `target`, with its PDF and its proof beside it; then close it."""
    write_file(target, png(figure, dpi=160))
    figure.set_layout_engine("none")  # both files have one layout, which takes most of the time
    with io.BytesIO() as drawn:
        figure.savefig(drawn, format="pdf")
        write_file(target.with_suffix(".pdf"), drawn.getvalue())
    for suffix, text in {".json": proof_of(figure), ".html": html_of(figure)}.items():
        if text:
            write_file(target.with_suffix(suffix), text)
    mpl.pyplot.close(figure)
    return target


# The numbers of a figure's lines and bars, and tables, as files.


def points(figure: Figure) -> pd.DataFrame:
    """One row per point: panel, series, x, y, and the ends of its band or error bar.

    A panel is identified by its number and title, or x axis. Series are named lines, including
    those that a leading underscore keeps out of the legend. Empty for images and pages of text.
    """
    rows = [
        (f"{number} {ax.get_title() or ax.get_xlabel()}".replace("\n", " ").strip(), *row)
        for number, ax in enumerate(figure.axes, 1)
        for row in (*_bars(ax), *_lines(ax))
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).dropna(axis="columns", how="all")


def csv(figure: Figure) -> str:
    """`points` as CSV text with five digits; empty if there are no numbers."""
    table = _escaped(points(figure), escape_csv)
    return "" if table.empty else table.to_csv(index=False, float_format="%.5g")


def _lines(ax: Axes) -> Iterator[tuple[Any, ...]]:
    of_bars = {c.lines[0]: c for c in ax.containers if isinstance(c, ErrorbarContainer)}
    for line in ax.lines:
        name = str(of_bars.get(line, line).get_label())
        if name.startswith(("_child", "_nolegend")):
            continue
        low, high = band_of_line(line)
        x, y = (np.asarray(part) for part in line.get_data())
        for place in range(len(x)):
            ends = (part[place] if len(part) else None for part in (low, high))
            yield name.lstrip("_"), x[place], y[place], *ends


def _bars(ax: Axes) -> Iterator[tuple[Any, ...]]:
    for bars in ax.containers:
        if not isinstance(bars, BarContainer):
            continue
        upright = bars.orientation == "vertical"
        name = (ax.xaxis if upright else ax.yaxis).get_major_formatter()
        for bar in bars:
            middle = bar.get_center()[0 if upright else 1]
            end = bar.get_y() + bar.get_height() if upright else bar.get_x() + bar.get_width()
            yield str(bars.get_label()).lstrip("_"), name(middle), end, None, None


def write_table(frame: pd.DataFrame, target: Path) -> list[Path]:
    """Write `frame` to `target` with the suffixes .csv, .md and .tex; return the paths.

    Cells are text, numbers, or an `Estimate`. In the CSV, which is for programs, an estimate takes
    up to three columns, in full precision. The other two formats are for readers.
    """
    written = [target.with_suffix(suffix) for suffix in (".csv", ".md", ".tex")]
    table = _escaped(_long(frame), escape_csv)
    write_file(written[0], table.to_csv(index=False, lineterminator="\n"))
    write_file(written[1], markdown(frame) + "\n")
    latex = _escaped(frame.map(_text), escape_latex).to_latex(index=False, escape=False)
    write_file(written[2], latex)
    return written


def markdown(frame: pd.DataFrame) -> str:
    """The table as Markdown. Its cells and headings are text, and never markup."""
    escaped = _escaped(frame.map(_text), escape_markdown)
    return escaped.to_markdown(index=False, disable_numparse=True)


def _escaped(frame: pd.DataFrame, escape: Callable[[str], str]) -> pd.DataFrame:
    """The table with its texts and headings escaped for a format; numbers stay as they are."""
    escaped = frame.map(lambda cell: escape(cell) if isinstance(cell, str) else cell)
    return escaped.set_axis([escape(str(name)) for name in frame], axis="columns")


def _text(cell: Any) -> str:
    if isinstance(cell, Estimate):
        return cell.text()
    if cell is None or (isinstance(cell, float) and np.isnan(cell)):
        return ""
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _long(frame: pd.DataFrame) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for name in frame:
        cells = list(frame[name])
        if not any(isinstance(cell, Estimate) for cell in cells):
            columns[str(name)] = cells
            continue
        for part in Estimate._fields:
            values = [getattr(c, part) if isinstance(c, Estimate) else None for c in cells]
            if part == "mean" or any(value is not None for value in values):
                columns[str(name) if part == "mean" else f"{name} ({part})"] = values
    return pd.DataFrame(columns)
