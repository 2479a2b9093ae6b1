"""What is read of a model while it is being learned: scalars by name, from the model at hand.

Each is a frozen dataclass of settings, called with the model that would be used (the average of its
past where one is kept), the data and the negatives of the last update.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from data.base import Dataset, some
from models.base import EnergyModel

ROWS = 500  # of the data evaluated at once


class Evaluation(ABC):
    """Called with gradients off; may read the host."""

    @abstractmethod
    def __call__(
        self, model: EnergyModel, data: Dataset, negatives: Tensor
    ) -> dict[str, Tensor]: ...


@dataclass(frozen=True)
class CouplingError(Evaluation):
    """Natural log of the RMSE of J over all its entries, against that of `truth`.

    Both are models with a `matrix`. Zhang et al. (2022), Figure 5.
    """

    truth: EnergyModel

    def __call__(self, model: Any, data: Dataset, negatives: Tensor) -> dict[str, Tensor]:
        truth: Any = self.truth
        found = model.matrix()
        error = (found + found.T) / 2 - truth.matrix().to(found)
        return {"log_rmse": error.square().mean().sqrt().log()}


@dataclass(frozen=True)
class Gap(Evaluation):
    """Mean log pi of validation rows above that of training rows, and above the negatives'.

    The first falls when a model learns its rows by heart. The second is near 0 as long as chains
    keep up with the model, and far from it when learning goes astray.
    """

    rows: int = 1000

    def __call__(self, model: EnergyModel, data: Dataset, negatives: Tensor) -> dict[str, Tensor]:
        rng = torch.Generator().manual_seed(0)
        train = data.batch(some(torch.arange(len(data.train)), self.rows), rng)
        valid = mean_log_prob(model, some(data.valid, self.rows), negatives.device)
        return {
            "above_train": valid - mean_log_prob(model, train, negatives.device),
            "above_negatives": valid - mean_log_prob(model, negatives, negatives.device),
        }


def mean_log_prob(model: EnergyModel, rows: Tensor, device: torch.device) -> Tensor:
    """Mean of log pi over `rows` `[n, dim]`, unnormalised."""
    values = [model(chunk.to(device).float()).double() for chunk in rows.split(ROWS)]
    return torch.cat(values).mean()
