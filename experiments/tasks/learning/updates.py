"""Updates that follow the gradient of mean log pi(data) - mean log pi(negatives).

Of task=ebm_learning and of the training of RBMs. The source of the negatives
(`tasks.learning.negatives`) makes it contrastive divergence, SML, FPCD, herding, or persistent
contrastive divergence with a replay buffer.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from latticework.data.base import Dataset
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.learning.negatives import Negatives
from latticework.models.base import EnergyModel
from latticework.sampling.memory import Memory


@dataclass(eq=False, kw_only=True)
class Updated(Memory):
    """What every update changes, besides the `negatives`: the memory of their source."""

    model: EnergyModel
    stepper: Optimizer
    schedule: LRScheduler | None
    rng: Generator  # of the negatives
    shuffle: Generator  # of the batches
    order: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))  # rows left


class Updates:
    """Makes the updates; all that an update changes is in `memory`.

    `l1` times the sum of |parameters| is added to the loss. Gradients are clipped to the norm
    `largest_gradient`.
    """

    def __init__(
        self,
        memory: Any,  # Updated, with `negatives`
        source: Negatives,
        data: Dataset,
        run: Run,
        batch: int,
        l1: float = 0.0,
        largest_gradient: float = math.inf,
    ) -> None:
        self.memory, self.source, self.data, self.run = memory, source, data, run
        self.model, self.batch = memory.model, batch
        self.l1, self.largest_gradient = l1, largest_gradient

    def positive(self) -> Tensor:
        """The next batch of data."""
        memory, shuffle, order = self.memory, self.memory.shuffle, self.memory.order
        if len(order) < self.batch:  # a new pass, in a new order
            order = torch.randperm(len(self.data.train), generator=shuffle)
        rows, memory.order = order[: self.batch], order[self.batch :]
        return self.data.batch(rows, shuffle).to(self.run.device)

    @torch.no_grad()
    def negative(self, positive: Tensor) -> Tensor:
        """Negative samples for the batch."""
        memory = self.memory
        x, memory.negatives = self.source.draw(memory.negatives, self.model, positive, memory.rng)
        return x

    def gradient(self, positive: Tensor, negative: Tensor) -> Tensor:
        """The loss, mean log pi(negatives) - mean log pi(data), and the norm of its gradient."""
        self.memory.stepper.zero_grad(set_to_none=True)
        loss = self.source.contrast(self.model, positive, negative)
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        for parameter in parameters if self.l1 else []:
            assert parameter.grad is not None
            parameter.grad.add_(parameter.sign(), alpha=self.l1)
        norm = clip_grad_norm_(parameters, self.largest_gradient)
        return torch.stack((loss.float(), norm.float()))

    def step(self) -> None:
        """Follow the gradient."""
        memory = self.memory
        with torch.no_grad():
            memory.negatives = self.source.learn(memory.negatives, self.model)
        memory.stepper.step()
        self.model.project()
        if memory.schedule is not None:
            memory.schedule.step()


def required(data: Dataset | None) -> Dataset:
    """The data. Raises ValueError if there are none."""
    if data is None:
        raise ValueError("learning needs a data set; give one, such as data=static_mnist")
    return data
