"""Log Z of a model by AIS or SMC, with the evaluations that it costs."""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from latticework.data.base import Dataset
from latticework.experiments.records.estimates import finite_or_none
from latticework.experiments.records.record import Budget
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures.annealer import Annealer, kernel_for_path
from latticework.models.base import AnnealedModel, EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling import annealing
from latticework.sampling.adaptation import Adaptation
from latticework.sampling.evaluations import EvaluationCounter
from latticework.sampling.learning.held_out import log_odds


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
        ladder, pilot = annealing.pilot_betas(kernel, annealed, x, budget.steps, rng)
    else:
        ladder = (betas or annealing.linear)(budget.steps)
    kernel = kernel_for_path(run, kernel, annealed, adapt)
    annealer = Annealer(run, kernel, annealed, budget, base, runs)
    kernels = [kernel] * budget.readings
    if adapt:
        kernels = annealer.pilot(adapt, ladder)
        pilot += adapt.blocks(kernel) * adapt.steps * budget.readings
    normaliser = annealer.run_forward(model, ladder, kernels)
    low, high = normaliser.interval
    run.note(
        log_z_low=base + low,
        log_z_high=finite_or_none(base + high),
        log_z_at_least=base + normaliser.at_least,
        effective_of=normaliser.chains,
    )
    counted = path(count.model, log_odds(data)).with_soft_zeros().to(run.device)
    x = annealed.draw(budget.chains, run.rng("cost"))
    chains = annealing.start_annealing(kernel, counted, x, ladder)
    count.evaluations = 0.0
    annealing.advance(chains, kernel, counted, ladder, run.rng("cost"), runs)
    each = count.evaluations or float(budget.chains)
    if back and data is not None:
        replace(annealer, runs=0).run_reverse(data, ladder, kernels, back, 0)
    steps = budget.steps + pilot + budget.steps * back / budget.chains
    run.note(evaluations=each * steps)
