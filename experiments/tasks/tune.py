"""Task: choose a sampler's fields by Optuna's tree-structured Parzen estimator, then freeze them.

T. Akiba et al., "Optuna: A Next-generation Hyperparameter Optimization Framework", KDD 2019. Every
trial gets the same budget, the same start and the same random numbers. What was chosen is measured
once more with fresh ones: that held-out value is the one to quote. docs/tuning.md tells the rest.
"""

import math
import shlex
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import optuna
from hydra.core.hydra_config import HydraConfig
from torch import Tensor

from data.base import Dataset
from experiments import writing
from experiments.budget import Budget
from experiments.chain import Chain, seconds_per_step
from experiments.context import Run
from experiments.diagnostics import convergence
from experiments.machine import ROOT
from experiments.metrics import Metric, Trace
from experiments.study import alone, best, complete, shared
from experiments.tasks.sampling import stored, target
from experiments.truth import Reference
from experiments.tuning import (
    Space,
    as_yaml,
    check_replaceable,
    check_space,
    numbers,
    replaced,
    rounded,
    suggest,
)
from models.base import EnergyModel
from samplers.base import Sampler

Direction = Literal["minimize", "maximize"]
DIRECTIONS: dict[str, Direction] = {
    "ess_min": "maximize",  # of all chains, the worst coordinate
    "ess_median": "maximize",
    "ess_per_second_min": "maximize",
    "ess_per_second_median": "maximize",
    "changed": "maximize",
    "log_rmse": "minimize",
    "log_rmse_ensemble": "minimize",
    "log_mmd": "minimize",
    "mmd_u": "minimize",
}
# Overrides that belong to one machine, not to the result.
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
    distance to it is minimised instead. A trial costs `budget`, or as many
    steps as fit into `seconds`; it is the worst if its objective is undefined (NaN, or the ESS when
    a coordinate is constant). The best fields go to `tuned.yaml` in the record, and, with `apply`,
    to conf/tuned/<model>/<sampler>.yaml.

    Runs with the same `storage` (an Optuna URL, or a journal file) share one study of `trials`
    trials in all; `worker` is what tells them apart, so that each has a record of its own. All end
    with the same choice.

    Raises ValueError for fields that the sampler has not, an objective without a metric or a
    direction, a search in which no trial had a value, and where `apply` would overwrite a file
    that this task did not write.
    """
    space = search.get(names["sampler"]) or {}
    check_space(sampler, space, names["sampler"])
    direction = "minimize" if goal is not None else direction or DIRECTIONS.get(objective)
    if direction is None:
        raise ValueError(
            f"whether {objective} should be large or small is not known; give "
            "task.direction=maximize or minimize, or a value to come near to by task.goal"
        )
    home = ROOT / "conf" / "tuned" / names["model"] / f"{names['sampler']}.yaml"
    if apply:
        check_replaceable(home)
    model, reference = target(model, data, run, pretrain, truth)

    def measured(candidate: Sampler, purpose: str) -> float:
        """The objective of `candidate`, NaN where undefined."""
        x = start(model, budget.chains, run.rng(f"{purpose}/start"), data)
        length, per_step = budget.steps, math.nan
        if seconds is not None or "per_second" in objective:
            rng, block = run.rng(f"{purpose}/timing"), max(1, budget.steps // 50)
            per_step = seconds_per_step(candidate, model, x, rng, steps=block)
        if seconds is not None:
            length = budget.every * max(1, int(seconds / per_step / budget.every))
        traced = [Trace(draws=length - length // 5, chains=budget.chains)]
        metrics_used = [*metrics, *(traced if objective.startswith("ess") else [])]
        chain = Chain(
            candidate, model, x, run.rng(f"{purpose}/chain"),
            every=budget.every, metrics=metrics_used, reference=reference,
        )  # fmt: skip
        for _ in range(length // budget.every):
            chain.advance()
        values = {name: float(value) for name, value in chain.values().items()}
        arrays = stored(metrics_used, chain.memory["carries"])
        if "trace" in arrays:
            values |= effective_sizes(arrays["trace"], per_step)
        if objective not in values:
            raise ValueError(
                f"no metric gives the objective {objective}; there are {', '.join(values)}"
            )
        return values[objective]

    cost = f"{budget.chains} chains x " + (
        f"{budget.steps} steps" if seconds is None else f"{seconds:g} s"
    )
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    name = " / ".join([*names.values(), objective, cost, f"seed {run.seed}"])

    def seed(slot: int) -> int:
        """Of Optuna's sampler: searches of other models or samplers start at other points."""
        return run.rng(f"{name}/trial {slot}", "cpu").initial_seed() % 2**32

    if not storage:
        study, asked = alone(name, trials, seed=seed(0), direction=direction)
    else:
        study, asked = shared(
            name, trials, storage=storage, record=run.path, outputs=run.outputs,
            seed=seed, direction=direction,
        )  # fmt: skip
    worst = math.inf if direction == "minimize" else -math.inf
    logged = 0

    def log() -> None:
        """Rows of the trials that are finished, in the order of their slots."""
        nonlocal logged
        done = complete(study, trials)
        while logged in done:
            trial = done[logged]
            fields = numbers(rounded(trial.params), space)
            run.log(logged, value=trial.user_attrs["value"], **fields)
            logged += 1

    log()
    for trial in run.progress(asked, "tuning", trials, logged):
        value = measured(replaced(sampler, suggest(trial, sampler, space)), "search")
        score = value if goal is None else abs(value - goal)
        trial.set_user_attr("value", value)
        study.tell(trial, worst if math.isnan(score) else score)
        log()
    log()

    chosen = best(study, trials)
    if not math.isfinite(chosen.values[0]):
        raise ValueError(
            f"{objective} was undefined in every trial (a coordinate never changed, or NaN); "
            "give more steps, or another range"
        )
    fields = rounded(chosen.params)
    facts = {
        "model": names["model"],
        "objective": objective if goal is None else f"{objective} (goal {goal:g})",
        "search_value": chosen.user_attrs["value"],
        "held_out": measured(replaced(sampler, fields), "held-out"),
        "budget": f"{trials} trials of {cost}",
        "method": f"Optuna {optuna.__version__}, TPE, seed {run.seed}"
        + (", a shared study" if storage else ""),
        "command": command(),
    }
    text = as_yaml(fields, facts)
    writing.write(run.path / "tuned.yaml", text)
    run.note(tuned=fields, tuning=facts)
    if apply:
        home.parent.mkdir(parents=True, exist_ok=True)
        writing.write(home, text)


def effective_sizes(trace: Tensor, per_step: float) -> dict[str, float]:
    """ESS of the worst and the median coordinate of `trace` `[draws, chains, *shape]`.

    That of all chains together, in all and a second. NaN as soon as one coordinate is constant.
    """
    ess = convergence(trace.cpu().numpy())["ess"]
    seconds = len(trace) * per_step
    worst, middle = float(np.min(ess)), float(np.median(ess))
    return {
        "ess_min": worst,
        "ess_median": middle,
        "ess_per_second_min": worst / seconds,
        "ess_per_second_median": middle / seconds,
    }


def command() -> str:
    """How to make this record again, without what belongs to one machine."""
    if not HydraConfig.initialized():
        return "python run.py"
    words = [word for word in HydraConfig.get().overrides.task if not word.startswith(ELSEWHERE)]
    return shlex.join(["python", "run.py", *words])
