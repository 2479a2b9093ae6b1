"""States of positive probability of models whose tables hold zeros, by propagation and search.

Each variable has the set of values that are still open. Propagation removes a value that some table
allows with no open values of its other variables (A. K. Mackworth, "Consistency in networks of
relations", Artificial Intelligence 1977). Where sets of several values are left, the search guesses
a value at random for a variable with few values in tables that failed often (F. Boussemart et al.,
"Boosting systematic search by weighting constraints", ECAI 2004). After so many failures it begins
anew, in the order of M. Luby, A. Sinclair and D. Zuckerman, "Optimal speedup of Las Vegas
algorithms", 1993. It ends with a state, or with the proof that there is none, or at a bound.
"""

import heapq
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.models.base import EnergyModel, SupportTable
from latticework.models.conditioned import Conditioned, WithOnes
from latticework.models.domains import Binary, Categorical, Mixed, Subset
from latticework.models.evidence import value_numbers

FAILURES_OF_A_RESTART = 50  # times Luby's sequence 1, 1, 2, 1, 1, 2, 4, ...
MAX_FAILURES = 20_000  # failures of the search for one state
MAX_REMEMBERED_SUPPORTS = 2**16  # supports of a table
ONE = 0b10  # the set of the value 1 alone


class NoStateError(ValueError):
    """No state of the model has positive probability."""


class Count(NamedTuple):
    """A fixed number of the variables have the value 1."""

    variables: tuple[int, ...]
    ones: int


@dataclass(frozen=True)
class Constraints:
    """The variables of a model with tables, the values of those that are known, and the tables."""

    sizes: tuple[int, ...]  # numbers of values of the variables
    tables: list[SupportTable]
    sites: tuple[int, ...]  # the variables that are sites of the model, in its order
    known: dict[int, int] = field(default_factory=dict)
    total: Count | None = None


def constraints_of(model: EnergyModel, chain: int) -> Constraints | None:
    """The constraints on the states of this chain; None where the model does not tell them."""
    if isinstance(model, Conditioned):
        inner = constraints_of(model.model, chain)
        if inner is None:
            return None
        evidence = model.evidence
        row = chain % len(evidence.state)
        codes = value_numbers(evidence.state[row : row + 1], model.model.domain)[0].tolist()
        known = {inner.sites[site]: codes[site] for site in evidence.known.tolist()}
        sites = tuple(inner.sites[site] for site in evidence.free.tolist())
        return replace(inner, sites=sites, known={**inner.known, **known})
    if isinstance(model, WithOnes):
        inner = constraints_of(model.model, chain)
        if inner is None:
            return None
        assert isinstance(model.domain, Subset)
        return replace(inner, total=Count(inner.sites, model.domain.ones))
    tables = model.support_tables()
    if not tables or not isinstance(model.domain, Binary | Categorical):
        return None
    domain = model.domain
    if isinstance(domain, Mixed):
        sizes = tuple(domain.sizes)
    else:
        sizes = (len(domain.values()),) * domain.dim
    return Constraints(sizes, tables, tuple(range(domain.dim)))


class _Table:
    """Which values of a few variables are allowed together."""

    def __init__(self, allowed: NDArray[np.bool_]) -> None:
        self._allowed = allowed
        self.supported = lru_cache(MAX_REMEMBERED_SUPPORTS)(self._find_supported)

    def _find_supported(self, open_values: tuple[int, ...]) -> tuple[int, ...]:
        """The open values of each variable that are allowed with open values of the others."""
        values = [bits(each) for each in open_values]
        inside = self._allowed[np.ix_(*values)]
        supported = []
        for axis, numbers in enumerate(values):
            axes = tuple(number for number in range(inside.ndim) if number != axis)
            possible = np.flatnonzero(inside.any(axes)).tolist()
            supported.append(sum(1 << numbers[place] for place in possible))
        return tuple(supported)


class _RestartError(Exception):
    """The search failed too often since it began."""


class Search:
    """The states that fulfil `constraints`, one a call of `find_state`, at random.

    Sets of values are whole numbers, whose bit v says whether value v is in the set.
    """

    def __init__(self, constraints: Constraints, rng: Random) -> None:
        self._rng, self._total = rng, constraints.total
        self._counted = set(constraints.total.variables) if constraints.total else set()
        self._open = [(1 << size) - 1 for size in constraints.sizes]
        self._must = 0  # counted variables that are 1
        self._may = len(self._counted)  # and that may be 1
        self._scopes = [scope for scope, _ in constraints.tables]
        self._weights = [1] * len(self._open)  # failures of the tables of each variable
        self._trail: list[tuple[int, int]] = []  # changed variables and their sets before
        self._heap: list[tuple[float, float, int, int]] = []
        shared: dict[tuple[tuple[int, ...], bytes], _Table] = {}
        self._tables = []
        self._holders: list[list[int]] = [[] for _ in self._open]
        for number, (scope, allowed) in enumerate(constraints.tables):
            key = allowed.shape, allowed.tobytes()
            self._tables.append(shared.setdefault(key, _Table(allowed)))
            for variable in scope:
                self._holders[variable].append(number)
        self._neighbours: list[set[int]] = [set() for _ in self._open]
        for scope in self._scopes:
            for variable in scope:
                self._neighbours[variable].update(
                    neighbour for neighbour in scope if neighbour != variable
                )
        self._ranks: list[int] | None = None
        self._queue = dict.fromkeys(range(len(self._tables)))
        self.possible = all(allowed.any() for _, allowed in constraints.tables) and all(
            self._restrict(variable, 1 << value) for variable, value in constraints.known.items()
        )
        self.possible = self.possible and self._propagate()
        self._trail.clear()

    def find_state(self) -> list[int] | None:
        """The values of all variables, or None if there are none.

        Raises TimeoutError after `MAX_FAILURES` failures.
        """
        failures = 0
        most = max(each.bit_length() for each in self._open)
        self._preferred = self._rng.sample(range(most), most)
        for restart in count(1):
            allowance = FAILURES_OF_A_RESTART * luby(restart)
            try:
                return self._dive(allowance, by_failures=restart % 2 == 0, haste=1 - 1 / restart)
            except _RestartError:
                failures += allowance
            if failures >= MAX_FAILURES:
                raise TimeoutError(f"no state was found in {failures} failures of the search")
        raise AssertionError("count has no end")

    def _dive(self, allowance: int, by_failures: bool, haste: float) -> list[int] | None:
        """`find_state` without restarts. Raises _RestartError after `allowance` failures.

        Variables are guessed by their open values and failures, or in the order of
        `_smallest_last`. `haste` is the probability that a guess is the value preferred now.
        """
        if not self.possible:
            return None
        self._ranks = None if by_failures else self._smallest_last()
        self._heap = []
        for variable in range(len(self._open)):
            self._offer(variable)
        guesses: list[tuple[int, int, int]] = []  # the trail before, variable and value
        failures = 0
        while (guessed := self._next_variable()) is not None:
            value = 1 << self._guess(guessed, haste)
            guesses.append((len(self._trail), guessed, value))
            consistent = self._restrict(guessed, value) and self._propagate()
            while not consistent:
                failures += 1
                if not guesses:
                    self.possible = False
                    return None
                if failures > allowance:
                    self._undo(guesses[0][0])
                    raise _RestartError
                length, variable, wrong = guesses.pop()
                self._undo(length)
                consistent = self._restrict(variable, ~wrong) and self._propagate()
        values = [each.bit_length() - 1 for each in self._open]
        if guesses:
            self._undo(guesses[0][0])
        return values

    def _offer(self, variable: int) -> None:
        """Put a variable with several values into the heap of those to guess."""
        if (size := self._open[variable].bit_count()) > 1:
            ranks = self._ranks
            priority = size / self._weights[variable] if ranks is None else ranks[variable]
            heapq.heappush(self._heap, (priority, self._rng.random(), variable, size))

    def _smallest_last(self) -> list[int]:
        """A rank for each variable, by which it shares tables with few variables before it.

        D. W. Matula and L. L. Beck, "Smallest-last ordering and clustering and graph coloring
        algorithms", J. ACM 1983; equal degrees are in random order.
        """
        degree = [len(near) for near in self._neighbours]
        heap = [(d, self._rng.random(), variable) for variable, d in enumerate(degree)]
        heapq.heapify(heap)
        ranks = [-1] * len(degree)
        left = len(degree)
        while left:
            d, _, variable = heapq.heappop(heap)
            if ranks[variable] >= 0 or d != degree[variable]:
                continue  # an old entry
            left -= 1
            ranks[variable] = left
            for neighbour in self._neighbours[variable]:
                degree[neighbour] -= 1
                heapq.heappush(heap, (degree[neighbour], self._rng.random(), neighbour))
        return ranks

    def _guess(self, variable: int, haste: float) -> int:
        values = bits(self._open[variable])
        if self._rng.random() < haste:
            return min(values, key=self._preferred.index)
        return self._rng.choice(values)

    def _next_variable(self) -> int | None:
        while self._heap:
            _, _, variable, size = heapq.heappop(self._heap)
            if self._open[variable].bit_count() == size:  # else the entry is an old one
                return variable
        return None

    def _set(self, variable: int, values: int) -> None:
        before = self._open[variable]
        if variable in self._counted:
            self._must += (values == ONE) - (before == ONE)
            self._may += bool(values & ONE) - bool(before & ONE)
        self._open[variable] = values
        self._offer(variable)

    def _restrict(self, variable: int, values: int) -> bool:
        """Leave those of the values that are among `values`; False if that leaves none."""
        before = self._open[variable]
        left = before & values
        if left != before:
            self._trail.append((variable, before))
            self._set(variable, left)
            self._queue.update(dict.fromkeys(self._holders[variable]))
        return left != 0

    def _undo(self, length: int) -> None:
        while len(self._trail) > length:
            self._set(*self._trail.pop())
        self._queue.clear()

    def _propagate(self) -> bool:
        """Remove values without support until none is left; False if a variable loses all."""
        while True:
            while self._queue:
                number, _ = self._queue.popitem()
                scope = self._scopes[number]
                open_values = tuple(self._open[variable] for variable in scope)
                supported = self._tables[number].supported(open_values)
                for variable, values in zip(scope, supported, strict=True):
                    if not self._restrict(variable, values):
                        return self._fail(scope)
            if self._total is None or self._must == self._may == self._total.ones:
                return True
            if not self._must <= self._total.ones <= self._may:
                return self._fail(self._total.variables)
            if self._total.ones not in (self._must, self._may):
                return True
            remaining = ~ONE if self._must == self._total.ones else ONE
            for variable in self._total.variables:
                if self._open[variable] & ~ONE and self._open[variable] & ONE:
                    self._restrict(variable, remaining)

    def _fail(self, scope: tuple[int, ...]) -> bool:
        for variable in scope:
            self._weights[variable] += 1
        self._queue.clear()
        return False


def bits(values: int) -> list[int]:
    """The numbers of the bits that are set."""
    numbers = []
    while values:
        low = values & -values
        numbers.append(low.bit_length() - 1)
        values ^= low
    return numbers


def luby(number: int) -> int:
    """Member `number`, from 1, of the sequence 1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8, ..."""
    while number & (number + 1):  # unless it is 2^k - 1, whose member is 2^(k - 1)
        number -= (1 << (number.bit_length() - 1)) - 1
    return (number + 1) // 2
