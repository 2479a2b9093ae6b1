"""Task: run a sampler on a fixed target and record its metrics against steps and seconds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from latticework.data.base import Dataset
from latticework.experiments.config.budget import Budget
from latticework.experiments.learning.training import trained
from latticework.experiments.measures.diagnostics import convergence
from latticework.experiments.measures.metrics import Metric
from latticework.experiments.measures.nonfinite import Validity, watch
from latticework.experiments.measures.reference import Reference
from latticework.experiments.running.memory import Memory
from latticework.experiments.running.run import Run
from latticework.experiments.sampling.chain import Chain, evaluations_per_step, seconds_per_step
from latticework.experiments.sampling.engine import for_engine
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler


@dataclass(eq=False)
class Sampling(Memory):
    chain: Chain
    per_step: float  # seconds that one step of all chains takes


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

    `pretrain` trains or loads the model (conf/pretrain); `truth` gives the reference values that
    metrics compare with. All samplers of an experiment start from the same states. Seconds are
    measured in a separate pass without metrics. Raises ValueError if the model should be learned
    and is not (`experiments.learning.training`).
    """
    model, reference = target(model, data, run, pretrain, truth)
    x = start(model, budget.chains, run.rng("start"), data)

    whole, local = evaluations_per_step(sampler, model, x, run.rng("timing"))
    metrics = [*metrics, Validity()]
    rng, every = run.rng("chain"), budget.every
    sampler = for_engine(sampler, model, run, metrics)
    chain = Chain(sampler, model, x, rng, every=every, metrics=metrics, reference=reference)
    block = max(1, min(budget.steps // 50, 1000))
    memory = Sampling(chain, seconds_per_step(sampler, model, x, run.rng("timing"), steps=block))
    for number in run.resumable(memory, "sampling", total=budget.readings, first=0):
        step = number * every
        if number:
            chain.advance()
            watch(run, chain.carries[-1], step)
        seconds = step * memory.per_step
        run.log(step, seconds=seconds, evaluations=step * whole, **chain.values())
    run.note(
        seconds_per_step=memory.per_step,
        evaluations_per_step=whole,
        local_evaluations_per_step=local,
    )
    run.save("last", x=chain.state.x)
    store(stored(metrics, chain.carries), run)


def store(arrays: dict[str, Tensor], run: Run) -> None:
    """Save the metrics' arrays, and the convergence diagnostics of a trace."""
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
    """The model to sample from, trained if it has to be, and its reference values."""
    model = trained(model, data, run, pretrain)
    return model, truth(model=model, run=run) if truth is not None else Reference()


def stored(metrics: Sequence[Metric], carries: Sequence[Any]) -> dict[str, Tensor]:
    """The arrays that the metrics keep at the end, by name."""
    arrays = [metric.arrays(carry) for metric, carry in zip(metrics, carries, strict=True)]
    return {name: value for array in arrays for name, value in array.items()}
