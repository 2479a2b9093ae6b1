"""Which records was a figure drawn from, and are they unchanged?

latticework trace outputs/ising_sampling/quick/figures/fig3.png
latticework trace fig3.pdf --outputs elsewhere

The exit status is 0 if every record is there and unchanged, 1 if one is missing or changed, and 2
if the figure names no records.
"""

import os
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from latticework.experiments.records.proof import read, verified
from latticework.experiments.runs.errors import told
from latticework.scripts.parsing import parser_of


def main(words: list[str] | None = None) -> int:
    """Return the exit status."""
    parser = parser_of("trace", __doc__)
    parser.add_argument("figure", type=Path, help="a PNG or PDF")
    parser.add_argument("--outputs", type=Path, help="the folder of the records")
    chosen = parser.parse_args(words)
    if not chosen.figure.is_file():
        raise ValueError(f"there is no file {chosen.figure}")
    console = Console()
    proof = read(chosen.figure)
    if proof is None:
        console.print(
            f"{chosen.figure.name} has no metadata of this library: it was drawn before 0.2, or "
            "saved again by another program. Draw it again with "
            "python -m latticework.scripts.figures.",
            highlight=False,
        )
        return 2
    console.print(f"figure    {proof.figure}", highlight=False)
    console.print(f"command   {proof.command}", highlight=False, soft_wrap=True)
    made = ", ".join(f"{name} {number}" for name, number in proof.versions.items())
    console.print(f"drawn by  {made}\n", highlight=False)
    given = chosen.outputs or Path(os.environ.get("LATTICEWORK_OUTPUTS", "outputs"))
    found = verified(proof, [given, *chosen.figure.resolve().parents])
    grid = Grid("record", "SHA-256", "state", box=None, pad_edge=False)
    for name, state in found.items():
        colour = "green" if state == "unchanged" else "bold red"
        grid.add_row(Text(name), Text(proof.records[name][:12]), Text(state, colour))
    console.print(grid)
    wrong = [name for name, state in found.items() if state != "unchanged"]
    console.print(f"\n{len(found) - len(wrong)} of {len(found)} records are there and unchanged.")
    return 1 if wrong else 0


if __name__ == "__main__":
    with told():
        raise SystemExit(main())
