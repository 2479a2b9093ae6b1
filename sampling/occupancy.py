"""Count how often chains visit each state of a small target."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.sampling.metrics import Metric, Reference, Steps


class Visits(NamedTuple):
    counts: Tensor  # [chains, states], in the order of `Domain.enumerate`
    values: Tensor  # values of one site, as in `Domain.values`
    place: Tensor  # [dim], the place value of each site in the index of a state


@dataclass(frozen=True)
class Occupancy(Metric):
    """Counts visits to each state after the start. Reports no scalar."""

    def init(self, model: EnergyModel, state: Any, reference: Reference) -> Visits:
        domain, device = model.domain, state.x.device
        values = domain.values().to(state.x)
        sites = torch.arange(domain.dim - 1, -1, -1, device=device)
        counts = torch.zeros(len(state.x), len(values) ** domain.dim, dtype=torch.long)
        return Visits(counts.to(device), values, len(values) ** sites)

    def update(self, carry: Visits, state: Any, sums: Steps, steps: int) -> Visits:
        if carry.values.ndim > 1:  # one-hot
            digits = state.x.argmax(-1)
        else:  # comparisons are faster than a binary search for few values
            digits = (state.x.unsqueeze(-1) > carry.values[:-1]).sum(-1)
        index = (digits * carry.place).sum(-1, keepdim=True)
        carry.counts.scatter_add_(1, index, torch.ones_like(index))
        return carry

    def read(self, carry: Visits) -> dict[str, Tensor]:
        return {}


def pooled_law(counts: Tensor) -> Tensor:
    """Each state's fraction of all visits, `[states]`, float64."""
    total = counts.sum(0).double()
    return total / total.sum()


def noise_floor(counts: Tensor) -> Tensor:
    """Expected L1 distance between `pooled_law` and its expectation, from the spread over chains.

    A centred normal error has a mean absolute value of sqrt(2 / pi) standard errors.
    """
    laws = counts.double() / counts.sum(-1, keepdim=True)
    return math.sqrt(2 / math.pi) * (laws.std(0) / math.sqrt(len(laws))).sum()


def independent_floor(law: Tensor, draws: int) -> Tensor:
    """Expected L1 distance between `law` and the histogram of `draws` independent draws from it."""
    return (2 / math.pi * law * (1 - law) / draws).sqrt().sum()
