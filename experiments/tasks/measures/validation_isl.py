"""An online metric for task=tune: the ISL of validation rows under the samples so far."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from latticework.data.base import some
from latticework.experiments.tasks.measures import sampling_likelihood as isl
from latticework.models.base import EnergyModel
from latticework.models.domain import Binary
from latticework.sampling.metrics import Metric, Reference, Steps


class Mismatches(NamedTuple):
    points: Tensor  # [points, dim], float32
    counts: Tensor  # [points, (sizes + 1) * (dim + 1)], how many samples differ in so many sites,
    # counted apart between one size and the next
    samples: Tensor  # [1], how many there are
    sizes: Tensor  # [sizes]
    grey: Tensor  # [], whether a sample had other entries than 0 and 1


@dataclass(frozen=True)
class ValidationISL(Metric):
    """ISL of `points` validation rows of `data` (a loader), at its best beta: `isl`.

    With two or more `sizes`, also `isl_area`: the mean ISL, in nats, along the curve of the ISL
    against the logarithm of the number of samples, from the first size to the last (trapezoid
    rule). Unlike the last value of the curve, it rewards a curve that rises early. All sizes share
    the beta of all samples, as in Figure 2 of Breuleux et al. (2011). NaN while there are fewer
    samples than the last size.

    Each step adds to histograms of mismatches, so memory does not grow with the number of samples.
    The start is not a sample, and `isl` is NaN before the first step. Raises ValueError unless
    `sizes` are empty, or two or more that increase from 1 or more. `init` raises it for a model on
    another domain than {0, 1}^dim, and `read` for grey samples.
    """

    data: Any
    points: int = 500
    sizes: Sequence[int] = ()

    def __post_init__(self) -> None:
        sizes = list(self.sizes)
        if sizes != sorted(set(sizes)) or len(sizes) == 1 or (sizes and sizes[0] < 1):
            raise ValueError(f"sizes must be two or more that increase from 1, got {sizes}")

    def init(self, model: EnergyModel, state: Any, reference: Reference) -> Mismatches:
        domain = model.domain
        if not (isinstance(domain, Binary) and domain.is_unit):
            raise ValueError(
                f"the ISL is defined on samples of 0 and 1, got {domain}; leave ValidationISL out "
                "of task.metrics"
            )
        points = some(_validation(self.data), self.points).to(state.x)
        cells = (len(self.sizes) + 1) * (points.shape[1] + 1)
        counts = points.new_zeros(len(points), cells, dtype=torch.long)
        sizes = torch.tensor(list(self.sizes), dtype=torch.long, device=points.device)
        grey = torch.zeros((), dtype=torch.bool, device=points.device)
        return Mismatches(points, counts, counts.new_zeros(1), sizes, grey)

    def update(self, carry: Mismatches, state: Any, sums: Steps, steps: int) -> Mismatches:
        cell = isl.mismatches(state.x, carry.points)  # [chains, points]
        carry.grey.logical_or_((cell != cell.round()).any())
        cell = cell.long()
        number = carry.samples + torch.arange(1, len(cell) + 1, device=cell.device)
        cell += torch.searchsorted(carry.sizes, number).unsqueeze(1) * (carry.points.shape[1] + 1)
        carry.counts.scatter_add_(1, cell.T, torch.ones_like(cell.T))
        carry.samples.add_(len(cell))
        return carry

    def read(self, carry: Mismatches) -> dict[str, Tensor]:
        if carry.grey:
            raise ValueError(
                "the ISL of grey samples is not defined; let the sampler emit samples of 0 and 1, "
                "such as sampler.emit=sample"
            )

        def scalar(value: float) -> Tensor:
            return carry.points.new_tensor(value)

        count, nan = int(carry.samples), scalar(math.nan)
        if not count:
            return {"isl": nan, "isl_area": nan} if len(self.sizes) else {"isl": nan}
        upto = carry.counts.unflatten(1, (len(self.sizes) + 1, -1)).cumsum(1)
        beta = isl.best_beta(upto[:, -1])
        values = {"isl": scalar(isl.score(upto[:, -1], beta))}
        if len(self.sizes):
            values["isl_area"] = nan
            if count >= self.sizes[-1]:
                from scipy.integrate import trapezoid  # NumPy has it from 2.0 only

                heights = [isl.score(upto[:, i], beta) for i in range(len(self.sizes))]
                places = np.log(np.array(self.sizes))
                area = trapezoid(heights, places) / (places[-1] - places[0])
                values["isl_area"] = scalar(float(area))
        return values


@lru_cache(maxsize=2)
def _validation(loader: Any) -> Tensor:
    """Validation rows of `loader`, cached across trials; loaders are frozen dataclasses."""
    return loader.load().valid
