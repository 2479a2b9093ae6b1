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
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Generator, Tensor

from latticework.models.chance import draw_categorical, flips, softmax_weights, softplus_sum

FARTHEST = 1e18  # of the two values of a site: samplers square their distance


class Domain(ABC):
    """A product of finite sets of values, one for each site. `Integer` sites are unbounded."""

    dim: int
    shape: tuple[int, ...]  # of one state
    moves: int  # number of values a site chooses among; 1 if the only move is a flip

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

    def patterns(self, sites: int, device: torch.device | str = "cpu") -> Tensor:
        """Every joint value of `sites` sites, `[values ** sites, sites]` (one-hot: one more axis).

        The first site varies slowest. The tensor is cached for each device: do not modify it.
        """
        return _patterns(self, sites, torch.device(device))

    def enumerate(self) -> Tensor:
        """Every state, `[states, *shape]`, for exact references on small domains.

        Raises ValueError above 2^22 states; `sampling.exact` works through more in
        chunks.
        """
        count = len(self.values()) ** self.dim
        if count > 2**22:
            raise ValueError(
                f"enumerate() lists at most 2^22 states, this domain has {count}: take a smaller "
                "model, such as model.shape=[3,3], or sampling.exact, which needs no "
                "such list"
            )
        return self.patterns(self.dim)


@lru_cache(maxsize=32)
def _patterns(domain: Domain, sites: int, device: torch.device) -> Tensor:
    values = domain.values()
    index = torch.cartesian_prod(*[torch.arange(len(values))] * sites).view(-1, sites)
    return values[index].to(device)


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
        bits = torch.rand(chains, self.dim, generator=rng, device=rng.device) < 0.5
        return torch.where(bits, self.high, self.low)

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
        shape = (chains, self.dim)
        return torch.randint(self.num_values, shape, generator=rng, device=rng.device)


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
