"""Task: sample the weights of a regression given a table, and record how well they predict.

The training log-likelihood and the test RMSE are those of Zhang et al. (2022), Tables 2 and 4:
minus the mean squared error, averaged over chains, and the RMSE of the chains' mean prediction at
one step. Beside them are the RMSE of the mean over chains and readings since `burn_in`, calibration
errors, and R-hat and effective sample size of the predictions for `points` rows.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from latticework.data import splits
from latticework.experiments.records.estimates import KeyNumber, last_readings
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures.validity import Validity, warn_of_invalid_steps
from latticework.models.abilities import Predictor
from latticework.samplers.base import Sampler
from latticework.sampling.chain import Chain, Timing, timing
from latticework.sampling.diagnostics import MIN_DRAWS, convergence
from latticework.sampling.loop_state import LoopState


@dataclass(eq=False)
class Predictions(LoopState):
    """The chains, and their predictions for the test rows so far."""

    chain: Chain
    timing: Timing  # time of a step of all chains
    mean: Tensor  # [rows]: over chains, at the last reading
    averaged: Tensor  # [rows]: over chains and readings since burn-in; NaN before
    total: Tensor  # [rows]: sum of `mean` over readings since burn-in
    trace: Tensor  # [readings, chains, points]: since burn-in

    def add(self, predictions: Tensor, count: int) -> None:
        """Add `predictions` `[chains, rows]`; `count` is their number since burn-in, or 0."""
        mean = predictions.mean(0)
        averaged = torch.full_like(mean, torch.nan)
        if count:
            self.total = self.total + mean
            self.trace[count - 1] = predictions[:, : self.trace.shape[-1]]
            averaged = self.total / count
        self.mean, self.averaged = mean, averaged


def regression(
    *,
    model: Predictor,
    sampler: Sampler,
    data: splits.Table,
    run: Run,
    budget: Budget,
    burn_in: int,
    start: Callable[..., Tensor],
    points: int = 50,
) -> None:
    """Run the chains of `budget` and log how well they predict at each reading.

    `model` is conditioned on the training rows of the table. Seconds are measured in a separate
    pass without predictions. Raises ValueError unless `data` is a table, `model` predicts, and
    `burn_in` is less than the number of steps.
    """
    if not 0 <= burn_in < budget.steps:
        raise ValueError(
            f"burn_in must be 0 or more and less than steps, got {burn_in} and {budget.steps}"
        )
    if not isinstance(data, splits.Table) or not isinstance(model, Predictor):
        raise ValueError(
            "task=regression needs a table, such as data=compas, and a model of its rows, such as "
            f"model=bayes_net; got {type(data).__name__} and {type(model).__name__}"
        )
    train, test = (
        splits.Rows(rows.features.to(run.device), rows.targets.to(run.device))
        for rows in (data.train, data.test)
    )
    model = model.on(train.features, train.targets).to(run.device)
    x = start(model, budget.chains, run.rng("start"), None)
    rows = {
        "train": len(train),
        "test": len(test),
        "repeated": splits.count_repeated(data),
        "between": int(between(test.targets).sum()),
    }
    run.note(rows=rows, dim=model.domain.dim)

    every, metrics = budget.every, (Validity(),)
    sampler = run.select_kernel(sampler, model, metrics)
    counted_steps = [step for step in range(0, budget.steps + 1, every) if step > burn_in]
    block = max(1, min(budget.steps // 200, 1000))
    zeros = torch.zeros_like(test.targets)
    memory = Predictions(
        Chain(sampler, model, x, run.rng("chain"), every=every, metrics=metrics),
        timing(sampler, model, x, run.rng("timing"), steps=block),
        mean=zeros,
        averaged=zeros.clone(),
        total=zeros.clone(),
        trace=x.new_zeros(len(counted_steps), budget.chains, min(points, len(test))),
    )
    for reading in run.resumable(memory, "sampling", total=budget.readings, first=0, each=every):
        step = reading * every
        if step:
            memory.chain.advance()
            warn_of_invalid_steps(run, memory.chain.carries[-1], step)
        with torch.no_grad():
            fitted = model.predict(memory.chain.state.x, train.features)
            predictions = model.predict(memory.chain.state.x, test.features)  # [chains, rows]
        memory.add(predictions, step // every - burn_in // every if step > burn_in else 0)
        run.log(
            step,
            seconds=step * memory.timing.seconds,
            train_log_likelihood=-mean_squared_errors(fitted, train.targets).mean(),
            test_log_likelihood=-mean_squared_errors(predictions, test.targets).mean(),
            test_rmse=rmse(memory.mean, test.targets),
            test_rmse_averaged=rmse(memory.averaged, test.targets),
            calibration_error=calibration_error(memory.mean, test.targets),
            calibration_error_averaged=calibration_error(memory.averaged, test.targets),
            coverage=coverage(predictions, test.targets),
        )
    run.note(seconds_per_step=memory.timing.seconds, cpu_share=memory.timing.share)
    run.save("last", x=memory.chain.state.x)
    run.save("predictions", last=memory.mean, averaged=memory.averaged, targets=test.targets)
    trace = memory.trace.cpu().numpy()
    if len(trace) >= MIN_DRAWS:
        shape = {"draws": np.asarray(len(trace)), "chains": np.asarray(trace.shape[1])}
        run.save("convergence", **convergence(trace), **shape)


def headline(record: Record) -> list[KeyNumber]:
    """How well the last states, and averages over the chains, predict the table."""
    return last_readings(
        record,
        {
            "train_log_likelihood": "higher",
            "test_rmse": "lower",
            "test_rmse_averaged": "lower",
            "calibration_error": "lower",
        },
    )


# Scores of predictions `[draws, n]`, one row a chain, and of their `mean` `[n]`; targets `[n]` are
# in [0, 1].


def mean_squared_errors(predictions: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error of each chain's predictions, `[draws]`."""
    return (predictions - targets).square().mean(-1)


def rmse(mean: Tensor, targets: Tensor) -> Tensor:
    """Root mean squared error. For targets 0 and 1, the square root of the Brier score."""
    return (mean - targets).square().mean().sqrt()


def calibration_error(mean: Tensor, targets: Tensor, bins: int = 10) -> Tensor:
    """Expected calibration error: |mean prediction - mean target| over `bins` bins of equal width.

    Bins are weighted by their number of rows (M. Naeini, G. Cooper and M. Hauskrecht, AAAI 2015).
    For targets 0 and 1, it compares predicted probabilities with observed frequencies. NaN if a
    prediction is.
    """
    if mean.isnan().any():
        return mean.new_tensor(torch.nan)
    index = (mean * bins).long().clamp_(0, bins - 1)
    in_bin = index == torch.arange(bins, device=index.device).unsqueeze(1)
    gaps = in_bin.to(mean) @ (mean - targets)  # a GPU's index_add_ sums in any order
    return gaps.abs().sum() / len(mean)


def coverage(predictions: Tensor, targets: Tensor, level: float = 0.9) -> Tensor:
    """Fraction of targets between the chains' (1 - level)/2 and (1 + level)/2 quantiles.

    The interval reflects the spread of the chains only; observation noise is not included. A
    prediction is strictly between 0 and 1, so no interval holds a target of 0 or 1, and the largest
    coverage is the share of the targets that are `between`. In floating point a sigmoid rounds to 0
    or 1 and would seem to reach them: to 1 from 17 on in float32, from 37 on in float64.
    """
    low, high = ((1 - level) / 2, (1 + level) / 2)
    below, above = (predictions.double().quantile(q, dim=0) for q in (low, high))
    return ((below <= targets) & (targets <= above) & between(targets)).double().mean()


def between(targets: Tensor) -> Tensor:
    """Whether a target is strictly between 0 and 1, so that a prediction can be equal to it."""
    return (targets > 0) & (targets < 1)
