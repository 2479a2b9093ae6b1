"""States of any kind that only moves of the user's connect, such as permutations and trees."""

from collections.abc import Callable
from math import prod
from typing import Any, NoReturn

import torch
from torch import Generator, Tensor

from latticework.models.domains.base import Domain

STIRRING_MOVES = 100  # moves from a given start to a random one
USERS_MOVES = "use random_walk, with temper=True where there are several modes"


class Moves(Domain):
    """States of whole numbers, and a random move from each: `y = propose(x, generator)`.

    `propose` maps states `[chains, *shape]` to such states, each chain by itself, and takes all
    chance from the generator. Moves must lead from every state to every other. `log_ratio(x, y)`
    `[chains]` is log q(x given y) - log q(y given x), where q(y given x) is the probability that
    `propose` moves x to y; leave it out where the two are equal.

    `start` are states `[n, *shape]`, from which `STIRRING_MOVES` moves lead to random ones, or a
    function `start(chains, generator)`. `states` `[n, *shape]` lists all states once: `check` and
    `exact` need it, and chains without a `start` begin at uniform ones. `count` is the number of
    states, where it is known without a list: tempering then tells log Z.

    The user's functions get int64 states, and so does a function that is the target. Elsewhere, as
    in draws, the same numbers are floats, as those of `Ordinal` are.

    Raises ValueError without `start` and `states`, and for states that are not whole numbers.
    """

    moves = 1

    def __init__(
        self,
        propose: Callable[[Tensor, Generator], Tensor],
        log_ratio: Callable[[Tensor, Tensor], Tensor] | None = None,
        *,
        start: Tensor | Callable[[int, Generator], Tensor] | None = None,
        states: Tensor | None = None,
        count: int | None = None,
    ) -> None:
        if not callable(propose) or not (log_ratio is None or callable(log_ratio)):
            raise ValueError(
                "propose and log_ratio must be functions, propose(x, generator) and "
                f"log_ratio(x, y), got {propose!r} and {log_ratio!r}"
            )
        if start is None and states is None:
            raise ValueError(
                "the states are not known; give start=, some states [n, ...] or a function "
                "start(chains, generator), or states=, all of them [n, ...]"
            )
        self._propose, self._log_ratio = propose, log_ratio
        self.states = None if states is None else as_whole_floats(states, "states")
        self._start: Any = start
        if start is not None and not callable(start):
            self._start = as_whole_floats(start, "start")
        self.number = count if self.states is None else len(self.states)
        self.shape = tuple(self.uniform(1, Generator().manual_seed(0)).shape[1:])
        self.dim = prod(self.shape)
        if self.states is not None and len(self.states.unique(dim=0)) != len(self.states):
            raise ValueError("states must list each state once")

    def __repr__(self) -> str:
        name = getattr(self._propose, "__name__", type(self._propose).__name__)
        return f"Moves({name}, shape={self.shape})"

    @property
    def is_counted(self) -> bool:  # type: ignore[override]
        return self.number is not None

    @property
    def draws_uniform(self) -> bool:  # type: ignore[override]
        return self._start is None

    def as_argument(self, x: Tensor) -> Tensor:
        return x.long()

    def propose(self, x: Tensor, rng: Generator) -> Tensor:
        """The states after a move, `[chains, *shape]`."""
        return self._propose(x.long(), rng).to(x.dtype)

    def log_ratio(self, x: Tensor, y: Tensor) -> Tensor:
        """Log q(x given y) - log q(y given x), `[chains]`."""
        if self._log_ratio is None:
            return x.new_zeros(len(x))
        return self._log_ratio(x.long(), y.long()).to(x.dtype)

    def uniform(self, chains: int, rng: Generator) -> Tensor:
        """Uniform states where all are listed, else random ones."""
        if callable(self._start):
            x = as_whole_floats(self._start(chains, rng), "what start(chains, generator) gives")
            if len(x) != chains:
                raise ValueError(f"start(chains, generator) gave {len(x)} states for {chains}")
            return x
        listed: Any = self.states if self._start is None else self._start
        states = listed.to(rng.device)
        x = states[torch.randint(len(states), (chains,), generator=rng, device=rng.device)]
        for _ in range(0 if self._start is None else STIRRING_MOVES):
            x = self.propose(x, rng)
        return x

    def check(self, x: Tensor) -> None:
        if x.shape[1:] != self.shape:
            raise ValueError(
                f"states must have shape {['chains', *self.shape]}, got {list(x.shape)}"
            )
        as_whole_floats(x, "states")
        if self.states is None:
            return
        states = self.states.to(x)
        for state in x.unique(dim=0):
            if not (states == state).flatten(1).all(1).any():
                raise ValueError(
                    f"{state.long().tolist()} is none of the {len(states)} states of {self}"
                )

    def check_moves(self, x: Tensor) -> None:
        """Raise ValueError unless `propose` and `log_ratio` serve the states `x`."""
        rng, given = Generator(x.device).manual_seed(0), x.long()
        y = self._propose(given, rng)
        if not torch.equal(given, x.long()):
            raise ValueError(f"the propose of {self} writes into x; work on a copy: x = x.clone()")
        if not isinstance(y, Tensor) or y.shape != x.shape:
            got = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise ValueError(f"propose must give states {list(x.shape)}, as it got, and gave {got}")
        self.check(as_whole_floats(y, "what propose gives").to(x))
        if self._log_ratio is None:
            return
        ratio = self._log_ratio(given, y.long())
        if not isinstance(ratio, Tensor) or ratio.shape != (len(x),) or ratio.isnan().any():
            got = list(ratio.shape) if isinstance(ratio, Tensor) else type(ratio).__name__
            raise ValueError(f"log_ratio must give [{len(x)}] numbers, one a chain, got {got}")

    def count(self) -> int:
        if self.number is None:
            raise ValueError(f"the number of states of {self} is not known; give count= or states=")
        return self.number

    def list_states(self, number: Tensor) -> Tensor:
        if self.states is None:
            raise ValueError(f"the states of {self} are not listed; give states=")
        return self.states[number]

    def values(self) -> Tensor:
        raise ValueError(f"the sites of {self} do not have values of their own")

    def of_sites(self, sites: Any, others: Tensor | None = None) -> NoReturn:
        raise ValueError(
            f"some sites of {self} have no moves of their own, so values cannot be known; write a "
            "propose that keeps them"
        )

    def _refuse(self, *given: Any) -> NoReturn:
        raise TypeError(f"the sites of {self} do not move on their own; {USERS_MOVES}")

    gains = distances = move_all = log_normaliser = log_weight = _refuse  # type: ignore[assignment]
    leaving_logits = move_one = reverse = _refuse  # type: ignore[assignment]


def as_whole_floats(states: Any, what: str) -> Tensor:
    """The states as floats. Raises ValueError unless they are whole numbers, chains first."""
    if not isinstance(states, Tensor) or states.ndim < 2 or not len(states):
        got = list(states.shape) if isinstance(states, Tensor) else type(states).__name__
        raise ValueError(f"{what} must be a tensor [n, ...], a row for each state, got {got}")
    x = states if states.is_floating_point() else states.float()
    if (x != x.round()).any():
        raise ValueError(f"{what} must hold whole numbers")
    return x
