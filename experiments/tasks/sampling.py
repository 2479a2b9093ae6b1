"""Task: run a sampler on a fixed target and record its metrics against steps and seconds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from torch import Tensor

from latticework.data.base import Dataset, fixed_subset
from latticework.experiments.records.record import Budget
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures import chain_results
from latticework.experiments.tasks.measures.chain_numbers import headline as headline
from latticework.experiments.tasks.measures.validity import Validity, warn_of_invalid_steps
from latticework.experiments.tasks.target import ensure_trained
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.samplers.tempered import LadderState
from latticework.sampling import adaptation
from latticework.sampling.chain import Chain, Timing, timing
from latticework.sampling.engine import engine_for_adaptation, select_kernel
from latticework.sampling.evaluations import calls_of_step
from latticework.sampling.exact import exact_if_cheap
from latticework.sampling.ladder_estimates import Levels, levels_of
from latticework.sampling.loop_state import LoopState
from latticework.sampling.metrics import Metric, Reference
from latticework.sampling.mmd import mmd_squared

ROWS = 1000  # test rows whose distances are computed: the cost is quadratic


@dataclass(eq=False)
class Sampling(LoopState):
    chain: Chain
    timing: Timing  # time of a step of all chains
    levels: list[Levels]  # levels of a tempered chain at each reading


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
    adapt: adaptation.Adaptation | None = None,
) -> None:
    """Run the chains of `budget` and log the metrics at each reading.

    `pretrain` trains or loads the model (conf/pretrain); `truth` gives the reference values that
    metrics compare with. All samplers of an experiment start from the same states. `adapt` chooses
    fields of the sampler in a burn-in (conf/adapt), which is not measured; the chains go on from
    there with frozen fields. Tempering adapts its kernel at each level as it learns the levels.
    Seconds are measured in a separate pass without metrics. With `data`, the record notes the
    unbiased MMD^2 of the last states to `ROWS` of the test rows. Raises ValueError if the model
    should be learned and is not (`tasks.target`), or if `adapt` does not support the
    sampler.
    """
    model, reference = target(model, data, run, pretrain, truth)
    x = start(model, budget.chains, run.rng("start"), data)
    if adapt is not None and (ladder := adaptation.by_level(adapt, sampler)):
        sampler = ladder
    elif adapt is not None:
        sampler, x = adapt_in_burn_in(adapt, sampler, model, x, run)

    if sampler.learning_steps:
        learner, _ = select_kernel(sampler, model, engine_for_adaptation(run.engine))
        sampler = replace(sampler, **learner.learn_fields(x, model))  # type: ignore[type-var]
    whole, local = calls_of_step(sampler, model, x, run.rng("timing"))
    metrics = [*metrics, Validity()]
    rng, every = run.rng("chain"), budget.every
    sampler = run.select_kernel(sampler, model, metrics, x, budget.steps)
    chain = Chain(sampler, model, x, rng, every=every, metrics=metrics, reference=reference)
    block = max(1, min(budget.steps // 50, 1000))
    memory = Sampling(chain, timing(sampler, model, x, run.rng("timing"), steps=block), [])
    for number in run.resumable(memory, "sampling", total=budget.readings, first=0, each=every):
        step = number * every
        if number:
            chain.advance()
            warn_of_invalid_steps(run, chain.carries[-1], step)
            if isinstance(chain.sampler_state, LadderState):
                memory.levels.append(levels_of(chain.sampler_state))
        seconds = step * memory.timing.seconds
        run.log(step, seconds=seconds, evaluations=step * whole, **chain.values())
    run.note(
        seconds_per_step=memory.timing.seconds,
        cpu_share=memory.timing.share,
        evaluations_per_step=whole,
        local_evaluations_per_step=local,
        errors=chain_results.last_errors(metrics, chain.carries),
    )
    if memory.levels:
        chain_results.note_ladders(chain.sampler_state, memory.levels, budget.steps, run)
    if data is not None and data.dim == model.domain.dim:
        rows = fixed_subset(data.test, ROWS).to(run.device).float()
        run.note(mmd_to_data=float(mmd_squared(chain.state.x, rows)[1]))
    run.save("last", x=chain.state.x)
    if (
        chain_results.store_arrays(metrics, chain.carries, run) and len(model.domain.shape) == 1
    ):  # not one-hot
        mean = reference.mean
        if mean is None and (known := exact_if_cheap(model)) is not None:
            mean = known.mean
        run.note(mean_exact=None if mean is None else float(mean.mean()))


def adapt_in_burn_in(
    rule: adaptation.Adaptation, sampler: Sampler, model: EnergyModel, x: Tensor, run: Run
) -> tuple[Sampler, Tensor]:
    """The frozen sampler and the states after the burn-in, which the record describes."""
    blocks = partial(run.resumable, what="adaptation")
    adapted = adaptation.run_adaptation(
        rule, sampler, model, x, run.rng("adaptation"), run.engine, blocks
    )
    run.save("adaptation", **{name: np.asarray(v) for name, v in adapted.trajectory.items()})
    run.note(frozen=adapted.fields)
    return adapted.sampler, adapted.x


def target(
    model: EnergyModel,
    data: Dataset | None,
    run: Run,
    pretrain: Callable[..., EnergyModel] | None,
    truth: Callable[..., Reference] | None,
) -> tuple[EnergyModel, Reference]:
    """The model to sample from, trained if it has to be, and its reference values."""
    model = ensure_trained(model, data, run, pretrain)
    return model, truth(model=model, run=run) if truth is not None else Reference()
