"""Spins of binary states, and blocks of them."""

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    pass


def spins_of(x: Tensor) -> Tensor:
    return x.mul(2).sub_(1)


def pattern_log_probs(field: Tensor, inside: Tensor, spins: Tensor, patterns: Tensor) -> Tensor:
    """s_B'(field without the block) + s_B' J_BB s_B for each pattern of a block B.

    On the block, `field` `[chains, n]` is b + 2 J s, `inside` `[n, n]` is J, `spins` `[chains, n]`
    are the current spins and `patterns` `[1 or chains, patterns, n]` the spins to evaluate.
    """
    outside = field - 2 * spins @ inside
    linear = (patterns * outside.unsqueeze(1)).sum(-1)
    return linear + (patterns @ inside * patterns).sum(-1)
