"""Task: the bias of DULA's stationary law against the step size, exact and simulated (Figure 1)."""

from collections.abc import Sequence
from dataclasses import replace
from math import nan

import numpy as np
from torch import Tensor

from latticework.data.base import Dataset
from latticework.experiments.records.estimates import KeyNumber, fact_number
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures import stationary
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling import occupancy
from latticework.sampling.chain import run_chain

ASYMPTOTIC = 1e-3  # biases below this follow the rate for step sizes near 0


def bias(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    step_sizes: Sequence[float],
    simulated: Sequence[float],
    budget: Budget,
) -> None:
    """Log |pi_alpha - pi|_1, one row for each step size. All distances are L1, at most 2.

    `step_sizes` and `simulated` are in {0, 1} units. Multiplied by the squared distance of a flip
    in the model's own coordinates (4 for spins), they give the same kernel in any coordinates. The
    column `step_size` is in the model's units; `unit` is the factor. For each of `simulated`, the
    chains of `budget` run after a burn-in of a quarter of its steps; `noise` is the distance that
    independent draws would show. Targets that are not log-quadratic have no `closed_form`. The
    slope of the log distance against 1 / (2 alpha), the rate of Theorem 5.1, is in run.json.
    """
    exact = stationary.in_double(model)
    bound = stationary.bias_bounds(exact)
    quadratic = bound.deviation == 0
    rates, distances = [], []
    for row, size in enumerate(sorted({*step_sizes, *simulated})):
        alpha = size * bound.nearest
        kernel = replace(sampler, step_size=alpha)  # type: ignore[type-var]
        proposal = stationary.enumerate_proposal(kernel, exact)
        law = stationary.stationary_law(proposal.unadjusted)
        simulated_bias = bias_to_law = noise = nan
        if size in simulated:
            counts = _simulate_counts(kernel, model, run, budget, size)
            empirical = occupancy.pooled_law(counts)
            simulated_bias = float(stationary.l1_distance(empirical, proposal.target))
            bias_to_law = float(stationary.l1_distance(empirical, law))
            noise = float(occupancy.noise_floor(counts))
        small = float(proposal.closed_form_bias) if quadratic else nan
        run.log(
            row,
            step_size=alpha,
            unit=bound.nearest,
            exact=float(stationary.l1_distance(law, proposal.target)),
            closed_form=small,
            adjusted=float(
                stationary.l1_distance(
                    stationary.stationary_law(proposal.adjusted), proposal.target
                )
            ),
            theorem=bound.theorem(alpha),
            repaired=bound.repaired(alpha),
            simulated=simulated_bias,
            simulated_to_own=bias_to_law,
            noise=noise,
        )
        if 0 < small < ASYMPTOTIC:
            rates.append(1 / (2 * alpha))
            distances.append(small)
    if len(rates) > 1:
        run.note(slope=float(np.polyfit(rates, np.log(distances), 1)[0]), slope_points=len(rates))


def headline(record: Record) -> list[KeyNumber]:
    """The rate of Theorem 5.1, and the bias at the largest step size, exact and simulated."""
    slope = [fact_number(record, "slope")] if "slope" in record.document else []
    largest = record.metrics.iloc[-1].dropna()
    names = ("exact", "simulated", "noise")
    return [*slope, *(KeyNumber(f"bias {n}", float(largest[n])) for n in names if n in largest)]


def _simulate_counts(
    kernel: Sampler, model: EnergyModel, run: Run, budget: Budget, size: float
) -> Tensor:
    """How often each chain visits each state, `[chains, states]`, after a burn-in."""
    x = model.domain.uniform(budget.chains, run.rng(f"start/{size}"))
    rng = run.rng(f"chain/{size}")
    metrics = (occupancy.Occupancy(),)
    kernel = run.select_kernel(kernel, model, metrics)
    for count in (max(1, budget.steps // 4), budget.steps):
        *_, last = run_chain(kernel, model, x, rng, steps=count, every=count, metrics=metrics)
        x = last.state.x
    return last.carries[0].counts.cpu()
