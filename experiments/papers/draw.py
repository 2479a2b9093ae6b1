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
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from hydra.utils import instantiate
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from omegaconf import DictConfig
from PIL import Image

from latticework.experiments.figures.style import PAGE, mark_substitute
from latticework.experiments.papers.table_files import write
from latticework.experiments.records.identity import DRAWING, run_name
from latticework.experiments.records.record import Record, versions
from latticework.experiments.runs import errors
from latticework.experiments.runs.sweeps import asked, declared, exists

log = logging.getLogger(__name__)
PACKAGES = ("latticework", "matplotlib", "numpy", "pandas")  # that draw
OWN = "own"  # the folder of figures of runs with other settings
MOST = 200_000  # characters of an SVG file
HUNDREDTHS = re.compile(r"(\.\d\d)\d+")  # of a point, beyond which no curve is seen


class Written(NamedTuple):
    """The PNGs and CSVs that were written, and a line for each figure or table that failed."""

    files: list[Path]
    failed: list[str]


class Made(NamedTuple):
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
    def wanting(self) -> str:
        """The reason why it could not be made, in one line; else ""."""
        if self.error is None:
            return ""
        return errors.summary(self.error) if self.failed else str(self.error)


def make_all(
    config: DictConfig, records: list[Record], words: Sequence[str] = ()
) -> Iterator[Made]:
    """Yield every figure, then every table, of the experiment `config`, made from `records`.

    An entry of `config.figures` or `config.tables` is a function of the records with its settings.
    It returns a Figure or a DataFrame. An error does not prevent the other entries. An entry of
    null is skipped. The caller must close the figures.
    """
    mpl.use("Agg")
    for kind in DRAWING:
        for name, spec in (config.get(kind) or {}).items():
            if spec is None:
                continue
            try:
                made = instantiate(spec, _convert_="all", _partial_=True)(records)
                if isinstance(made, Figure):
                    mark_substitute(made, records)
                    made.proof = proof(str(name), command(config, words), records)  # type: ignore[attr-defined]
            except Exception as error:  # noqa: BLE001 - the others are to be made all the same
                undone = Made(str(name), kind, None, error)
                if undone.failed and errors.wants_traceback():
                    traceback.print_exception(error)
                yield undone
                continue
            yield Made(str(name), kind, made)


def command(config: DictConfig, words: Sequence[str] = ()) -> str:
    """The command that draws the figures of `config` from its records again.

    `words` are the overrides of a command with its own settings.
    """
    shown = [f"experiment={config.name}", f"scale={config.get('scale', 'paper')}"]
    shown += [word for word in words if not word.startswith(("experiment=", "scale="))]
    return shlex.join(["python", "-m", "latticework.scripts.figures", *shown])


def proof(figure: str, command: str, records: Sequence[Record]) -> str:
    """The JSON text beside a figure that `command` draws from `records` now.

    `records` has the fingerprint of each record by its place, and the SHA-256 of each bundle.
    """
    prints: dict[str, str] = {}
    for record in records:
        if record.bundle is None:
            prints[record.place] = record.fingerprint
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
    figure.savefig(drawn, dpi=dpi * min(1, PAGE / figure.get_figwidth()), facecolor="white")
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
        name, told = (escape(text, quote=True) for text in (str(line.get_label()), _told(line)))
        group = f'<g data-name="{name}"><title>{told}</title>'
        text = text.replace(f'<g id="series{index}">', group, 1)
    return text if len(text) <= MOST else ""


def _told(line: Line2D, most: int = 10) -> str:
    """What a browser shows of a line below the mouse: its name and some of its values."""
    pairs: list[tuple[float, float]] = np.asarray(line.get_xydata(), dtype=float).tolist()
    points = [(x, y) for x, y in pairs if np.isfinite(y)]
    shown = points[:: max(1, -(-len(points) // most))]
    if points and shown[-1] != points[-1]:
        shown.append(points[-1])
    return "\n".join([str(line.get_label()), *(f"{x:.4g}: {y:.4g}" for x, y in shown)])


def drawn(
    config: DictConfig, words: Sequence[str], folder: Path, records: Sequence[Record]
) -> Written:
    """Draw the figures and tables of `config` for a command with the overrides `words`.

    `config` includes `hydra`. `records` are those in `folder`, below which the files are written.
    """
    if not records:
        log.warning("no figures: no finished run under %s", folder)
        return Written([], [])
    command = asked(config, words)  # an experiment outside of conf/ declares what its YAML has
    sweep = declared(config.name, config.scale) if exists(config.name) else asked(config)
    mine, others = sweep.divided(records)
    if not (mine or words):  # redrawing an experiment that has only runs with other settings
        return draw_all(config, folder, others, OWN)
    wanted = command.found(records) if command.runs else others
    declares_all = bool(command.runs) and command.kinds <= sweep.kinds
    if declares_all or (wanted and {id(r) for r in wanted} <= {id(r) for r in mine}):
        return draw_all(config, folder, mine)
    return draw_all(config, folder, wanted, f"{OWN}/{run_name(words, command.skipped)}", words)


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
                written.failed.append(f"{made.name} was not drawn: {made.wanting} {_of(records)}")
            else:
                log.warning("%s was not drawn: %s", made.name, made.wanting)
            continue
        try:
            written.files.append(_written(made.content, folder / made.kind / within, made.name))
        except Exception as error:  # noqa: BLE001 - such as a label that cannot be typeset
            why = errors.summary(error)
            written.failed.append(f"{made.name} was not written: {why} {_of(records)}")
    return written


def _of(records: Sequence[Record], most: int = 3) -> str:
    """The records of a figure, for a message."""
    more = f" and {len(records) - most} more" if len(records) > most else ""
    return f"(records: {'; '.join(record.place for record in records[:most])}{more})"


def _written(content: Figure | pd.DataFrame, folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(content, pd.DataFrame):
        return write(content, folder / f"{name}.csv")[0]
    return save(content, folder / f"{name}.png")


def save(figure: Figure, target: Path) -> Path:
    """Write the figure as PNG to `target`, with its PDF and its proof beside it; then close it."""
    target.write_bytes(png(figure, dpi=160))
    figure.savefig(target.with_suffix(".pdf"))
    for suffix, text in {".json": proof_of(figure), ".html": html_of(figure)}.items():
        if text:
            target.with_suffix(suffix).write_text(text, encoding="utf-8")
    mpl.pyplot.close(figure)
    return target
