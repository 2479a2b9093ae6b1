"""Task: the log normaliser of a model by tempering, an SMC sampler or annealed importance sampling.

All three go the same way from a law that is known to the model. Every estimate has a 95 % interval.
Where its error is not plain, the interval is wide and says so: SMC and AIS then have the bound of
Markov's inequality and no upper end, and tempering the hull of its estimates.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from torch import Tensor

from latticework.data.base import Dataset
from latticework.experiments.records.estimates import Estimate, KeyNumber, finite
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.ais import Annealer, kernel_for_path, log_odds
from latticework.experiments.tasks.sampling import ladders_of
from latticework.experiments.tasks.target import ensure_trained
from latticework.models.base import AnnealedModel, EnergyModel
from latticework.samplers.base import Sampler
from latticework.samplers.sums import MultiStepSampler
from latticework.samplers.tempered import Tempered
from latticework.sampling.adaptation import Adaptation, by_level, run_adaptation
from latticework.sampling.annealing import advance, linear, pilot_betas, require_exact, start
from latticework.sampling.chain import Chain
from latticework.sampling.engine import engine_for_adaptation, select_kernel
from latticework.sampling.evaluations import EvaluationCounter, evaluations_of_step
from latticework.sampling.exact import exact_if_cheap
from latticework.sampling.ladder_estimates import Levels, levels_of
from latticework.sampling.loop_state import LoopState
from latticework.sampling.starts import draw_possible


def log_z(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    budget: Budget,
    estimator: Literal["tempering", "smc", "ais"],
    path: Callable[..., AnnealedModel],
    runs: int = 10,
    betas: Callable[[int], Tensor] | None = None,
    back: int = 0,
    adapt: Adaptation | None = None,
    pretrain: Callable[..., EnergyModel] | None = None,
) -> None:
    """Estimate log Z, in nats, with a kernel and the chains and steps of `budget`.

    `estimator`: "ais" takes the chains along the path with a step at each beta, "smc" the same
    chains as the particles of `runs` independent runs, and "tempering" makes the steps in as many
    ladders, of which the second half counts. AIS and SMC go along `path` (`models.annealed`), from
    independent sites with the frequencies of the data if there are any, and by `betas`; without
    it, by equal steps for AIS, and for SMC as a pilot spaces them. With data, `back` chains of AIS
    start at training rows and give an upper end. `adapt` chooses fields of the kernel beforehand:
    for AIS and SMC in each block of betas, for tempering at each level if the kernel has a step
    size, else at b = 1. Tempering begins at the same independent sites.

    Raises ValueError for a kernel that is not exact, for fewer than two chains, or if `runs` does
    not divide them; others as `tasks.ais.ais` does.
    """
    if estimator == "smc" and (runs < 2 or budget.chains % runs or budget.chains == runs):
        raise ValueError(
            f"task.runs must be 2 or more and divide budget.chains into particles, got {runs} and "
            f"{budget.chains}"
        )
    if budget.chains < 2:
        raise ValueError(f"budget.chains must be 2 or more for an interval, got {budget.chains}")
    model = ensure_trained(model, data, run, pretrain).requires_grad_(False).to(run.device)
    began = run.seconds
    if estimator == "tempering":
        by_tempering(model, sampler, log_odds(data), run, budget, adapt)
    else:
        require_exact(sampler)
        numbers = runs if estimator == "smc" else 0
        by_annealing(model, sampler, data, run, budget, path, numbers, betas, back, adapt)
    known = exact_if_cheap(model)
    run.note(
        estimation_seconds=run.seconds - began - run.notes.get("compile_seconds", 0),
        log_z_exact=None if known is None else float(known.log_z),
    )


def by_annealing(
    model: EnergyModel,
    kernel: Sampler,
    data: Dataset | None,
    run: Run,
    budget: Budget,
    path: Callable[..., AnnealedModel],
    runs: int,
    betas: Callable[[int], Tensor] | None,
    back: int,
    adapt: Adaptation | None,
) -> None:
    """AIS, or with `runs` SMC."""
    count = EvaluationCounter(model, budget.chains)
    annealed = path(model, log_odds(data)).with_soft_zeros().to(run.device)
    base, pilot = float(annealed.log_z_start()), 0
    if runs and betas is None:
        rng = run.rng("spacing")
        x = annealed.draw(budget.chains, rng)
        ladder, pilot = pilot_betas(kernel, annealed, x, budget.steps, rng)
    else:
        ladder = (betas or linear)(budget.steps)
    kernel = kernel_for_path(run, kernel, annealed, adapt)
    annealer = Annealer(run, kernel, annealed, budget, base, runs)
    kernels = [kernel] * budget.readings
    if adapt:
        kernels = annealer.pilot(adapt, ladder)
        pilot += adapt.blocks(kernel) * adapt.steps * budget.readings
    found = annealer.run_forward(model, ladder, kernels)
    low, high = found.interval
    run.note(
        log_z_low=base + low,
        log_z_high=finite(base + high),
        log_z_at_least=base + found.at_least,
        effective_of=found.chains,
    )
    counted = path(count.model, log_odds(data)).with_soft_zeros().to(run.device)
    x = annealed.draw(budget.chains, run.rng("cost"))
    chains = start(kernel, counted, x, ladder)
    count.evaluations = 0.0
    advance(chains, kernel, counted, ladder, run.rng("cost"), runs)
    each = count.evaluations or float(budget.chains)
    if back and data is not None:
        replace(annealer, runs=0).run_reverse(data, ladder, kernels, back, 0)
    steps = budget.steps + pilot + budget.steps * back / budget.chains
    run.note(evaluations=each * steps)


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
    adapt: Adaptation | None,
) -> None:
    """Tempering, with log Z of the second half of the steps.

    From independent sites with log-odds `odds`, unless the sampler has its own.
    """
    x = draw_possible(model, budget.chains, run.rng("start"))
    count = EvaluationCounter(model, budget.chains)
    ladder: Any = sampler if isinstance(sampler, Tempered) else Tempered(sampler)
    if not ladder.has_base:
        raise ValueError("sampler.schedule must begin with 0, where log Z is known")
    if odds is not None and ladder.log_odds is None:
        ladder = replace(ladder, log_odds=odds)
    if adapt is not None and (own := by_level(adapt, ladder)):
        ladder = own
    elif adapt is not None:
        rng = run.rng("adaptation")
        chosen = run_adaptation(adapt, ladder.inner, count.model, x, rng, run.engine).sampler
        ladder = replace(ladder, kernel=chosen)
    learner: Any = select_kernel(ladder, model, engine_for_adaptation(run.engine))[0]
    compiled = isinstance(learner, MultiStepSampler)
    if compiled:
        compiling, brief = run.seconds, replace(learner, rounds=1)
        brief.advance(brief.at(x, model), model, run.rng("compiling"), 1)
        run.note(compile_seconds=run.seconds - compiling)
    steps = ladder.learning_steps  # none once it has learned
    ladder = replace(ladder, **learner.learnt(x, model if compiled else count.model))
    each = evaluations_of_step(ladder, model, x, run.rng("cost"))
    learning = each * steps / budget.chains if compiled else count.evaluations
    kernel = run.kernel(ladder, model, [], x, budget.steps)
    memory = Tempering(Chain(kernel, model, x, run.rng("chain"), every=1, metrics=[]), [])
    for number in run.resumable(memory, "tempering", total=budget.readings, each=budget.every):
        for _ in range(budget.every):
            memory.chain.advance()
            memory.levels.append(levels_of(memory.chain.within))
        so_far = ladders_of(memory.chain.within, memory.levels, number * budget.every)
        run.log(number * budget.every, barrier=so_far.barrier, trips=so_far.trips.mean())
    found = ladders_of(memory.chain.within, memory.levels, budget.steps)
    estimate = found.log_z
    assert estimate is not None
    low, high, plain = found.interval
    run.save("ladders", **{name: np.asarray(value) for name, value in vars(found).items()})
    run.note(
        log_z=estimate.value,
        log_z_low=finite(low),
        log_z_high=finite(high),
        log_z_forward=estimate.forward,
        log_z_backward=estimate.backward,
        plain=plain,
        barrier=found.barrier,
        largest_rejection=float(found.rejections.max()),
        levels=len(found.schedule),
        round_trips=float(found.trips.mean()),
        predicted_round_trips=found.predicted_trips,
        evaluations=learning + each * budget.steps,
    )


def headline(record: Record) -> list[KeyNumber]:
    """Log Z with its interval beside the exact value, the Markov bound, and the costs, in nats."""
    found, beside = record.document, {}
    for name, key in (("95 % low", "low"), ("95 % high", "high"), ("exact", "exact")):
        if (value := found[f"log_z_{key}"]) is not None:
            beside[name] = Estimate(value)
    numbers = [KeyNumber("log_z", found["log_z"], beside=beside)]
    if (bound := found.get("log_z_at_least")) is not None:
        numbers.append(KeyNumber("log_z_at_least", bound))
        of = {"of": Estimate(found["effective_of"])}
        numbers.append(KeyNumber("effective_chains", found["ess"], beside=of))
    else:
        numbers.append(KeyNumber("barrier", found["barrier"]))
        numbers.append(KeyNumber("round_trips", found["round_trips"]))
    return [*numbers, KeyNumber("evaluations", found["evaluations"])]
