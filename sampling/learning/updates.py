"""Updates that a model learns by, with any source of negative samples."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LinearLR, LRScheduler

from latticework.data.base import TrainingData
from latticework.models.abilities import CarriesRates
from latticework.models.base import EnergyModel
from latticework.sampling.learning.negatives import Negatives
from latticework.sampling.loop_state import LoopState

ROWS_AT_ONCE = 1000  # training rows evaluated at once


class DivergedError(RuntimeError):
    """The loss of an update, or its gradient, is not finite or too large."""


@dataclass(init=False, eq=False)
class Updates(LoopState):
    """Updates that follow the gradient of mean log pi(data) - mean log pi(negatives).

    `latticework.fit`, `task=ebm_learning` and the training of RBMs make them. A checkpoint stores
    the fields: all that an update changes.
    """

    model: EnergyModel
    stepper: Optimizer
    schedule: LRScheduler | None
    rng: Generator  # draws the negatives
    shuffle: Generator  # draws the batches, on the CPU
    order: Tensor  # rows of the data that are left of this pass
    negatives: Any  # the memory of their source

    def __init__(
        self,
        source: Negatives,
        model: EnergyModel,
        data: TrainingData,
        batch: int,
        *,
        stepper: Optimizer,
        schedule: LRScheduler | None,
        rng: Generator,
        shuffle: Generator,
    ) -> None:
        self.source, self.data, self.batch = source, data, batch
        self.model, self.stepper, self.schedule = model.requires_grad_(False), stepper, schedule
        self.rng, self.shuffle, self.order = rng, shuffle, torch.empty(0, dtype=torch.long)
        with torch.no_grad():
            self.negatives = source.start(model, rng)

    def positive(self) -> Tensor:
        """The next batch of data."""
        if len(self.order) < self.batch:  # a new pass, in a new order
            self.order = torch.randperm(len(self.data.train), generator=self.shuffle)
        rows, self.order = self.order[: self.batch], self.order[self.batch :]
        return self.data.batch(rows, self.shuffle).to(self.rng.device)

    @torch.no_grad()
    def negative(self, positive: Tensor) -> Tensor:
        """Negative samples for the batch."""
        x, self.negatives = self.source.draw(self.negatives, self.model, positive, self.rng)
        return x

    def gradient(self, positive: Tensor, negative: Tensor) -> Tensor:
        """Set `.grad` to that of the loss, mean log pi(negatives) - mean log pi(data): a scalar."""
        self.stepper.zero_grad(set_to_none=True)
        return self.source.contrast(self.model, positive, negative)

    def step(self) -> None:
        """Follow the gradient."""
        with torch.no_grad():
            self.negatives = self.source.learn(self.negatives, self.model)
        self.stepper.step()
        self.model.project()
        if self.schedule is not None:
            self.schedule.step()

    def update(self) -> Tensor:
        """Make one update. Returns the loss before it, a scalar."""
        positive = self.positive()
        loss = self.gradient(positive, self.negative(positive))
        self.step()
        return loss


def start_updates(
    source: Negatives,
    model: EnergyModel,
    data: TrainingData,
    batch: int,
    *,
    updates: int,
    learning_rate: float,
    optimiser: Callable[..., Optimizer] = Adam,
    linear_decay: bool = False,
    rng: Generator,
    shuffle: Generator,
) -> Updates:
    """Updates of `model`; `linear_decay` lowers the learning rate to 0 at the last of `updates`."""
    stepper = optimiser(model.parameters(), lr=learning_rate)
    schedule = LinearLR(stepper, 1.0, 0.0, total_iters=updates) if linear_decay else None
    return Updates(
        source, model, data, batch, stepper=stepper, schedule=schedule, rng=rng, shuffle=shuffle
    )


def set_rates(model: EnergyModel, data: TrainingData, rng: Generator, device: torch.device) -> None:
    """Give a model that carries rates (`models.rated_rbm`) those of the training data."""
    if not isinstance(model, CarriesRates):
        return
    rows = torch.arange(len(data.train)).split(ROWS_AT_ONCE)
    model.set_rates(data.batch(chunk, rng).to(device) for chunk in rows)
