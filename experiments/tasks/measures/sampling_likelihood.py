"""Indirect sampling likelihood (ISL): how likely test points are under a kernel density of samples.

O. Breuleux, Y. Bengio and P. Vincent, "Quickly Generating Representative Samples from an
RBM-Derived Process", Neural Computation 2011, Section 5. S are binary samples, t is a test point:

    p_S(t) = 1/|S| sum_{s in S} prod_i beta^[t_i = s_i] (1 - beta)^[t_i != s_i]
    ISL    = mean over test points of log p_S(t)

p_S depends on a pair only by its number of mismatches m(s, t), so a histogram of m at each point
replaces S, for every beta. Pairs are computed in chunks of at most `CELLS`, so memory does not grow
with the number of samples. `consecutive` draws the samples, and `ValidationISL` is an online metric
for task=tune.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from latticework.data.base import Dataset, fixed_subset
from latticework.experiments.runs.run import Run
from latticework.models.base import EnergyModel
from latticework.models.domains import Binary
from latticework.samplers.base import Sampler
from latticework.sampling import metrics
from latticework.sampling.chain import Chain
from latticework.sampling.loop_state import LoopState

CELLS = 2**23  # pairs of a sample and a point held at once: some 150 MB
MAX_SPURIOUS_ROWS = 1000  # samples and test rows whose nearest training row is looked for
TYPICAL_TEST_SHARE = (
    0.95  # share of test rows that are no further from the training rows than the limit
)
CHECKED = 10_000  # rows checked at once
LARGEST_LOG_ODDS = 14.0  # largest log-odds of beta: 1 - beta is at least 8e-7
BLOCK = 100  # steps at most between two readings of the samples
METRICS = (metrics.Unsettled(),)  # metrics of their chains, besides the trace
GRID = 57  # log-odds tried before the search between the best one's neighbours


def mismatches(samples: Tensor, points: Tensor) -> Tensor:
    """The number of sites in which each pair differs, `[n, dim], [m, dim] -> [n, m]`.

    float32, exact.
    """
    samples, points = samples.float(), points.float()
    overlap = torch.addmm(samples.sum(-1, keepdim=True), samples, points.T, alpha=-2)
    return overlap.add_(points.sum(-1))


def histograms(samples: Tensor, points: Tensor, cells: int = CELLS) -> Tensor:
    """Number of samples at each Hamming distance 0 .. dim of a point, int64 `[points, dim + 1]`."""
    _check(samples, points)
    count, bins = len(points), samples.shape[1] + 1
    offset = torch.arange(count, device=points.device) * bins
    total = torch.zeros(count * bins, dtype=torch.long, device=points.device)
    for chunk in samples.split(max(1, cells // count)):
        index = mismatches(chunk.to(points.device), points).long().add_(offset)
        total += torch.bincount(index.view(-1), minlength=count * bins)
    return total.view(count, bins)


def score(histogram: Tensor, beta: float) -> float:
    """The ISL at `beta` >= 1/2, from the `histograms` of the points."""
    return _score(*_from_nearest(histogram), histogram.shape[1] - 1, beta)


def best_beta(histogram: Tensor) -> float:
    """The beta in [1/2, 1) with the largest ISL: a grid over log-odds, then Brent's method."""
    aligned, dim = _from_nearest(histogram), histogram.shape[1] - 1

    def loss(log_odds: float) -> float:
        return -_score(*aligned, dim, 1 / (1 + np.exp(-log_odds)))

    from scipy.optimize import minimize_scalar  # most runs that import this file need no SciPy

    grid = np.linspace(0, LARGEST_LOG_ODDS, GRID)
    best = int(np.argmin([loss(log_odds) for log_odds in grid]))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, GRID - 1)]
    optimum = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    return float(1 / (1 + np.exp(-optimum.x)))


def _from_nearest(histogram: Tensor) -> tuple[Tensor, Tensor]:
    """Each row shifted to start at its smallest mismatch, and that mismatch `[points]`, float64."""
    bins = histogram.shape[1]
    nearest = (histogram > 0).byte().argmax(-1, keepdim=True)
    index = torch.arange(bins, device=histogram.device) + nearest
    shifted = histogram.gather(1, index.clamp(max=bins - 1)).masked_fill_(index >= bins, 0)
    return shifted.double(), nearest.squeeze(-1).double()


def _score(counts: Tensor, nearest: Tensor, dim: int, beta: float) -> float:
    """Mean of log sum_m counts beta^(dim - m) (1 - beta)^m / |S|. No underflow for beta >= 1/2."""
    slope = float(np.log(beta) - np.log1p(-beta))
    further = torch.arange(counts.shape[1], dtype=counts.dtype, device=counts.device)
    nearby = (counts @ (-slope * further).exp()).log()
    constant = dim * np.log(beta) - np.log(float(counts[0].sum()))
    return float((nearby - slope * nearest).mean() + constant)


def prefixes(samples: Tensor, points: Tensor, sizes: Sequence[int]) -> Iterator[Tensor]:
    """The `histograms` of the first n samples, for each n of `sizes` (increasing)."""
    total, start = torch.zeros((), dtype=torch.long, device=points.device), 0
    for size in sizes:
        total = histograms(samples[start:size], points) + total
        start = size
        yield total


def prefix_sizes(count: int, per_decade: int = 8) -> list[int]:
    """Sizes from 1 to `count`, evenly spaced on a log axis, without repeats."""
    steps = max(2, round(np.log10(max(count, 10)) * per_decade))
    return sorted({int(size) for size in np.geomspace(1, count, steps).round()})


def _check(samples: Tensor, points: Tensor) -> None:
    if samples.ndim != 2 or points.ndim != 2 or samples.shape[1] != points.shape[1]:
        given = f"{list(samples.shape)} and {list(points.shape)}"
        raise ValueError(f"samples and points must be [n, dim] and [m, dim], got {given}")
    if not len(samples) or not len(points):
        raise ValueError(f"need samples and points, got {len(samples)} and {len(points)}")
    for name, rows in (("samples", samples), ("points", points)):
        if not all(((part == 0) | (part == 1)).all() for part in rows.split(CHECKED)):
            raise ValueError(f"{name} must be 0 or 1; the ISL of grey values is not defined")


@dataclass(eq=False)
class Drawing(LoopState):
    """The chains, and the states drawn so far."""

    chain: Chain
    drawn: Tensor  # [steps, chains, dim], uint8


def draw_consecutive(
    sampler: Sampler,
    model: EnergyModel,
    x: Tensor,
    rng: Generator,
    steps: int,
    run: Run | None = None,
) -> Tensor:
    """The states after each step from `x` `[chains, dim]`, uint8 `[steps * chains, dim]`.

    States are in the order of the steps; the start is not included. With a `run`, the loop shows
    its progress and can be resumed. If the sampler has an inner loop, the record then notes
    `unsettled`, the fraction of steps at which that loop reached its bound. Raises ValueError for
    states other than 0 and 1.
    """
    every = next(block for block in range(min(BLOCK, steps), 0, -1) if steps % block == 0)
    trace = metrics.Trace(draws=every, chains=len(x))
    chain = Chain(sampler, model, x, rng, every=every, metrics=METRICS + (trace,))
    memory = Drawing(chain, torch.empty(steps, *x.shape, dtype=torch.uint8, device=x.device))
    total = steps // every
    blocks = (
        run.resumable(memory, "sampling", total=total, each=every) if run else range(1, total + 1)
    )
    for block in blocks:
        chain.advance()
        states = trace.arrays(chain.carries[-1])["trace"]
        memory.drawn[(block - 1) * every : block * every] = states
        if block in (1, total):  # at once, before the other steps are spent, and at the end
            _require_bits(chain.state.x)
    if run is not None and not math.isnan(share := float(chain.reading(steps).values["unsettled"])):
        run.note(unsettled=share)
    return memory.drawn.flatten(0, 1)


def _require_bits(x: Tensor) -> None:
    if x.isnan().any():
        raise ValueError("a chain became NaN; look at the model: did its training diverge?")
    if not ((x == 0) | (x == 1)).all():
        raise ValueError("samples must be 0 or 1 here; set sampler.emit=sample")


def spurious_share(samples: Tensor, data: Dataset, rng: Generator) -> float:
    """The share of samples that are unlike the data: too far from every training row.

    Too far is more sites than 95 % of the test rows differ in from their nearest training row. At
    most `MAX_SPURIOUS_ROWS` samples, evenly spaced, and as many test rows are compared. Breuleux et
    al. (2011, Section 5.1) call samples spurious that are "not valid by themselves", by eye.
    """
    train = data.batch(torch.arange(len(data.train)), rng).to(samples.device)
    spaced = torch.linspace(0, len(samples) - 1, min(len(samples), MAX_SPURIOUS_ROWS)).long()
    test = fixed_subset(data.test, MAX_SPURIOUS_ROWS).to(samples.device)
    limit = _nearest(test, train).quantile(TYPICAL_TEST_SHARE)
    return float((_nearest(samples[spaced], train) > limit).float().mean())


def _nearest(rows: Tensor, train: Tensor) -> Tensor:
    """The number of sites in which each row differs from its nearest training row, float32."""
    nearest = [mismatches(train, part).amin(0) for part in rows.split(CELLS // len(train) + 1)]
    return torch.cat(nearest)


def commonest_state(samples: Tensor) -> dict[str, float]:
    """The share of the most frequent state among the samples, and the share of its sites on.

    The former is near 1 if a chain is stuck in a narrow mode.
    """
    packed = np.packbits(samples.cpu().numpy().astype(np.uint8), axis=1)
    states, counts = np.unique(packed, axis=0, return_counts=True)
    state = np.unpackbits(states[counts.argmax()], count=samples.shape[1])
    return {
        "commonest_share": float(counts.max() / len(samples)),
        "commonest_on": float(state.mean()),
    }


class Mismatches(NamedTuple):
    points: Tensor  # [points, dim], float32
    counts: Tensor  # [points, (sizes + 1) * (dim + 1)], how many samples differ in so many sites,
    # counted apart between one size and the next
    samples: Tensor  # [1], how many there are
    sizes: Tensor  # [sizes]
    grey: Tensor  # [], whether a sample had other entries than 0 and 1


@dataclass(frozen=True)
class ValidationISL(metrics.Metric):
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

    def init(self, model: EnergyModel, state: Any, reference: metrics.Reference) -> Mismatches:
        domain = model.domain
        if not (isinstance(domain, Binary) and domain.is_unit):
            raise ValueError(
                f"the ISL is defined on samples of 0 and 1, got {domain}; leave ValidationISL out "
                "of task.metrics"
            )
        points = fixed_subset(_validation(self.data), self.points).to(state.x)
        cells = (len(self.sizes) + 1) * (points.shape[1] + 1)
        counts = points.new_zeros(len(points), cells, dtype=torch.long)
        sizes = torch.tensor(list(self.sizes), dtype=torch.long, device=points.device)
        grey = torch.zeros((), dtype=torch.bool, device=points.device)
        return Mismatches(points, counts, counts.new_zeros(1), sizes, grey)

    def update(self, carry: Mismatches, state: Any, sums: metrics.Steps, steps: int) -> Mismatches:
        cell = mismatches(state.x, carry.points)  # [chains, points]
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
        beta = best_beta(upto[:, -1])
        values = {"isl": scalar(score(upto[:, -1], beta))}
        if len(self.sizes):
            values["isl_area"] = nan
            if count >= self.sizes[-1]:
                from scipy.integrate import trapezoid  # NumPy has it from 2.0 only

                heights = [score(upto[:, i], beta) for i in range(len(self.sizes))]
                places = np.log(np.array(self.sizes))
                area = trapezoid(heights, places) / (places[-1] - places[0])
                values["isl_area"] = scalar(float(area))
        return values


@lru_cache(maxsize=2)
def _validation(loader: Any) -> Tensor:
    """Validation rows of `loader`, cached across trials; loaders are frozen dataclasses."""
    return loader.load().valid
