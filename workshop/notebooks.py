"""Write notebooks of the gallery as .ipynb files with their outputs.

python -m workshop.notebooks      # docs/gallery/own_target.ipynb and two_modes.ipynb

The sources are the Python files of docs/gallery with `# %%` cells. The site shows the same cells
(docs/hooks.py). A notebook has what its cells print, and their figures as PNG.
"""

import base64
import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt

GALLERY = Path(__file__).resolve().parents[1] / "docs" / "gallery"
NOTEBOOKS = ("own_target", "two_modes")  # the first minutes; tempering with log Z
DOTS_PER_INCH = 80  # resolution of a figure
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


class Cell(NamedTuple):
    """A cell of a file with `# %%` lines: text in Markdown, or code."""

    title: str  # the words after `# %%`
    source: str

    @property
    def is_markdown(self) -> bool:
        return self.title == "[markdown]"


class CellOutput(NamedTuple):
    """The text that a cell printed, and its figures as PNG."""

    text: str
    figures: list[bytes]


def read_cells(file: Path) -> list[Cell]:
    """The cells of a Python file."""
    _, *parts = re.split(r"^# %%(.*)\n", file.read_text(), flags=re.MULTILINE)
    cells = []
    for title, source in zip(parts[::2], parts[1::2], strict=True):
        cell = Cell(title.strip(), source.strip())
        if cell.is_markdown:
            cell = cell._replace(source=re.sub(r"^# ?", "", cell.source, flags=re.MULTILINE))
        cells.append(cell)
    return cells


def run_cells(file: Path, dots_per_inch: int) -> Iterator[tuple[Cell, CellOutput]]:
    """The cells of a Python file, which are run in turn, with their outputs."""
    plt.switch_backend("agg")
    space: dict[str, object] = {"__name__": file.stem}
    for cell in read_cells(file):
        if cell.is_markdown:
            yield cell, CellOutput("", [])
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(cell.source, str(file), "exec"), space)
        figures = []
        for number in plt.get_fignums():
            plt.figure(number).savefig(picture := io.BytesIO(), dpi=dots_per_inch)
            plt.close(number)
            figures.append(picture.getvalue())
        yield cell, CellOutput(printed.getvalue().rstrip(), figures)


def make_notebook(file: Path) -> dict[str, Any]:
    """The notebook of a Python file, in Jupyter's format 4.5."""
    cells: list[dict[str, Any]] = []
    count = 0
    for number, (cell, output) in enumerate(run_cells(file, DOTS_PER_INCH), 1):
        shown: dict[str, Any] = {
            "cell_type": "markdown" if cell.is_markdown else "code",
            "id": f"cell-{number}",
            "metadata": {},
            "source": cell.source.splitlines(keepends=True),
        }
        if not cell.is_markdown:
            count += 1
            shown |= {"execution_count": count, "outputs": list_outputs(output)}
        cells.append(shown)
    metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def list_outputs(output: CellOutput) -> list[dict[str, Any]]:
    """The output of a cell as Jupyter stores it."""
    outputs: list[dict[str, Any]] = []
    if output.text:
        lines = f"{output.text}\n".splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines})
    for figure in output.figures:
        data = {"image/png": base64.b64encode(figure).decode(), "text/plain": ["<Figure>"]}
        outputs.append({"data": data, "metadata": {}, "output_type": "display_data"})
    return outputs


def main() -> None:
    for name in NOTEBOOKS:
        notebook = make_notebook(GALLERY / f"{name}.py")
        file = GALLERY / f"{name}.ipynb"
        file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
        print(f"written: {file}")


if __name__ == "__main__":
    main()
