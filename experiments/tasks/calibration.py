"""Task: many short runs on a reference target, to learn how often a verdict on draws is wrong.

Each run is a row with what rules read and its errors against the truth, so rules are applied later
(`experiments.records.verdict_rules`). See docs/calibration.md.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np
import torch

from latticework.data.base import Dataset
from latticework.experiments.records.estimates import KeyNumber
from latticework.experiments.records.record import Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures.run_statistics import Quantities
from latticework.models.abilities import KnownTarget
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling import ladder_estimates
from latticework.sampling.result import SampleResult
from latticework.sampling.sample import sample

BURN_IN = 0.25  # steps, as a share of the draws that follow


def calibrate(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    reference: KnownTarget,
    budgets: Sequence[Sequence[int]],
    repeats: int,
    thin: float,
    temper: bool,
) -> None:
    """Log a row for each of `repeats` runs of each of `budgets`, numbers of chains and draws.

    `reference` has the truth of the model. `thin` is the number of steps from draw to draw;
    below 1, it is a share of the sites. Runs of one budget are made together, by chains from
    independent starts; tempered ones one by one, as they learn their levels, and with log Z.
    """
    quantities, steps = Quantities(reference), int(thin)
    if thin < 1:
        steps = ceil(thin * reference.model.domain.dim)
    number = 0
    for chains, draws in run.progress(budgets, "runs", len(budgets)):
        rng = run.rng(f"{chains} chains x {draws}")
        together = 1 if temper else repeats
        for _ in range(repeats // together):
            result = sample(
                reference.model,
                sampler,
                chains=chains * together,
                steps=draws * steps,
                burn_in=ceil(BURN_IN * draws) * steps,
                thin=steps,
                seed=int(torch.randint(2**31, (), generator=rng)),
                engine=run.engine,  # type: ignore[arg-type]
                temper=temper,
                diagnose=False,
            )
            ladders = _measure_log_z(result, reference.log_z) if temper else {}
            for x, log_prob in zip(
                result.draws.split(chains), result.log_prob.split(chains), strict=True
            ):
                columns = quantities.measure(x, log_prob.numpy())
                run.log(number, **columns, **ladders)
                number += 1
    run.note(steps_of_a_draw=steps)


def _measure_log_z(result: SampleResult, truth: float | None) -> dict[str, float]:
    """Log Z with its interval as if nothing spoke against it, and what does."""
    ladders: Any = result.ladders
    log_z = ladder_estimates.estimate(ladders.up, ladders.down)
    return {
        "log_z_error": np.nan if truth is None else log_z.value - truth,
        "log_z_low": log_z.low - log_z.value,
        "log_z_high": log_z.high - log_z.value,
        "round_trips": ladders.trips.mean(),
        "barrier": ladders.barrier,
        "barrier_known": float(ladders.barrier_known),
    }


def headline(record: Record) -> list[KeyNumber]:
    """How many short runs the record has."""
    return [KeyNumber("runs", float(len(record.metrics)))]
