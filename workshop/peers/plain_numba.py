"""Plain numba kernels on a periodic square lattice of equal couplings, for `workshop.bench`.

Code as a user of numba would write it in an afternoon: float32 states, a xorshift generator for
each chain, tables of the few values that a probability takes, one thread, one chain after the
other. Each kernel advances all chains `steps` times in one call.

The target is that of `models.ising.Lattice`: log pi(x) = a s'As + b's with s = 2x - 1 and a binary
adjacency A. The log-odds of a site with n neighbours at 1 are 2 b - 16 a + 8 a n. Both sides of the
lattice must be at least 3, so that each site has four distinct neighbours.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.integer]
Seeds = NDArray[np.uint64]  # one state of the generator for each chain, never 0


@njit(cache=True, inline="always")
def advance(state: Any) -> Any:
    """The next state of a xorshift generator (G. Marsaglia, 2003)."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    return state ^ (state << np.uint64(17))


@njit(cache=True, inline="always")
def uniform(state: Any) -> Any:
    """A number in [0, 1) from the upper 24 bits of the state."""
    return np.float32(state >> np.uint64(40)) * np.float32(2.0**-24)


@njit(cache=True, inline="always")
def near(x: Any, i: int, j: int) -> int:
    """The number of neighbours of site (i, j) that are 1."""
    rows, columns = x.shape
    above = x[i - 1 if i > 0 else rows - 1, j]
    below = x[i + 1 if i < rows - 1 else 0, j]
    left = x[i, j - 1 if j > 0 else columns - 1]
    right = x[i, j + 1 if j < columns - 1 else 0]
    return int(above + below + left + right)


@njit(cache=True)
def gibbs(x: Floats, seeds: Seeds, first: int, steps: int, on: Floats) -> None:
    """Resample one site a step, in row-major order from site `first`; `on[n]` is P(x_i = 1)."""
    chains, rows, columns = x.shape
    for c in range(chains):
        state, grid = seeds[c], x[c]
        i, j = divmod(first, columns)
        for _ in range(steps):
            state = advance(state)
            grid[i, j] = uniform(state) < on[near(grid, i, j)]
            j += 1
            if j == columns:
                j = 0
                i = i + 1 if i + 1 < rows else 0
        seeds[c] = state


@njit(cache=True)
def sweep(x: Floats, seeds: Seeds, colours: Integers, classes: int, steps: int, on: Floats) -> None:
    """Resample every site once a step, colour class by colour class (`colours` of x's sides)."""
    chains, rows, columns = x.shape
    for c in range(chains):
        state, grid = seeds[c], x[c]
        for _ in range(steps):
            for colour in range(classes):
                for i in range(rows):
                    for j in range(columns):
                        if colours[i, j] == colour:
                            state = advance(state)
                            grid[i, j] = uniform(state) < on[near(grid, i, j)]
        seeds[c] = state


@njit(cache=True)
def langevin(
    x: Floats, seeds: Seeds, steps: int, flip: Floats, log_sum: Floats, adjusted: bool
) -> None:
    """Flip each site with probability `flip[n, x_i]`; if `adjusted`, accept or reject the result.

    `log_sum[n, x_i]` is -log(1 - flip). On a quadratic target the log of the acceptance ratio is
    the difference of its sums over the sites of x and of y.
    """
    chains, rows, columns = x.shape
    y = np.empty((rows, columns), np.float32)
    for c in range(chains):
        state, grid = seeds[c], x[c]
        here = total(grid, log_sum) if adjusted else 0.0
        for _ in range(steps):
            for i in range(rows):
                for j in range(columns):
                    state = advance(state)
                    old = grid[i, j]
                    moves = uniform(state) < flip[near(grid, i, j), int(old)]
                    y[i, j] = abs(old - moves)
            if adjusted:
                there = total(y, log_sum)
                state = advance(state)
                if np.log(uniform(state)) >= here - there:
                    continue
                here = there
            grid[:] = y
        seeds[c] = state


@njit(cache=True)
def total(x: Floats, values: Floats) -> float:
    """Sum of `values[n, x_i]` over the sites of one chain."""
    result = 0.0
    rows, columns = x.shape
    for i in range(rows):
        for j in range(columns):
            result += values[near(x, i, j), int(x[i, j])]
    return result


@njit(cache=True)
def reclass(
    site: int, new: int, kind: Integers, place: Integers, members: Integers, count: Integers
) -> None:
    """Move a site from its class to class `new`."""
    old, hole = kind[site], place[site]
    count[old] -= 1
    last = members[old, count[old]]
    members[old, hole], place[last] = last, hole
    members[new, count[new]], place[site] = site, count[new]
    kind[site] = new
    count[new] += 1


@njit(cache=True)
def flip_site(
    x: Floats, site: int, kind: Integers, place: Integers, members: Integers, count: Integers
) -> None:
    """Flip a site of one chain, and move it and its neighbours to their new classes."""
    rows, columns = x.shape
    i, j = divmod(site, columns)
    step = 1 if x[i, j] == 0 else -1
    x[i, j] += step
    reclass(site, kind[site] + step, kind, place, members, count)
    above = (i - 1 if i > 0 else rows - 1) * columns + j
    below = (i + 1 if i < rows - 1 else 0) * columns + j
    left = i * columns + (j - 1 if j > 0 else columns - 1)
    right = i * columns + (j + 1 if j < columns - 1 else 0)
    for other in (above, below, left, right):
        reclass(other, kind[other] + 2 * step, kind, place, members, count)


@njit(cache=True)
def classify(
    x: Floats, kind: Integers, place: Integers, members: Integers, count: Integers
) -> None:
    """Fill the classes of every chain: `kind[c, site]` is 2 n + x_i, one of ten.

    `members[c, k]` are the `count[c, k]` sites of class k, and `place[c, site]` is a site's place
    among them.
    """
    chains, rows, columns = x.shape
    for c in range(chains):
        for site in range(rows * columns):
            i, j = divmod(site, columns)
            k = 2 * near(x[c], i, j) + int(x[c, i, j])
            kind[c, site], place[c, site], members[c, k, count[c, k]] = k, count[c, k], site
            count[c, k] += 1


@njit(cache=True)
def gwg(
    x: Floats,
    seeds: Seeds,
    kinds: Integers,
    places: Integers,
    all_members: Integers,
    counts: Integers,
    steps: int,
    weight: NDArray[np.float64],
) -> None:
    """GWG-1 at a cost independent of the number of sites.

    All sites of a class have the same `weight`, exp(d / 2). A class is drawn, then one of its
    members; acceptance needs the sums of weights alone.
    """
    for c in range(len(x)):
        state, grid, kind, place = seeds[c], x[c], kinds[c], places[c]
        members, count = all_members[c], counts[c]
        for _ in range(steps):
            here = 0.0
            for k in range(10):
                here += count[k] * weight[k]
            state = advance(state)
            level, k = uniform(state) * here, 0
            while k < 9 and level >= count[k] * weight[k]:
                level -= count[k] * weight[k]
                k += 1
            while count[k] == 0:  # rounding led past the last class that has members
                k -= 1
            state = advance(state)
            site = members[k, int(uniform(state) * count[k])]
            flip_site(grid, site, kind, place, members, count)
            there = 0.0
            for k in range(10):
                there += count[k] * weight[k]
            state = advance(state)
            if uniform(state) * there >= here:
                flip_site(grid, site, kind, place, members, count)
        seeds[c] = state


class Lattices:
    """Chains of one sampler, from states `x` `[chains, rows * columns]` in {0, 1}.

    `colours` `[sites]` are needed by the sampler `sweep` alone; `a` and `b` are the coupling and
    the bias.
    """

    def __init__(
        self,
        sampler: str,
        x: NDArray,
        sides: tuple[int, int],
        colours: NDArray,
        a: float,
        b: float,
        step_size: float,
        seed: int,
    ) -> None:
        if min(sides) < 3:
            raise ValueError(f"both sides must be at least 3, got {sides}")
        self.sampler, self.site = sampler, 0
        self.x = x.astype(np.float32).reshape(-1, *sides)
        self.seeds = np.random.default_rng(seed).integers(1, 2**63, len(x)).astype(np.uint64)
        self.colours, self.classes = colours.reshape(sides).astype(np.int64), colours.max() + 1
        odds = 2 * b - 16 * a + 8 * a * np.arange(5)
        gains = np.stack([odds, -odds], 1)  # [n, x_i], the change in log-probability of a flip
        logits = gains / 2 - 1 / (2 * step_size)
        self.on = (1 / (1 + np.exp(-odds))).astype(np.float32)
        self.flip = (1 / (1 + np.exp(-logits))).astype(np.float32)
        self.log_sum = np.logaddexp(0, logits).astype(np.float32)
        self.weight = np.exp(gains / 2).ravel()
        if sampler == "gwg-1":
            each = len(x), sides[0] * sides[1]
            kind, place = np.empty(each, np.int32), np.empty(each, np.int32)
            members, count = np.empty((len(x), 10, each[1]), np.int32), np.zeros((len(x), 10), int)
            self.sorted = kind, place, members, count
            classify(self.x, *self.sorted)

    def burst(self, steps: int) -> None:
        """Advance all chains `steps` times."""
        x, seeds = self.x, self.seeds
        if self.sampler == "gibbs-1":
            gibbs(x, seeds, self.site, steps, self.on)
            self.site = (self.site + steps) % x[0].size
        elif self.sampler == "sweep":
            sweep(x, seeds, self.colours, self.classes, steps, self.on)
        elif self.sampler == "gwg-1":
            gwg(x, seeds, *self.sorted, steps, self.weight)
        else:
            langevin(x, seeds, steps, self.flip, self.log_sum, self.sampler == "dmala")

    def states(self) -> NDArray[np.float32]:
        return self.x.reshape(len(self.x), -1).copy()
