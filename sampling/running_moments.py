"""Running means of draws in place of the draws: batch means, whose spread gives ESS and R-hat.

A chain has at most `2 * BATCHES` batches of equally many draws. When they are full, neighbours are
added up, so memory does not grow with the run. J. M. Flegal and G. L. Jones, "Batch means and
spectral variance estimators in Markov chain Monte Carlo", Annals of Statistics 2010.
"""

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BATCHES = 16  # batches of a chain, at least, once a run has that many draws


class RunningMoments:
    """Batch sums of the entries of x, of products along edges, and sums of squares.

    For binary and spin states, the product of an edge is x_i x_j; of one-hot states it is 1 where
    both sites have one category.
    """

    file = None

    def __init__(self, x: Tensor, edges: Tensor | None) -> None:
        """Moments of states like `x` `[chains, *shape]`, and of the `edges` `[m, 2]`."""
        self.state_shape, self.chains, self.draws = tuple(x.shape[1:]), len(x), 0
        self.edges = None if edges is None else edges.to(x.device)
        count = x[0].numel() + (0 if edges is None else len(edges))
        self.length = 1  # draws of a batch
        self._sums = torch.zeros(2 * BATCHES, len(x), count, dtype=x.dtype, device=x.device)
        self._squares = torch.zeros(count, dtype=torch.float64, device=x.device)
        self._first: Tensor | None = None  # the first draw of each chain
        self._has_moved = torch.zeros(len(x), dtype=torch.bool, device=x.device)

    @property
    def has_moved(self) -> NDArray[np.bool_]:
        """Whether each chain has left its first draw, `[chains]`."""
        return self._has_moved.cpu().numpy()

    def bytes_of(self, draws: int) -> int:
        """Bytes that the sums take, whatever the number of draws."""
        return self._sums.nbytes + self._squares.nbytes

    def fork(self) -> "RunningMoments":
        """A copy, to which other draws are added."""
        twin = copy.copy(self)
        twin._sums, twin._squares = self._sums.clone(), self._squares.clone()
        return twin

    def append(self, x: Tensor) -> None:
        """Add draws `[draws, chains, *shape]`."""
        x = x.to(self._sums.dtype)
        self._first = x[0].clone() if self._first is None else self._first
        self._has_moved = self._has_moved | (x != self._first).flatten(2).any(2).any(0)
        values = self._values(x)
        self._squares += values.square().sum((0, 1), dtype=torch.float64)
        for first, size in self._pieces(len(values)):
            if self.draws == 2 * BATCHES * self.length:
                merged = self._sums.unflatten(0, (BATCHES, 2)).sum(1)
                self._sums.zero_()[:BATCHES] = merged
                self.length *= 2
            self._sums[self.draws // self.length] += values[first : first + size].sum(0)
            self.draws += size

    def unpack(self) -> Tensor:
        """Raise ValueError: there are no draws."""
        raise ValueError(
            'keep="summary" keeps no draws; read mean, pair_means or summary(), or leave keep out'
        )

    def numbers(self) -> dict[str, NDArray[np.float64]]:
        """`mean`, `sd`, `mcse_mean`, `ess_bulk` and `r_hat` of each quantity; NaN of few draws.

        The error of a mean is that of batch means of all chains around their mean, so it is large
        where chains disagree. R-hat is that of the halves of the chains.
        """
        full = self.draws // self.length
        sums = self._sums[:full].double()
        mean = self._sums.double().sum((0, 1)) / (self.chains * self.draws)
        spread = self._squares / (self.chains * self.draws) - mean.square()
        variance = spread.clamp_min(0) * (self.chains * self.draws / (self.chains * self.draws - 1))
        nothing = torch.full_like(mean, torch.nan)
        error, r_hat = nothing, nothing
        if full >= BATCHES // 2:
            batches = sums / self.length
            error = (batches.flatten(0, 1).var(0) / (full * self.chains)).sqrt()
            r_hat = self._r_hat(batches, variance)
        ess = (variance / error.square()).clamp_max(2 * self.chains * self.draws)
        columns = (mean, variance.sqrt(), error, ess, r_hat)
        names = ("mean", "sd", "mcse_mean", "ess_bulk", "r_hat")
        return {name: column.cpu().numpy() for name, column in zip(names, columns, strict=True)}

    def _r_hat(self, batches: Tensor, variance: Tensor) -> Tensor:
        """R-hat of the halves of the chains from `batches` `[batches, chains, quantities]`."""
        half = len(batches) // 2
        halves = torch.cat((batches[:half].mean(0), batches[-half:].mean(0)))
        between = halves.var(0)
        within = (variance - between).clamp_min(0)
        size = half * self.length
        return (((size - 1) / size * within + between) / within).sqrt()

    def _values(self, x: Tensor) -> Tensor:
        """The quantities of draws `[draws, chains, *shape]`, `[draws, chains, quantities]`."""
        entries = x.flatten(2)
        if self.edges is None:
            return entries
        tails, heads = self.edges.unbind(1)
        products = x.index_select(2, tails) * x.index_select(2, heads)
        return torch.cat((entries, products.sum(3) if x.ndim > 3 else products), 2)

    def _pieces(self, count: int) -> list[tuple[int, int]]:
        """First draw and size of each piece of `count` draws, cut at the ends of batches."""
        pieces, done, length, draws = [], 0, self.length, self.draws
        while done < count:
            length *= 2 if draws == 2 * BATCHES * length else 1
            size = min(count - done, length - draws % length)
            pieces.append((done, size))
            done, draws = done + size, draws + size
        return pieces
