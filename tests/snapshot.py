"""The net: what the committed records determine, as text, and three smoke runs bit by bit.

    python tests/snapshot.py build/before   # before a change, and build/after after it
    diff -r build/before build/after   # prints nothing if the change keeps every number

`results/` has the numbers and tables of docs/results, and `ledger.txt` each verdict with all of its
margins. They do not depend on the machine, and test_net.py compares them with the committed files,
docs/results and tests/ledger.txt. A change of a verdict that is meant is committed with a new
ledger.txt.
`runs.txt` has the hashes of what three runs drew and the metrics that they logged. It is comparable
only on one machine.
"""

import hashlib
import sys
import tempfile
from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
from command import command_line
from omegaconf import DictConfig

from latticework.experiments.figures.plot import Plot
from latticework.experiments.papers.claims.ledger import Entry, judge
from latticework.experiments.papers.draw import make_all
from latticework.experiments.papers.exhibits import catalogue
from latticework.experiments.papers.rendering import csv_text, write_table
from latticework.experiments.papers.report_pages import TABLES, file_stem
from latticework.experiments.papers.run_status import ExperimentStatus, load_statuses, pools
from latticework.experiments.records.record import load_all

KNOWN = catalogue()
KINDS = ("figures", "tables")  # of a configuration
RUNS = (
    ("model=ising", "sampler=dmala", "seed=0"),
    ("model=rbm", "task=isl", "data=digits", "sampler=gwg", "pretrain=fpcd", "seed=1"),
    ("experiment=ising_learning", "sampler=gibbs", "task.steps=10", "seed=0", "~figures"),
)


def results(folder: Path) -> None:
    """Write the numbers of every figure and table of the exhibits, and the ledger."""
    held = committed()
    target = folder / "results"
    target.mkdir(parents=True)
    for exhibit in KNOWN.exhibits:
        for experiment, names in exhibit.items_by_experiment.items():
            for one in held.get(experiment, ()):
                for made in make_all(_only(one.config, names), one.drawable_records):
                    file = target / file_stem(exhibit, experiment, made.name)
                    if isinstance(made.content, Plot):
                        texts = {
                            ".csv": csv_text(made.content.table),
                            ".html": made.content.html,
                        }
                        plt.close(made.content.figure)
                        for suffix, text in texts.items():
                            if text:
                                file.with_suffix(suffix).write_text(text, encoding="utf-8")
                    elif made.content is not None:
                        (target / TABLES).mkdir(exist_ok=True)
                        write_table(made.content, target / TABLES / f"{file.name}.csv")
    (folder / "ledger.txt").write_text(ledger())


@cache
def committed() -> dict[str, list[ExperimentStatus]]:
    """The committed records of each experiment."""
    return load_statuses(KNOWN.experiments(), None, scales=("paper",))


@cache
def judged() -> list[Entry]:
    return judge(pools(committed()))


def ledger() -> str:
    """Each claim with its verdict or indication, all margins, and what would decide it."""
    lines = []
    for entry in judged():
        indication = f" ({entry.basis}: {entry.indication})" if entry.indication else ""
        lines.append(f"{entry.claim.name}: {entry.verdict}{indication}")
        margins = entry.finding.margins if entry.finding else ()
        lines += [f"  {margin.text()}" for margin in margins]
        lines += [f"  needs {entry.needs}"] if entry.needs else []
    return "\n".join(lines) + "\n"


def runs() -> str:
    """The metrics of each smoke run, without what a clock says, and hashes of its arrays."""
    lines = []
    for words in RUNS:
        with tempfile.TemporaryDirectory() as outputs:
            assert command_line(*words, "scale=smoke", outputs=Path(outputs)) == 0
            (record,) = load_all(Path(outputs))
            table = record.metrics
            shown = table[[name for name in table if "seconds" not in name]]
            lines += [" ".join(words), shown.to_csv(index=False)]
            for name in sorted(n.removesuffix(".npz") for n in record.files if ".npz" in n):
                for key, array in record.arrays(name).items():
                    lines.append(f"{name} {key} {hashlib.sha256(array.tobytes()).hexdigest()}")
    return "\n".join(lines) + "\n"


def _only(config: DictConfig, names: list[str] | None) -> DictConfig:
    """`config` with those figures and tables only that have one of `names`; None keeps all."""
    kept = config.copy()
    for kind in KINDS:
        for name in kept.get(kind) or ():
            if name not in (names or [name]):
                kept[kind][name] = None
    return kept


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    results(folder)
    (folder / "runs.txt").write_text(runs())
