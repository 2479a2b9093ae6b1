"""Indirect sampling likelihood (ISL): how likely test points are under a kernel density of samples.

O. Breuleux, Y. Bengio and P. Vincent, "Quickly Generating Representative Samples from an
RBM-Derived Process", Neural Computation 2011, Section 5. S are binary samples, t is a test point:

    p_S(t) = 1/|S| sum_{s in S} prod_i beta^[t_i = s_i] (1 - beta)^[t_i != s_i]
    ISL    = mean over test points of log p_S(t)

p_S depends on a pair only by its number of mismatches m(s, t), so a histogram of m at each point
replaces S, for every beta. Pairs are computed in chunks of at most `CELLS`, so memory does not grow
with the number of samples.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

CELLS = 2**23  # pairs of a sample and a point held at once: some 150 MB
CHECKED = 10_000  # rows checked at once
LARGEST_LOG_ODDS = 14.0  # of beta: 1 - beta is at least 8e-7
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
    found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    return float(1 / (1 + np.exp(-found.x)))


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
