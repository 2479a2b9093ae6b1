"""State spaces: the states, the moves between them, and how moves are drawn.

A domain holds the geometry that gradient-informed samplers need, so one sampler works on binary,
categorical, ordinal and integer targets. Shapes, chains first:

    x       [chains, *shape]             float; shape is (dim,), or (dim, values) for one-hot states
    logits  [chains, *shape_of_moves]    one number for each move: (dim,) if the only move is a
                                         flip, (dim, moves) if a site chooses among several values

Two families of proposals are built from such logits:

    all sites   every site chooses its move independently, with probability softmax(logits) at
                that site (DULA, DMALA). A binary site has the logits `logit` (flip) and 0 (stay).
    one site    one (site, move) pair is chosen, with probability softmax over all pairs that lead
                to another state of the domain (Gibbs with gradients, locally balanced). Pairs have
                the flat index site * moves + move.

Where the number of ones is fixed (`Subset`), no site moves on its own: what moves are the ones,
each to one of the empty sites. States that the user's own moves connect (`Moves`) have no others.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Generator, Tensor

from latticework.models.distributions import (
    draw_categorical,
    random_integers,
    softmax_weights,
)
from latticework.moved import RenamedMethods


class Domain(RenamedMethods, ABC):
    """A product of finite sets of values, one for each site. `Integer` sites are unbounded."""

    old_names: ClassVar = {
        "allowed": "allowed_values",
        "leaving": "leaving_logits",
        "listed": "list_states",
        "taken": "moves_between",  # domains of several moves a site
    }
    dim: int
    shape: tuple[int, ...]  # shape of one state
    moves: int  # number of values a site chooses among; 1 if the only move is a flip
    draws_uniform: bool = True  # whether `uniform` gives all states the same probability
    is_counted: bool = True  # whether the number of states is finite and known

    @property
    def movers(self) -> int:
        """How many things choose among `moves`: the sites, or the ones of a `Subset`."""
        return self.dim

    def as_argument(self, x: Tensor) -> Tensor:
        """The states as a function of the user's gets them."""
        return x

    def of_sites(self, sites: Sequence[int], others: Tensor | None = None) -> "Domain":
        """The domain of these sites of this one, where the rest has the values `others`.

        `others` are `[1 or chains, rest, ...]`. A site may be listed several times. Raises
        ValueError if the rest leaves no choice.
        """
        this: Any = self
        return replace(this, dim=len(sites))

    @abstractmethod
    def uniform(self, chains: int, rng: Generator) -> Tensor:
        """States with independent uniform sites, `[chains, *shape]`."""

    @abstractmethod
    def check(self, x: Tensor) -> None:
        """Raise ValueError unless every entry of `x` is a state of this domain (reads the host)."""

    @abstractmethod
    def gains(self, x: Tensor, grad: Tensor) -> Tensor:
        """First-order change in log-probability of every one-site move, `[chains, *moves]`."""

    @abstractmethod
    def distances(self, x: Tensor) -> Tensor:
        """Squared distance of every one-site move; broadcasts against `gains(x, grad)`."""

    # All sites move at once.

    @abstractmethod
    def move_all(self, x: Tensor, logits: Tensor, rng: Generator) -> Tensor:
        """Every site draws its move independently; the next states, `[chains, *shape]`."""

    @abstractmethod
    def log_normaliser(self, logits: Tensor) -> Tensor:
        """Log normaliser of the distribution that `move_all` draws from, `[chains]`."""

    @abstractmethod
    def log_weight(self, x: Tensor, y: Tensor, logits: Tensor) -> Tensor:
        """Sum of the logits (at `x`) of the moves that lead to `y`, `[chains]`.

        `log_weight(x, y, logits) - log_normaliser(logits)` is log q(y given x) of `move_all`.
        """

    def log_weight_ratio(self, x: Tensor, y: Tensor, logits: Tensor, back: Tensor) -> Tensor:
        """`log_weight(y, x, back) - log_weight(x, y, logits)`, `[chains]`."""
        return self.log_weight(y, x, back) - self.log_weight(x, y, logits)

    # One site moves.

    @abstractmethod
    def leaving_logits(self, x: Tensor, logits: Tensor) -> Tensor:
        """`logits` as `[chains, dim * moves]`, -inf for moves to `x` or out of the domain."""

    @abstractmethod
    def move_one(self, x: Tensor, index: Tensor) -> Tensor:
        """The states after the move with flat index `index` `[chains, 1]`."""

    @abstractmethod
    def reverse(self, x: Tensor, index: Tensor) -> Tensor:
        """Flat index of the move from `move_one(x, index)` back to `x`, `[chains, 1]`."""

    # Enumeration, of a block of sites or of all states.

    @abstractmethod
    def values(self) -> Tensor:
        """The values a site can take, `[values]`, or `[values, values]` for one-hot sites.

        Raises ValueError if a site has infinitely many values.
        """

    def allowed_values(self, sites: Tensor) -> Tensor | None:
        """Whether each of `sites` may take each value, bool `[n, values]`; None if all may."""
        return None

    def block(self, x: Tensor, sites: Tensor) -> tuple[Tensor, Tensor | None]:
        """The patterns that the block `sites` may take while the other sites stay.

        States of the block `[1 or chains, patterns, n, ...]`, and which of them are repetitions
        that fill up the list, `[1 or chains, patterns]`; None if none is.
        """
        return self.patterns(len(sites), x.device).unsqueeze(0), None

    def patterns(self, sites: int, device: torch.device | str = "cpu") -> Tensor:
        """Every joint value of `sites` sites, `[values ** sites, sites]` (one-hot: one more axis).

        The first site varies slowest. The tensor is cached for each device: do not modify it.
        """
        return list_patterns(self, sites, torch.device(device))

    def count(self) -> int:
        """The number of states. Raises ValueError if it is infinite."""
        return prod(self._sizes())

    def _sizes(self) -> tuple[int, ...]:
        """The number of values of each site."""
        return (len(self.values()),) * self.dim

    def list_states(self, number: Tensor) -> Tensor:
        """The states with these numbers, `[n] -> [n, *shape]`; the first site varies slowest."""
        return self.values()[digits_of(number, self._sizes())]

    def enumerate(self) -> Tensor:
        """Every state, `[states, *shape]`, for exact references on small domains.

        Raises ValueError above 2^22 states; `sampling.exact` works through more in
        chunks.
        """
        if (count := self.count()) > 2**22:
            raise ValueError(
                f"enumerate() lists at most 2^22 states, this domain has {count}: take a smaller "
                "model, such as model.shape=[3,3], or sampling.exact, which needs no "
                "such list"
            )
        return self.list_states(torch.arange(count))


class SeveralMoves(Domain):
    """Base of domains whose sites choose among `moves` values, logits `[chains, dim, moves]`."""

    @abstractmethod
    def moves_between(self, x: Tensor, y: Tensor) -> Tensor:
        """Index of each site's move from `x` to `y`, `[chains, dim]`."""

    @abstractmethod
    def apply(self, x: Tensor, move: Tensor) -> Tensor:
        """The states after each site's move; `move` `[chains, dim]` holds indices."""

    def move_all(self, x: Tensor, logits: Tensor, rng: Generator) -> Tensor:
        weights = softmax_weights(logits)
        move = draw_categorical(weights, rng).squeeze(-1)
        return self.apply(x, torch.where(weights[..., 0].isnan(), self.moves_between(x, x), move))

    def log_normaliser(self, logits: Tensor) -> Tensor:
        return logits.logsumexp(-1).sum(-1)

    def log_weight(self, x: Tensor, y: Tensor, logits: Tensor) -> Tensor:
        return logits.gather(-1, self.moves_between(x, y).unsqueeze(-1)).sum((-2, -1))

    def leaving_logits(self, x: Tensor, logits: Tensor) -> Tensor:
        stays = one_hot(self.moves_between(x, x), self.moves)
        return logits.masked_fill(stays, -torch.inf).flatten(1)

    def move_one(self, x: Tensor, index: Tensor) -> Tensor:
        site, move = index.div(self.moves, rounding_mode="floor"), index.remainder(self.moves)
        return self.apply(x, self.moves_between(x, x).scatter(-1, site, move))

    def reverse(self, x: Tensor, index: Tensor) -> Tensor:
        site = index.div(self.moves, rounding_mode="floor")
        back = self.moves_between(self.move_one(x, index), x).gather(-1, site)
        return site * self.moves + back


@dataclass(frozen=True)
class FiniteValues(SeveralMoves):
    dim: int
    num_values: int

    def __post_init__(self) -> None:
        for name in ("dim", "num_values"):  # NumPy's integers are shown as `np.int64(3)`
            if isinstance(value := getattr(self, name), np.integer):
                object.__setattr__(self, name, int(value))
        if self.dim < 1 or self.num_values < 2:
            name = type(self).__name__
            raise ValueError(f"{name} needs dim >= 1 and num_values >= 2, got {self}")

    @property
    def moves(self) -> int:  # type: ignore[override]
        return self.num_values

    def _index(self, chains: int, rng: Generator) -> Tensor:
        """Uniform values of all sites, `[chains, dim]` whole numbers."""
        return random_integers(0, self.num_values, (chains, self.dim), rng)


@lru_cache(maxsize=32)
def list_patterns(domain: Domain, sites: int, device: torch.device) -> Tensor:
    values = domain.values()
    index = torch.cartesian_prod(*[torch.arange(len(values))] * sites).view(-1, sites)
    return values[index].to(device)


def digits_of(number: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """The digits of numbers `[n]` in the mixed radix `sizes`, `[n, digits]`."""
    digits = []
    for size in reversed(sizes):
        digits.append(number % size)
        number = number // size
    return torch.stack(digits[::-1], -1)


def one_hot(index: Tensor, num_values: int) -> Tensor:
    """Boolean indicator over a new last axis (F.one_hot checks its range on the host)."""
    return index.unsqueeze(-1) == torch.arange(num_values, device=index.device)


def require_values(x: Tensor, allowed: Tensor, shape: tuple[int, ...], what: str) -> None:
    if x.shape[1:] != shape:
        raise ValueError(f"states must have shape {['chains', *shape]}, got {list(x.shape)}")
    inside = torch.isin(x, allowed.to(x))
    if not inside.all():
        single = bool(torch.isin(x.float(), allowed.to(x.device)).all())
        advice = " of higher precision; x.float() rounds them" if single else ""
        odd = x[~inside][:3].tolist()
        raise ValueError(f"every entry of a state must be {what}, got values such as {odd}{advice}")
