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
from experiments.chain import run_chain, seconds_per_step
from experiments.context import ROOT, Run
from experiments.diagnostics import convergence
from experiments.metrics import Metric, Trace
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
    "log_mmd": "minimize",
    "mmd_u": "minimize",
}
# Overrides that belong to one machine, not to the result.
ELSEWHERE = ("outputs=", "device=", "threads=", "force=", "logger=", "data.root=", "task.storage=")


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
    chains: int,
    steps: int,
    every: int,
    seconds: float | None,
    start: Callable[..., Tensor],
    metrics: Sequence[Metric],
    pretrain: Callable[..., EnergyModel] | None = None,
    truth: Callable[..., Reference] | None = None,
    storage: str | None = None,
    apply: bool = False,
) -> None:
    """Search the fields `search[names["sampler"]]` of `sampler` for the best `objective`.

    `objective` is the last reading of one of `metrics`, or an ESS of DIRECTIONS. With a `goal` the
    distance to it is minimised instead. A trial costs `steps` steps of `chains` chains, or as many
    steps as fit into `seconds`; it is the worst if its objective is undefined (NaN, or the ESS when
    a coordinate is constant). The best fields go to `tuned.yaml` in the record, and, with `apply`,
    to conf/tuned/<model>/<sampler>.yaml.

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
        x = start(model, chains, run.rng(f"{purpose}/start"), data)
        length, per_step = steps, math.nan
        if seconds is not None or "per_second" in objective:
            rng, block = run.rng(f"{purpose}/timing"), max(1, steps // 50)
            per_step = seconds_per_step(candidate, model, x, rng, steps=block)
        if seconds is not None:
            length = every * max(1, int(seconds / per_step / every))
        traced = [Trace(draws=length - length // 5, chains=chains)]
        metrics_used = [*metrics, *(traced if objective.startswith("ess") else [])]
        for reading in run_chain(  # noqa: B007 - only the last one counts
            candidate, model, x, run.rng(f"{purpose}/chain"),
            steps=length, every=every, metrics=metrics_used, reference=reference,
        ):  # fmt: skip
            pass
        values = {name: float(value) for name, value in reading.values.items()}
        arrays = stored(metrics_used, reading.carries)
        if "trace" in arrays:
            values |= effective_sizes(arrays["trace"], per_step)
        if objective not in values:
            raise ValueError(
                f"no metric gives the objective {objective}; there are {', '.join(values)}"
            )
        return values[objective]

    budget = f"{chains} chains x " + (f"{steps} steps" if seconds is None else f"{seconds:g} s")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        study_name=" / ".join([*names.values(), objective, budget, f"seed {run.seed}"]),
        storage=storage,
        sampler=optuna.samplers.TPESampler(seed=run.seed),
        direction=direction,
        load_if_exists=True,
    )
    worst = math.inf if direction == "minimize" else -math.inf
    earlier = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
    for row, old in enumerate(earlier):
        run.log(row, value=old.user_attrs["value"], **numbers(rounded(old.params), space))
    for row in run.progress(range(len(earlier), trials), "tuning"):
        trial = study.ask()
        fields = suggest(trial, sampler, space)
        value = measured(replaced(sampler, fields), "search")
        score = value if goal is None else abs(value - goal)
        trial.set_user_attr("value", value)
        study.tell(trial, worst if math.isnan(score) else score)
        run.log(row, value=value, **numbers(fields, space))

    if not math.isfinite(study.best_value):
        raise ValueError(
            f"{objective} was undefined in every trial (a coordinate never changed, or NaN); "
            "give more steps, or another range"
        )
    fields = rounded(study.best_params)
    facts = {
        "model": names["model"],
        "objective": objective if goal is None else f"{objective} (goal {goal:g})",
        "search_value": study.best_trial.user_attrs["value"],
        "held_out": measured(replaced(sampler, fields), "held-out"),
        "budget": f"{trials} trials of {budget}",
        "method": f"Optuna {optuna.__version__}, TPE, seed {run.seed}",
        "command": command(),
    }
    text = as_yaml(fields, facts)
    (run.path / "tuned.yaml").write_text(text)
    run.note(tuned=fields, tuning=facts)
    if apply:
        home.parent.mkdir(parents=True, exist_ok=True)
        home.write_text(text)


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
