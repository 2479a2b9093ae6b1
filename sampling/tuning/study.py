"""An Optuna study, run by one process or shared by several.

A process that asks for a trial takes the lowest free slot of the study. The slot seeds the
suggestion, so no two processes ask for the same point, and an interrupted study continues as if it
had not been. Each process holds a lock of the operating system while it searches; if it dies, its
slot becomes free. All wait until the study is complete, and see the same trials.
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

PAUSE = 0.5  # seconds between two checks on the other processes


def new_local_study(
    name: str, trials: int, *, seed: int, **settings: Any
) -> tuple[Study, Iterator[Trial]]:
    """A study in memory, and an iterator over its `trials` trials."""
    sampler = TPESampler(seed=seed, n_startup_trials=startup(trials))
    study = optuna.create_study(study_name=name, sampler=sampler, **settings)

    def ask_trials() -> Iterator[Trial]:
        for slot in range(trials):
            trial = study.ask()
            trial.set_user_attr("slot", slot)
            yield trial

    return study, ask_trials()


def join_shared_study(
    name: str,
    trials: int,
    *,
    storage: str,
    record: Path,
    outputs: Path,
    seed: Callable[[int], int],
    direction: Literal["minimize", "maximize"],
) -> tuple[Study, Iterator[Trial]]:
    """The study `name` in `storage`, and the trials that this process has to run.

    The iterator ends when the study has `trials` finished trials. `storage` is a URL such as
    `sqlite:///study.db`, or a journal file. `record` identifies this process among those that share
    the study. Their locks are in `outputs`, which they must share. `seed(slot)` is a slot's seed.
    """
    locks = outputs / ".studies" / hashlib.sha256(f"{storage} {name}".encode()).hexdigest()[:12]
    locks.mkdir(parents=True, exist_ok=True)
    me = hashlib.sha256(str(record.resolve()).encode()).hexdigest()[:12]
    (locks / me).touch()
    turn = FileLock(locks / "turn.lock")
    with turn:  # two processes must not create the tables of one database
        study = optuna.create_study(
            study_name=name,
            storage=_open_storage(storage),
            direction=direction,
            load_if_exists=True,
        )

    def ask_trials() -> Iterator[Trial]:
        with FileLock(locks / f"{me}.lock"):
            while len(complete(study, trials)) < trials:
                with turn:
                    free = sorted(set(range(trials)) - _occupied_slots(study, locks, me))
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

    return study, ask_trials()


def startup(trials: int) -> int:
    """Number of random trials before TPE begins: a third of `trials`, at most Optuna's 10."""
    return min(10, math.ceil(trials / 3))


def complete(study: Study, trials: int) -> dict[int, FrozenTrial]:
    """The finished trials of the first `trials` slots, by slot."""
    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    slots = {trial.user_attrs["slot"]: trial for trial in finished}
    return {slot: slots[slot] for slot in sorted(slots) if slot < trials}


def best(study: Study, trials: int) -> FrozenTrial:
    """The best trial of the first `trials` slots; on ties the one with the lowest slot."""
    choose = min if study.direction == optuna.study.StudyDirection.MINIMIZE else max
    return choose(complete(study, trials).values(), key=lambda trial: trial.values[0])


def _open_storage(storage: str) -> BaseStorage:
    if "://" in storage:
        return RDBStorage(storage)
    return JournalStorage(JournalFileBackend(storage))


def _occupied_slots(study: Study, locks: Path, me: str) -> set[int]:
    """Slots that are finished or running. Trials of dead processes are marked as failed."""
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
    if searcher is None:  # it died before it could record its name
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
