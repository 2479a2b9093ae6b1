r"""Why do two records differ, and should they be equal?

latticework why outputs/sampling/quick/seed=0 outputs/sampling/quick/seed=1
latticework why docs/results/records/ising_sampling.zip/sampler=dmala,seed=0 \
  outputs/ising_sampling/paper/sampler=dmala,seed=0

The exit status is 1 for an error: the numbers differ without a reason, or a file was changed after
its run.
"""

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from latticework.experiments.records.comparison import Comparison, compare
from latticework.experiments.records.record import opened
from latticework.experiments.runs.errors import told
from latticework.scripts.parsing import parser_of


def main(words: list[str] | None = None) -> int:
    """Return the exit status."""
    parser = parser_of("why", __doc__)
    for name in ("A", "B"):
        parser.add_argument(name, help="the folder of a record, or <bundle>.zip/<run>")
    chosen = parser.parse_args(words)
    found = compare(opened(chosen.A), opened(chosen.B))
    console = Console()
    if found.differences:
        grid = Grid("what differs", "A", "B", "may change the numbers", box=None, pad_edge=False)
        for each in found.differences:
            cells = (each.what, each.one, each.other, each.decides)
            grid.add_row(*[Text(str(cell)) for cell in cells])
        console.print(grid)
    else:
        console.print("Configuration, seeds, versions, code and machine are the same.")
    console.print()
    for line in verdict(found):
        console.print(Text(line))
    return 1 if found.is_fault else 0


def verdict(found: Comparison) -> list[str]:
    """What the comparison means, in sentences."""
    lines = [f"Changed after the run: {fault}." for fault in found.damaged]
    if found.numbers:
        lines.append(f"The numbers differ: {found.numbers}.")
    else:
        lines.append("The numbers are equal, apart from the clock's.")
    if found.reasons:
        lines.append(
            f"The records need not be identical, because these differ: {', '.join(found.reasons)}."
        )
    elif found.doubts:
        doubts = ", ".join(found.doubts)
        lines.append(f"Equality is certain only with the same code; these differ: {doubts}.")
    elif found.numbers and found.damaged:
        lines.append("The records should be identical; a changed file explains the difference.")
    elif found.numbers:
        lines.append("The records should be identical: this difference is an error.")
    else:
        lines.append("The records should be identical.")
    return lines


if __name__ == "__main__":
    with told():
        raise SystemExit(main())
