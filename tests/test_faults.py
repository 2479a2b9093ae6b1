"""Faults at each moment of a command: the same command ends with the record of an undisturbed one.

Signals, kills, crashes and full disks; two processes at once.
"""

import ctypes
import errno
import os
import random
import signal
import sys
from importlib import import_module
from pathlib import Path

import pytest
from command import SMALL, command_line, only, results
from kills import accesses, alive, ended, killed, start, until

from latticework.experiments.records.record import load_all

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent

# Each fault at each moment.

# A sweep of one run, which trains its model and samples its truth.
WORDS = (
    "experiment=rbm_sampling", "sampler=gibbs", "seed=0", "scale=smoke", "data=digits",
    "engine=eager", "~figures.fig8", "hydra/job_logging=default",
)  # fmt: skip
# In the order of a command: a function that it calls, and what it says when a signal stops it.
MOMENTS = {
    "experiments.callback.check_command": "the same command continues",
    "models.rbm.RBM.__init__": "the same command continues",
    "sampling.learning.updates.Updates.step": "at training 1 of ",
    "models.domains.Binary.uniform": "the same command continues",
    "experiments.runs.run.Run.log": "at sampling 0 of ",
    "experiments.callback._draw": "the same command continues",
}


def fill(outputs):
    """No file below `outputs` can be opened for writing any more."""

    def refuse(event, args):
        writes = event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR)
        if writes and str(outputs) in str(args[0]):
            raise OSError(errno.ENOSPC, "No space left on device", str(args[0]))

    sys.addaudithook(refuse)


FAULTS = {
    "SIGTERM": lambda _: os.kill(os.getpid(), signal.SIGTERM),
    "SIGUSR1": lambda _: os.kill(os.getpid(), signal.SIGUSR1),
    "SIGINT": lambda _: os.kill(os.getpid(), signal.SIGINT),
    "SIGKILL": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSEGV": lambda _: ctypes.string_at(0),
    "full disk": fill,
}
DEATHS = ("SIGKILL", "SIGSEGV")


def struck(name, fault, outputs):
    """The exit status of the command that the fault strikes when it first calls a function."""
    if pid := os.fork():
        return ended(pid)
    status = 70
    try:
        strike_at(name, fault, outputs)
        status = command_line(*WORDS, outputs=outputs)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def strike_at(name, fault, outputs):
    """Let the fault strike when the function or method is first called."""
    place, _, attribute = f"latticework.{name}".rpartition(".")
    try:
        holder = import_module(place)
    except ModuleNotFoundError:
        module, _, of = place.rpartition(".")
        holder = getattr(import_module(module), of)
    whole = getattr(holder, attribute)

    def call(*args, **named):
        setattr(holder, attribute, whole)
        FAULTS[fault](outputs)
        return whole(*args, **named)

    setattr(holder, attribute, call)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    outputs = tmp_path_factory.mktemp("whole")
    assert command_line(*WORDS, outputs=outputs) == 0
    return results(only(outputs))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_command_that_is_struck_at_each_moment_ends_as_if_nothing_had_been(
    fault, undisturbed, tmp_path, capfd
):
    for name, where in MOMENTS.items():
        status = struck(name, fault, tmp_path)
        text = "".join(capfd.readouterr())
        assert "Traceback" not in text, name
        if fault in DEATHS:
            assert status == -getattr(signal, fault), name
        elif fault == "full disk":
            assert status == 1, name
            assert "No space left on device" in text, name
        else:
            assert status == 128 + getattr(signal, fault), name
            assert text.count(f"stopped by {fault}") == text.count(where) == 1, name
            assert not list(tmp_path.rglob("error.txt"))
            assert not list(tmp_path.rglob(".holder"))
    assert command_line(*WORDS, outputs=tmp_path) == 0
    record = only(tmp_path)
    assert results(record) == undisturbed
    assert list(tmp_path.rglob("fig4.png"))
    assert not {".holder", "checkpoints"} & {f.name for f in record.path.iterdir()}


# Kills in each task.

LOCAL = "data.download=false"  # where there are no files, bundled data step in
TASKS = {
    "sampling": ("experiment=rbm_sampling", "sampler=dmala", "seed=0", LOCAL),
    "train_rbm": ("experiment=rates_training", "negatives=fpcd", "task.learning_rate=0.5", LOCAL),
    "ebm_learning": (
        "experiment=ising_learning", "sampler=gibbs", "task.snapshots=100", "task.ema=0.9",
        "task.schedule={_target_: torch.optim.lr_scheduler.LinearLR, _partial_: true}",
    ),
    "isl": ("experiment=rates_fig2", "sampler=rates_fpcd", "seed=0", LOCAL),
    "improvement": ("experiment=rates_improvement", LOCAL),
    "ais": ("experiment=rates_ais", LOCAL),
    "regression": ("experiment=bnn", "data=compas", "sampler=dula", "seed=0", LOCAL),
    "text_infilling": ("experiment=text_infilling", "model=mini_bert", "sampler=gwg", "seed=0"),
    "bias": ("experiment=bias_step_size",),
    "preconditioning": ("experiment=preconditioning",),
    "law": ("experiment=categorical_toy", "sampler=dmala", "seed=0"),
    "stochastic_proposal": ("experiment=stochastic_proposal",),
    "tune": ("experiment=tune_ising", "sampler=rmala"),
    "unlearning": ("experiment=rates_sec3",),
    "sampling, compiled": ("model=ising", "sampler=gwg", "engine=compiled"),
    "sampling, fused": ("model=sine", "sampler=dmala", "engine=fused"),
    "log_z by tempering": ("experiment=log_z", "model.shape=[4,4]", "task.estimator=tempering"),
    "log_z by smc": ("experiment=log_z", "model.shape=[4,4]", "task.estimator=smc"),
}  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_a_killed_task_ends_as_if_nothing_had_been(task, tmp_path):
    # A checkpoint after every iteration.
    words = (*TASKS[task], "scale=smoke", "checkpoint=0", "~figures", "~tables")
    chance = random.Random(task)
    left = accesses(*words, outputs=tmp_path / "whole")  # imports what forks then have
    at = max(1, int(chance.uniform(0.1, 0.9) * left))
    killed(at, *words, outputs=tmp_path / "killed")  # test_checkpoint.py breaks off twice
    assert ended(start(*words, outputs=tmp_path / "killed")) == 0
    whole, resumed = load_all(tmp_path / "whole"), load_all(tmp_path / "killed")
    assert [record.path.name for record in resumed] == [record.path.name for record in whole]
    for one, other in zip(resumed, whole, strict=True):
        assert results(one) == results(other)
        assert not (one.path / "checkpoints").exists()


# Two at once.


def swept(runs, workers, outputs, kills, chance):
    """Run a sweep in two processes and kill them `kills` times; return how many kills hit."""
    words = ("model.shape=[2,2]", "scale=smoke", "hydra.mode=MULTIRUN", f"seed=range({runs})")
    hits, pids = 0, [start(*words, outputs=outputs) for _ in range(workers)]
    for kill in range(kills):
        victim = chance.randrange(workers)
        finished = (kill + 1) * runs // (kills + 2)
        until(
            lambda n=finished: (
                len(list(outputs.rglob("run.json"))) >= n or not any(map(alive, pids))
            )
        )
        os.kill(pids[victim], signal.SIGKILL)
        hits += ended(pids[victim]) == -signal.SIGKILL
        pids[victim] = start(*words, outputs=outputs)
    assert [ended(pid) for pid in pids] == [0] * workers
    assert ended(start(*words, outputs=outputs)) == 0  # what a killed one had left
    return hits


def test_a_sweep_of_two_workers_survives_kills(tmp_path):
    """LATTICEWORK_SWEEP says how many runs; docs/scaling.md quotes 200."""
    runs = int(os.environ.get("LATTICEWORK_SWEEP", "8"))
    assert swept(runs, 2, tmp_path / "killed", max(3, runs // 16), random.Random(0)) > 0
    assert swept(runs, 1, tmp_path / "whole", 0, random.Random(0)) == 0
    killed, whole = load_all(tmp_path / "killed"), load_all(tmp_path / "whole")
    assert len(killed) == len(whole) == runs
    for one, other in zip(killed, whole, strict=True):
        assert one.path.name == other.path.name
        assert results(one) == results(other)


def test_a_run_that_another_process_is_at_is_waited_for(tmp_path):
    long = (*SMALL, "budget.steps=100000000", "budget.every=20", "~figures")
    first = start(*long, outputs=tmp_path)
    until(lambda: list(tmp_path.rglob("metrics.csv")), first)
    second = start(*long, "hydra/job_logging=default", outputs=tmp_path)
    folder = next(tmp_path.rglob(".holder")).parent
    log = folder / "run.log"
    until(lambda: log.exists() and "waiting" in log.read_text(), first, second)
    assert f"waiting for process {first} on " in log.read_text()
    os.kill(first, signal.SIGKILL)  # who dies lets go of the lock
    assert ended(first) == -signal.SIGKILL
    until(lambda: f"process {second} " in (folder / ".holder").read_text(), second)
    os.kill(second, signal.SIGKILL)
    ended(second)
