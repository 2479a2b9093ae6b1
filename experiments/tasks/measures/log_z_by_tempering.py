"""Log Z of a model by tempering, with the evaluations that it costs."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from latticework.experiments.records.estimates import finite_or_none
from latticework.experiments.records.record import Budget
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures.chain_results import ladders_of
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.samplers.sums import MultiStepSampler
from latticework.samplers.tempered import Tempered
from latticework.sampling import adaptation, evaluations
from latticework.sampling.chain import Chain
from latticework.sampling.engine import engine_for_adaptation, select_kernel
from latticework.sampling.ladder_estimates import Levels, levels_of
from latticework.sampling.loop_state import LoopState
from latticework.sampling.starts import draw_possible


@dataclass(eq=False)
class Tempering(LoopState):
    chain: Chain
    levels: list[Levels]  # after each step


def by_tempering(
    model: EnergyModel,
    sampler: Sampler,
    odds: Tensor | None,
    run: Run,
    budget: Budget,
    adapt: adaptation.Adaptation | None,
) -> None:
    """Tempering, with log Z of the second half of the steps.

    From independent sites with log-odds `odds`, unless the sampler has its own.
    """
    x = draw_possible(model, budget.chains, run.rng("start"))
    count = evaluations.EvaluationCounter(model, budget.chains)
    ladder: Any = sampler if isinstance(sampler, Tempered) else Tempered(sampler)
    if not ladder.has_base:
        raise ValueError("sampler.schedule must begin with 0, where log Z is known")
    if odds is not None and ladder.log_odds is None:
        ladder = replace(ladder, log_odds=odds)
    if adapt is not None and (scaled := adaptation.by_level(adapt, ladder)):
        ladder = scaled
    elif adapt is not None:
        rng = run.rng("adaptation")
        chosen = adaptation.run_adaptation(
            adapt, ladder.inner, count.model, x, rng, run.engine
        ).sampler
        ladder = replace(ladder, kernel=chosen)
    learner: Any = select_kernel(ladder, model, engine_for_adaptation(run.engine))[0]
    compiled = isinstance(learner, MultiStepSampler)
    if compiled:
        compiling, brief = run.seconds, replace(learner, rounds=1)
        brief.advance(brief.at(x, model), model, run.rng("compiling"), 1)
        run.note(compile_seconds=run.seconds - compiling)
    steps = ladder.learning_steps  # none once it has learned
    ladder = replace(ladder, **learner.learn_fields(x, model if compiled else count.model))
    each = evaluations.evaluations_of_step(ladder, model, x, run.rng("cost"))
    learning = each * steps / budget.chains if compiled else count.evaluations
    kernel = run.select_kernel(ladder, model, [], x, budget.steps)
    memory = Tempering(Chain(kernel, model, x, run.rng("chain"), every=1, metrics=[]), [])
    for number in run.resumable(memory, "tempering", total=budget.readings, each=budget.every):
        for _ in range(budget.every):
            memory.chain.advance()
            memory.levels.append(levels_of(memory.chain.sampler_state))
        so_far = ladders_of(memory.chain.sampler_state, memory.levels, number * budget.every)
        run.log(number * budget.every, barrier=so_far.barrier, trips=so_far.trips.mean())
    ladders = ladders_of(memory.chain.sampler_state, memory.levels, budget.steps)
    estimate = ladders.log_z
    assert estimate is not None
    low, high, plain = ladders.interval
    run.save("ladders", **{name: np.asarray(value) for name, value in vars(ladders).items()})
    run.note(
        log_z=estimate.value,
        log_z_low=finite_or_none(low),
        log_z_high=finite_or_none(high),
        log_z_forward=estimate.forward,
        log_z_backward=estimate.backward,
        plain=plain,
        barrier=ladders.barrier,
        largest_rejection=float(ladders.rejections.max()),
        levels=len(ladders.schedule),
        round_trips=float(ladders.trips.mean()),
        predicted_round_trips=ladders.predicted_trips,
        evaluations=learning + each * budget.steps,
    )
