"""The results of chains in a record: arrays of metrics, diagnostics, ladders."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from latticework.experiments.records.estimates import finite_or_none
from latticework.experiments.runs.run import Run
from latticework.samplers.tempered import LadderState
from latticework.sampling.diagnostics import MIN_DRAWS, convergence
from latticework.sampling.ladder_estimates import Ladders, Levels
from latticework.sampling.metrics import Metric, Trace


def note_ladders(state: LadderState, levels: list[Levels], steps: int, run: Run) -> None:
    """Note log Z and the barrier, and save the ladders."""
    ladders = ladders_of(state, levels, steps)
    if (log_z := ladders.log_z) is not None:
        numbers = log_z._asdict()
        doubt = numbers.pop("doubt")
        noted = {name: finite_or_none(value) for name, value in numbers.items()}
        run.note(log_z={**noted, "doubt": doubt})
    run.note(barrier=ladders.barrier, round_trips=int(ladders.trips.sum()))
    run.save("ladders", **{name: np.asarray(value) for name, value in vars(ladders).items()})


def ladders_of(state: LadderState, levels: list[Levels], steps: int) -> Ladders:
    """From the readings so far."""
    return Ladders.from_draws(state, levels, state.trips, steps)


def store_arrays(metrics: Sequence[Metric], carries: Sequence[Any], run: Run) -> bool:
    """Save the metrics' arrays, and the diagnostics of a trace if it is long enough for them.

    Returns whether diagnostics were saved.
    """
    arrays = metric_arrays(metrics, carries)
    diagnosed = len(arrays.get("trace", ())) >= MIN_DRAWS
    if diagnosed:
        trace = arrays["trace"].cpu().numpy()
        thin = next(metric.thin for metric in metrics if isinstance(metric, Trace))
        draws, chains = trace.shape[:2]
        shape = {"draws": draws, "chains": chains, "steps": draws * thin}
        named = {name: np.asarray(count) for name, count in shape.items()}
        run.save("convergence", **convergence(trace), **named)
    for name, value in arrays.items():
        run.save(name, **{name: value})
    return diagnosed


def last_errors(metrics: Sequence[Metric], carries: Sequence[Any]) -> dict[str, float]:
    """The standard errors over chains of the last readings, by name, where they are known."""
    parts = [metric.errors(carry) for metric, carry in zip(metrics, carries, strict=True)]
    error_by_name = {name: float(value) for part in parts for name, value in part.items()}
    return {name: value for name, value in error_by_name.items() if math.isfinite(value)}


def metric_arrays(metrics: Sequence[Metric], carries: Sequence[Any]) -> dict[str, Tensor]:
    """The arrays that the metrics keep at the end, by name."""
    arrays = [metric.arrays(carry) for metric, carry in zip(metrics, carries, strict=True)]
    return {name: value for array in arrays for name, value in array.items()}
