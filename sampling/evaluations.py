"""Counts of how often chains evaluate their target: the cost that does not depend on the machine.

One evaluation is the log-probability, or its gradient, of one state. Only the outermost of the
model's methods counts: the default gradient calls `forward`, and is one evaluation.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import DataModel, EnergyModel
from latticework.samplers.base import Sampler

# Methods that evaluate the whole model, and methods that evaluate a few sites.
WHOLE = ("forward", "gradient", "log_prob_and_grad", "evaluate_with_cache", "evaluate_flipped")
LOCAL = (
    "log_odds", "conditional", "differences", "differences_after",
    "block_log_probs", "site_log_probs",
)  # fmt: skip
MINIBATCH = "given"  # of a DataModel: the target estimated from some rows


@dataclass
class Call:
    """An outermost call of a method of WHOLE or LOCAL, or of `given`."""

    name: str
    words: tuple[Any, ...]  # its arguments in order; later calls may overwrite their values
    rows: int = 0  # states that `forward` evaluated, in it or in calls that it made

    @property
    def states(self) -> int:
        """How many states it was given."""
        return next(len(word) for word in self.words if isinstance(word, Tensor))


def watched(model: EnergyModel, tell: Callable[[Call], None]) -> EnergyModel:
    """A copy of `model` that shares its tensors and passes each outermost call to `tell`.

    `tell` is called when the method has ended, also if it raised.
    """
    copied = copy.copy(model)
    current: Call | None = None

    def watching(name: str) -> Callable:
        method = getattr(copied, name)
        form = signature(method)

        def wrapper(*given: Any, **named: Any) -> Any:
            nonlocal current
            words = form.bind(*given, **named).args if named else given  # keywords in their places
            outermost = current is None
            call = current = current or Call(name, words)
            if name == "forward":
                call.rows += len(words[0])
            try:
                return method(*given, **named)
            finally:
                if outermost:
                    current = None
                    tell(call)

        return wrapper

    names = (*WHOLE, *LOCAL, *([MINIBATCH] if isinstance(model, DataModel) else []))
    for name, wrapper in [(name, watching(name)) for name in names]:
        setattr(copied, name, wrapper)
    return copied


class Counter:
    """Counts the evaluations that are made through `model`, a watched copy of the given model.

    Each state passed to `forward` counts one. A call of another method that needs none counts one
    for each state if it evaluates the whole target by a closed form, and the part that its sites
    are of all sites, for each pattern or value, if it evaluates a local change. A minibatch of
    `chains` chains counts the part that it is of all rows, for each chain.
    """

    def __init__(self, model: EnergyModel, chains: int) -> None:
        self.evaluations, self.chains = 0.0, chains
        self.model = watched(model, self._add)

    def _add(self, call: Call) -> None:
        if call.name == MINIBATCH:
            assert isinstance(self.model, DataModel)
            self.evaluations += self.chains * call.states / self.model.rows
        else:
            part = call.rows or call.states * _part(call.name, call.words, self.model)
            self.evaluations += part


def _part(name: str, words: tuple[Any, ...], model: EnergyModel) -> float:
    """The part of an evaluation that one state costs in a call of `name`."""
    if name in WHOLE or name == "differences_after":  # it brings the differences of all up to date
        return 1.0
    sites = words[2].shape[-1]
    values = {
        "block_log_probs": lambda: words[3].shape[1],
        "site_log_probs": lambda: len(model.domain.values()),
    }.get(name, lambda: 1)()
    return sites * values / model.domain.dim


def evaluations_of_step(sampler: Sampler, model: EnergyModel, x: Tensor, rng: Generator) -> float:
    """The evaluations of a step of all chains, counted on the second step (`Counter`).

    A step that calls no method of the model, such as that of block Gibbs, counts one a chain.
    """
    count = Counter(model, len(x))
    with torch.no_grad():
        state, _ = sampler.step(sampler.init(x, count.model), count.model, rng)
        before = count.evaluations
        sampler.step(state, count.model, rng)
    return count.evaluations - before or float(len(x))


class CallCount(NamedTuple):
    whole: int
    local: int


def calls_of_step(sampler: Sampler, model: EnergyModel, x: Tensor, rng: Generator) -> CallCount:
    """How often one step of a chain calls the model, counted on the second step, for records.

    A call on several states a chain counts as often. An estimate from a minibatch is a local call.
    """
    calls: list[Call] = []
    model = watched(model, calls.append)
    with torch.no_grad():
        state, _ = sampler.step(sampler.init(x, model), model, rng)
        calls.clear()
        sampler.step(state, model, rng)
    whole = sum(call.states for call in calls if call.name in WHOLE)
    local = sum(call.name in (*LOCAL, MINIBATCH) for call in calls)
    return CallCount(whole // len(x), local)
