"""Scalars about a model while it is learned."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from latticework.data.base import Dataset, fixed_subset
from latticework.models.base import EnergyModel

ROWS = 500  # rows of the data evaluated at once


class Evaluation(ABC):
    """Scalars by name about a model while it is learned. A frozen dataclass of settings.

    It is called with the model (its exponential moving average, if learning keeps one), the data,
    and the negative samples of the last update, with gradients off. It may move data to the host.
    """

    @abstractmethod
    def __call__(
        self, model: EnergyModel, data: Dataset, negatives: Tensor
    ) -> dict[str, Tensor]: ...


@dataclass(frozen=True)
class CouplingError(Evaluation):
    """Natural log of the RMSE of the learned J against that of `truth`, over all entries.

    Both models must have a `matrix`. Zhang et al. (2022), Figure 5.
    """

    truth: EnergyModel

    def __call__(self, model: Any, data: Dataset, negatives: Tensor) -> dict[str, Tensor]:
        truth: Any = self.truth
        learned = model.matrix()
        error = (learned + learned.T) / 2 - truth.matrix().to(learned)
        return {"log_rmse": error.square().mean().sqrt().log()}


@dataclass(frozen=True)
class Gap(Evaluation):
    """Mean log pi of validation rows minus that of training rows, and minus that of negatives.

    The first falls when the model overfits. The second is near 0 while the chains follow the model,
    and far from 0 when learning diverges.
    """

    rows: int = 1000

    def __call__(self, model: EnergyModel, data: Dataset, negatives: Tensor) -> dict[str, Tensor]:
        rng = torch.Generator().manual_seed(0)
        train = data.batch(fixed_subset(torch.arange(len(data.train)), self.rows), rng)
        valid = mean_log_prob(model, fixed_subset(data.valid, self.rows), negatives.device)
        return {
            "above_train": valid - mean_log_prob(model, train, negatives.device),
            "above_negatives": valid - mean_log_prob(model, negatives, negatives.device),
        }


def mean_log_prob(model: EnergyModel, rows: Tensor, device: torch.device) -> Tensor:
    """Mean of log pi over `rows` `[n, dim]`, unnormalised."""
    values = [model(chunk.to(device).float()).double() for chunk in rows.split(ROWS)]
    return torch.cat(values).mean()
