"""The context of one run: device, seeded generators, and the record being written.

experiments/runs/recording.py defines the record and creates the Run; docs/records.md explains how a
task resumes.
"""

import csv
import json
import logging
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from latticework.experiments.records.estimates import duration
from latticework.experiments.records.files import read_file
from latticework.experiments.records.identity import has_same_identity
from latticework.experiments.runs import environment, storage
from latticework.experiments.runs.errors import ConfigurationError
from latticework.experiments.runs.loggers import Logger, call_tracker
from latticework.experiments.runs.signals import DeferredSignals
from latticework.experiments.runs.storage import Checkpoints, Document
from latticework.models.base import EnergyModel
from latticework.moved import RenamedMethods
from latticework.samplers.base import Sampler
from latticework.sampling import loop_state
from latticework.sampling.engine import select_kernel
from latticework.sampling.metrics import Metric
from latticework.sampling.seeds import derive_seed

log = logging.getLogger(__name__)
T = TypeVar("T")
LIVE_EVERY, PLAIN_EVERY = 0.1, 15.0  # seconds between two lines, on a terminal and elsewhere
BAR_CHARACTERS = 20  # characters
CLEAR = "\r\033[K"  # to the start of the line, and erase it


class Run(RenamedMethods):
    """The tools of a task: random generators, the record to write, the device and the seeds."""

    old_names: ClassVar = {"kernel": "select_kernel"}

    def __init__(
        self,
        path: Path,
        *,
        device: torch.device | str = "cpu",
        seed: int = 0,
        model_seed: int = 0,
        outputs: Path | None = None,
        loggers: Sequence[Logger] = (),
        config: dict[str, Any] | None = None,
        checkpoint: float = 300.0,
        engine: str = "eager",
    ) -> None:
        self.path, self.device = path, torch.device(device)
        self.seed, self.model_seed = seed, model_seed
        self.engine = engine  # sampling.engine
        self.outputs = outputs or path.parent
        self.loggers = loggers
        self._tracked = list(loggers)  # those that have taken all rows so far
        self.notes: dict[str, Any] = {}
        self._columns: list[str] = []
        self.config, self.checkpoint = config or {}, checkpoint  # seconds between two of them
        self.checkpoints = Checkpoints(path / "checkpoints")
        self._saved: dict[str, Document] = {}  # checkpoints of the process before, by loop
        self._ended: dict[str, int] = {}  # the loops of this run that are finished, and where
        self._rows = self._kept = (
            0  # rows of metrics.csv; and those when the last of those loops ended
        )
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds of the run so far. After resuming, includes time up to the last checkpoint."""
        return time.perf_counter() - self._started

    def rng(self, purpose: str, device: torch.device | str | None = None) -> torch.Generator:
        """A generator seeded by the run's seed and `purpose` only, so samplers see equal draws."""
        return torch.Generator(device or self.device).manual_seed(derive_seed(self.seed, purpose))

    def shared_rng(self, purpose: str, device: torch.device | str | None = None) -> torch.Generator:
        """A generator seeded by the model seed: for models, training and ground truth.

        Runs that differ only in their seed see equal draws.
        """
        seed = derive_seed(self.model_seed, f"shared/{purpose}")
        return torch.Generator(device or self.device).manual_seed(seed)

    def select_kernel(
        self,
        sampler: Sampler,
        model: EnergyModel,
        metrics: Sequence[Metric] = (),
        x: Tensor | None = None,
        steps: int = 0,
        call: int = 0,
    ) -> Sampler:
        """The kernel that the run's engine chooses, for whatever runs chains in place of `sampler`.

        `x` is where the chains start and `steps` how many they make; without them no kernel is
        fused. `call` is as in `select_kernel`. The record notes which engine it is, and why it is
        not compiled. Raises NotCompiledError for `engine=compiled` or `fused` if there is no such
        kernel.
        """
        chosen, why = select_kernel(sampler, model, self.engine, metrics, x, steps, call)
        self.note(engine=getattr(chosen, "engine", "eager"))
        if why and self.engine == "auto":
            self.note(engine_reason=why)
            log.info("engine: eager, because %s", why)
        return chosen

    @contextmanager
    def seed_global_rng(self, purpose: str) -> Iterator[None]:
        """Seed the global generator inside the block, for code such as `nn.Module.__init__`."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(self.model_seed, f"shared/{purpose}"))
            yield

    def progress(
        self, items: Iterable[T], what: str, total: int, done: int = 0, each: int = 1
    ) -> Iterator[T]:
        """Yield `items`; show steps per second and the latest metrics.

        On a terminal in a live line, elsewhere in plain lines of the log. `done` of the `total`
        items were processed earlier. An item counts as `each`, such as the steps between two
        readings.
        """
        live = sys.stdout.isatty()
        handlers = logging.getLogger().handlers if live else []
        for handler in handlers:
            handler.addFilter(_clear)  # else a message would follow the line
        started = last = time.monotonic()
        try:
            for count, item in enumerate(items, start=done + 1):
                yield item
                now = time.monotonic()
                if now - last > (LIVE_EVERY if live else PLAIN_EVERY):
                    last, seconds = now, (now - started) / (count - done) / each
                    rate = _rate(seconds, count * each, total * each)
                    line = f"{count * each:,}/{total * each:,}  {rate}  {_short(self.latest())}"
                    if live:
                        bar = f"{what} {'━' * (BAR_CHARACTERS * count // total):{BAR_CHARACTERS}}"
                        line = f"{bar} {line}"[: shutil.get_terminal_size().columns - 1]
                        print(f"{CLEAR}{line}", end="", flush=True)
                    else:
                        log.info("%s %s", what, line)
        finally:
            for handler in handlers:
                handler.removeFilter(_clear)
            if live:
                _clear()

    def resumable(
        self, memory: loop_state.LoopState, what: str, *, total: int, first: int = 1, each: int = 1
    ) -> Iterator[int]:
        """Yield the remaining iterations of `first` to `total`, and write checkpoints of `memory`.

        `what` names the loop, also in the progress display, where an iteration counts as `each`
        steps. docs/records.md explains how to use this. Raises ValueError for a name
        that was used before, and SystemExit after a signal.
        """
        if what in self._ended:
            raise ValueError(f"every loop of a run needs its own name, got {what!r} again")
        saved = self._saved.get(what)
        done = self._restore(memory, what, first - 1)
        written, at = done, time.perf_counter()
        with DeferredSignals() as signals:
            rounds = range(done + 1, total + 1)
            for iteration in self.progress(rounds, what, total, done, each):
                yield iteration
                if signals.came or time.perf_counter() - at >= self.checkpoint:
                    self._write(memory, what, iteration)
                    written, at = iteration, time.perf_counter()
                signals.handle_received(
                    f" at {what} {iteration * each} of {total * each}: the same command resumes "
                    f"from there ({self.checkpoints.folder})"
                )
        if written < total:
            self._write(memory, what, total)
        # The rows of a loop that had ended are those of its checkpoint: later loops added to them.
        self._ended[what] = total
        self._kept = saved["rows"] if saved is not None and done == total else self._rows

    def _write(self, memory: loop_state.LoopState, loop: str, iteration: int) -> None:
        document = {
            "config": json.dumps(self.config),
            "device": self.device.type,
            "loop": loop,
            "iteration": iteration,
            "earlier": dict(self._ended),
            "rows": self._rows,
            "seconds": self.seconds,
            "notes": json.dumps(self.notes),
            "facts": environment.environment_facts(self.device, self.config),
            "described": loop_state.describe_structure(memory),
            "memory": loop_state.to_checkpoint(memory),
        }
        self.checkpoints.write(document)

    def _restore(self, memory: loop_state.LoopState, loop: str, done: int) -> int:
        """Restore `memory` from the loop's checkpoint, if any; return the last iteration done."""
        document = self._saved.pop(loop, None)
        if document is None:
            return done
        if document["described"] != loop_state.describe_structure(memory):
            log.warning("the checkpoint of %s is not used: it has another model", loop)
            storage.set_aside(self.path, self.outputs, copy=True)
            self._saved.clear()
            self.checkpoints.remove()
            self._cut(self._kept)
            return done
        memory.load_state_dict(document["memory"], self.device)
        earlier = self._other_environments(document)
        self.notes = {**json.loads(document["notes"]), **self.notes}
        if earlier:
            self.note(resumed_from=earlier)
        self._started = min(self._started, time.perf_counter() - document["seconds"])
        log.info("%s resumes from iteration %d", loop, document["iteration"])
        if names := environment.changed_modules(document.get("facts", {}), self.config):
            log.warning(
                "the code of %s has changed since the checkpoint: delete %s to start again",
                names,
                self.checkpoints.folder,
            )
        return document["iteration"]

    def _other_environments(self, document: Document) -> list[dict[str, Any]]:
        """Facts of machine and code in which earlier parts of this run differ from this process."""
        now = environment.environment_facts(self.device, self.config)
        noted = (json.loads(document["notes"]), self.notes)
        parts = [part for notes in noted for part in notes.get("resumed_from", ())]
        parts.append(document.get("facts", now))  # older checkpoints have none
        return [each for n, each in enumerate(parts) if each != now and each not in parts[:n]]

    def load_checkpoints(self, config: dict[str, Any], *, force: bool = False) -> None:
        """Load the checkpoints of an earlier process, or start a new record if none fits.

        metrics.csv is truncated to the rows that it had at the last checkpoint. Checkpoints that do
        not fit are moved to `superseded`, with the rest of their record. Raises ConfigurationError
        for checkpoints of another kind of device, such as a GPU's on a machine that has none; with
        `force`, they are moved too.
        """
        file = self.path / "metrics.csv"
        present = (read_file(file).count(b"\n") if file.exists() else 0) - 1

        def fits(document: Document) -> str:
            notes = json.loads(document["notes"])
            if not has_same_identity(
                {**notes, "config": json.loads(document["config"])}, self.config or config
            ):
                return "it has another configuration"
            if names := environment.changed_inputs(notes, config):
                return f"{names} has changed since"
            if document["device"] != self.device.type:
                made = f"made on {document['device']}, and this run is on {self.device.type}"
                if force:
                    return f"it was {made}"
                raise ConfigurationError(
                    f"the checkpoints in {self.checkpoints.folder} were {made}: give "
                    f"device={document['device']} to continue, or force=true to start again"
                )
            if document["rows"] > max(present, 0):
                return f"metrics.csv has {max(present, 0)} rows, it needs {document['rows']}"
            return ""

        self._saved = self.checkpoints.load(fits)
        if not self._saved:
            if any(self.checkpoints.folder.glob("*.pt")):
                storage.set_aside(self.path, self.outputs)
            self.checkpoints.remove()
            for stale in (*self.path.glob("*.npz"), *self.path.glob("*.safetensors")):
                stale.unlink()
        self._cut(max((document["rows"] for document in self._saved.values()), default=0))

    def _cut(self, rows: int) -> None:
        """Truncate metrics.csv to its first `rows` rows."""
        file = self.path / "metrics.csv"
        self._rows, self._columns = rows, []
        if rows == 0:
            file.unlink(missing_ok=True)
            return
        lines = file.read_text().splitlines(keepends=True)[: rows + 1]
        storage.write_atomically(file, "".join(lines))
        self._columns = next(csv.reader(lines[:1]))
        self._latest = dict(zip(self._columns, map(float, lines[-1].split(",")), strict=True))

    def latest(self) -> dict[str, float]:
        """The last row logged, for the progress display."""
        return self._latest if self._columns else {}

    def log(self, step: int, **values: Tensor | float) -> None:
        """Append a row to metrics.csv. All rows must have the columns of the first row."""
        row = {"step": step, **{name: float(value) for name, value in values.items()}}
        self._latest = row
        target = self.path / "metrics.csv"
        with (
            storage.convert_write_errors(target),
            open(target, "a", newline="", opener=storage.without_links) as file,
        ):
            writer = csv.DictWriter(file, self._columns or list(row), lineterminator="\n")
            if not self._columns:
                self._columns = list(row)
                writer.writeheader()
            writer.writerow(row)
        self._rows += 1
        values = {name: value for name, value in row.items() if name != "step"}
        lost = "a tracker failed and gets no more rows, which metrics.csv has"
        self._tracked = [
            each for each in self._tracked if call_tracker(lost, each.log, step, values)
        ]

    def save(self, name: str, **arrays: Tensor | np.ndarray) -> None:
        """Store arrays as `<name>.npz`, compressed; float32 zeros and ones are stored as bytes."""
        stored = {key: _array(value) for key, value in arrays.items()}
        storage.write_atomically(self.path / f"{name}.npz", storage.serialise_arrays(stored))

    def save_tensors(self, name: str, tensors: dict[str, Tensor]) -> None:
        """Store tensors, such as a model's, as `<name>.safetensors`."""
        storage.write_atomically(
            self.path / f"{name}.safetensors", storage.serialise_tensors(tensors)
        )

    def note(self, **values: Any) -> None:
        """Add facts to run.json, as JSON values."""
        self.notes.update(values)


def _array(value: Tensor | np.ndarray) -> np.ndarray:
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    if array.dtype == np.float32 and np.isin(array, (0, 1)).all():
        return array.astype(np.uint8)
    return array


def _clear(*_: object) -> bool:
    """Erase the live line. As a filter of a handler's messages, it lets all of them through."""
    print(CLEAR, end="", flush=True)
    return True


def _rate(each: float, done: int, total: int) -> str:
    """The rate at `each` seconds per item, and the time that is left: `3.2/s  2 min to go`."""
    rate = f"{1 / each:.0f}/s" if each <= 0.1 else f"{1 / each:.2g}/s"
    return f"{rate}  {duration(each * (total - done))} to go" if done < total else rate


def _short(row: dict[str, float]) -> str:
    names = [name for name in row if name not in ("seconds", "evaluations")]
    return "  ".join(f"{name} {row[name]:.4g}" for name in names[:4])
