"""Where chains start. Each function returns `[chains, *domain.shape]` from the run's generator."""

import torch
from torch import Generator, Tensor

from latticework.data.base import Dataset
from latticework.models.base import EnergyModel


def uniform(model: EnergyModel, chains: int, rng: Generator, data: Dataset | None) -> Tensor:
    """Independent uniform sites."""
    return model.domain.uniform(chains, rng)


def bernoulli(
    model: EnergyModel, chains: int, rng: Generator, data: Dataset | None, *, logit: float
) -> Tensor:
    """Each site is 1 with probability sigmoid(logit)."""
    probability = torch.full((chains, model.domain.dim), logit, device=rng.device).sigmoid()
    return torch.bernoulli(probability, generator=rng)


def data_mean(model: EnergyModel, chains: int, rng: Generator, data: Dataset | None) -> Tensor:
    """Each site is 1 with its frequency in the training data."""
    if data is None:
        raise ValueError("start=data_mean needs a data set; give one, such as data=mnist")
    mean = data.mean.to(rng.device).expand(chains, -1)
    return torch.bernoulli(mean, generator=rng)
