r"""Why do two records differ, and should they be equal?

latticework why outputs/sampling/quick/seed=0 outputs/sampling/quick/seed=1
latticework why docs/results/records/ising_sampling.zip/sampler=dmala,seed=0 \
  outputs/ising_sampling/paper/sampler=dmala,seed=0

The same code, configuration, seeds, versions, device and threads give the same bits. The exit
status is 1 for an error: the numbers differ without a reason, or a file was changed after its run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from latticework.experiments.records.escapes import escape_terminal
from latticework.experiments.records.identity import SEEDS, identity, leaves, short_name
from latticework.experiments.records.record import RESULTS, Record, damage, opened
from latticework.experiments.runs.errors import told
from latticework.scripts.parsing import parser_of

CLOCK = "seconds"  # in the name of each column that is measured by a clock
ROUNDED = 2e-6  # relative; a bundle keeps 7 digits
MISSING = "(missing)"
CLASS = "._target_"  # of a part, such as the sampler
FACTS = ("loaded", "device", "processor", "threads", "commit")
GROUPS = {  # of facts: how each is called
    "data": "data.",
    "language": "language.",
    "versions": "version of ",
    "inputs": "content of ",
    "sources": "code of ",
}
CODE = ("commit", "code of ")  # may be different where what a run executes is not


@dataclass(frozen=True)
class Difference:
    """A fact that two records do not share, and whether it may change the numbers.

    Another commit changes them only if it changes code that the run executes: "perhaps".
    """

    what: str
    one: Any
    other: Any
    decides: Literal["yes", "no", "perhaps"]


@dataclass(frozen=True)
class Comparison:
    """Two records side by side."""

    differences: list[Difference]
    numbers: str  # how the results differ; "" if they are equal
    damaged: list[str]  # files that are not those that the run wrote

    @property
    def reasons(self) -> list[str]:
        """Why the numbers may differ."""
        return [each.what for each in self.differences if each.decides == "yes"]

    @property
    def doubts(self) -> list[str]:
        """What differs in the code."""
        return [each.what for each in self.differences if each.decides == "perhaps"]

    @property
    def is_fault(self) -> bool:
        """Whether the numbers differ without a reason, or a file was changed after its run."""
        return bool(self.damaged or (self.numbers and not self.reasons and not self.doubts))


def compare(one: Record, other: Record) -> Comparison:
    """Compare configuration, seeds, versions, code, machine, metrics and arrays."""
    differences = [*_settings(one, other), *_facts(one, other)]
    damaged = [
        f"{record.path}: {fault}" for record in (one, other) if (fault := damage(record.path))
    ]
    return Comparison(differences, _numbers(one, other), damaged)


def _settings(one: Record, other: Record) -> Iterator[Difference]:
    """Keys of the resolved configurations, seeds first; those of the identity decide."""
    mine, its = (leaves(identity(record.config)) for record in (one, other))
    for key in sorted({*mine, *its}, key=lambda key: (key not in SEEDS, key)):
        one_has, other_has = mine.get(key, MISSING), its.get(key, MISSING)
        if one_has != other_has and key.endswith(CLASS):
            here, there = short_name(str(one_has)), short_name(str(other_has))
            yield Difference(key.removesuffix(CLASS), here, there, "yes")
        elif one_has != other_has:
            yield Difference(key, one_has, other_has, "yes")
    whole, theirs = (leaves(record.config) for record in (one, other))
    for key in sorted(({*whole} & {*theirs}) - {*mine} - {*its}):
        if whole[key] != theirs[key]:
            yield Difference(key, whole[key], theirs[key], "no")


def _facts(one: Record, other: Record) -> Iterator[Difference]:
    """Data, versions, code and machine. Older records do not say all of it: "perhaps"."""
    found: list[dict[str, Any]] = []
    for document in (one.document, other.document):
        facts = {
            f"{words}{name}": value
            for group, words in GROUPS.items()
            for name, value in leaves(document.get(group) or {}).items()
        }
        found.append(facts | {name: document[name] for name in FACTS if name in document})
    for what in sorted({*found[0], *found[1]}):
        mine, its = (facts.get(what, MISSING) for facts in found)
        is_code = what.startswith(CODE)
        unsaid = MISSING in (mine, its) and not what.startswith(("data.", "language."))
        if mine != its and not (what.startswith("code of ") and unsaid):
            yield Difference(what, mine, its, "perhaps" if is_code or unsaid else "yes")
    documents = one.document, other.document
    more: dict[str, list[Any]] = {
        "uncommitted changes": [document.get("dirty") for document in documents],
        "parts made elsewhere": [_elsewhere(document) for document in documents],
    }
    for what, (mine, its) in more.items():
        if mine or its:
            yield Difference(what, mine, its, "perhaps")


def _elsewhere(document: dict[str, Any]) -> str:
    """Facts in which an earlier part of a resumed run differs from its last part: `commit`."""
    parts = document.get("resumed_from") or ()
    return ", ".join(
        sorted({key for part in parts for key in part if part[key] != document.get(key)})
    )


def _numbers(one: Record, other: Record) -> str:
    """The first row of metrics.csv that differs, and in which columns; then the arrays."""
    packed = not all(isinstance(record.path, Path) for record in (one, other))
    found = [first_difference(one.metrics, other.metrics, packed)]
    if not packed:  # a bundle leaves arrays out
        mine, its = (record.document.get("files") or {} for record in (one, other))
        arrays = {n for n in {*mine, *its} if n.endswith(RESULTS)} - {"metrics.csv", "tuned.yaml"}
        names = sorted(name for name in arrays if mine.get(name) != its.get(name))
        found += [f"files that differ: {', '.join(names)}"] if names else []
    return "; ".join(filter(None, found))


def first_difference(one: pd.DataFrame, other: pd.DataFrame, rounded: bool = False) -> str:
    """Where two tables of metrics first differ; "" if they do not.

    Columns of seconds are left out. With `rounded`, values that agree to 6 digits are equal, and
    only steps that both tables have are compared.
    """
    names, theirs = ([c for c in table if CLOCK not in c] for table in (one, other))
    if names != theirs:
        return f"columns of metrics.csv: {', '.join(names)} and {', '.join(theirs)}"
    if rounded and "step" in names:
        one, other = one[one.step.isin(other.step)], other[other.step.isin(one.step)]
    rows = min(len(one), len(other))
    mine, its = (table[names][:rows].reset_index(drop=True) for table in (one, other))
    near = np.isclose(mine, its, rtol=ROUNDED, atol=0) if rounded else mine == its
    differ = ~(near | (mine.isna() & its.isna()))
    if differ.any(axis=None):
        row = int(differ.any(axis=1).idxmax())
        name, *more = (c for c in names if differ.loc[row, c])
        at = f" (step {mine['step'][row]:g})" if "step" in names else ""
        return (
            f"metrics.csv first differs in row {row + 1}{at}, column {name}: "
            f"{mine[name][row]} and {its[name][row]}" + f", and {', '.join(more)}" * bool(more)
        )
    if len(one) != len(other):
        return f"metrics.csv has {len(one)} and {len(other)} rows; the first {rows} are equal"
    return ""


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
            grid.add_row(*[Text(escape_terminal(str(cell))) for cell in cells])
        console.print(grid)
    else:
        console.print("Configuration, seeds, versions, code and machine are the same.")
    console.print()
    for line in verdict(found):
        console.print(Text(escape_terminal(line)))
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
