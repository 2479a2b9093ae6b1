"""Experiment trackers, in addition to the record's own files: Weights & Biases and TensorBoard.

A tracker receives metrics during a run, the headline at its end, and the figures and tables at the
end of a command. See docs/logging.md.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import uuid4

from latticework.experiments.records.estimates import KeyNumber
from latticework.experiments.records.identity import flatten_settings, mask_passwords
from latticework.moved import take_old_methods

WANDB_ID_FILE = "wandb_id.txt"  # in a folder; moved away with a record that is made again


@dataclass(frozen=True)
class RunInfo:
    """The facts of a run for a tracker: its folder, configuration and options of its groups.

    `last_step` is the step of the last row that an earlier process logged and this one keeps.
    """

    path: Path
    config: dict[str, Any]
    choices: dict[str, str] = field(default_factory=dict)
    last_step: int | None = None


class Logger(Protocol):
    """An experiment tracker that receives metrics in addition to the record."""

    def start(self, about: RunInfo) -> None: ...
    def log(self, step: int, values: dict[str, float]) -> None: ...
    def log_headline(self, numbers: Sequence[KeyNumber]) -> None: ...
    def finish(self) -> None: ...
    def log_files(self, files: Sequence[Path], folder: Path, config: dict[str, Any]) -> None: ...


def build_logger(config: Any) -> Logger:
    """The tracker of a configuration, also of a class with the methods of 0.2."""
    from hydra.utils import instantiate

    return take_old_methods(instantiate(config), {"result": "log_headline", "show": "log_files"})


@dataclass
class WandB:
    """Weights & Biases. Offline by default; its files are written to the record's folder.

    A run that resumes keeps its id. Its group is `<experiment>/<scale>`, its job type the task, its
    tags the chosen model, data and sampler. With `artifacts` the record's files are uploaded.
    Figures and tables form a separate run of the group, with the job type `figures`.
    """

    project: str = "latticework"
    mode: Literal["online", "offline", "disabled"] = "offline"
    artifacts: bool = False
    _run: Any = field(default=None, init=False)
    _path: Path = field(default=Path(), init=False)
    _done: bool = field(default=False, init=False)

    def start(self, about: RunInfo) -> None:
        self._path = about.path
        tags = [about.choices[name] for name in TAGS if about.choices.get(name)]
        self._init(about.path, about.config, about.choices.get("task", "run"), tags)

    def _init(
        self, path: Path, config: dict[str, Any], job_type: str, tags: Sequence[str] = ()
    ) -> None:
        known = path / WANDB_ID_FILE
        if not known.exists():
            known.write_text(uuid4().hex[:8])
        with _masked_words():  # which wandb stores
            self._run = self._start_run(path, config, job_type, tags, known)

    def _start_run(
        self, path: Path, config: dict[str, Any], job_type: str, tags: Sequence[str], known: Path
    ) -> Any:
        import wandb

        return wandb.init(
            project=self.project,
            mode=self.mode,
            dir=str(path),
            config=config,
            name=path.name
            if path.name != config.get("scale")
            else f"{job_type} of {_group(config)}",
            id=known.read_text(),
            resume="allow" if self.mode == "online" else None,
            group=_group(config),
            job_type=job_type,
            tags=list(tags),
        )

    def log(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def log_headline(self, numbers: Sequence[KeyNumber]) -> None:
        import wandb

        for name, value in flatten_headline(numbers).items():
            self._run.summary[name] = value
        rows = []
        for number in numbers:
            references = _describe_references(number)
            rows.append([number.label, number.value, number.error, references])
        columns: list[str | int] = ["result", "value", "error", "compare with"]
        self._run.summary["results"] = wandb.Table(
            columns=columns, data=rows, allow_mixed_types=True
        )
        if self.artifacts:
            record = wandb.Artifact(f"record-{self._run.id}", type="record")
            for file in sorted(self._path.iterdir()):
                if file.is_file() and not file.name.startswith(".") and file.name != WANDB_ID_FILE:
                    record.add_file(str(file))
            self._run.log_artifact(record)
        self._done = True

    def finish(self) -> None:
        if self._run is not None:
            self._run.finish(exit_code=0 if self._done else 1)

    def log_files(self, files: Sequence[Path], folder: Path, config: dict[str, Any]) -> None:
        import pandas as pd
        import wandb

        self._init(folder, config, "figures")
        for file in files:
            is_table = file.suffix == ".csv"
            media = wandb.Table(dataframe=pd.read_csv(file)) if is_table else wandb.Image(str(file))
            self._run.log({f"{'tables' if is_table else 'figures'}/{file.stem}": media})
        self._done = True
        self.finish()


@contextmanager
def _masked_words() -> Iterator[None]:
    """Mask passwords in the words of the command inside the block."""
    before = sys.argv
    sys.argv = [mask_passwords(word) for word in before]
    try:
        yield
    finally:
        sys.argv = before


TAGS = ("model", "data", "sampler")


def _group(config: dict[str, Any]) -> str:
    return f"{config.get('name')}/{config.get('scale')}"


@dataclass
class TensorBoard:
    """TensorBoard event files in the record's folder, with the settings as hyperparameters.

    When a run resumes, rows written after the last checkpoint are hidden. Figures
    and tables are in `tensorboard/` of the folder above the records.
    """

    _writer: Any = field(default=None, init=False)
    _config: dict[str, Any] = field(default_factory=dict, init=False)

    def start(self, about: RunInfo) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder, step = about.path / "tensorboard", about.last_step
        purged = None
        if folder.exists():
            purged = 0 if step is None else step + 1
        self._writer = SummaryWriter(str(folder), purge_step=purged)
        self._config = about.config | {f"choice/{k}": v for k, v in about.choices.items()}

    def log(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def log_headline(self, numbers: Sequence[KeyNumber]) -> None:
        """The settings and the final numbers, for the tab HPARAMS."""
        metrics = {}
        for name, value in flatten_headline(numbers).items():
            if not isinstance(value, str):
                metrics[f"final/{name}"] = value
        settings = {}
        for key, setting in flatten_settings(self._config).items():
            if isinstance(setting, bool | int | float | str):
                settings[key] = setting
        self._writer.add_hparams(settings, metrics, run_name=".")

    def finish(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def log_files(self, files: Sequence[Path], folder: Path, config: dict[str, Any]) -> None:
        import numpy as np
        from PIL import Image
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(str(folder / "tensorboard")) as writer:
            for file in files:
                if file.suffix == ".csv":
                    text = file.with_suffix(".md").read_text(encoding="utf-8")
                    writer.add_text(f"tables/{file.stem}", text)
                    continue
                with Image.open(file) as image:
                    pixels = np.asarray(image.convert("RGB"))
                writer.add_image(f"figures/{file.stem}", pixels, dataformats="HWC")


def flatten_headline(numbers: Sequence[KeyNumber]) -> dict[str, float | str]:
    """The headline by name: values, `<name>_error`, and `<name>_exact` or `<name>_paper`."""
    values: dict[str, float | str] = {}
    for number in numbers:
        name = number.name.replace(" ", "_")
        values[name] = number.value
        if number.error is not None:
            values[f"{name}_error"] = number.error
        for reference, estimate in number.references.items():
            values[f"{name}_{reference.replace(' ', '_')}"] = estimate.mean
    for name, value in list(values.items()):
        if not (isinstance(value, str) or math.isfinite(value)):
            del values[name]
    return values


def _describe_references(number: KeyNumber) -> str:
    return ", ".join(f"{name} {value.mean:.6g}" for name, value in number.references.items())


def call_tracker(what: str, call: Callable[..., None], *args: Any) -> bool:
    """Call a tracker; return whether it succeeded.

    An exception is logged with `what` and does not stop the run, whose record needs no tracker.
    """
    try:
        call(*args)
    except Exception as error:  # noqa: BLE001 - whatever a tracker's package raises
        print(f"{what}: {type(error).__name__}: {error}", file=sys.stderr)
        return False
    return True
