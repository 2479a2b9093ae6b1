"""Exact draws of Potts models on the torus without field: coupling the random-cluster model.

A bond is open with probability p = 1 - exp(-K) if its ends are connected without it, else
p / (p + q (1 - p)), which is less. So more open bonds make others more probable, and chains from no
bond and from all bonds enclose all others (J. Propp and D. Wilson 1996). Clusters then have
independent uniform values. The number of draw d at time -t and bond b is a hash of (d, t, b).
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from workshop.references.answers import Codes

Integers = NDArray[np.int64]
FIRST_SWEEPS = 4
MAX_SWEEPS = 2**14  # fixed before any draw was made


@njit(cache=True)
def uniform(seed: int, draw: int, time: int, place: int) -> float:
    """A number in [0, 1), a multiple of 2^-53: two rounds of splitmix64."""
    z = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x632BE59BD9B4E019)
    for word in (draw, time, place):
        z += np.uint64(word) * np.uint64(0xBF58476D1CE4E5B9) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True)
def list_bonds(side: int) -> tuple[Integers, Integers]:
    """Bonds 2 i and 2 i + 1 go from site i to the right and down. Also the four of each site."""
    bonds = np.empty((2 * side * side, 2), np.int64)
    around = np.empty((side * side, 4), np.int64)
    for row in range(side):
        for column in range(side):
            site = row * side + column
            right, down = row * side + (column + 1) % side, (row + 1) % side * side + column
            bonds[2 * site], bonds[2 * site + 1] = (site, right), (site, down)
            left, above = row * side + (column - 1) % side, (row - 1) % side * side + column
            around[site] = (2 * site, 2 * site + 1, 2 * left, 2 * above + 1)
    return bonds, around


@njit(cache=True)
def reach(
    start: int,
    goal: int,
    without: int,
    is_open: NDArray[np.bool_],
    bonds: Integers,
    around: Integers,
    mark: Integers,
    stamp: int,
    queue: Integers,
) -> bool:
    """Whether `goal` (-1: nothing) is reached from `start`; marks what is reached by `stamp`."""
    queue[0], mark[start] = start, stamp
    first, last = 0, 1
    while first < last:
        site = queue[first]
        first += 1
        for bond in around[site]:
            if bond == without or not is_open[bond]:
                continue
            other = bonds[bond, 0] + bonds[bond, 1] - site
            if mark[other] != stamp:
                if other == goal:
                    return True
                mark[other] = stamp
                queue[last] = other
                last += 1
    return False


@njit(cache=True)
def draw_all(
    draws: int,
    side: int,
    values: int,
    coupling: float,
    seed: int,
    longest: int,
    codes: Integers,
    sweeps: Integers,
) -> None:
    """Write the values `[draws, sites]`, and the sweeps of each draw, -1 if it did not couple."""
    bonds, around = list_bonds(side)
    sites, count = side * side, len(bonds)
    high = 1 - np.exp(-coupling)
    low = high / (high + values * (1 - high))
    is_open = np.empty((2, count), np.bool_)
    mark, queue, stamp = np.zeros(sites, np.int64), np.empty(sites, np.int64), 0
    for draw in range(draws):
        attempt, sweeps[draw] = FIRST_SWEEPS, -1
        while attempt <= longest and sweeps[draw] < 0:
            is_open[0], is_open[1] = False, True
            for t in range(attempt, 0, -1):
                for bond in range(count):
                    u = uniform(seed, draw, t, bond)
                    is_open[:, bond] = u < low
                    if low <= u < high:
                        one, other = bonds[bond]
                        for chain in range(2):
                            stamp += 1
                            is_open[chain, bond] = reach(
                                one, other, bond, is_open[chain], bonds, around, mark, stamp, queue
                            )
            if (is_open[0] == is_open[1]).all():
                sweeps[draw] = attempt
            attempt *= 2
        stamp += 1
        first = stamp
        for site in range(sites):
            if mark[site] < first:
                stamp += 1
                reach(site, -1, -1, is_open[0], bonds, around, mark, stamp, queue)
                value = int(values * uniform(seed, draw, 0, site))
                for other in range(sites):
                    if mark[other] == stamp:
                        codes[draw, other] = value


def draw_potts(
    side: int, values: int, coupling: float, draws: int, seed: int
) -> tuple[Codes, Integers]:
    """Independent states, and the sweeps that each took. Raises RuntimeError if one failed."""
    codes = np.empty((draws, side * side), np.int64)
    sweeps = np.empty(draws, np.int64)
    draw_all(draws, side, values, coupling, seed, MAX_SWEEPS, codes, sweeps)
    if (sweeps < 0).any():
        raise RuntimeError(f"{(sweeps < 0).sum()} draws did not couple in {MAX_SWEEPS} sweeps")
    return codes, sweeps


def count_equal(codes: Codes, side: int) -> Integers:
    """The number of bonds of the torus with equal ends, `[n]`."""
    grid = codes.reshape(-1, side, side)
    along, down = grid == np.roll(grid, 1, 1), grid == np.roll(grid, 1, 2)
    return along.sum((1, 2)) + down.sum((1, 2))
