"""Checkpoints: a run that was stopped or killed goes on where it was, to the same numbers.

A task that loops for long puts all that its loop changes into a dataclass, its memory, and lets the
run count:

    @dataclass
    class Training(Memory):                      # experiments/memory.py
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

The loop runs from `first` (1 unless told otherwise) to `total` and shows its progress. Between two
iterations it writes a checkpoint every `checkpoint` seconds (conf/config.yaml), at the end, and on
SIGTERM, SIGUSR1, SIGUSR2 or SIGINT. After a signal the process exits, or does what its launcher
installed for that signal: submitit requeues the job. The same command resumes from the last
checkpoint, with metrics.csv cut to the rows that were there. Four rules:

1. Generators and objects with a `state_dict` (modules, optimisers, schedules, memories,
   experiments.clock.Clock) are restored in place. Other fields (tensors, numbers, sampler states,
   lists, None) are replaced when the loop begins, so the body reads `memory.state` and no variable
   from before the loop.
2. Code before the loop runs again: it must not depend on time, and logs no rows. `first=0` adds an
   iteration for the reading at the start.
3. Every generator that the body draws from is in the memory.
4. Loops that follow one another have different names; they are passed over once they are finished.

A checkpoint of another configuration, device or model is not used, nor one that is damaged: then
the one before it is. Files are written aside and renamed, the last two of a loop are kept, and all
are removed when the run has finished.
"""

import json
import logging
import signal
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from experiments import writing

log = logging.getLogger(__name__)
KEPT = 2  # checkpoints of a loop
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)
Document = dict[str, Any]
Handler = Callable[[int, FrameType | None], Any] | int | None


class Stopped(SystemExit):
    """A signal ended the run after a checkpoint; the status is 128 plus the signal's number."""


class Checkpoints:
    """The checkpoints of one run, in `folder`: `<loop>-<iteration>.pt`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, document: Document) -> None:
        """Store `document`, whose `loop` and `iteration` name it; keep the loop's last KEPT.

        Raises UnwritableError; the checkpoints before it stay.
        """
        with writing.told(self.folder):
            self.folder.mkdir(exist_ok=True)
        loop = document["loop"]
        target = self.folder / f"{loop}-{document['iteration']:010}.pt"
        writing.write(target, writing.checkpoint(document))
        for old in self._of(loop)[:-KEPT]:
            old.unlink()

    def load(self, fits: Callable[[Document], str]) -> dict[str, Document]:
        """The newest usable checkpoint of each loop, by its name.

        `fits` says why one cannot be used, or nothing. One that follows loops whose end is not
        there any more is of no use either.
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
        """Delete them all, and what a kill left half written."""
        if self.folder.is_dir():
            for file in (*self.folder.glob("*.pt"), *self.folder.glob("*.partial")):
                file.unlink()
            if not any(self.folder.iterdir()):
                self.folder.rmdir()

    def _of(self, loop: str) -> list[Path]:
        return sorted(f for f in self.folder.glob("*.pt") if f.name.rpartition("-")[0] == loop)


def made_for(folder: Path) -> dict[str, Any] | None:
    """What the newest readable checkpoint in `folder` was made for: its `config` and notes.

    As much of run.json as there was. None where no checkpoint can be read.
    """
    for file in sorted(folder.glob("*.pt"), key=lambda file: file.stat().st_mtime, reverse=True):
        document, fault = _read(file)
        if not fault:
            return {**json.loads(document["notes"]), "config": json.loads(document["config"])}
    return None


def _read(file: Path) -> tuple[Document, str]:
    """The document and nothing, or an empty one and what is wrong with the file."""
    try:
        with zipfile.ZipFile(file) as archive:
            if (member := archive.testzip()) is not None:  # torch.load does not look at checksums
                return {}, f"damaged ({member})"
        return torch.load(file, map_location="cpu", weights_only=True), ""
    except Exception as error:  # noqa: BLE001 - of many kinds when a file is damaged
        return {}, f"damaged ({type(error).__name__})"


class Signals:
    """The signals that came while a loop ran, and the handlers that were there before it."""

    def __init__(self) -> None:
        self.came: list[signal.Signals] = []
        self.before: dict[int, Handler] = {}

    def __bool__(self) -> bool:
        return bool(self.came)

    def act(self, where: str) -> None:
        """Do what they ask for, once the checkpoint is written.

        A handler that a launcher installed is called: submitit's lets SIGTERM pass, and on SIGUSR2
        requeues the job and leaves. Where there was none, Stopped is raised.
        """
        came, self.came = self.came, []
        for number in came:
            handler = self.before[number]
            if not callable(handler) or handler is signal.default_int_handler:
                log.warning("stopped by %s at %s", number.name, where)
                raise Stopped(128 + number)
            handler(number, None)


@contextmanager
def noticed() -> Iterator[Signals]:
    """The signals of SIGNALS that come while inside; a second SIGINT aborts, as it always does.

    Outside the main thread, which alone may install handlers, they do what they did before.
    """
    signals = Signals()

    def note(number: int, frame: FrameType | None) -> None:
        signals.came.append(signal.Signals(number))
        log.warning(
            "%s: a checkpoint will be written when this iteration ends", signal.Signals(number).name
        )
        if number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler)

    try:
        for number in SIGNALS:
            signals.before[number] = signal.signal(number, note)
    except ValueError:
        pass
    try:
        yield signals
    finally:
        for known, handler in signals.before.items():
            signal.signal(known, handler)
