"""States of sites with several unordered values, one-hot."""

import torch
from torch import Generator, Tensor

from latticework.models.domains.base import FiniteValues, one_hot, require_values


class Categorical(FiniteValues):
    """`{0 .. num_values-1}^dim` as one-hot floats `[chains, dim, num_values]`.

    Two values of a site are at squared distance 2 (Zhang et al. 2022, App. B).
    """

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.dim, self.num_values)

    def uniform(self, chains: int, rng: Generator) -> Tensor:
        return one_hot(self._index(chains, rng), self.num_values).float()

    def check(self, x: Tensor) -> None:
        require_values(x, torch.tensor([0.0, 1.0]), self.shape, "0 or 1 (one-hot)")
        if (wrong := (sums := x.sum(-1)) != 1).any():
            raise ValueError(
                "every site of a categorical state must be one-hot, got sites that sum to "
                f"{sums[wrong][:3].tolist()}"
            )

    def gains(self, x: Tensor, grad: Tensor) -> Tensor:
        return grad - (grad * x).sum(-1, keepdim=True)

    def distances(self, x: Tensor) -> Tensor:
        return 2 * (1 - x)

    def moves_between(self, x: Tensor, y: Tensor) -> Tensor:
        return y.argmax(-1)

    def apply(self, x: Tensor, move: Tensor) -> Tensor:
        return one_hot(move, self.num_values).to(x.dtype)

    def values(self) -> Tensor:
        return torch.eye(self.num_values)
