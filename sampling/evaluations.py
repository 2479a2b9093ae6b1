"""Counts of how often chains evaluate their target: the cost that does not depend on the machine.

One evaluation is the log-probability, or its gradient, of one state. Only the outermost of the
model's methods counts: the default gradient calls `forward`, and is one evaluation.
"""

import copy
from collections.abc import Callable
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.abilities import DataModel
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler

# Methods that evaluate the whole model, and methods that evaluate a few sites.
WHOLE = (
    "forward", "gradient", "log_prob_and_grad", "evaluate_with_cache", "evaluate_flipped",
    "path_inputs",  # method of an RBM
)  # fmt: skip
LOCAL = (
    "log_odds", "conditional", "differences", "differences_after",
    "block_log_probs", "site_log_probs",
)  # fmt: skip
MINIBATCH = "minibatch"  # method of a DataModel: the target estimated from some rows


class EvaluationCounter:
    """Counts the evaluations that are made through `model`, a copy that shares the tensors.

    Each state passed to `forward` counts one. A call of another method that needs none counts one
    for each state if it evaluates the whole target by a closed form, and the part that its sites
    are of all sites, for each pattern or value, if it evaluates a local change. A minibatch of
    `chains` chains counts the part that it is of all rows, for each chain.
    """

    def __init__(self, model: EnergyModel, chains: int) -> None:
        self.evaluations, self.chains = 0.0, chains
        self.whole, self.local = 0, 0  # states in calls of WHOLE; other calls
        self._rows: int | None = None  # rows that `forward` got in the outermost call under way
        self.model = self._count_calls(model)
        self.model.soften = lambda: self._count_softened(model)

    def _count_softened(self, model: EnergyModel) -> Any:
        """The softened model, whose calls count too, or None."""
        softened = model.soften()
        return None if softened is None else self._count_calls(softened)

    def _count_calls(self, model: Any) -> Any:
        """A copy of `model` whose calls count."""
        made = copy.copy(model)
        names = (*WHOLE, *LOCAL, *([MINIBATCH] if isinstance(model, DataModel) else []))
        names = tuple(name for name in names if getattr(made, name, None))
        for name, counting in [(name, self._counting(made, name)) for name in names]:
            setattr(made, name, counting)
        return made

    def _counting(self, model: EnergyModel, name: str) -> Callable:
        method = getattr(model, name)
        form = signature(method)

        def called(*given: Any, **named: Any) -> Any:
            words = form.bind(*given, **named).args if named else given  # keywords in their places
            outermost = self._rows is None
            self._rows = (self._rows or 0) + len(words[0]) * (name == "forward")
            try:
                return method(*given, **named)
            finally:
                if outermost:
                    rows, self._rows = self._rows, None
                    self._add(name, words, rows)

        return called

    def _add(self, name: str, words: tuple[Any, ...], rows: int) -> None:
        states = next(len(word) for word in words if isinstance(word, Tensor))
        self.whole += states * (name in WHOLE)
        self.local += name not in WHOLE
        if name == MINIBATCH:
            assert isinstance(self.model, DataModel)
            self.evaluations += self.chains * states / self.model.rows
        elif rows or name in WHOLE or name == "differences_after":  # which are those of all sites
            self.evaluations += rows or states
        else:
            values = 1
            if name == "block_log_probs":
                values = words[3].shape[1]
            elif name == "site_log_probs":
                values = len(self.model.domain.values())
            self.evaluations += states * words[2].shape[-1] * values / self.model.domain.dim


def count_step(
    sampler: Sampler, model: EnergyModel, x: Tensor, rng: Generator
) -> EvaluationCounter:
    """The counts of a step of all chains from `x`, of the second step."""
    count = EvaluationCounter(model, len(x))
    with torch.no_grad():
        state, _ = sampler.step(sampler.init(x, count.model), count.model, rng)
        count.evaluations, count.whole, count.local = 0.0, 0, 0
        sampler.step(state, count.model, rng)
    return count


def evaluations_of_step(sampler: Sampler, model: EnergyModel, x: Tensor, rng: Generator) -> float:
    """The evaluations of a step of all chains.

    A step that calls no method of the model, such as that of block Gibbs, counts one a chain.
    """
    return count_step(sampler, model, x, rng).evaluations or float(len(x))


class CallCount(NamedTuple):
    whole: int
    local: int


def calls_of_step(sampler: Sampler, model: EnergyModel, x: Tensor, rng: Generator) -> CallCount:
    """How often one step of a chain calls the model, for records.

    A call on several states a chain counts as often. An estimate from a minibatch is a local call.
    """
    count = count_step(sampler, model, x, rng)
    return CallCount(count.whole // len(x), count.local)
