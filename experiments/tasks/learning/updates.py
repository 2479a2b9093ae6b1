"""Updates that follow the gradient of mean log pi(data) - mean log pi(negatives).

Both task=ebm_learning and the training of RBMs make them. The source of the negatives
(`tasks.learning.negatives`) makes it contrastive divergence, SML, FPCD, herding, or persistent
contrastive divergence with a replay buffer.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from latticework.data.base import Dataset
from latticework.experiments.tasks.learning.negatives import Negatives
from latticework.models.base import EnergyModel
from latticework.sampling.memory import Memory


@dataclass(init=False, eq=False)
class Updates(Memory):
    """Makes the updates. A checkpoint stores the fields: all that an update changes."""

    model: EnergyModel
    stepper: Optimizer
    schedule: LRScheduler | None
    rng: Generator  # of the negatives
    shuffle: Generator  # of the batches, on the CPU
    order: Tensor  # rows of the data that are left of this pass
    negatives: Any  # the memory of their source

    def __init__(
        self,
        source: Negatives,
        model: EnergyModel,
        data: Dataset,
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


def required(data: Dataset | None) -> Dataset:
    """The data. Raises ValueError if there are none."""
    if data is None:
        raise ValueError("learning needs a data set; give one, such as data=static_mnist")
    return data
