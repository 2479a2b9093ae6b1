"""DMALA as a step method of PyMC, for the discrete variables of a model. Needs PyMC.

R. Zhang, X. Liu and Q. Liu, "A Langevin-like Sampler for Discrete Distributions", ICML 2022. The
step is that of `samplers.langevin.DMALA`, in NumPy and for one chain, on PyMC's compiled functions.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pymc as pm
from pymc.step_methods.compound import BlockedStep, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator, get_value_vars_from_user_vars

from latticework.samplers.base import require_positive
from latticework.samplers.scale import RANGE, change_of_log
from latticework.sampling.adaptation import OPTIMAL
from latticework.sampling.pymc_steps.gradient import compile_logp_and_gradient
from latticework.sampling.pymc_steps.sites import Array, Whole
from latticework.sampling.pymc_steps.variables import find_sites

Point = dict[str, np.ndarray]


class PointEvaluation(NamedTuple):
    """A state of the variables, and the log-probability and its gradient there."""

    x: list[Whole]  # `[sites]` for each variable
    log_prob: float
    gradients: list[Array]


@dataclass_state
class DMALAStepState(StepMethodState):
    tune: bool
    step_size: float
    logs: list[float]


class DMALAStep(BlockedStep):
    """Discrete Metropolis-adjusted Langevin steps for binary, categorical and bounded variables.

    `vars` are discrete variables of the model, all of them by default. One step proposes new values
    for all their sites and accepts or rejects them together. It evaluates the log-probability
    and its gradient once, and once more if another step has moved what they depend on.

    During PyMC's tuning, `step_size` is driven to the acceptance `target_accept`, from its own
    value, in each chain. Then it is frozen at its geometric mean over the last half of the
    tuning. With `tune=False` it stays.

    Raises ValueError for continuous variables, and for those without a largest value.
    """

    name = "dmala"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "tune": (bool, []),
        "accept": (np.float64, []),
        "accepted": (bool, []),
        "changed": (np.int64, []),
        "dmala_step_size": (np.float64, []),
    }
    _state_class = DMALAStepState

    def __init__(
        self,
        vars: Sequence[Any] | Any = None,
        *,
        step_size: float = 0.2,
        target_accept: float = OPTIMAL["locally_balanced"],
        tune: bool = True,
        model: Any = None,
        rng: Any = None,
        blocked: bool = True,
        compile_kwargs: dict[str, Any] | None = None,
    ) -> None:
        require_positive(step_size=step_size)
        if not 0 < target_accept < 1:
            raise ValueError(f"target_accept must be between 0 and 1, got {target_accept}")
        model = pm.modelcontext(model)
        self.vars = get_value_vars_from_user_vars(find_discrete(vars, model), model)
        self.rng = get_random_generator(rng)
        self.blocked, self.tune, self.tunes = blocked, tune, tune
        self.target_accept = target_accept
        self.first_step_size = self.step_size = float(step_size)
        self.logs: list[float] = []  # logarithms of the step sizes
        self.names = [variable.name for variable in self.vars]
        self.types = [variable.type.dtype for variable in self.vars]
        self.sites = [find_sites(variable, model) for variable in self.vars]
        self.function, self.other_names = compile_logp_and_gradient(
            model, self.vars, self.sites, compile_kwargs or {}
        )
        self.function.trust_input = True
        self.current: PointEvaluation | None = None
        self.other_values: list[np.ndarray] = []  # values of the other variables in `current`

    def set_rng(self, rng: Any) -> None:
        """Begin a chain with these random numbers; PyMC 5 calls it, in each process too."""
        self.rng = get_random_generator(rng, copy=False)
        self.reset_tuning()

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Begin a chain with these random numbers; PyMC 6 calls it."""
        self.set_rng(rng)

    def reset_tuning(self) -> None:
        """Begin a chain: forget the step size that another one learned, and its last state."""
        self.tune, self.step_size, self.logs = self.tunes, self.first_step_size, []
        self.current = None

    def stop_tuning(self) -> None:
        """Freeze the step size at its geometric mean over the last half of the tuning."""
        if self.tune and self.logs:
            late = self.logs[len(self.logs) // 2 :]
            self.step_size = math.exp(sum(late) / len(late))
        self.tune = False

    def step(self, point: Point) -> tuple[Point, list[dict[str, Any]]]:
        here = self.current = self.evaluate_if_changed(point)
        proposals = self.log_proposals(here)
        x, y = here.x, []
        for sites, log_proposals in zip(self.sites, proposals, strict=True):
            y.append(sites.draw(log_proposals, self.rng))
        changed = sum(int((a != b).sum()) for a, b in zip(x, y, strict=True))
        log_ratio = 0.0
        if changed:
            there = self.evaluate(y)
            forward = self.log_proposal(proposals, y)
            backward = self.log_proposal(self.log_proposals(there), x)
            log_ratio = there.log_prob - here.log_prob + backward - forward
        accept = math.exp(min(log_ratio, 0.0)) if math.isfinite(log_ratio) else 0.0
        accepted = bool(self.rng.random() < accept)
        if changed and accepted:
            self.current = there
            point = {**point, **self.values(y)}
        stats = {
            "tune": self.tune,
            "accept": accept,
            "accepted": accepted,
            "changed": changed if accepted else 0,
            "dmala_step_size": self.step_size,
        }
        if self.tune:
            self.adapt(accept)
        return point, [stats]

    def adapt(self, accept: float) -> None:
        """Move the logarithm of the step size as `AcceptanceControl` does, after each step."""
        first = math.log(self.first_step_size)
        log = self.logs[-1] if self.logs else first
        log += change_of_log(len(self.logs) + 1, accept, self.target_accept)
        reach = max(sites.reach for sites in self.sites)
        highest = first + math.log(RANGE * max(reach, 1.0) ** 2)
        self.logs.append(min(max(log, first - math.log(RANGE)), highest))
        self.step_size = math.exp(self.logs[-1])

    def evaluate_if_changed(self, point: Point) -> PointEvaluation:
        """Return the last evaluation, or a new one if `point` differs from its point."""
        x = [point[name].ravel().astype(np.int64) for name in self.names]
        other_values = [point[name] for name in self.other_names]
        if self.current is not None and all(
            np.array_equal(a, b)
            for a, b in zip([*x, *other_values], [*self.current.x, *self.other_values], strict=True)
        ):
            return self.current
        self.other_values = [np.array(value) for value in other_values]
        return self.evaluate(x)

    def evaluate(self, x: list[Whole]) -> PointEvaluation:
        """Return the evaluation at `x`, beside the present values of the other variables."""
        log_prob, *gradients = self.function(*self.values(x).values(), *self.other_values)
        flat = []
        for gradient in gradients:
            rows = gradient.reshape(len(gradient), -1)
            if not np.isfinite(rows).all():  # what is not finite steers nothing
                rows = np.where(np.isfinite(rows), rows, 0.0)
            flat.append(rows)
        return PointEvaluation(x, float(log_prob), flat)

    def log_proposals(self, state: PointEvaluation) -> list[Array]:
        """Return the logarithms of the probabilities of all moves of each variable."""
        proposals = []
        for sites, x, gradient in zip(self.sites, state.x, state.gradients, strict=True):
            proposals.append(sites.log_proposals(x, gradient, self.step_size))
        return proposals

    def log_proposal(self, proposals: list[Array], y: list[Whole]) -> float:
        """Return the logarithm of the probability that `y` is proposed."""
        total = 0.0
        for sites, log_proposals, values in zip(self.sites, proposals, y, strict=True):
            total += sites.log_proposal(log_proposals, values)
        return total

    def values(self, x: list[Whole]) -> Point:
        """Return the values of the variables by name, in their shapes and types."""
        values = {}
        for name, sites, kind, flat in zip(self.names, self.sites, self.types, x, strict=True):
            values[name] = flat.reshape(sites.shape).astype(kind)
        return values


def find_discrete(variables: Any, model: Any) -> Any:
    """Return `variables`, or all discrete ones of the model if it is None."""
    if variables is not None:
        return variables
    if not (discrete := list(model.discrete_value_vars)):
        raise ValueError("the model has no discrete variable that DMALA could move")
    return discrete
