"""The values of the sites of PyMC's discrete variables, and proposals that move all of them.

Moves and logits are those of `models.domains`, in NumPy and for one chain: a number may move to any
value at squared distance (y - x)^2 (`Ordinal`), and two categories are at squared distance 2
(`Categorical`). A binary site is a number with two values.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Whole = NDArray[np.int64]


class Sites(ABC):
    """The sites of one variable; states are whole numbers `[sites]`."""

    shape: tuple[int, ...]  # the shape of the variable
    values: Whole  # [sites, values]
    jumps: bool  # whether changes are to the values that a move reaches, not a slope
    reach: float  # the largest distance between two values

    @abstractmethod
    def gains(self, x: Whole, gradient: Array) -> Array:
        """First-order change in log-probability of each move, `[sites, values]`."""

    @abstractmethod
    def distances(self, x: Whole) -> Array:
        """Squared distance of each move, `[sites, values]`."""

    @abstractmethod
    def index(self, x: Whole) -> Whole:
        """The places of the values of `x` among `values`, `[sites]`."""

    def log_proposals(self, x: Whole, gradient: Array, step_size: float) -> Array:
        """Logarithms of the probabilities of Eq. (2) of Zhang et al. (2022), `[sites, values]`."""
        logits = self.gains(x, gradient) / 2 - self.distances(x) / (2 * step_size)
        logits -= logits.max(1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(1, keepdims=True))

    def draw(self, log_proposals: Array, rng: np.random.Generator) -> Whole:
        """Every site draws its value independently."""
        choice = (log_proposals + rng.gumbel(size=log_proposals.shape)).argmax(1)
        return self.values[self.rows, choice]

    def log_proposal(self, log_proposals: Array, y: Whole) -> float:
        """The logarithm of the probability that `draw` gives `y`."""
        return float(log_proposals[self.rows, self.index(y)].sum())

    @cached_property
    def rows(self) -> Whole:
        return np.arange(len(self.values))


@dataclass(frozen=True)
class NumberSites(Sites):
    """Whole numbers from `low` to `high` `[sites]`, both included."""

    shape: tuple[int, ...]
    low: Whole
    high: Whole

    @cached_property
    def values(self) -> Whole:  # type: ignore[override]
        """Values above `high`, which shorter ranges are filled up with, are never drawn."""
        return self.low[:, None] + np.arange(int((self.high - self.low).max()) + 1)

    @cached_property
    def outside(self) -> NDArray[np.bool_] | None:
        """Which of `values` are too large, if some are."""
        outside = self.values > self.high[:, None]
        return outside if outside.any() else None

    @cached_property
    def jumps(self) -> bool:  # type: ignore[override]
        return self.values.shape[1] == 2

    @cached_property
    def reach(self) -> float:  # type: ignore[override]
        return float((self.high - self.low).max())

    def gains(self, x: Whole, gradient: Array) -> Array:
        """`gradient` `[1, sites]`: the change from the value below to that above."""
        width = np.minimum(x + 1, self.high) - np.maximum(x - 1, self.low)
        gains = (gradient[0] / np.maximum(width, 1))[:, None] * (self.values - x[:, None])
        if self.outside is not None:
            gains[self.outside] = -np.inf
        return gains

    def distances(self, x: Whole) -> Array:
        return np.square(self.values - x[:, None], dtype=np.float64)

    def index(self, x: Whole) -> Whole:
        return x - self.low


@dataclass(frozen=True)
class CategorySites(Sites):
    """Unordered values 0 .. num_values - 1."""

    shape: tuple[int, ...]
    num_values: int
    jumps = True
    reach = 1.0

    @cached_property
    def values(self) -> Whole:  # type: ignore[override]
        count = int(np.prod(self.shape))
        return np.broadcast_to(np.arange(self.num_values), (count, self.num_values))

    def gains(self, x: Whole, gradient: Array) -> Array:
        """`gradient` `[values, sites]` holds the change of the log-probability to each value."""
        return gradient.T - gradient[x, self.rows, None]

    def distances(self, x: Whole) -> Array:
        return 2.0 * (self.values != x[:, None])

    def index(self, x: Whole) -> Whole:
        return x
