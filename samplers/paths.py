"""The number of moves of a path from x to y: R, uniform on 1 .. 2 U - 1, with mean U.

H. Sun, H. Dai, W. Xia and A. Ramamurthy, "Path Auxiliary Proposal for MCMC in Discrete Space",
ICLR 2022. A fixed even R would keep the parity of a binary state.

Each chain draws its own R. All chains carry the longest path, with a mask of the moves in use.
"""

import torch
from torch import Generator, Tensor

from latticework.models.distributions import random_integers


def moves_in_use(index: Tensor, rng: Generator) -> Tensor:
    """True for the first R moves of each chain, `[chains, longest]`, as `index`."""
    chains, longest = index.shape
    number = random_integers(1, longest + 1, (chains, 1), rng)
    return torch.arange(longest, device=index.device) < number


def repeat_first_move(index: Tensor, used: Tensor) -> Tensor:
    """`index` with the first move of the chain in place of moves that are not in use.

    `Domain.move_one` makes each distinct move once.
    """
    return torch.where(used, index, index[:, :1])
