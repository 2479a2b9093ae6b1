"""Task: run a sampler on a fixed target and record its metrics against steps and seconds."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from data.base import Dataset
from experiments.budget import Budget
from experiments.chain import Chain, evaluations_per_step, seconds_per_step
from experiments.context import Run
from experiments.diagnostics import convergence
from experiments.metrics import Metric
from experiments.training import trained
from experiments.truth import Reference
from experiments.validity import Validity, watch
from models.base import EnergyModel
from samplers.base import Sampler


def sample(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    budget: Budget,
    start: Callable[..., Tensor],
    metrics: Sequence[Metric],
    pretrain: Callable[..., EnergyModel] | None = None,
    truth: Callable[..., Reference] | None = None,
) -> None:
    """Run the chains of `budget` and log the metrics at each reading.

    `pretrain` turns the fresh model into the target (conf/pretrain); `truth` gives what the
    metrics compare with. Every sampler of an experiment sees the same start. Times come from a pass
    without metrics. Raises ValueError for a model that is meant to be learned and is not
    (`experiments.training`).
    """
    model, reference = target(model, data, run, pretrain, truth)
    x = start(model, budget.chains, run.rng("start"), data)

    whole, local = evaluations_per_step(sampler, model, x, run.rng("timing"))
    metrics = [*metrics, Validity()]
    chain = Chain(
        sampler,
        model,
        x,
        run.rng("chain"),
        every=budget.every,
        metrics=metrics,
        reference=reference,
    )
    memory = chain.memory
    memory["per_step"] = seconds_per_step(
        sampler, model, x, run.rng("timing"), steps=max(1, min(budget.steps // 50, 1000))
    )
    for number in run.resumable(memory, "sampling", total=budget.readings, first=0):
        step = number * budget.every
        if number:
            chain.advance()
            watch(run, memory["carries"][-1], step)
        run.log(
            step,
            seconds=step * memory["per_step"],
            evaluations=step * whole,
            **chain.values(),
        )
    run.note(
        seconds_per_step=memory["per_step"],
        evaluations_per_step=whole,
        local_evaluations_per_step=local,
    )
    run.save("last", x=memory["state"].x)
    arrays = stored(metrics, memory["carries"])
    if "trace" in arrays:
        trace = arrays["trace"].cpu().numpy()
        shape = {"draws": np.asarray(trace.shape[0]), "chains": np.asarray(trace.shape[1])}
        run.save("convergence", **convergence(trace), **shape)
    run.save_all(arrays)


def target(
    model: EnergyModel,
    data: Dataset | None,
    run: Run,
    pretrain: Callable[..., EnergyModel] | None,
    truth: Callable[..., Reference] | None,
) -> tuple[EnergyModel, Reference]:
    """The model to sample from, trained where it is to be, and what is known of it."""
    model = trained(model, data, run, pretrain)
    return model, truth(model=model, run=run) if truth is not None else Reference()


def stored(metrics: Sequence[Metric], carries: Sequence[Any]) -> dict[str, Tensor]:
    """What the metrics keep when the chain has ended, by name."""
    arrays = [metric.arrays(carry) for metric, carry in zip(metrics, carries, strict=True)]
    return {name: value for array in arrays for name, value in array.items()}
