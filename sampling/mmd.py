"""Maximum mean discrepancy between two sets of states, kernel exp(-mean Hamming distance).

A. Gretton et al., "A Kernel Two-Sample Test", JMLR 2012; the kernel is that of Zhang et al. (2022),
Section 7.2.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Within(NamedTuple):
    """Mean kernel value between the members of one set, `[]` each."""

    all_pairs: Tensor  # including each state with itself: the V-statistic's term
    distinct: Tensor  # without these: the U-statistic's term; NaN for a single state


def kernel(x: Tensor, y: Tensor) -> Tensor:
    """k(x_i, y_j) = exp(-(1/d) sum_k [x_ik != y_jk]) of states of d sites, `[n, m]`.

    States are `[n, d]` in {0, 1}, or one-hot `[n, d, values]`, where two values of a site differ in
    two entries.
    """
    scale = -x.shape[1] * (x.ndim - 1)  # entries that differ if all sites do
    x, y = x.flatten(1), y.flatten(1)
    differing = x.sum(-1).unsqueeze(1) + y.sum(-1) - 2 * (x @ y.T)
    return (differing / scale).exp()


def within(x: Tensor) -> Within:
    """The terms of an MMD that depend on a single set of states."""
    n, total = len(x), kernel(x, x).sum()
    # A state is at distance 0 from itself, so the diagonal sums to n.
    distinct = (total - n) / (n * (n - 1)) if n > 1 else torch.full_like(total, torch.nan)
    return Within(total / n**2, distinct)


def mmd_squared(x: Tensor, y: Tensor, within_y: Within | None = None) -> tuple[Tensor, Tensor]:
    """The V-statistic and the unbiased U-statistic of MMD^2 between `n` and `m` states.

    A caller that compares many sets with the same `y` can pass `within(y)` as `within_y`.
    """
    mine, theirs = within(x), within_y or within(y)
    between = 2 * kernel(x, y).mean()
    return (
        mine.all_pairs + theirs.all_pairs - between,
        mine.distinct + theirs.distinct - between,
    )
