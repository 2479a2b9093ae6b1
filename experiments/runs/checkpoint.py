"""Checkpoints: an interrupted run resumes bit for bit.

A task with a long loop keeps everything that the loop changes in a dataclass, a Memory, and
iterates with `run.resumable`:

    @dataclass
    class Training(Memory):                      # sampling/memory.py
        model: Module
        optimiser: Optimizer
        rng: Generator
        state: State
        best: float = -math.inf

    memory = Training(model, optimiser, rng, sampler.init(x, model))
    for iteration in run.resumable(memory, "training", total=10_000):
        memory.state, _ = sampler.step(memory.state, model, rng)
        ...                                      # optimiser.step(), run.log(iteration, ...)
    run.save("last", x=memory.state.x)

The loop yields `first` (default 1) to `total` and shows its progress. It writes a checkpoint
between two iterations: every `checkpoint` seconds (conf/config.yaml), at the end of the loop, and
on a signal (`experiments.runs.signals`). After a signal the process exits, or calls the handler
that a launcher installed; submitit's handler requeues the job. Giving the same command again
resumes from the last checkpoint, and truncates metrics.csv to the rows that it had then. Four
rules:

1. Generators and objects with a `state_dict` (modules, optimisers, schedules, Memory,
   sampling.clock.Clock) are restored in place. Other fields (tensors, numbers, sampler
   states, lists, None) are replaced when the loop begins. The loop's body must read `memory.state`,
   and not a variable set before the loop.
2. Code before the loop runs again on resuming. It must be deterministic and log no rows. Use
   `first=0` to log a reading at the start.
3. Every generator that the body draws from must be a field of the Memory.
4. Each loop of a run needs its own name. Loops that have finished are skipped on resuming.

A checkpoint is used only if it has the same configuration and model, and is not damaged; otherwise
the one before it is tried. If none can be used, they are kept in `outputs/superseded`. Those of
another kind of device are refused with an error. Each file is written under a temporary name and
then renamed. The last two checkpoints of each loop are kept. All are removed when the run has
finished.
"""

import logging
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from latticework.experiments.runs import writing

log = logging.getLogger(__name__)
KEPT = 2  # checkpoints of a loop
Document = dict[str, Any]


class Checkpoints:
    """The checkpoints of one run, in `folder`: `<loop>-<iteration>.pt`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, document: Document) -> None:
        """Store `document` under its `loop` and `iteration`; keep the loop's last KEPT.

        Raises UnwritableError on failure; earlier checkpoints are unchanged.
        """
        with writing.told(self.folder):
            self.folder.mkdir(exist_ok=True)
        loop = document["loop"]
        target = self.folder / f"{loop}-{document['iteration']:010}.pt"
        writing.write(target, writing.checkpoint(document))
        for old in self._of(loop)[:-KEPT]:
            old.unlink()

    def load(self, fits: Callable[[Document], str]) -> dict[str, Document]:
        """The newest usable checkpoint of each loop, by the loop's name.

        `fits` returns the reason why a checkpoint cannot be used, or an empty string. A checkpoint
        also needs the final checkpoints of the loops that ran before it.
        """
        newest: dict[str, Document] = {}
        for loop in sorted({file.name.rpartition("-")[0] for file in self.folder.glob("*-*.pt")}):
            for file in reversed(self._of(loop)):
                document, fault = _read(file)
                fault = fault or fits(document)
                if not fault:
                    newest[loop] = document
                    break
                log.warning("the checkpoint %s is not used: %s", file, fault)
        usable: dict[str, Document] = {}
        for loop, document in sorted(newest.items(), key=lambda item: len(item[1]["earlier"])):
            ends = {name: found["iteration"] for name, found in usable.items()}
            if all(ends.get(name) == end for name, end in document["earlier"].items()):
                usable[loop] = document
        return usable

    def remove(self) -> None:
        """Delete all checkpoints, and files that were only partly written."""
        if self.folder.is_dir():
            for file in (*self.folder.glob("*.pt"), *self.folder.glob("*.partial")):
                file.unlink()
            if not any(self.folder.iterdir()):
                self.folder.rmdir()

    def _of(self, loop: str) -> list[Path]:
        return sorted(f for f in self.folder.glob("*.pt") if f.name.rpartition("-")[0] == loop)


def _read(file: Path) -> tuple[Document, str]:
    """The document and an empty string, or an empty document and what is wrong with the file."""
    try:
        with zipfile.ZipFile(file) as archive:
            if (member := archive.testzip()) is not None:  # torch.load does not look at checksums
                return {}, f"damaged ({member})"
        return torch.load(file, map_location="cpu", weights_only=True), ""
    except Exception as error:  # noqa: BLE001 - of many kinds when a file is damaged
        return {}, f"damaged ({type(error).__name__})"
