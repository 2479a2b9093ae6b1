"""Task: choose a sampler's fields by Optuna's tree-structured Parzen estimator, then freeze them.

T. Akiba et al., "Optuna: A Next-generation Hyperparameter Optimization Framework", KDD 2019. Every
trial has the same budget, start and random numbers. The chosen fields are measured once more with
fresh random numbers; that held-out value is the one to quote. See docs/tuning.md.
"""

import math
import shlex
from collections.abc import Callable, Sequence

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
from latticework.experiments.tasks.measures.objective import Measurement, Objective
from latticework.experiments.tasks.sampling import target
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.metrics import Metric, Reference
from latticework.sampling.tuning import space as search_space
from latticework.sampling.tuning import study as studies

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
    search: dict[str, search_space.Space],
    objective: str,
    direction: studies.Direction | None,
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
    search_space.check_space(sampler, space, names["sampler"])
    aim = Objective.of(objective, direction, goal)
    home = ROOT / "conf" / "tuned" / names["model"] / f"{names['sampler']}.yaml"
    if apply:
        search_space.check_replaceable(home)
    model, reference = target(model, data, run, pretrain, truth)
    measurement = Measurement(
        model, data, run, budget, seconds, start, metrics, reference, objective
    )
    parts = [
        *names.values(),
        objective,
        measurement.cost,
        f"seed {run.seed}",
        digest_of_settings(run),
    ]
    best = search_fields(" / ".join(parts), sampler, space, aim, measurement, trials, storage)
    fields, shared_by = (
        search_space.round_fields(best.params, space),
        ", a shared study" if storage else "",
    )
    facts = {
        "model": names["model"],
        "objective": str(aim),
        "direction": aim.direction,
        "search_value": best.user_attrs["value"],
        "held_out": measurement.value(search_space.with_fields(sampler, fields), "held-out"),
        "budget": f"{trials} trials of {measurement.cost}",
        "method": f"Optuna {optuna.__version__}, TPE, seed {run.seed}{shared_by}",
        "command": tuning_command(),
    }
    run.note(tuned=fields, tuning=facts)
    for file in (run.path / "tuned.yaml", *([home] if apply else [])):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, search_space.as_yaml(fields, facts))


def digest_of_settings(run: Run) -> str:
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


def search_fields(
    name: str,
    sampler: Sampler,
    space: search_space.Space,
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
        fields = search_space.suggest(trial, sampler, space)
        value = measurement.value(search_space.with_fields(sampler, fields), "search")
        trial.set_user_attr("value", value)
        return aim.score(value)

    if storage is None:
        study = studies.new_study(name, trials, seed=seed(0), direction=aim.direction)
        made = studies.run_trials(study, objective, trials)
    else:
        locks = run.outputs / ".studies"
        study = studies.join_study(name, storage=storage, locks=locks, direction=aim.direction)
        made = studies.run_trials(study, objective, trials, seed)
    done = len(studies.completed_trials(study, trials))
    for _ in run.progress(made, "tuning", trials, done):
        pass
    for place, trial in enumerate(studies.completed_trials(study, trials)):
        values = search_space.fields_as_numbers(
            search_space.round_fields(trial.params, space), space
        )
        run.log(place, value=trial.user_attrs["value"], **values)
    best = studies.best_trial(study, trials)
    if not math.isfinite(best.values[0]):
        raise ValueError(
            f"{aim.name} was undefined in every trial (a coordinate never changed, or "
            "NaN); give more steps, or another range"
        )
    return best


def tuning_command() -> str:
    """The command that reproduces this record, without overrides for a particular machine."""
    if not HydraConfig.initialized():
        return "python run.py"
    every = command_words(HydraConfig.get())
    words = [word for word in every if not word.startswith(ELSEWHERE)]
    return shlex.join(["python", "run.py", *words])
