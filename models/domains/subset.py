"""States with exactly k ones, whose moves are swaps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import comb
from typing import NoReturn

import torch
from torch import Generator, Tensor

from latticework.models.domains.base import Domain
from latticework.models.domains.binary import Binary

SWAPS = "use random_walk, gwg, locally_balanced or gibbs(sites=2, scan=random), which swap sites"


@dataclass(frozen=True)
class Subset(Domain):
    """States of `dim` sites, of which exactly `ones` are `high` and the others `low`.

    `Subset(20, 5)` are the choices of 5 among 20. A move swaps a one and an empty site: one a, in
    the order of the sites, goes to empty site b, with the flat index a (dim - ones) + b. Samplers
    whose sites move on their own refuse such states.
    """

    dim: int
    ones: int
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.ones < self.dim:
            raise ValueError(f"Subset needs ones from 1 to dim - 1, or nothing moves, got {self}")
        for name in ("low", "high"):
            object.__setattr__(self, name, getattr(self.binary, name))

    @property
    def binary(self) -> Binary:
        """All states of the sites, whatever their number of ones."""
        return Binary(self.dim, self.low, self.high)

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.dim,)

    @property
    def moves(self) -> int:  # type: ignore[override]
        return self.dim - self.ones

    @property
    def movers(self) -> int:
        return self.ones

    def of_sites(self, sites: Sequence[int], others: Tensor | None = None) -> Domain:
        if others is None:
            raise ValueError(f"copies of {self} do not have a fixed number of ones each")
        counts = (others == self.high).sum(-1)
        left = self.ones - int(counts.max())
        if (counts != counts.max()).any():
            raise ValueError("the known values of all chains must hold the same number of ones")
        if not 0 < left < len(sites):
            raise ValueError(
                f"the known values leave {left} ones for {len(sites)} free sites of {self}; leave "
                "sites free so that there is a choice"
            )
        return replace(self, dim=len(sites), ones=left)

    def uniform(self, chains: int, rng: Generator) -> Tensor:
        keys = torch.rand(chains, self.dim, generator=rng, device=rng.device)
        x = torch.full_like(keys, self.low)
        return x.scatter_(1, keys.topk(self.ones).indices, self.high)

    def check(self, x: Tensor) -> None:
        self.binary.check(x)
        if (wrong := (counts := self._full(x).sum(-1)) != self.ones).any():
            raise ValueError(
                f"exactly {self.ones} sites of a state must be {self.high:g}, got "
                f"{counts[wrong][:3].tolist()}; domain.uniform(chains, rng) draws such states"
            )

    def _full(self, x: Tensor) -> Tensor:
        return x > self.low / 2 + self.high / 2

    def _places(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The sites of the ones, `[chains, ones]`, and the empty ones, each in order."""
        order = self._full(x).byte().argsort(dim=-1, descending=True, stable=True)
        return order[:, : self.ones], order[:, self.ones :]

    def gains(self, x: Tensor, grad: Tensor) -> Tensor:
        """`[chains, ones, dim - ones]`."""
        full, empty = self._places(x)
        step = self.high - self.low
        return (grad.gather(1, empty).unsqueeze(1) - grad.gather(1, full).unsqueeze(2)) * step

    def distances(self, x: Tensor) -> Tensor:
        return x.new_full((), 2 * (self.high - self.low) ** 2)

    def leaving_logits(self, x: Tensor, logits: Tensor) -> Tensor:
        return logits.flatten(1)

    def _swap(self, x: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The state after the moves, and the sites that become empty and full."""
        full, empty = self._places(x)
        source = full.gather(1, index.div(self.moves, rounding_mode="floor"))
        goal = empty.gather(1, index.remainder(self.moves))
        return x.scatter(1, source, self.low).scatter(1, goal, self.high), source, goal

    def move_one(self, x: Tensor, index: Tensor) -> Tensor:
        return self._swap(x, index)[0]

    def reverse(self, x: Tensor, index: Tensor) -> Tensor:
        y, source, goal = self._swap(x, index)
        rank = self._full(y).cumsum(-1)  # ones up to a site
        return (rank.gather(1, goal) - 1) * self.moves + source - rank.gather(1, source)

    def block(self, x: Tensor, sites: Tensor) -> tuple[Tensor, Tensor | None]:
        """The arrangements of the ones that the block has."""
        patterns, repeated = _arrangements(len(sites), x.device)
        ones = self._full(x.index_select(1, sites)).sum(-1)
        return self.binary.from_bits(patterns.to(x.dtype)[ones]), repeated[ones]

    def values(self) -> Tensor:
        return self.binary.values()

    def count(self) -> int:
        return comb(self.dim, self.ones)

    def list_states(self, number: Tensor) -> Tensor:
        bits, left = [], torch.full_like(number, self.ones)
        ways = torch.empty(self.dim, self.ones + 1, dtype=torch.long)  # k ones on n sites
        for n, k in product(range(self.dim), range(self.ones + 1)):
            ways[n, k] = comb(n, k)
        for site in range(self.dim):  # states whose next site is 0 come first
            skipped = ways[self.dim - 1 - site][left]
            bit = number >= skipped
            number, left = number - skipped * bit, left - bit.long()
            bits.append(bit)
        return self.binary.from_bits(torch.stack(bits, -1).float())

    def move_all(self, x: Tensor, logits: Tensor, rng: Generator) -> NoReturn:
        raise TypeError(f"the sites of {self} do not move on their own; {SWAPS}")

    def log_normaliser(self, logits: Tensor) -> NoReturn:
        raise TypeError(f"the sites of {self} do not move on their own; {SWAPS}")

    def log_weight(self, x: Tensor, y: Tensor, logits: Tensor) -> NoReturn:
        raise TypeError(f"the sites of {self} do not move on their own; {SWAPS}")


@lru_cache(maxsize=32)
def _arrangements(sites: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """For each number of ones of a block, its arrangements, and which ones fill up the list."""
    every = Binary(sites).enumerate()
    most = comb(sites, sites // 2)
    patterns, repeated = [], []
    for ones in range(sites + 1):
        with_ones = every[every.sum(-1) == ones]
        patterns.append(with_ones[torch.arange(most).clamp(max=len(with_ones) - 1)])
        repeated.append(torch.arange(most) >= len(with_ones))
    return torch.stack(patterns).to(device), torch.stack(repeated).to(device)
