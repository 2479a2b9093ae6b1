"""Answers of exact methods about a target, and what is computed from a list of its states."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float64]
Codes = NDArray[np.int64]  # numbers of the sites' values, [states, sites]
Statistic = Callable[[Codes], NDArray[Any]]  # states [n, sites] -> [n, ...]
DRAWS = 2000  # of each target
SEED = 72  # of the draws


@dataclass
class Answer:
    """Each number by the name of the method that gave it; the first one counts."""

    log_z: dict[str, float] = field(default_factory=dict)
    energy: dict[str, float] = field(default_factory=dict)  # mean of log pi
    variance: dict[str, float] = field(default_factory=dict)  # of log pi
    mean: dict[str, Floats] = field(default_factory=dict)  # [sites] or [sites, values]
    moments: dict[str, dict[str, float]] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)  # standard errors of sampled moments
    codes: Codes | None = None
    log_prob: Floats | None = None  # of the draws
    drawn: str = ""  # how the draws were made
    notes: list[str] = field(default_factory=list)
    statistics: dict[str, float] = field(default_factory=dict)  # z-scores, differences, sweeps


@dataclass
class Listing:
    """All states of a target with their probabilities."""

    log_prob: Floats  # [states]
    codes: Callable[[slice], Codes]  # the states of a range
    values: int
    count_of_sites: int
    chunk: int = 2**16

    def __post_init__(self) -> None:
        top = self.log_prob.max()
        weight = np.exp(self.log_prob - top)
        total = weight.sum()
        self.log_z = float(top + np.log(total))
        self.p = weight / total

    def average(self, function: Statistic) -> Floats:
        """The mean of a function of states `[n, sites]` -> `[n, ...]`."""
        total: Any = 0.0
        for first in range(0, len(self.p), self.chunk):
            part = slice(first, first + self.chunk)
            total = total + np.tensordot(self.p[part], function(self.codes(part)), axes=1)
        return np.asarray(total)

    def mean(self) -> Floats:
        """Means of the sites, of two values, else the probability of each value."""
        if self.values == 2:
            return self.average(lambda codes: codes.astype(np.float64))
        return self.average(lambda codes: one_hot(codes, self.values))

    def energy(self) -> tuple[float, float]:
        """The mean and variance of log pi."""
        possible = self.p > 0
        log_prob, p = self.log_prob[possible], self.p[possible]
        mean = p @ log_prob
        return float(mean), float(p @ (log_prob - mean) ** 2)

    def draw(self, seed: int, count: int = DRAWS) -> tuple[Codes, Floats]:
        """Independent states and their log pi."""
        numbers = np.random.default_rng(seed).choice(len(self.p), count, p=self.p)
        codes = np.empty((count, self.count_of_sites), np.int64)
        for row, number in enumerate(numbers.tolist()):
            codes[row] = self.codes(slice(number, number + 1))[0]
        return codes, self.log_prob[numbers]

    def fill(self, answer: Answer, method: str, seed: int) -> None:
        answer.log_z[method] = self.log_z
        answer.energy[method], answer.variance[method] = self.energy()
        answer.mean[method] = self.mean()
        answer.codes, answer.log_prob = self.draw(seed)
        answer.drawn = "drawn from the list of all states"


def binary_codes(sites: int) -> Callable[[slice], Codes]:
    """The states of `sites` bits: bit i of its number is site i."""

    def codes(part: slice) -> Codes:
        numbers = np.arange(part.start, min(part.stop, 1 << sites))
        return numbers[:, None] >> np.arange(sites) & 1

    return codes


def list_binary(log_prob: Floats, sites: int) -> Listing:
    return Listing(log_prob, binary_codes(sites), 2, sites)


def list_codes(log_prob: Floats, codes: Codes, values: int) -> Listing:
    return Listing(log_prob, lambda part: codes[part], values, codes.shape[1])


def one_hot(codes: Codes, values: int) -> Floats:
    return (codes[..., None] == np.arange(values)).astype(np.float64)


def moment_errors(log_prob: Floats) -> dict[str, float]:
    """Standard errors of the mean and the variance of independent values of log pi."""
    squares = (log_prob - log_prob.mean()) ** 2
    root = np.sqrt(len(log_prob))
    return {"energy": float(log_prob.std() / root), "energy variance": float(squares.std() / root)}
