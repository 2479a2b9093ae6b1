"""Scores of an ensemble's predictions, as pure functions of tensors.

`predictions` `[draws, n]` have one row per chain; `mean` `[n]` is their mean; targets `[n]` are in
[0, 1].
"""

from torch import Tensor


def mean_squared_errors(predictions: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error of each chain's predictions, `[draws]`."""
    return (predictions - targets).square().mean(-1)


def rmse(mean: Tensor, targets: Tensor) -> Tensor:
    """Root mean squared error. For targets 0 and 1, the square root of the Brier score."""
    return (mean - targets).square().mean().sqrt()


def calibration_error(mean: Tensor, targets: Tensor, bins: int = 10) -> Tensor:
    """Expected calibration error: |mean prediction - mean target| over `bins` bins of equal width.

    Bins are weighted by their number of rows (M. Naeini, G. Cooper and M. Hauskrecht, AAAI 2015).
    For targets 0 and 1, it compares predicted probabilities with observed frequencies.
    """
    index = (mean * bins).long().clamp_(0, bins - 1)
    gaps = mean.new_zeros(bins).index_add_(0, index, mean - targets)
    return gaps.abs().sum() / len(mean)


def coverage(predictions: Tensor, targets: Tensor, level: float = 0.9) -> Tensor:
    """Fraction of targets between the chains' (1 - level)/2 and (1 + level)/2 quantiles.

    The interval reflects the spread of the chains only; observation noise is not included.
    """
    low, high = ((1 - level) / 2, (1 + level) / 2)
    below, above = (predictions.quantile(q, dim=0) for q in (low, high))
    return ((below <= targets) & (targets <= above)).to(targets).mean()
