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
each to one of the empty sites.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import comb, prod
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Generator, Tensor

from latticework.models.distributions import (
    coins,
    draw_categorical,
    flips,
    random_integers,
    softmax_weights,
    softplus_sum,
)

FARTHEST = 1e18  # of the two values of a site: samplers square their distance


class Domain(ABC):
    """A product of finite sets of values, one for each site. `Integer` sites are unbounded."""

    dim: int
    shape: tuple[int, ...]  # of one state
    moves: int  # number of values a site chooses among; 1 if the only move is a flip

    @property
    def movers(self) -> int:
        """How many things choose among `moves`: the sites, or the ones of a `Subset`."""
        return self.dim

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
    def leaving(self, x: Tensor, logits: Tensor) -> Tensor:
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

    def allowed(self, sites: Tensor) -> Tensor | None:
        """Which of the values each of `sites` may take, `[n, values]`; None if all."""
        return None

    def block(self, x: Tensor, sites: Tensor) -> tuple[Tensor, Tensor | None]:
        """What the block `sites` may become while the other sites stay.

        States of the block `[1 or chains, patterns, n, ...]`, and which of them are repetitions
        that fill up the list, `[1 or chains, patterns]`; None if none is.
        """
        return self.patterns(len(sites), x.device).unsqueeze(0), None

    def patterns(self, sites: int, device: torch.device | str = "cpu") -> Tensor:
        """Every joint value of `sites` sites, `[values ** sites, sites]` (one-hot: one more axis).

        The first site varies slowest. The tensor is cached for each device: do not modify it.
        """
        return _patterns(self, sites, torch.device(device))

    def count(self) -> int:
        """The number of states. Raises ValueError if it is infinite."""
        return prod(self._sizes())

    def _sizes(self) -> tuple[int, ...]:
        """The number of values of each site."""
        return (len(self.values()),) * self.dim

    def listed(self, number: Tensor) -> Tensor:
        """The states with these numbers, `[n] -> [n, *shape]`; the first site varies slowest."""
        return self.values()[_digits(number, self._sizes())]

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
        return self.listed(torch.arange(count))


@lru_cache(maxsize=32)
def _patterns(domain: Domain, sites: int, device: torch.device) -> Tensor:
    values = domain.values()
    index = torch.cartesian_prod(*[torch.arange(len(values))] * sites).view(-1, sites)
    return values[index].to(device)


def _digits(number: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """The digits of numbers `[n]` in the mixed radix `sizes`, `[n, digits]`."""
    found = []
    for size in reversed(sizes):
        found.append(number % size)
        number = number // size
    return torch.stack(found[::-1], -1)


def one_hot(index: Tensor, num_values: int) -> Tensor:
    """Boolean indicator over a new last axis (F.one_hot checks its range on the host)."""
    return index.unsqueeze(-1) == torch.arange(num_values, device=index.device)


def _require_values(x: Tensor, allowed: Tensor, shape: tuple[int, ...], what: str) -> None:
    if x.shape[1:] != shape:
        raise ValueError(f"states must have shape {['chains', *shape]}, got {list(x.shape)}")
    inside = torch.isin(x, allowed.to(x))
    if not inside.all():
        single = bool(torch.isin(x.float(), allowed.to(x.device)).all())
        advice = " of higher precision; x.float() rounds them" if single else ""
        odd = x[~inside][:3].tolist()
        raise ValueError(f"every entry of a state must be {what}, got values such as {odd}{advice}")


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
        _require_values(x, self.values(), self.shape, f"{self.low:g} or {self.high:g}")

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

    def leaving(self, x: Tensor, logits: Tensor) -> Tensor:
        return logits

    def move_one(self, x: Tensor, index: Tensor) -> Tensor:
        return x.scatter(-1, index, self.flip(x.gather(-1, index)))

    def reverse(self, x: Tensor, index: Tensor) -> Tensor:
        return index

    def values(self) -> Tensor:
        return torch.tensor([self.low, self.high])


class _Several(Domain):
    """Base of domains whose sites choose among `moves` values, logits `[chains, dim, moves]`."""

    @abstractmethod
    def taken(self, x: Tensor, y: Tensor) -> Tensor:
        """Index of each site's move from `x` to `y`, `[chains, dim]`."""

    @abstractmethod
    def apply(self, x: Tensor, move: Tensor) -> Tensor:
        """The states after each site's move; `move` `[chains, dim]` holds indices."""

    def move_all(self, x: Tensor, logits: Tensor, rng: Generator) -> Tensor:
        weights = softmax_weights(logits)
        move = draw_categorical(weights, rng).squeeze(-1)
        return self.apply(x, torch.where(weights[..., 0].isnan(), self.taken(x, x), move))

    def log_normaliser(self, logits: Tensor) -> Tensor:
        return logits.logsumexp(-1).sum(-1)

    def log_weight(self, x: Tensor, y: Tensor, logits: Tensor) -> Tensor:
        return logits.gather(-1, self.taken(x, y).unsqueeze(-1)).sum((-2, -1))

    def leaving(self, x: Tensor, logits: Tensor) -> Tensor:
        stays = one_hot(self.taken(x, x), self.moves)
        return logits.masked_fill(stays, -torch.inf).flatten(1)

    def move_one(self, x: Tensor, index: Tensor) -> Tensor:
        site, move = index.div(self.moves, rounding_mode="floor"), index.remainder(self.moves)
        return self.apply(x, self.taken(x, x).scatter(-1, site, move))

    def reverse(self, x: Tensor, index: Tensor) -> Tensor:
        site = index.div(self.moves, rounding_mode="floor")
        back = self.taken(self.move_one(x, index), x).gather(-1, site)
        return site * self.moves + back


@dataclass(frozen=True)
class _Finite(_Several):
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


class _Numbers(_Several):
    """Base of domains whose sites hold one number: a move adds one of `_steps`."""

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.dim,)

    @abstractmethod
    def _steps(self, x: Tensor) -> Tensor:
        """What each move adds; broadcasts against `[chains, dim, moves]`."""

    def gains(self, x: Tensor, grad: Tensor) -> Tensor:
        return grad.unsqueeze(-1) * self._steps(x)

    def distances(self, x: Tensor) -> Tensor:
        return self._steps(x).square()


class Categorical(_Finite):
    """`{0 .. num_values-1}^dim` as one-hot floats `[chains, dim, num_values]`.

    Two values of a site are at squared distance 2 (Zhang et al. 2022, App. B).
    """

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.dim, self.num_values)

    def uniform(self, chains: int, rng: Generator) -> Tensor:
        return one_hot(self._index(chains, rng), self.num_values).float()

    def check(self, x: Tensor) -> None:
        _require_values(x, torch.tensor([0.0, 1.0]), self.shape, "0 or 1 (one-hot)")
        if (wrong := (sums := x.sum(-1)) != 1).any():
            raise ValueError(
                "every site of a categorical state must be one-hot, got sites that sum to "
                f"{sums[wrong][:3].tolist()}"
            )

    def gains(self, x: Tensor, grad: Tensor) -> Tensor:
        return grad - (grad * x).sum(-1, keepdim=True)

    def distances(self, x: Tensor) -> Tensor:
        return 2 * (1 - x)

    def taken(self, x: Tensor, y: Tensor) -> Tensor:
        return y.argmax(-1)

    def apply(self, x: Tensor, move: Tensor) -> Tensor:
        return one_hot(move, self.num_values).to(x.dtype)

    def values(self) -> Tensor:
        return torch.eye(self.num_values)


@dataclass(frozen=True)
class Mixed(Categorical):
    """Categories, site i with `sizes[i]` of them: `Mixed([2, 4, 3])`.

    States are one-hot `[chains, dim, num_values]`, with the largest size unless `num_values` is
    given. The values that a site does not have are 0 in every state. No proposal leads to them, and
    no model is evaluated there.
    """

    dim: int = field(init=False, repr=False)
    num_values: int = field(default=0, kw_only=True)
    sizes: Sequence[int]

    def __post_init__(self) -> None:
        sizes = tuple(int(size) for size in self.sizes)
        if not sizes or min(sizes) < 2:
            raise ValueError(
                "Mixed needs the number of values of each site, two or more, got "
                f"{self.sizes}; leave out sites of one value"
            )
        if 0 < self.num_values < max(sizes):
            raise ValueError(f"num_values must be {max(sizes)} or more, got {self.num_values}")
        found = {"sizes": sizes, "dim": len(sizes), "num_values": self.num_values or max(sizes)}
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def of_sites(self, sites: Sequence[int], others: Tensor | None = None) -> Domain:
        return Mixed(tuple(self.sizes[site] for site in sites))

    def _sizes(self) -> tuple[int, ...]:
        return tuple(self.sizes)

    def size_of(self, sites: Tensor) -> Tensor:
        """The number of values of each of `sites`, in their shape."""
        return _as_tensor(self._sizes(), sites.device)[sites]

    def allowed(self, sites: Tensor) -> Tensor:
        values = torch.arange(self.num_values, device=sites.device)
        return values < self.size_of(sites).unsqueeze(-1)

    def _index(self, chains: int, rng: Generator) -> Tensor:
        sizes = _as_tensor(self._sizes(), rng.device)
        drawn = torch.rand(chains, self.dim, generator=rng, device=rng.device).double() * sizes
        return drawn.long()

    def check(self, x: Tensor) -> None:
        super().check(x)
        if (wrong := x.masked_fill(self._every(x), 0).sum((0, 2)) > 0).any():
            site = int(wrong.nonzero()[0])
            raise ValueError(f"site {site} has {self.sizes[site]} values, got a larger one")

    def _every(self, x: Tensor) -> Tensor:
        return self.allowed(torch.arange(self.dim, device=x.device))

    def gains(self, x: Tensor, grad: Tensor) -> Tensor:
        """Values that a site does not have are -inf."""
        return super().gains(x, grad).masked_fill(~self._every(x), -torch.inf)

    def leaving(self, x: Tensor, logits: Tensor) -> Tensor:
        """Values that a site does not have are -inf, whatever their logits."""
        return super().leaving(x, logits.masked_fill(~self._every(x), -torch.inf))

    def apply(self, x: Tensor, move: Tensor) -> Tensor:
        """A value that a site does not have, of probability 0, is read as its last one."""
        return super().apply(x, move.minimum(_as_tensor(self._sizes(), x.device) - 1))

    def block(self, x: Tensor, sites: Tensor) -> tuple[Tensor, Tensor | None]:
        index = self.patterns(len(sites), x.device).argmax(-1)
        size = self.size_of(sites)
        return (
            one_hot(index.minimum(size - 1), self.num_values).to(x.dtype).unsqueeze(0),
            (index >= size).any(-1).unsqueeze(0),
        )


class Ordinal(_Numbers, _Finite):
    """`{0 .. num_values-1}^dim` as floats `[chains, dim]`; a site may move to any value (Eq. 2)."""

    def uniform(self, chains: int, rng: Generator) -> Tensor:
        return self._index(chains, rng).float()

    def check(self, x: Tensor) -> None:
        _require_values(x, self.values(), self.shape, f"an integer in 0..{self.num_values - 1}")

    def _steps(self, x: Tensor) -> Tensor:
        return torch.arange(self.num_values, device=x.device, dtype=x.dtype) - x.unsqueeze(-1)

    def taken(self, x: Tensor, y: Tensor) -> Tensor:
        return y.long()

    def apply(self, x: Tensor, move: Tensor) -> Tensor:
        return move.to(x.dtype)

    def values(self) -> Tensor:
        return torch.arange(float(self.num_values))


@dataclass(frozen=True)
class Integer(_Numbers):
    """Integers as floats `[chains, dim]`; a site may move by at most `window` (App. C).

    `low` bounds the domain from below (0 gives the paper's {0, 1, 2, ...}); None leaves it open.
    Chains may start at integers up to 2^23 in single precision, and 2^52 in double precision.
    """

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
        return self._inside(x, super().gains(x, grad))

    def leaving(self, x: Tensor, logits: Tensor) -> Tensor:
        """Moves that leave the domain are -inf, whatever their logits."""
        return super().leaving(x, self._inside(x, logits))

    def _inside(self, x: Tensor, logits: Tensor) -> Tensor:
        """`logits` with -inf for the moves that end below `low`."""
        if self.low is None:
            return logits
        return logits.masked_fill(x.unsqueeze(-1) + self._steps(x) < self.low, -torch.inf)

    def taken(self, x: Tensor, y: Tensor) -> Tensor:
        return (y - x).long() + self.window

    def apply(self, x: Tensor, move: Tensor) -> Tensor:
        return x + (move - self.window)

    def values(self) -> Tensor:
        raise ValueError(f"{self} has infinitely many values a site and cannot be listed")


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

    def leaving(self, x: Tensor, logits: Tensor) -> Tensor:
        return logits.flatten(1)

    def _swapped(self, x: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The state after the moves, and the sites that become empty and full."""
        full, empty = self._places(x)
        source = full.gather(1, index.div(self.moves, rounding_mode="floor"))
        goal = empty.gather(1, index.remainder(self.moves))
        return x.scatter(1, source, self.low).scatter(1, goal, self.high), source, goal

    def move_one(self, x: Tensor, index: Tensor) -> Tensor:
        return self._swapped(x, index)[0]

    def reverse(self, x: Tensor, index: Tensor) -> Tensor:
        y, source, goal = self._swapped(x, index)
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

    def listed(self, number: Tensor) -> Tensor:
        bits, left = [], torch.full_like(number, self.ones)
        ways = torch.tensor([[comb(n, k) for k in range(self.ones + 1)] for n in range(self.dim)])
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


SWAPS = "use random_walk, gwg, locally_balanced or gibbs(sites=2, scan=random), which swap sites"


@lru_cache(maxsize=32)
def _as_tensor(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(sizes, device=device)


@lru_cache(maxsize=32)
def _arrangements(sites: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """For each number of ones of a block, its arrangements, and which ones fill up the list."""
    every = Binary(sites).enumerate()
    most = comb(sites, sites // 2)
    patterns, repeated = [], []
    for ones in range(sites + 1):
        found = every[every.sum(-1) == ones]
        patterns.append(found[torch.arange(most).clamp(max=len(found) - 1)])
        repeated.append(torch.arange(most) >= len(found))
    return torch.stack(patterns).to(device), torch.stack(repeated).to(device)
