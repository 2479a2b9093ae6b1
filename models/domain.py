"""State spaces: which configurations exist, which moves leave one, and how moves are drawn.

A domain owns the geometry that gradient-informed samplers need, so that one sampler file serves
binary, categorical, ordinal and integer targets alike. Shapes, chains first:

    x       [chains, *shape]             float; shape is (dim,), or (dim, values) for one-hot states
    logits  [chains, *shape_of_moves]    one number a move: (dim,) when the only move is a flip,
                                         (dim, moves) when a site chooses among several values

Two families of proposals are built from such logits:

    all sites   every site chooses its move independently, with probability softmax(logits) at
                that site (DULA, DMALA); for a binary site the alternatives are `logit` (flip)
                and 0 (stay)
    one site    exactly one (site, move) pair happens, with probability softmax over all pairs
                that leave the state for another of the domain (Gibbs with gradients, locally
                balanced). Pairs are counted by a flat index, site * moves + move.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad, softplus

LARGE = 2**14  # entries of a tensor from which on its work outweighs the calls of operations
TWO_STAGES_FROM = 512  # entries of a categorical law


def uniform_like(x: Tensor, rng: Generator) -> Tensor:
    """Uniform numbers in the shape of `x`, of 23 bits or more, below 1.

    A CPU generator takes as long for 64 bits as for a float of 24, so that large float tensors are
    made from 64-bit integers, two numbers each, in two thirds of the time.
    """
    if x.is_cuda or x.dtype != torch.float32 or x.numel() < LARGE:
        return torch.empty_like(x).uniform_(generator=rng)
    pairs = torch.empty((x.numel() + 1) // 2, dtype=torch.int64, device=x.device)
    bits = pairs.random_(-(2**63), None, generator=rng).view(torch.int32)
    # The factor is a little below 2^-32: rounding must not reach 1, or sites of probability 0 flip.
    return bits[: x.numel()].view_as(x).to(x.dtype).mul_(2.0**-32 - 2.0**-54).add_(0.5)


def softplus_sum(z: Tensor) -> Tensor:
    """Sum of log(1 + exp(z)) over the last axis, `[..., n] -> [...]`.

    Where a tensor is large, as sum of max(z, 0) + log(1 + exp(-|z|)), with one logarithm for the
    product of 32 of the second terms, which are the logarithms of numbers between 1 and 2.
    """
    if z.is_cuda or z.numel() < LARGE:
        return softplus(z).sum(-1)
    memory = z.abs()
    factors = memory.neg_().exp_().add_(1)
    for _ in range(5):
        half = (factors.shape[-1] + 1) // 2
        factors, rest = factors[..., :half], factors[..., half:]
        factors[..., : rest.shape[-1]].mul_(rest)
    total = factors.log().sum(-1)
    return total.add_(torch.clamp(z, min=0, out=memory).sum(-1))


def draw_categorical(weights: Tensor, rng: Generator, draws: int = 1) -> Tensor:
    """Indices drawn in proportion to non-negative `weights`, `[..., n] -> [..., draws]`.

    Inverse transform in double precision, no host reads, and an entry of weight zero is never
    drawn. Draws are independent (with replacement). Among many entries, first a block of
    consecutive ones is drawn, then one of them.
    """
    n = weights.shape[-1]
    if n < TWO_STAGES_FROM:
        return _invert(weights, rng, draws)
    width = isqrt(n)
    blocks = pad(weights, (0, -n % width)).unflatten(-1, (-1, width))
    block = _invert(blocks.sum(-1), rng, draws)
    inside = blocks.gather(-2, block.unsqueeze(-1).expand(*block.shape, width))
    return torch.add(_invert(inside, rng, 1).squeeze(-1), block, alpha=width).clamp_(max=n - 1)


def _invert(weights: Tensor, rng: Generator, draws: int) -> Tensor:
    total = weights.cumsum(-1, dtype=torch.float64)
    shape = (*weights.shape[:-1], draws)
    uniform = torch.empty(shape, dtype=torch.float64, device=weights.device)
    level = uniform.uniform_(generator=rng).mul_(total[..., -1:])
    return torch.searchsorted(total, level, right=True).clamp_(max=weights.shape[-1] - 1)


def softmax_weights(logits: Tensor) -> Tensor:
    """Weights proportional to exp(logits) over the last axis, the largest of them 1."""
    return (logits - logits.amax(-1, keepdim=True)).exp_()


class Domain(ABC):
    """A product of one finite (or locally finite) set a site."""

    dim: int
    shape: tuple[int, ...]  # of one state
    moves: int  # alternatives a site chooses among; 1 when the only move is a flip

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
        """Log of the normaliser of `move_all`'s law, `[chains]`."""

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
        """`logits` as `[chains, dim * moves]`, -inf for moves to `x` itself or off the domain."""

    @abstractmethod
    def move_one(self, x: Tensor, index: Tensor) -> Tensor:
        """The states after the moves with flat index `index` `[chains, 1]`."""

    @abstractmethod
    def reverse(self, x: Tensor, index: Tensor) -> Tensor:
        """Flat index at `move_one(x, index)` of the move that leads back to `x`, `[chains, 1]`."""

    # A block of sites is resampled, or everything is listed.

    @abstractmethod
    def values(self) -> Tensor:
        """The values a site can take, `[values]`, or `[values, values]` for one-hot sites.

        Raises ValueError where a site has infinitely many.
        """

    def patterns(self, sites: int, device: torch.device | str = "cpu") -> Tensor:
        """Every joint value of `sites` sites, `[values ** sites, sites]` (one-hot: one more axis).

        The first site varies slowest. Cached on each device; the caller must not change it.
        """
        return _patterns(self, sites, torch.device(device))

    def enumerate(self) -> Tensor:
        """Every state, `[states, *shape]`, for exact references on small domains.

        Raises ValueError above 2^22 states; `experiments.exact` works in chunks beyond.
        """
        count = len(self.values()) ** self.dim
        if count > 2**22:
            raise ValueError(
                f"enumerate() lists at most 2^22 states, this domain has {count}; "
                "use experiments.exact, which needs no such list"
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
    if not torch.isin(x, allowed.to(x)).all():
        raise ValueError(
            f"every entry of a state must be {what}, got values such as {_odd(x, allowed)}"
        )


def _odd(x: Tensor, allowed: Tensor) -> list[float]:
    return [float(v) for v in x[~torch.isin(x, allowed.to(x))][:3]]


@dataclass(frozen=True)
class Binary(Domain):
    """`{low, high}^dim`, states `[chains, dim]`. The one move is a flip."""

    dim: int
    low: float = 0.0
    high: float = 1.0
    moves = 1

    def __post_init__(self) -> None:
        if self.dim < 1 or not self.low < self.high:
            raise ValueError(f"Binary needs dim >= 1 and low < high, got {self}")
        # A YAML's `low: -1` is an int, and would make integer states.
        object.__setattr__(self, "low", float(self.low))
        object.__setattr__(self, "high", float(self.high))

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.dim,)

    @property
    def is_unit(self) -> bool:
        return self.low == 0 and self.high == 1

    def uniform(self, chains: int, rng: Generator) -> Tensor:
        bits = torch.rand(chains, self.dim, generator=rng, device=rng.device) < 0.5
        return torch.where(bits, self.high, self.low)

    def check(self, x: Tensor) -> None:
        _require_values(x, self.values(), self.shape, f"{self.low:g} or {self.high:g}")

    def flip(self, x: Tensor) -> Tensor:
        return (self.low + self.high) - x

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
        """Site i flips with probability sigmoid(logit_i); where that is NaN it stays."""
        uniform = uniform_like(logits, rng)
        # ceil(p - u) is 1 where u < p and 0 elsewhere; several times faster than a boolean mask.
        flips = logits.sigmoid().sub_(uniform).ceil_().nan_to_num_()
        if self.is_unit:
            return flips.sub_(x).abs_()
        return torch.addcmul(x, flips, self.flip(x).sub_(x))

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
    """What the domains share whose sites choose among `moves` alternatives, logits [.., moves]."""

    @abstractmethod
    def taken(self, x: Tensor, y: Tensor) -> Tensor:
        """Index of the move that each site makes from `x` to `y`, `[chains, dim]`."""

    @abstractmethod
    def apply(self, x: Tensor, move: Tensor) -> Tensor:
        """The states after each site made its move, `[chains, dim]` indices."""

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
class Categorical(_Several):
    """`{0 .. num_values-1}^dim` as one-hot floats `[chains, dim, num_values]`.

    A changed site is at squared distance 2 (Zhang et al. 2022, App. B).
    """

    dim: int
    num_values: int

    def __post_init__(self) -> None:
        if self.dim < 1 or self.num_values < 2:
            raise ValueError(f"Categorical needs dim >= 1 and num_values >= 2, got {self}")

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.dim, self.num_values)

    @property
    def moves(self) -> int:  # type: ignore[override]
        return self.num_values

    def uniform(self, chains: int, rng: Generator) -> Tensor:
        index = torch.randint(self.num_values, (chains, self.dim), generator=rng, device=rng.device)
        return one_hot(index, self.num_values).float()

    def check(self, x: Tensor) -> None:
        _require_values(x, torch.tensor([0.0, 1.0]), self.shape, "0 or 1 (one-hot)")
        if not (x.sum(-1) == 1).all():
            sums = x.sum(-1)
            odd = [float(v) for v in sums[sums != 1][:3]]
            raise ValueError(
                f"every site of a categorical state must be one-hot, got sites that sum to {odd}"
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
class Ordinal(_Several):
    """`{0 .. num_values-1}^dim` as floats `[chains, dim]`; a site may move to any value (Eq. 2)."""

    dim: int
    num_values: int

    def __post_init__(self) -> None:
        if self.dim < 1 or self.num_values < 2:
            raise ValueError(f"Ordinal needs dim >= 1 and num_values >= 2, got {self}")

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.dim,)

    @property
    def moves(self) -> int:  # type: ignore[override]
        return self.num_values

    def uniform(self, chains: int, rng: Generator) -> Tensor:
        shape = (chains, self.dim)
        return torch.randint(self.num_values, shape, generator=rng, device=rng.device).float()

    def check(self, x: Tensor) -> None:
        _require_values(x, self.values(), self.shape, f"an integer in 0..{self.num_values - 1}")

    def _steps(self, x: Tensor) -> Tensor:
        return torch.arange(self.num_values, device=x.device, dtype=x.dtype) - x.unsqueeze(-1)

    def gains(self, x: Tensor, grad: Tensor) -> Tensor:
        return grad.unsqueeze(-1) * self._steps(x)

    def distances(self, x: Tensor) -> Tensor:
        return self._steps(x).square()

    def taken(self, x: Tensor, y: Tensor) -> Tensor:
        return y.long()

    def apply(self, x: Tensor, move: Tensor) -> Tensor:
        return move.to(x.dtype)

    def values(self) -> Tensor:
        return torch.arange(float(self.num_values))


@dataclass(frozen=True)
class Integer(_Several):
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
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.dim,)

    @property
    def moves(self) -> int:  # type: ignore[override]
        return 2 * self.window + 1

    def _steps(self, x: Tensor) -> Tensor:
        return torch.arange(-self.window, self.window + 1, device=x.device, dtype=x.dtype)

    def uniform(self, chains: int, rng: Generator) -> Tensor:
        """Uniform over the window above `low` (or around 0): the domain itself is infinite."""
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
            odd = [float(v) for v in x[~inside][:3]]
            raise ValueError(
                f"every entry of a state must be an integer of {self}, got values such as {odd}"
            )

    def gains(self, x: Tensor, grad: Tensor) -> Tensor:
        """Moves off the domain gain -inf."""
        return self._inside(x, grad.unsqueeze(-1) * self._steps(x))

    def leaving(self, x: Tensor, logits: Tensor) -> Tensor:
        """Moves off the domain are -inf, whatever the model says of them."""
        return super().leaving(x, self._inside(x, logits))

    def _inside(self, x: Tensor, logits: Tensor) -> Tensor:
        """`logits` with -inf for the moves that end below `low`."""
        if self.low is None:
            return logits
        return logits.masked_fill(x.unsqueeze(-1) + self._steps(x) < self.low, -torch.inf)

    def distances(self, x: Tensor) -> Tensor:
        return self._steps(x).square()

    def taken(self, x: Tensor, y: Tensor) -> Tensor:
        return (y - x).long() + self.window

    def apply(self, x: Tensor, move: Tensor) -> Tensor:
        return x + (move - self.window)

    def values(self) -> Tensor:
        raise ValueError(f"{self} has infinitely many values a site and cannot be listed")
