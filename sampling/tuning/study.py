"""A search for settings: trials of an Optuna study, run by one process or by several.

Processes that share a study have its storage in common. Each runs trials until enough of them are
complete. The choice is made among the first that were completed, so it is the same in all
processes, however many trials are still running then or belong to a process that died.
"""

import hashlib
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import optuna
from filelock import FileLock
from optuna import Study, Trial
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import TPESampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

Direction = Literal["minimize", "maximize"]
HEARTBEAT_SECONDS = 60  # between two signs of life of a trial; after twice as many it has failed
MAX_RANDOM_TRIALS = 10  # before TPE begins


def new_study(name: str, trials: int, *, seed: int, direction: Direction) -> Study:
    """A study in memory. `seed` determines its suggestions."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = TPESampler(seed=seed, n_startup_trials=count_random_trials(trials))
    return optuna.create_study(study_name=name, sampler=sampler, direction=direction)


def join_study(name: str, *, storage: str, locks: Path, direction: Direction) -> Study:
    """The study `name` in `storage`: a URL such as `sqlite:///study.db`, or a journal file.

    `locks` is a folder for the lock under which the study is created.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    locks.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(f"{storage} {name}".encode()).hexdigest()[:12]
    with FileLock(locks / f"{digest}.lock"):  # two processes must not create the same tables
        return optuna.create_study(
            study_name=name, storage=open_storage(storage), direction=direction, load_if_exists=True
        )


def open_storage(storage: str) -> BaseStorage:
    """A database, in which running trials give signs of life, or a journal file."""
    if "://" not in storage:
        return JournalStorage(JournalFileBackend(storage))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return RDBStorage(storage, heartbeat_interval=HEARTBEAT_SECONDS)


def run_trials(
    study: Study,
    objective: Callable[[Trial], float],
    trials: int,
    seed: Callable[[int], int] | None = None,
) -> Iterator[None]:
    """Run trials until `trials` are complete; yield after each that this process has run.

    `seed(number)` seeds the suggestion of a trial, so that processes that share a study never try
    the same point. Without it, the study's own sampler makes all suggestions.
    """

    def seeded_objective(trial: Trial) -> float:
        if seed is not None:
            study.sampler = TPESampler(
                seed=seed(trial.number),
                n_startup_trials=count_random_trials(trials),
                constant_liar=True,
            )
        return objective(trial)

    while len(completed_trials(study, trials)) < trials:
        study.optimize(seeded_objective, n_trials=1)
        yield


def count_random_trials(trials: int) -> int:
    """A third of `trials`, at most as many as Optuna makes by default."""
    return min(MAX_RANDOM_TRIALS, math.ceil(trials / 3))


def completed_trials(study: Study, trials: int) -> list[FrozenTrial]:
    """The first `trials` trials that were completed, in that order."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return sorted(complete, key=lambda trial: (trial.datetime_complete, trial.number))[:trials]


def best_trial(study: Study, trials: int) -> FrozenTrial:
    """The best of `completed_trials`; on ties the one that was completed first."""
    choose = min if study.direction == optuna.study.StudyDirection.MINIMIZE else max
    return choose(completed_trials(study, trials), key=lambda trial: trial.values[0])
