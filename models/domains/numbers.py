"""States of sites that hold one number: values 0 .. n-1, or all whole numbers from a lowest one."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from latticework.models.domains.base import FiniteValues, SeveralMoves, require_values


class Numbers(SeveralMoves):
    """Base of domains whose sites hold one number: a move adds one of `_steps`."""

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.dim,)

    @abstractmethod
    def _steps(self, x: Tensor) -> Tensor:
        """The number that each move adds; broadcasts against `[chains, dim, moves]`."""

    def gains(self, x: Tensor, grad: Tensor) -> Tensor:
        return grad.unsqueeze(-1) * self._steps(x)

    def distances(self, x: Tensor) -> Tensor:
        return self._steps(x).square()


class Ordinal(Numbers, FiniteValues):
    """`{0 .. num_values-1}^dim` as floats `[chains, dim]`; a site may move to any value (Eq. 2)."""

    def uniform(self, chains: int, rng: Generator) -> Tensor:
        return self._index(chains, rng).float()

    def check(self, x: Tensor) -> None:
        require_values(x, self.values(), self.shape, f"an integer in 0..{self.num_values - 1}")

    def _steps(self, x: Tensor) -> Tensor:
        return torch.arange(self.num_values, device=x.device, dtype=x.dtype) - x.unsqueeze(-1)

    def moves_between(self, x: Tensor, y: Tensor) -> Tensor:
        return y.long()

    def apply(self, x: Tensor, move: Tensor) -> Tensor:
        return move.to(x.dtype)

    def values(self) -> Tensor:
        return torch.arange(float(self.num_values))


@dataclass(frozen=True)
class Integer(Numbers):
    """Integers as floats `[chains, dim]`; a site may move by at most `window` (App. C).

    `low` bounds the domain from below (0 gives the paper's {0, 1, 2, ...}); None leaves it open.
    Chains may start at integers up to 2^23 in single precision, and 2^52 in double precision.
    """

    is_counted = False
    draws_uniform = False
    dim: int
    window: int = 1
    low: float | None = None

    def __post_init__(self) -> None:
        if self.dim < 1 or self.window < 1:
            raise ValueError(f"Integer needs dim >= 1 and window >= 1, got {self}")

    @property
    def moves(self) -> int:  # type: ignore[override]
        return 2 * self.window + 1

    def _steps(self, x: Tensor) -> Tensor:
        return torch.arange(-self.window, self.window + 1, device=x.device, dtype=x.dtype)

    def uniform(self, chains: int, rng: Generator) -> Tensor:
        """Uniform over one window, above `low` or around 0, because the domain is infinite."""
        first = -self.window if self.low is None else self.low
        shape = (chains, self.dim)
        return torch.randint(self.moves, shape, generator=rng, device=rng.device).float() + first

    def check(self, x: Tensor) -> None:
        if x.shape[1:] != self.shape:
            raise ValueError(f"states must have shape [chains, {self.dim}], got {list(x.shape)}")
        inside = (x == x.round()) & x.isfinite()
        if self.low is not None:
            inside &= x >= self.low
        if not inside.all():
            odd = x[~inside][:3].tolist()
            raise ValueError(
                f"every entry of a state must be an integer of {self}, got values such as {odd}"
            )
        # Above 2 / eps, x + 1 rounds to x; half of it leaves room for moves.
        if float(x.abs().max()) > (limit := 1 / torch.finfo(x.dtype).eps):
            raise ValueError(
                f"integers above {limit:.3g} are not exact in {x.dtype}, so sites could not move "
                "by 1; subtract a constant from the states, or use x.double()"
            )

    def gains(self, x: Tensor, grad: Tensor) -> Tensor:
        """Moves that leave the domain have gain -inf."""
        return self._forbid_outside(x, super().gains(x, grad))

    def leaving_logits(self, x: Tensor, logits: Tensor) -> Tensor:
        """Moves that leave the domain are -inf, whatever their logits."""
        return super().leaving_logits(x, self._forbid_outside(x, logits))

    def _forbid_outside(self, x: Tensor, logits: Tensor) -> Tensor:
        """`logits` with -inf for the moves that end below `low`."""
        if self.low is None:
            return logits
        return logits.masked_fill(x.unsqueeze(-1) + self._steps(x) < self.low, -torch.inf)

    def moves_between(self, x: Tensor, y: Tensor) -> Tensor:
        return (y - x).long() + self.window

    def apply(self, x: Tensor, move: Tensor) -> Tensor:
        return x + (move - self.window)

    def values(self) -> Tensor:
        raise ValueError(f"{self} has infinitely many values a site and cannot be listed")
