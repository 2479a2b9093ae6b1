"""Maximum mean discrepancy between two sets of binary states, kernel exp(-mean Hamming distance).

A. Gretton et al., "A Kernel Two-Sample Test", JMLR 2012; the kernel is that of Zhang et al. (2022),
Section 7.2.
"""

import torch
from torch import Tensor


def kernel(x: Tensor, y: Tensor) -> Tensor:
    """k(x_i, y_j) = exp(-(1/d) sum_k |x_ik - y_jk|), `[n, d], [m, d] -> [n, m]`, states in {0, 1}."""
    overlap = x @ y.T
    differing = x.sum(-1).unsqueeze(1) + y.sum(-1) - 2 * overlap
    return (differing / -x.shape[1]).exp()


def mmd_squared(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The V-statistic and the unbiased U-statistic of MMD^2, `[]` each."""
    n, m = len(x), len(y)
    xx, yy, xy = kernel(x, x), kernel(y, y), kernel(x, y).mean()
    biased = xx.mean() + yy.mean() - 2 * xy
    off_x = (xx.sum() - xx.diagonal().sum()) / (n * (n - 1)) if n > 1 else torch.nan
    off_y = (yy.sum() - yy.diagonal().sum()) / (m * (m - 1))
    return biased, off_x + off_y - 2 * xy
