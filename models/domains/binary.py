"""States of sites with two values, such as {0, 1} or {-1, 1}. A move flips a site."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Generator, Tensor

from latticework.models.distributions import coins, flips, softplus_sum
from latticework.models.domains.base import Domain, require_values

FARTHEST = 1e18  # the largest of the two values of a site: samplers square their distance


@dataclass(frozen=True)
class Binary(Domain):
    """`{low, high}^dim`, states `[chains, dim]`. The only move of a site is a flip.

    `low` and `high` are rounded to single precision, so that states of single and of double
    precision hold the same two numbers.
    """

    dim: int
    low: float = 0.0
    high: float = 1.0
    moves = 1

    def __post_init__(self) -> None:
        if not abs(self.high - self.low) < FARTHEST:
            raise ValueError(
                f"the values of a site must be less than {FARTHEST:g} apart, got {self.low} and "
                f"{self.high}: single precision holds no larger squared distance"
            )
        # A YAML's `low: -1` is an int, and would make integer states.
        object.__setattr__(self, "low", float(np.float32(self.low)))
        object.__setattr__(self, "high", float(np.float32(self.high)))
        if self.dim < 1 or not self.low < self.high:
            raise ValueError(f"Binary needs dim >= 1 and low < high, got {self}")

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.dim,)

    @property
    def is_unit(self) -> bool:
        return self.low == 0 and self.high == 1

    def uniform(self, chains: int, rng: Generator) -> Tensor:
        return torch.where(coins((chains, self.dim), rng), self.high, self.low)

    def from_bits(self, bits: Tensor) -> Tensor:
        """`high` where `bits` is 1, else `low`: exactly, which low + (high - low) may not be."""
        if self.is_unit:
            return bits
        return torch.where(bits > 0, self.high, self.low).to(bits.dtype)

    def check(self, x: Tensor) -> None:
        require_values(x, self.values(), self.shape, f"{self.low:g} or {self.high:g}")

    def flip(self, x: Tensor) -> Tensor:
        """The other value of each site, exactly: low + high - x may be off by a rounding error."""
        if self.sums_exactly:
            return (self.low + self.high) - x
        return torch.where(x == x.new_tensor(self.low), self.high, self.low).to(x.dtype)

    @cached_property
    def sums_exactly(self) -> bool:
        """Whether low + high - x and x + (y - x) are exact in float32, as on {0, 1} and {-1, 1}."""
        low, high = np.float32(self.low), np.float32(self.high)
        both, step = low + high, high - low
        return bool(
            both - low == high and both - high == low and low + step == high and high - step == low
        )

    def gains(self, x: Tensor, grad: Tensor) -> Tensor:
        """d_i = g_i (flipped x_i - x_i), which is (1 - 2 x_i) g_i on {0, 1}."""
        at_zero = grad if self.is_unit else grad * (self.low + self.high)
        return torch.addcmul(at_zero, x, grad, value=-2)

    def distances(self, x: Tensor) -> Tensor:
        return x.new_full((), (self.high - self.low) ** 2)

    def indicator(self, x: Tensor, y: Tensor) -> Tensor:
        """1.0 where `y` differs from `x`, `[chains, dim]`."""
        moved = (y - x).abs_()
        return moved if self.is_unit else moved.div_(self.high - self.low)

    def move_all(self, x: Tensor, logits: Tensor, rng: Generator) -> Tensor:
        """Flip site i with probability sigmoid(logit_i); do not flip where that is NaN."""
        flipped = flips(logits, rng)
        if self.is_unit:
            return flipped.sub_(x).abs_()
        if self.sums_exactly:
            return torch.addcmul(x, flipped, self.flip(x).sub_(x))
        return torch.where(flipped > 0, self.flip(x), x)

    def log_normaliser(self, logits: Tensor) -> Tensor:
        return softplus_sum(logits)

    def log_weight(self, x: Tensor, y: Tensor, logits: Tensor) -> Tensor:
        return torch.linalg.vecdot(self.indicator(x, y), logits)

    def log_weight_ratio(self, x: Tensor, y: Tensor, logits: Tensor, back: Tensor) -> Tensor:
        return torch.linalg.vecdot(self.indicator(x, y), back - logits)

    def leaving_logits(self, x: Tensor, logits: Tensor) -> Tensor:
        return logits

    def move_one(self, x: Tensor, index: Tensor) -> Tensor:
        return x.scatter(-1, index, self.flip(x.gather(-1, index)))

    def reverse(self, x: Tensor, index: Tensor) -> Tensor:
        return index

    def values(self) -> Tensor:
        return torch.tensor([self.low, self.high])
