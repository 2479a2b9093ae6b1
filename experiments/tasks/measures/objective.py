"""The objective of a search of settings, and how a candidate is measured."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from latticework.data.base import Dataset
from latticework.experiments.records.record import Budget
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures.chain_results import metric_arrays
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.chain import Chain, seconds_per_step
from latticework.sampling.diagnostics import convergence
from latticework.sampling.metrics import Metric, Reference, Trace
from latticework.sampling.tuning.study import Direction

DIRECTIONS: dict[str, Direction] = {
    "ess_min": "maximize",  # the worst coordinate, all chains together
    "ess_median": "maximize",
    "ess_per_second_min": "maximize",
    "ess_per_second_median": "maximize",
    "changed": "maximize",
    "log_rmse": "minimize",
    "log_rmse_ensemble": "minimize",
    "log_mmd": "minimize",
    "mmd_u": "minimize",
}


@dataclass(frozen=True)
class Objective:
    """The objective: a reading to maximise or minimise, or to bring near to `goal`."""

    name: str
    direction: Direction
    goal: float | None = None

    @classmethod
    def of(cls, name: str, direction: Direction | None, goal: float | None) -> "Objective":
        """The direction defaults to that in DIRECTIONS. Raises ValueError if there is none."""
        direction = "minimize" if goal is not None else direction or DIRECTIONS.get(name)
        if direction is None:
            raise ValueError(
                f"the direction of {name} is not known; set "
                "task.direction=maximize or minimize, or set task.goal to a target value"
            )
        return cls(name, direction, goal)

    def score(self, value: float) -> float:
        """The value for Optuna: an undefined value (NaN) counts as the worst."""
        score = value if self.goal is None else abs(value - self.goal)
        worst = math.inf if self.direction == "minimize" else -math.inf
        return worst if math.isnan(score) else score

    def __str__(self) -> str:
        return self.name if self.goal is None else f"{self.name} (goal {self.goal:g})"


@dataclass(frozen=True)
class Measurement:
    """Measures candidates, all with the same start, random numbers and budget."""

    model: EnergyModel
    data: Dataset | None
    run: Run
    budget: Budget
    seconds: float | None  # instead of the budget's steps
    start: Callable[..., Tensor]
    metrics: Sequence[Metric]
    reference: Reference
    objective: str

    @property
    def cost(self) -> str:
        steps = f"{self.budget.steps} steps" if self.seconds is None else f"{self.seconds:g} s"
        return f"{self.budget.chains} chains x {steps}"

    def value(self, candidate: Sampler, purpose: str) -> float:
        """The objective of `candidate`, NaN where undefined; `purpose` names the random numbers.

        Raises ValueError for an objective that no metric gives.
        """
        run, every, steps, per_step = self.run, self.budget.every, self.budget.steps, math.nan
        x = self.start(self.model, self.budget.chains, run.rng(f"{purpose}/start"), self.data)
        if self.seconds is not None or "per_second" in self.objective:
            rng, block = run.rng(f"{purpose}/timing"), max(1, steps // 50)
            kernel = run.select_kernel(candidate, self.model, self.metrics)
            per_step = seconds_per_step(kernel, self.model, x, rng, steps=block)
        if self.seconds is not None:
            steps = every * max(1, int(self.seconds / per_step / every))
        traced = [Trace(draws=steps - steps // 5, chains=self.budget.chains)]
        metrics = [*self.metrics, *(traced if self.objective.startswith("ess") else [])]
        kernel = run.select_kernel(candidate, self.model, metrics)
        chain = Chain(
            kernel, self.model, x, run.rng(f"{purpose}/chain"),
            every=every, metrics=metrics, reference=self.reference,
        )  # fmt: skip
        for _ in range(steps // every):
            chain.advance()
        values = {name: float(value) for name, value in chain.values().items()}
        trace = metric_arrays(metrics, chain.carries).get("trace")  # [draws, chains, *shape]
        if trace is not None:  # all chains together; NaN if a coordinate is constant
            ess = convergence(trace.cpu().numpy())["ess"]
            for name, size in (("min", float(np.min(ess))), ("median", float(np.median(ess)))):
                values[f"ess_{name}"] = size
                values[f"ess_per_second_{name}"] = size / (len(trace) * per_step)
        if self.objective not in values:
            raise ValueError(
                f"no metric gives the objective {self.objective}; there are {', '.join(values)}"
            )
        return values[self.objective]
