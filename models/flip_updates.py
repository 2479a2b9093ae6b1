"""Updates of a matrix product x W after a few flips of x, one row of W a flip.

Examples are an Ising model's field and an RBM's hidden inputs. Adding rows costs less than the
product when few sites flip.
"""

import torch
from torch import Tensor


def flip_changes(x: Tensor, y: Tensor, index: Tensor) -> Tensor:
    """The change y - x at `index` `[chains, flips]`, divided among repeated indices."""
    change = y.gather(1, index).sub_(x.gather(1, index))
    if index.shape[1] == 1:
        return change
    return change / (index.unsqueeze(-1) == index.unsqueeze(-2)).sum(-1)


def add_rows(total: Tensor, factor: Tensor, matrix: Tensor, index: Tensor) -> Tensor:
    """`total` plus `factor` times the rows `index` of `matrix`, both `[chains, flips]`.

    Computed in the precision of `total`.
    """
    rows = matrix.index_select(0, index.flatten())
    if index.shape[1] == 1:
        return torch.addcmul(total, factor, rows)  # converts its operands
    factor, rows = factor.to(total.dtype), rows.to(total.dtype)
    return torch.baddbmm(
        total.unsqueeze(1), factor.unsqueeze(1), rows.view(*index.shape, -1)
    ).squeeze(1)
