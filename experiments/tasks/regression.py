"""Task: sample the weights of a regression given a table, and record how well they predict.

As Zhang et al. (2022), Tables 2 and 4, report it: the training log-likelihood is the mean over
chains of minus their mean squared error, the test RMSE is that of the mean prediction of the
chains' states at one step. Beside them stand the RMSE of the mean over chains and readings since
`burn_in`, calibration, and R-hat and effective sample size of the predictions for `points` rows.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from data.splits import Rows, Table
from experiments.budget import Budget
from experiments.chain import Chain, seconds_per_step
from experiments.context import Run
from experiments.diagnostics import convergence
from experiments.predictive import calibration_error, coverage, mean_squared_errors, rmse
from experiments.validity import Validity, watch
from models.base import Predictor
from samplers.base import Sampler

FEWEST = 4  # draws that a diagnosis needs


def regression(
    *,
    model: Predictor,
    sampler: Sampler,
    data: Table,
    run: Run,
    budget: Budget,
    burn_in: int,
    start: Callable[..., Tensor],
    points: int = 50,
) -> None:
    """Run the chains of `budget` and log the predictions at each reading.

    `model` is given the table's training rows. Times come from a pass without predictions. Raises
    ValueError unless `burn_in` is less than the number of steps, and for a table that is none.
    """
    if not 0 <= burn_in < budget.steps:
        raise ValueError(
            f"burn_in must be 0 or more and less than steps, got {burn_in} and {budget.steps}"
        )
    if not isinstance(data, Table) or not isinstance(model, Predictor):
        raise ValueError(
            "task=regression needs a table, such as data=compas, and a model of its rows, such as "
            f"model=bayes_net; got {type(data).__name__} and {type(model).__name__}"
        )
    train, test = on(data.train, run), on(data.test, run)
    model = model.on(train.features, train.targets).to(run.device)
    x = start(model, budget.chains, run.rng("start"), None)
    run.note(rows={"train": len(train), "test": len(test)}, dim=model.domain.dim)

    kept = [step for step in range(0, budget.steps + 1, budget.every) if step > burn_in]
    chain = Chain(sampler, model, x, run.rng("chain"), every=budget.every, metrics=(Validity(),))
    timing = run.rng("timing")
    memory = chain.memory | {
        "mean": torch.zeros_like(test.targets),
        "averaged": torch.zeros_like(test.targets),
        "total": torch.zeros_like(test.targets),
        "trace": x.new_zeros(len(kept), budget.chains, min(points, len(test))),
        "per_step": seconds_per_step(
            sampler, model, x, timing, steps=max(1, min(budget.steps // 200, 1000))
        ),
    }
    chain.memory = memory
    for reading in run.resumable(memory, "sampling", total=budget.readings, first=0):
        step = reading * budget.every
        if step:
            chain.advance()
            watch(run, memory["carries"][-1], step)
        with torch.no_grad():
            fitted = model.predict(memory["state"].x, train.features)
            predictions = model.predict(memory["state"].x, test.features)  # [chains, rows]
        mean = predictions.mean(0)
        averaged = torch.full_like(mean, torch.nan)
        if step > burn_in:
            count = step // budget.every - burn_in // budget.every
            memory["total"] = memory["total"] + mean
            memory["trace"][count - 1] = predictions[:, :points]
            averaged = memory["total"] / count
        memory["mean"], memory["averaged"] = mean, averaged
        run.log(
            step,
            seconds=step * memory["per_step"],
            train_log_likelihood=-mean_squared_errors(fitted, train.targets).mean(),
            test_log_likelihood=-mean_squared_errors(predictions, test.targets).mean(),
            test_rmse=rmse(mean, test.targets),
            test_rmse_averaged=rmse(averaged, test.targets),
            calibration_error=calibration_error(mean, test.targets),
            calibration_error_averaged=_calibration(averaged, test.targets),
            coverage=coverage(predictions, test.targets),
        )
    run.note(seconds_per_step=memory["per_step"])
    run.save("last", x=memory["state"].x)
    run.save("predictions", last=memory["mean"], averaged=memory["averaged"], targets=test.targets)
    trace = memory["trace"].cpu().numpy()
    if len(trace) >= FEWEST:
        shape = {"draws": np.asarray(len(trace)), "chains": np.asarray(budget.chains)}
        run.save("convergence", **convergence(trace), **shape)


def on(rows: Rows, run: Run) -> Rows:
    """The rows on the run's device."""
    return Rows(rows.features.to(run.device), rows.targets.to(run.device))


def _calibration(averaged: Tensor, targets: Tensor) -> Tensor:
    if averaged.isnan().any():
        return averaged.new_tensor(torch.nan)
    return calibration_error(averaged, targets)
