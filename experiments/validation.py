"""Online metric: the ISL of validation rows under all samples so far, for task=tune."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from data.base import some
from experiments import isl
from experiments.metrics import Metric
from experiments.truth import Reference
from models.base import EnergyModel
from samplers.base import Info


class Mismatches(NamedTuple):
    points: Tensor  # [points, dim], float32
    counts: Tensor  # [points, dim + 1], how many samples differ in so many sites


@dataclass(frozen=True)
class ValidationISL(Metric):
    """ISL of `points` validation rows of `data` (a loader), at its best beta.

    One row of mismatches is counted a step, so memory does not grow with the samples. The start
    does not count as a sample. NaN before the first.
    """

    data: Any
    points: int = 500

    def init(self, model: EnergyModel, state: Any, reference: Reference) -> Mismatches:
        points = some(_validation(self.data), self.points).to(state.x)
        return Mismatches(points, points.new_zeros(len(points), points.shape[1] + 1).long())

    def update(self, carry: Mismatches, state: Any, info: Info) -> Mismatches:
        different = isl.mismatches(state.x, carry.points).long()  # [chains, points]
        carry.counts.scatter_add_(1, different.T, torch.ones_like(different.T))
        return carry

    def read(self, carry: Mismatches) -> dict[str, Tensor]:
        if not carry.counts[0].any():
            return {"isl": carry.points.new_tensor(torch.nan)}
        score = isl.score(carry.counts, isl.best_beta(carry.counts))
        return {"isl": carry.points.new_tensor(score)}


@lru_cache(maxsize=2)
def _validation(loader: Any) -> Tensor:
    """Read once, however many trials there are; loaders are frozen dataclasses."""
    return loader.load().valid
