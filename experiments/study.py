"""An Optuna study, searched by one process or shared by several.

A study of n trials has n slots. Who asks for a trial takes the lowest slot that is free, and the
slot seeds what is suggested there: no two processes ask for the same point, and a study that was
interrupted goes on as if it had not been. A process holds a lock of the operating system for as
long as it searches, so the slot of one that died is free again. None leaves before the study is
complete, and then all of them see the same trials.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import optuna
from filelock import FileLock, Timeout
from optuna import Study, Trial
from optuna.samplers import TPESampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

PAUSE = 0.5  # seconds between two looks at what the others do


def alone(name: str, trials: int, *, seed: int, **settings: Any) -> tuple[Study, Iterator[Trial]]:
    """A study in memory, and the `trials` trials to run in it."""
    sampler = TPESampler(seed=seed, n_startup_trials=startup(trials))
    study = optuna.create_study(study_name=name, sampler=sampler, **settings)

    def asked() -> Iterator[Trial]:
        for slot in range(trials):
            trial = study.ask()
            trial.set_user_attr("slot", slot)
            yield trial

    return study, asked()


def shared(
    name: str,
    trials: int,
    *,
    storage: str,
    record: Path,
    outputs: Path,
    seed: Callable[[int], int],
    direction: Literal["minimize", "maximize"],
) -> tuple[Study, Iterator[Trial]]:
    """The study `name` in `storage`, and the trials to run here until it has `trials` of them.

    `storage` is a URL such as `sqlite:///study.db`, or a journal file. `record` names this process
    among those that share the study; their locks are in `outputs`, which they share too. `seed`
    gives that of a slot.
    """
    locks = outputs / ".studies" / hashlib.sha256(f"{storage} {name}".encode()).hexdigest()[:12]
    locks.mkdir(parents=True, exist_ok=True)
    me = hashlib.sha256(str(record.resolve()).encode()).hexdigest()[:12]
    (locks / me).touch()
    turn = FileLock(locks / "turn.lock")
    with turn:  # two must not make the tables of one database
        study = optuna.create_study(
            study_name=name, storage=_opened(storage), direction=direction, load_if_exists=True
        )

    def asked() -> Iterator[Trial]:
        with FileLock(locks / f"{me}.lock"):
            while len(complete(study, trials)) < trials:
                with turn:
                    free = sorted(set(range(trials)) - _taken(study, locks, me))
                    trial = None
                    if free:
                        study.sampler = TPESampler(
                            seed=seed(free[0]), n_startup_trials=startup(trials), constant_liar=True
                        )
                        trial = study.ask()
                        trial.set_user_attr("searcher", me)
                        trial.set_user_attr("slot", free[0])
                if trial:
                    yield trial
                else:
                    time.sleep(PAUSE)  # the others finish theirs, or die

    return study, asked()


def startup(trials: int) -> int:
    """How many of `trials` are drawn at random before TPE begins: a third, at most Optuna's 10."""
    return min(10, math.ceil(trials / 3))


def complete(study: Study, trials: int) -> dict[int, FrozenTrial]:
    """The finished trials of the first `trials` slots, by slot."""
    found = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    slots = {trial.user_attrs["slot"]: trial for trial in found}
    return {slot: slots[slot] for slot in sorted(slots) if slot < trials}


def best(study: Study, trials: int) -> FrozenTrial:
    """The first of the best among the first `trials` slots."""
    choose = min if study.direction == optuna.study.StudyDirection.MINIMIZE else max
    return choose(complete(study, trials).values(), key=lambda trial: trial.values[0])


def _opened(storage: str) -> BaseStorage:
    if "://" in storage:
        return RDBStorage(storage)
    return JournalStorage(JournalFileBackend(storage))


def _taken(study: Study, locks: Path, me: str) -> set[int]:
    """The slots that are finished or in hand; trials of processes that died are closed."""
    taken = set()
    for trial in study.get_trials(deepcopy=False):
        if trial.state == TrialState.RUNNING:
            searcher = trial.user_attrs.get("searcher")
            if searcher == me or not _alive(locks, searcher, trial.number):
                study.tell(trial.number, state=TrialState.FAIL)
                continue
        if trial.state in (TrialState.RUNNING, TrialState.COMPLETE):
            taken.add(trial.user_attrs["slot"])
    return taken


def _alive(locks: Path, searcher: str | None, number: int) -> bool:
    if searcher is None:  # it died before it could say who it was
        return False
    if not (locks / searcher).exists():
        raise ValueError(
            f"trial {number} of the study belongs to a process that does not use {locks.parent}; "
            "processes that share a study need the same outputs folder"
        )
    try:
        with FileLock(locks / f"{searcher}.lock", blocking=False):
            return False
    except Timeout:
        return True
