"""Variable elimination: log Z, the mean and variance of log pi, marginals and exact draws.

Tables hold the weights p, p f and p f^2 of f = sum of log tables (the expectation semiring; J.
Eisner, "Parameter estimation for probabilistic finite-state transducers", ACL 2002), so that one
pass gives the moments of f. The variable whose neighbours lack the fewest edges goes next.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from workshop.references.answers import Codes, Floats, one_hot

Factor = tuple[tuple[int, ...], Floats]  # a scope, and the logarithm of its table


class Weights(NamedTuple):
    """A table of weights p over a scope, and p f, p f^2 of the factors that it stands for."""

    scope: tuple[int, ...]
    p: Floats
    first: Floats
    second: Floats


class Conditional(NamedTuple):
    """The law of a variable, on the last axis, given those that are eliminated later."""

    variable: int
    given: tuple[int, ...]
    law: Floats


class Elimination:
    """`log_z`, `energy` and `variance` of a product of tables, and the `width` of its order.

    `conditionals` are those of the order, from which marginals and draws follow. With
    `keep=False`, which needs less memory, there are none.
    """

    def __init__(self, factors: Sequence[Factor], sizes: Sequence[int], keep: bool = True) -> None:
        self.sizes, self.width, self.conditionals = list(sizes), 0, []
        self._neighbours: list[set[int]] = [set() for _ in sizes]
        log_z, tables = 0.0, []
        for scope, log in factors:
            shift = float(log[np.isfinite(log)].max())
            log_z += shift
            tables.append(_weights(scope, log - shift))
            for site in scope:
                self._neighbours[site] |= set(scope) - {site}
        self._offset = log_z
        remaining = set(range(len(sizes)))
        while remaining:
            variable = min(remaining, key=self._cost)
            remaining.discard(variable)
            members = [table for table in tables if variable in table.scope]
            tables = [table for table in tables if variable not in table.scope]
            product = self._multiply(variable, members)
            total = product.p.sum(-1)
            if keep:
                with np.errstate(invalid="ignore"):
                    law = np.nan_to_num(product.p / total[..., None])
                self.conditionals.append(Conditional(variable, product.scope[:-1], law))
            top = total.max()
            log_z += math.log(top)
            tables.append(
                Weights(
                    product.scope[:-1],
                    total / top,
                    product.first.sum(-1) / top,
                    product.second.sum(-1) / top,
                )
            )
            self._connect(variable)
        p, first, second = 1.0, 0.0, 0.0
        for table in tables:
            q, mean, square = float(table.p), float(table.first), float(table.second)
            p, first, second = (
                p * q,
                p * mean + first * q,
                (p * square + 2 * first * mean + second * q),
            )
        mean = first / p
        self.log_z = math.log(p) + log_z
        self.energy, self.variance = mean + self._offset, second / p - mean**2

    def _cost(self, variable: int) -> tuple[int, int]:
        near = list(self._neighbours[variable])
        missing = 0
        for place, one in enumerate(near):
            missing += len(near) - place - 1 - len(self._neighbours[one] & set(near[place + 1 :]))
        return missing, len(near)

    def _connect(self, variable: int) -> None:
        near = self._neighbours[variable]
        self.width = max(self.width, len(near))
        for site in near:
            self._neighbours[site] |= near - {site}
            self._neighbours[site].discard(variable)

    def _multiply(self, variable: int, members: list[Weights]) -> Weights:
        """The product of tables, with `variable` as the last axis."""
        sites = set()
        for table in members:
            sites |= set(table.scope)
        scope = (*sorted(sites - {variable}), variable)
        shape = [self.sizes[site] for site in scope]
        p, first, second = np.ones(shape), np.zeros(shape), np.zeros(shape)
        for table in members:
            q, mean, square = (_align(array, table.scope, scope) for array in table[1:])
            second = p * square + 2 * first * mean + second * q
            first = p * mean + first * q
            p = p * q
        return Weights(scope, p, first, second)

    def marginals(self) -> list[Floats]:
        """The law of each variable: cliques pass their joint laws back along the order."""
        joints: dict[int, tuple[tuple[int, ...], Floats]] = {}
        place = {each.variable: k for k, each in enumerate(self.conditionals)}
        laws: list[Floats] = [np.empty(0)] * len(self.sizes)
        for variable, given, law in reversed(self.conditionals):
            joint = law
            if given:
                scope, parent = joints[min(given, key=place.__getitem__)]
                axes = [axis for axis, site in enumerate(scope) if site not in given]
                summed = parent.sum(tuple(axes))
                left = [site for site in scope if site in given]
                joint = law * summed.transpose([left.index(site) for site in given])[..., None]
            joints[variable] = (*given, variable), joint
            laws[variable] = joint.sum(tuple(range(len(given))))
        return laws

    def draw(self, count: int, seed: int) -> Codes:
        """Independent states, `[count, variables]`: backwards along the order."""
        rng, codes = np.random.default_rng(seed), np.zeros((count, len(self.sizes)), np.int64)
        for variable, given, law in reversed(self.conditionals):
            here = law[tuple(codes[:, site] for site in given)]
            steps = np.broadcast_to(here, (count, self.sizes[variable])).cumsum(-1)
            drawn = (rng.random(count)[:, None] * steps[:, -1:] >= steps).sum(-1)
            codes[:, variable] = np.minimum(drawn, self.sizes[variable] - 1)
        return codes


def _weights(scope: tuple[int, ...], log: Floats) -> Weights:
    finite = np.where(np.isfinite(log), log, 0.0)
    p = np.where(np.isfinite(log), np.exp(finite), 0.0)
    return Weights(tuple(scope), p, p * finite, p * finite**2)


def _align(array: Floats, scope: tuple[int, ...], wider: tuple[int, ...]) -> Floats:
    """The axes of `scope` in the order of a wider one, with lengths of 1 for the others."""
    order = sorted(range(len(scope)), key=lambda axis: wider.index(scope[axis]))
    moved = array.transpose(order)
    shape = [1] * len(wider)
    for axis, length in zip(order, moved.shape, strict=True):
        shape[wider.index(scope[axis])] = length
    return moved.reshape(shape)


def restrict(factors: Sequence[Factor], sizes: Sequence[int], given: dict[int, int]) -> Elimination:
    """The elimination where some variables have known values."""
    clamps = []
    for site, value in given.items():
        log = np.full(sizes[site], -np.inf)
        log[value] = 0.0
        clamps.append(((site,), log))
    return Elimination([*factors, *clamps], sizes, keep=False)


def evaluate(factors: Sequence[Factor], codes: Codes) -> Floats:
    """The sum of the log tables at states `[n, variables]`."""
    total = np.zeros(len(codes))
    for scope, log in factors:
        total += log[tuple(codes[:, site] for site in scope)]
    return total


def padded_means(laws: list[Floats]) -> Floats:
    """The second probability of variables of two values, else all, padded with zeros."""
    most = max(map(len, laws))
    if most == 2:
        return np.array([law[1] for law in laws])
    means = np.zeros((len(laws), most))
    for site, law in enumerate(laws):
        means[site, : len(law)] = law
    return means


def equal_table(values: int) -> Floats:
    """A log table that allows equal values only."""
    return np.where(one_hot(np.arange(values), values) > 0, 0.0, -np.inf)
