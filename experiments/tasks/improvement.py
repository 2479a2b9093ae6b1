"""Task: does a sampler with fast weights improve the RBM that it starts from?

Breuleux et al. (2011, Abstract and Section 4) state that rates-FPCD "can improve the model as we
collect more samples", since its fast weights climb a lower bound of the log-likelihood of the
training data. The improved model is theta plus the mean of the fast weights. Both models are
measured in the same way, and so is the distance that the fast weights keep from zero, which the
paper takes to grow with the root of the step size (Section 4).
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from latticework.data.base import Dataset
from latticework.experiments.records.estimates import KeyNumber, fact_number
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.learning.data import require_data
from latticework.experiments.tasks.measures.training_quality import TrainingQuality
from latticework.experiments.tasks.target import ensure_trained
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.loop_state import LoopState

FAST = ("weight", "visible_bias", "hidden_bias")  # fields of the sampler's state, [chains, ...]


@dataclass(eq=False)
class Averaging(LoopState):
    """The sampler's state, and sums over the steps of the second half."""

    state: Any
    rng: Generator
    totals: dict[str, Tensor]  # sums of the fast weights, averaged over chains
    squared_distance: Tensor  # [], of the fast weights of a chain from zero


def improvement(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    budget: Budget,
    start: Callable[..., Tensor],
    quality: TrainingQuality,
    points: int | None = None,
    pretrain: Callable[..., EnergyModel] | None = None,
) -> None:
    """Measure the model, and the model plus the mean fast weights of `budget.steps` steps.

    The mean is over the chains and the second half of the steps. Facts end in `_before` and
    `_after`; log-likelihoods are of `points` validation rows (None takes all), in nats. `distance`
    is the root mean square of the fast weights' Euclidean norm. Raises ValueError without data, for
    a sampler without fast weights, for an odd number of readings, and if the model should be
    learned and is not.
    """
    data = require_data(data)
    model = ensure_trained(model, data, run, pretrain).requires_grad_(False)
    if budget.readings % 2:
        raise ValueError(
            f"budget.steps must be an even multiple of budget.every, got {budget.steps} and "
            f"{budget.every}: the second half of the steps is averaged"
        )
    x = start(model, budget.chains, run.rng("start"), data)
    state = sampler.init(x, model)
    if not all(hasattr(state, name) for name in FAST):
        raise ValueError(
            f"improvement needs a sampler with fast weights, got {sampler}; choose rates_fpcd or "
            "rates_herding"
        )
    memory = Averaging(
        state=state,
        rng=run.rng("chain"),
        totals={name: torch.zeros_like(getattr(model, name)) for name in FAST},
        squared_distance=x.new_zeros(()),
    )
    with torch.no_grad():
        for reading in run.resumable(memory, "sampling", total=budget.readings, each=budget.every):
            _advance(memory, sampler, model, budget, averaged=reading > budget.readings // 2)
            run.log(reading * budget.every, distance=_squared_distance(memory.state).sqrt())
    averaged_steps = budget.steps // 2
    improved = copy.deepcopy(model)
    for name in FAST:
        getattr(improved, name).data.add_(memory.totals[name] / averaged_steps)
    for suffix, measured in (("before", model), ("after", improved)):
        facts = quality.measure(measured, data, points, run.rng(f"quality {suffix}"))
        run.note(**{f"{name}_{suffix}": value for name, value in facts.items()})
    run.note(distance=float((memory.squared_distance / averaged_steps).sqrt()))


def _advance(
    memory: Averaging, sampler: Sampler, model: EnergyModel, budget: Budget, averaged: bool
) -> None:
    """Take the steps of a reading, and add their fast weights to the totals if `averaged`."""
    for _ in range(budget.every):
        memory.state, _ = sampler.step(memory.state, model, memory.rng)
        if not averaged:
            continue
        for name, total in memory.totals.items():
            total.add_(getattr(memory.state, name).mean(0))
        memory.squared_distance += _squared_distance(memory.state)


def _squared_distance(state: Any) -> Tensor:
    """The mean squared norm of the fast weights over chains, a scalar."""
    squares = [getattr(state, name).square().flatten(1).sum(1) for name in FAST]
    return torch.stack(squares).sum(0).mean()


def headline(record: Record) -> list[KeyNumber]:
    """The log-likelihoods before and after, and the distance that the fast weights keep."""
    numbers = []
    for name in ("ais_forward", "ais_back"):
        for suffix in ("before", "after"):
            numbers.append(fact_number(record, f"{name}_{suffix}", better="higher"))
    return [*numbers, fact_number(record, "distance")]
