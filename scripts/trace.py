"""Tell from which records a figure was drawn, and whether they are unchanged.

latticework trace outputs/ising_sampling/quick/figures/fig3.png
latticework trace fig3.pdf --outputs elsewhere

A figure of committed records names their bundle. The exit status is 1 if a record is missing or was
changed, and 2 if no JSON file beside the figure names its records.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from latticework.experiments.records.archive import DamagedError
from latticework.experiments.records.escapes import escape_terminal
from latticework.experiments.records.record import BUNDLES, describe_damage, open_record
from latticework.experiments.runs.errors import one_line_errors
from latticework.scripts.arguments import outputs, parser_of


def main(words: list[str] | None = None) -> int:
    """Return the exit status."""
    parser = parser_of("trace", __doc__)
    parser.add_argument("figure", type=Path, help="its PNG or PDF")
    parser.add_argument("--outputs", type=Path, default=outputs(), help="the folder of the records")
    chosen = parser.parse_args(words)
    if not chosen.figure.is_file():
        raise ValueError(f"there is no file {chosen.figure}")
    console = Console()
    file = chosen.figure.with_suffix(".json")
    try:
        proof = json.loads(file.read_text())
        figure, command = proof["figure"], proof["command"]
        records, versions = proof["records"], proof["versions"]
    except (OSError, ValueError, LookupError, TypeError):
        console.print(
            f"no {file.name} beside {chosen.figure.name} names its records: copy it too, or draw "
            "the figure again with python -m latticework.scripts.figures.",
            highlight=False,
        )
        return 2
    console.print(Text(f"figure    {escape_terminal(figure)}"))
    console.print(Text(f"command   {escape_terminal(command)}"), soft_wrap=True)
    made = ", ".join(f"{name} {number}" for name, number in versions.items())
    console.print(Text(f"drawn by  {escape_terminal(made)}\n"))
    folders = [chosen.outputs, *chosen.figure.resolve().parents]
    grid = Grid("record", "SHA-256", "state", box=None, pad_edge=False)
    unchanged = 0
    for name, known in records.items():
        how = state(name, known, folders)
        unchanged += how == "unchanged"
        cells = map(escape_terminal, (name, known[:12], how))
        grid.add_row(*map(Text, cells), style=None if how == "unchanged" else "bold red")
    console.print(grid)
    console.print(f"\n{unchanged} of {len(records)} are there and unchanged.")
    return 0 if unchanged == len(records) else 1


def state(name: str, known: str, folders: Sequence[Path]) -> str:
    """The state of a record or bundle of a figure: unchanged, missing, or what has changed.

    A record is looked for in `folders`, a bundle among the committed ones.
    """
    if name.endswith(".zip"):
        if not (BUNDLES / name).is_file():
            return "missing"
        same = hashlib.sha256((BUNDLES / name).read_bytes()).hexdigest() == known
        return "unchanged" if same else "changed: another bundle stands there"
    states = []
    for folder in folders:
        try:
            record = open_record(folder / name)
        except DamagedError as error:
            states.append(f"changed: {error}")
            continue
        except ValueError:
            continue
        fault = describe_damage(record.path)
        if not fault and record.fingerprint == known:
            return "unchanged"
        states.append(f"changed: {fault or 'another run stands there'}")
    return states[0] if states else "missing"


if __name__ == "__main__":
    with one_line_errors():
        raise SystemExit(main())
