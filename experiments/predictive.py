"""How good the predictions of an ensemble of chains are; pure functions of tensors.

`predictions` are `[draws, n]`, one row a chain; `mean` `[n]` is their mean; targets `[n]` are in
[0, 1].
"""

from torch import Tensor


def mean_squared_errors(predictions: Tensor, targets: Tensor) -> Tensor:
    """Of each chain by itself, `[draws]`."""
    return (predictions - targets).square().mean(-1)


def rmse(mean: Tensor, targets: Tensor) -> Tensor:
    """Root of the mean squared error; for targets 0 and 1, the root of the Brier score."""
    return (mean - targets).square().mean().sqrt()


def calibration_error(mean: Tensor, targets: Tensor, bins: int = 10) -> Tensor:
    """Expected calibration error: |mean prediction - mean target| over `bins` bins of equal width.

    Weighted by the rows in a bin (M. Naeini, G. Cooper and M. Hauskrecht, AAAI 2015). For targets 0
    and 1 it asks whether a predicted probability is a frequency.
    """
    index = (mean * bins).long().clamp_(0, bins - 1)
    gaps = mean.new_zeros(bins).index_add_(0, index, mean - targets)
    return gaps.abs().sum() / len(mean)


def coverage(predictions: Tensor, targets: Tensor, level: float = 0.9) -> Tensor:
    """Share of the targets between the chains' (1 - level)/2 and (1 + level)/2 quantiles.

    The spread of the chains is all the uncertainty there is in it: no noise is added.
    """
    low, high = ((1 - level) / 2, (1 + level) / 2)
    below, above = (predictions.quantile(q, dim=0) for q in (low, high))
    return ((below <= targets) & (targets <= above)).to(targets).mean()
