"""Task: a Langevin sampler with and without a preconditioner, by the error of its means (App. H).

R. Zhang, X. Liu and Q. Liu, "A Langevin-like Sampler for Discrete Distributions", ICML 2022.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from latticework.data.base import Dataset
from latticework.experiments.records.estimates import KeyNumber
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures import stationary
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling import metrics as chain_metrics
from latticework.sampling.chain import run_chain
from latticework.sampling.exact import exact as exact_moments


class HalfSums(NamedTuple):
    total: Tensor  # [2, chains, *shape]: sums of the states after even and after odd steps
    steps: Tensor  # [1]


@dataclass(frozen=True)
class Halves(chain_metrics.Metric):
    """Sums over every other state, besides those over all states.

    A coordinate that flips at every step has the right mean over all steps without being random.
    Over every other step it is constant.
    """

    def init(self, model: EnergyModel, state: Any, reference: chain_metrics.Reference) -> HalfSums:
        total = torch.zeros(2, *state.x.shape, device=state.x.device)
        return HalfSums(total, torch.zeros(1, dtype=torch.long, device=state.x.device))

    def update(
        self, carry: HalfSums, state: Any, sums: chain_metrics.Steps, steps: int
    ) -> HalfSums:
        seen = carry.steps.add_(steps)
        return HalfSums(carry.total.index_add_(0, seen % 2, state.x.unsqueeze(0)), seen)

    def read(self, carry: HalfSums) -> dict[str, Tensor]:
        return {}


def preconditioning(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    step_sizes: Sequence[float],
    preconditioner: Sequence[float],
    powers: Sequence[int],
    budget: Budget,
) -> None:
    """Log each chain's log RMSE of its running mean over sites, as quantiles over chains.

    The sampler runs alone at each of `step_sizes`, then with `preconditioner` at its own step size,
    once for each of `powers`. The column `power` is 0 without preconditioner. `thinned` is the
    median log RMSE of the mean over every other step. `flip_0`, `flip_1` ... are the exact
    probabilities that a step proposes to flip each site, averaged over all states. Raises
    ValueError unless `budget.every` is even.
    """
    if budget.every % 2:
        raise ValueError(f"every must be even, got {budget.every}")
    truth = exact_moments(model).mean.float().to(run.device)
    plain = [replace(sampler, step_size=alpha) for alpha in step_sizes]  # type: ignore[type-var]
    scaled = [
        replace(sampler, preconditioner=list(preconditioner), preconditioner_power=power)  # type: ignore[type-var]
        for power in powers
    ]
    for number, kernel in enumerate([*plain, *scaled]):
        logits = kernel.at(model.domain.enumerate().double(), stationary.in_double(model)).logits
        flips = {f"flip_{i}": p for i, p in enumerate(logits.sigmoid().mean(0))}
        metrics = (Halves(),)
        readings = run_chain(
            run.select_kernel(kernel, model, metrics),
            model,
            model.domain.uniform(budget.chains, run.rng(f"start/{number}")),
            run.rng(f"chain/{number}"),
            steps=budget.steps,
            every=budget.every,
            metrics=metrics,
        )
        what = f"sampling {number}"
        for reading in run.progress(readings, what, budget.readings, -1, budget.every):
            if reading.step == 0:
                continue
            total = reading.carries[0].total
            low, middle, high = _log_rmse(total.sum(0) / reading.step, truth).quantile(
                total.new_tensor([0.1, 0.5, 0.9])
            )
            run.log(
                reading.step,
                step_size=kernel.step_size,  # type: ignore[attr-defined]
                power=kernel.preconditioner_power if kernel.preconditioner else 0,  # type: ignore[attr-defined]
                log_rmse=middle,
                log_rmse_low=low,
                log_rmse_high=high,
                thinned=_log_rmse(total[0] / (reading.step // 2), truth).median(),
                **flips,
            )


def headline(record: Record) -> list[KeyNumber]:
    """The last log RMSE: at the best step size, and with each power of the preconditioner."""
    last = record.metrics.groupby(["step_size", "power"], as_index=False).last()
    standard = float(last.loc[last["power"] == 0, "log_rmse"].min())
    return [
        KeyNumber("standard", standard, better="lower"),
        *(
            KeyNumber(f"preconditioned_{power:g}", float(error), better="lower")
            for power, error in last.loc[last["power"] > 0, ["power", "log_rmse"]].to_numpy()
        ),
    ]


def _log_rmse(mean: Tensor, truth: Tensor) -> Tensor:
    """Natural log of the error over sites, `[chains]`."""
    return (mean - truth).square().mean(-1).sqrt().log()
