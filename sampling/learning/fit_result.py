"""The result of `latticework.fit`: the learned model, its readings, a file."""

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from latticework.models.base import EnergyModel

KEY = "latticework.fit"  # what the file says besides the parameters


class FitReading(NamedTuple):
    """How learning went until an epoch's end. Log-probabilities are means over rows, in nats."""

    epoch: float
    update: int
    loss: float | None  # the last update's log pi of negatives - that of data; None before any
    score: float | None  # what `stop` says of the held-out rows


@dataclass(frozen=True, eq=False)
class FitResult:
    """A learned model. Where held-out rows were scored, it has the parameters of the best score."""

    model: EnergyModel
    history: tuple[FitReading, ...]
    negatives: str  # the source of negative samples, as text
    stop: str | None  # what scored held-out rows
    updates: int
    seconds: float
    seed: int
    stopped: str = ""  # why learning ended before its last update

    @property
    def best(self) -> FitReading:
        """The reading with the largest score; the last one if rows were not scored."""
        scored = [reading for reading in self.history if reading.score is not None]
        return max(scored, key=lambda each: each.score or 0.0) if scored else self.history[-1]

    def __repr__(self) -> str:
        best, score = self.best, ""
        if best.score is not None:
            score = f"; {self.stop} {best.score:.4g} a row, best at epoch {best.epoch:.3g}"
        ended = f"; {self.stopped}" if self.stopped else ""
        return (
            f"<{type(self.model).__name__} on {self.model.domain} learned by {self.negatives}: "
            f"{self.updates:,} updates in {self.seconds:.3g} s{score}{ended}>"
        )

    def save(self, file: str | Path) -> None:
        """Write the parameters and readings to `file`, in the format safetensors.

        `load` and `pretrain=stored` read it. Raises FileExistsError if the file exists, and
        ValueError for a name that does not end in .safetensors.
        """
        path = Path(file)
        if path.suffix != ".safetensors":
            raise ValueError(f"a fit is written to a file that ends in .safetensors, got {path}")
        about = {name: value for name, value in vars(self).items() if name != "model"}
        state = {
            name: tensor.detach().cpu().contiguous().clone()
            for name, tensor in self.model.state_dict().items()
        }
        content = save(state, {KEY: json.dumps(about)})
        try:
            with path.open("xb") as opened:
                opened.write(content)
        except FileExistsError:
            raise FileExistsError(
                f"{path} exists and is not overwritten; remove it, or choose another name"
            ) from None

    @classmethod
    def load(cls, file: str | Path, model: EnergyModel) -> "FitResult":
        """The result in a file that `save` wrote, with a copy of `model` that has its parameters.

        `model` is one of the same class and sizes. Raises ValueError for a file of another kind or
        of another model.
        """
        try:
            with safe_open(str(file), "pt") as opened:
                about: dict[str, Any] = json.loads((opened.metadata() or {})[KEY])
                state = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, ValueError) as error:
            raise ValueError(f"{file} is no file that FitResult.save wrote: {error}") from error
        learned = copy.deepcopy(model)
        try:
            learned.load_state_dict(state)
        except RuntimeError as error:
            raise ValueError(
                f"{file} does not hold the parameters of this {type(model).__name__} "
                f"({' '.join(str(error).split())}); give a model of the same sizes"
            ) from error
        history = tuple(FitReading(*reading) for reading in about.pop("history"))
        return cls(model=learned.requires_grad_(False), history=history, **about)
