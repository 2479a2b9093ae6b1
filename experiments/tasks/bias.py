"""Task: the bias of DULA's stationary law against the step size, exact and simulated (Figure 1)."""

from collections.abc import Sequence
from dataclasses import replace
from math import nan

import numpy as np

from data.base import Dataset
from experiments.budget import Budget
from experiments.chain import run_chain
from experiments.context import Run
from experiments.occupancy import Occupancy, noise_floor, pooled_law
from experiments.stationary import (
    bounds,
    enumerate_proposal,
    in_double,
    l1_distance,
    stationary_law,
)
from models.base import EnergyModel
from samplers.base import Sampler

ASYMPTOTIC = 1e-3  # biases below this show the rate as the step size goes to 0


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
    """Log |pi_alpha - pi|_1 for each step size, one row each; all distances are L1, at most 2.

    `step_sizes` and `simulated` are in {0, 1} units: they are multiplied by the squared distance of
    a flip in the model's own coordinates (4 for spins), which gives the same kernel in any. The
    column `step_size` is in the model's units, `unit` is that factor. At the step sizes of
    `simulated`, `chains` chains run `steps` steps after a quarter as many to forget their start,
    and `noise` is the distance that chance alone would give. A target that is not log-quadratic has
    no `closed_form`. The slope of the log distance against 1 / (2 alpha), in the run's notes, is
    the one that Theorem 5.1 is about.
    """
    exact = in_double(model)
    bound = bounds(exact)
    quadratic = bound.deviation == 0
    rates, distances = [], []
    for row, size in enumerate(sorted({*step_sizes, *simulated})):
        alpha = size * bound.nearest
        kernel = replace(sampler, step_size=alpha)  # type: ignore[type-var]
        proposal = enumerate_proposal(kernel, exact)
        law = stationary_law(proposal.unadjusted)
        distance = float(l1_distance(law, proposal.target))
        found = own = noise = nan
        if size in simulated:
            x = model.domain.uniform(budget.chains, run.rng(f"start/{size}"))
            rng = run.rng(f"chain/{size}")
            for count in (max(1, budget.steps // 4), budget.steps):
                *_, last = run_chain(
                    kernel, model, x, rng, steps=count, every=count, metrics=(Occupancy(),)
                )
                x = last.state.x
            counts = last.carries[0].counts.cpu()
            empirical = pooled_law(counts)
            found = float(l1_distance(empirical, proposal.target))
            own = float(l1_distance(empirical, law))
            noise = float(noise_floor(counts))
        run.log(
            row,
            step_size=alpha,
            unit=bound.nearest,
            exact=distance,
            closed_form=float(proposal.closed_form_bias) if quadratic else nan,
            adjusted=float(l1_distance(stationary_law(proposal.adjusted), proposal.target)),
            theorem=bound.theorem(alpha),
            repaired=bound.repaired(alpha),
            simulated=found,
            simulated_to_own=own,
            noise=noise,
        )
        if quadratic and 0 < (small := float(proposal.closed_form_bias)) < ASYMPTOTIC:
            rates.append(1 / (2 * alpha))
            distances.append(small)
    if len(rates) > 1:
        run.note(slope=float(np.polyfit(rates, np.log(distances), 1)[0]), slope_points=len(rates))
