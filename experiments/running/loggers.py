"""Experiment trackers, in addition to the record's own files: Weights & Biases and TensorBoard."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass
class WandB:
    """Weights & Biases. Offline by default; its files are written to the record's folder."""

    project: str = "latticework"
    mode: Literal["online", "offline", "disabled"] = "offline"
    _run: Any = field(default=None, init=False)

    def start(self, path: Path, config: dict[str, Any]) -> None:
        import wandb

        self._run = wandb.init(
            project=self.project, mode=self.mode, dir=str(path), config=config, name=path.name
        )

    def log(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def finish(self) -> None:
        if self._run is not None:
            self._run.finish()


@dataclass
class TensorBoard:
    """TensorBoard event files in the record's folder."""

    _writer: Any = field(default=None, init=False)

    def start(self, path: Path, config: dict[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(path / "tensorboard"))

    def log(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def finish(self) -> None:
        if self._writer is not None:
            self._writer.close()
