"""Task: choose a sampler's fields by Optuna's tree-structured Parzen estimator, then freeze them.

T. Akiba et al., "Optuna: A Next-generation Hyperparameter Optimization Framework", KDD 2019. Every
trial has the same budget, start and random numbers. The chosen fields are measured once more with
fresh random numbers; that held-out value is the one to quote. See docs/tuning.md.
"""

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import optuna
from hydra.core.hydra_config import HydraConfig
from torch import Tensor

from latticework.data.base import Dataset
from latticework.experiments.records.estimates import Better, KeyNumber
from latticework.experiments.records.identity import digest
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.configuration import command_words
from latticework.experiments.runs.environment import ROOT
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.storage import write_atomically
from latticework.experiments.tasks.sampling import metric_arrays, target
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.chain import Chain, seconds_per_step
from latticework.sampling.diagnostics import convergence
from latticework.sampling.metrics import Metric, Reference, Trace
from latticework.sampling.tuning.space import (
    Space,
    as_yaml,
    check_replaceable,
    check_space,
    numbers,
    rounded,
    suggest,
    with_fields,
)
from latticework.sampling.tuning.study import (
    Direction,
    best_trial,
    completed_trials,
    join_study,
    new_study,
    run_trials,
)

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
SEARCH_ONLY_SETTINGS = ("storage", "worker", "apply", "trials")  # settings that no trial depends on
# Overrides that belong to a machine and not to the result.
ELSEWHERE = (
    "outputs=", "device=", "threads=", "force=", "logger=", "data.root=", "task.storage=",
    "task.worker=",
)  # fmt: skip


def tune(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    names: dict[str, str],
    search: dict[str, Space],
    objective: str,
    direction: Direction | None,
    goal: float | None,
    trials: int,
    budget: Budget,
    seconds: float | None,
    start: Callable[..., Tensor],
    metrics: Sequence[Metric],
    pretrain: Callable[..., EnergyModel] | None = None,
    truth: Callable[..., Reference] | None = None,
    storage: str | None = None,
    worker: int = 0,
    apply: bool = False,
) -> None:
    """Search the fields `search[names["sampler"]]` of `sampler` for the best `objective`.

    `objective` is the last reading of one of `metrics`, or an ESS of DIRECTIONS. With a `goal` the
    distance to it is minimised. A trial costs `budget`, or as many steps as fit into `seconds`. The
    best fields are written to `tuned.yaml` in the record and, with `apply`, to
    conf/tuned/<model>/<sampler>.yaml. Runs with the same `storage` (an Optuna URL, or a journal
    file) share one study of `trials` trials and end with the same choice; `worker` tells their
    records apart.

    Raises ValueError for unknown fields, an objective without metric or direction, a search in
    which no trial had a value, and if `apply` would overwrite a file that was not written here.
    """
    space = search.get(names["sampler"]) or {}
    check_space(sampler, space, names["sampler"])
    aim = Objective.of(objective, direction, goal)
    home = ROOT / "conf" / "tuned" / names["model"] / f"{names['sampler']}.yaml"
    if apply:
        check_replaceable(home)
    model, reference = target(model, data, run, pretrain, truth)
    measurement = Measurement(
        model, data, run, budget, seconds, start, metrics, reference, objective
    )
    parts = [*names.values(), objective, measurement.cost, f"seed {run.seed}", settings_of(run)]
    best = search_fields(" / ".join(parts), sampler, space, aim, measurement, trials, storage)
    fields, shared_by = rounded(best.params, space), ", a shared study" if storage else ""
    facts = {
        "model": names["model"],
        "objective": str(aim),
        "direction": aim.direction,
        "search_value": best.user_attrs["value"],
        "held_out": measurement.value(with_fields(sampler, fields), "held-out"),
        "budget": f"{trials} trials of {measurement.cost}",
        "method": f"Optuna {optuna.__version__}, TPE, seed {run.seed}{shared_by}",
        "command": command(),
    }
    run.note(tuned=fields, tuning=facts)
    for file in (run.path / "tuned.yaml", *([home] if apply else [])):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, as_yaml(fields, facts))


def settings_of(run: Run) -> str:
    """A digest of all settings that a trial depends on, so that a storage can hold many searches.

    The number of trials is left out, so that a search can be extended.
    """
    config = dict(run.config)
    task = config.get("task") or {}
    config["task"] = {key: value for key, value in task.items() if key not in SEARCH_ONLY_SETTINGS}
    return digest(config)[:12]


def headline(record: Record) -> list[KeyNumber]:
    """The chosen values, and the objective with them: with fresh chains, and in the search."""
    facts, task = record.document["tuning"], record.config["task"]
    aim = Objective.of(task["objective"], task["direction"], task["goal"])
    side: Better = "lower" if aim.direction == "minimize" else "higher"
    better = side if aim.goal is None else None
    chosen = {  # a bool or a list as text
        name: v if type(v) in (int, float) else str(v)
        for name, v in record.document["tuned"].items()
    }
    return [
        *(KeyNumber(f"chosen {name}", v) for name, v in chosen.items()),
        KeyNumber(f"{aim.name}_held_out", facts["held_out"], better=better),
        KeyNumber(f"{aim.name}_in_the_search", facts["search_value"], better=better),
    ]


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
            kernel = run.kernel(candidate, self.model, self.metrics)
            per_step = seconds_per_step(kernel, self.model, x, rng, steps=block)
        if self.seconds is not None:
            steps = every * max(1, int(self.seconds / per_step / every))
        traced = [Trace(draws=steps - steps // 5, chains=self.budget.chains)]
        metrics = [*self.metrics, *(traced if self.objective.startswith("ess") else [])]
        kernel = run.kernel(candidate, self.model, metrics)
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


def search_fields(
    name: str,
    sampler: Sampler,
    space: Space,
    aim: Objective,
    measurement: Measurement,
    trials: int,
    storage: str | None,
) -> optuna.trial.FrozenTrial:
    """Return the best of `trials` trials, and log them in the order of their completion.

    They are made by this process alone, or by all that share `storage`. Raises ValueError if the
    objective was undefined in all.
    """
    run = measurement.run

    def seed(number: int) -> int:
        """Searches of other models or samplers start at other points."""
        return run.rng(f"{name}/trial {number}", "cpu").initial_seed() % 2**32

    def objective(trial: optuna.Trial) -> float:
        fields = suggest(trial, sampler, space)
        value = measurement.value(with_fields(sampler, fields), "search")
        trial.set_user_attr("value", value)
        return aim.score(value)

    if storage is None:
        study = new_study(name, trials, seed=seed(0), direction=aim.direction)
        made = run_trials(study, objective, trials)
    else:
        locks = run.outputs / ".studies"
        study = join_study(name, storage=storage, locks=locks, direction=aim.direction)
        made = run_trials(study, objective, trials, seed)
    done = len(completed_trials(study, trials))
    for _ in run.progress(made, "tuning", trials, done):
        pass
    for place, trial in enumerate(completed_trials(study, trials)):
        values = numbers(rounded(trial.params, space), space)
        run.log(place, value=trial.user_attrs["value"], **values)
    best = best_trial(study, trials)
    if not math.isfinite(best.values[0]):
        raise ValueError(
            f"{aim.name} was undefined in every trial (a coordinate never changed, or "
            "NaN); give more steps, or another range"
        )
    return best


def command() -> str:
    """The command that reproduces this record, without overrides for a particular machine."""
    if not HydraConfig.initialized():
        return "python run.py"
    every = command_words(HydraConfig.get())
    words = [word for word in every if not word.startswith(ELSEWHERE)]
    return shlex.join(["python", "run.py", *words])
