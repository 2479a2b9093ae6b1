"""Kills, full disks, damaged records, two at once: the command ends with the same record."""

import ast
import os
import random
import resource
import shutil
import signal
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pytest
from command import command_line
from kills import accesses, alive, ended, killed, start, until

from latticework.experiments.records.archive import DamagedError
from latticework.experiments.records.record import damage, load, load_all

ROOT = Path(__file__).resolve().parent.parent
SMALL = ("model.shape=[3,3]", "scale=smoke", "sampler=gwg")
CLOCKS = ("seconds", "seconds_per_step", "cpu_share", "seconds_per_update", "peak_memory_bytes")

LOCAL = "data.download=false"  # where there are no files, bundled data step in

# One command a task.
COMMANDS = {
    "sampling": ("experiment=rbm_sampling", "sampler=dmala", "seed=0", LOCAL),
    "train_rbm": ("experiment=rates_training", "negatives=fpcd", "task.learning_rate=0.5", LOCAL),
    "isl": ("experiment=rates_fig2", "sampler=rates_fpcd", "seed=0", LOCAL),
    "ais": ("experiment=rates_ais", LOCAL),
    "regression": ("experiment=bnn", "data=compas", "sampler=dula", "seed=0", LOCAL),
    "mlm_pretraining": ("experiment=mlm_pretraining",),
    "text_infilling": ("experiment=text_infilling", "model=mini_bert", "sampler=gwg", "seed=0"),
    "bias": ("experiment=bias_step_size",),
    "preconditioning": ("experiment=preconditioning",),
    "law": ("experiment=categorical_toy", "sampler=dmala", "seed=0"),
    "stochastic_proposal": ("experiment=stochastic_proposal",),
    "tune": ("experiment=tune_ising", "sampler=rmala"),
    "unlearning": ("experiment=rates_sec3",),
    "sampling, compiled": ("model=ising", "sampler=gwg", "engine=compiled"),
}


def results(record):
    """The content of a record, without timings and paths."""
    table = record.metrics.drop(columns=[c for c in CLOCKS if c in record.metrics])
    found = {"metrics": table.to_csv()}
    for file in sorted(record.path.rglob("*")):
        if file.suffix == ".npz":
            with np.load(file) as arrays:
                found[file.name] = {name: arrays[name].tobytes() for name in arrays}
        elif file.suffix in (".safetensors", ".yaml", ".txt") and ".hydra" not in file.parts:
            found[str(file.relative_to(record.path))] = file.read_bytes()
    found["generated"] = record.document.get("generated")
    return found


def only(outputs):
    (record,) = [r for r in load_all(outputs) if not {"superseded"} & set(r.path.parts)]
    return record


# Kills.


@pytest.mark.parametrize("task", COMMANDS)
def test_a_killed_task_ends_as_if_nothing_had_been(task, tmp_path):
    # A checkpoint after every iteration.
    words = (*COMMANDS[task], "scale=smoke", "checkpoint=0", "~figures", "~tables")
    chance = random.Random(task)
    if task == "mlm_pretraining":  # a vocabulary is another one each time that it is learned
        assert command_line(*words, outputs=tmp_path / "first") == 0
        for folder in ("whole", "killed"):
            shutil.copytree(tmp_path / "first" / "artifacts", tmp_path / folder / "artifacts")
    left = accesses(*words, outputs=tmp_path / "whole")  # imports what forks then have
    for _ in range(2):
        at = max(1, int(chance.uniform(0.1, 0.9) * left))
        left -= at  # the next process goes on: no more than these are left, but for its start
        killed(at, *words, outputs=tmp_path / "killed")
    assert ended(start(*words, outputs=tmp_path / "killed")) == 0
    whole, resumed = load_all(tmp_path / "whole"), load_all(tmp_path / "killed")
    assert [record.path.name for record in resumed] == [record.path.name for record in whole]
    for one, other in zip(resumed, whole, strict=True):
        assert results(one) == results(other)
        assert not (one.path / "checkpoints").exists()


LONG = ("budget.steps=100000000", "budget.every=20", "~figures")  # it ends when it is told to


def test_one_interrupt_writes_a_checkpoint_and_leaves(tmp_path):
    pid = start(*SMALL, "sampler=dmala", *LONG, outputs=tmp_path)
    until(lambda: list(tmp_path.rglob("metrics.csv")), pid)
    os.kill(pid, signal.SIGINT)
    assert ended(pid) == 128 + signal.SIGINT
    assert len(list(tmp_path.rglob("sampling-*.pt"))) == 1
    assert not list(tmp_path.rglob("error.txt"))


SWEEP = ("model.shape=[2,2]", "scale=smoke", "sampler=dmala", "hydra.mode=MULTIRUN")


def swept(runs, workers, outputs, kills, chance):
    """Run a sweep in two processes and kill them `kills` times; return how many kills hit."""
    words = (*SWEEP, f"seed=range({runs})")
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


# Two at once.


def test_two_identical_commands_make_one_record(tmp_path):
    words = (*SMALL, "budget.steps=3000", "~figures", "hydra/job_logging=default")
    pids = [start(*words, outputs=tmp_path) for _ in range(2)]
    assert [ended(pid) for pid in pids] == [0, 0]
    record = only(tmp_path)
    assert list(record.metrics["step"]) == list(range(0, 3001, 10))
    log = (record.path / "run.log").read_text()
    assert log.count("already finished: ") == 1
    assert log.count("finished: ") == 2


def test_a_run_that_another_process_is_at_is_waited_for(tmp_path):
    first = start(*SMALL, *LONG, outputs=tmp_path)
    until(lambda: list(tmp_path.rglob("metrics.csv")), first)
    second = start(*SMALL, *LONG, "hydra/job_logging=default", outputs=tmp_path)
    folder = next(tmp_path.rglob(".holder")).parent
    log = folder / "run.log"
    until(lambda: log.exists() and "waiting" in log.read_text(), first, second)
    assert f"waiting for process {first} on " in log.read_text()
    os.kill(first, signal.SIGKILL)  # who dies lets go of the lock
    assert ended(first) == -signal.SIGKILL
    until(lambda: f"process {second} " in (folder / ".holder").read_text(), second)
    os.kill(second, signal.SIGKILL)
    ended(second)


# Damage.


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    outputs = tmp_path_factory.mktemp("finished")
    assert command_line(*SMALL, outputs=outputs) == 0
    return outputs


@pytest.fixture
def outputs(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "outputs")


def cut_short(file):
    file.write_bytes(file.read_bytes()[:-20])


def flip_a_byte(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def remove(file):
    file.unlink()


@pytest.mark.parametrize(
    ("name", "harm", "told"),
    [
        ("metrics.csv", cut_short, "metrics.csv is changed"),
        ("last.npz", flip_a_byte, "last.npz is changed"),
        ("last.npz", remove, "last.npz is missing"),
        ("run.json", cut_short, "run.json cannot be read"),
    ],
)
def test_a_damaged_record_is_named_set_aside_and_made_again(outputs, name, harm, told):
    before = results(only(outputs))
    path = only(outputs).path
    harm(path / name)
    harmed = {file.name: file.read_bytes() for file in path.iterdir() if file.suffix == ".csv"}
    assert told in damage(path)
    with pytest.raises(DamagedError, match=f"is damaged: {told}"):
        load(path)
    assert command_line(*SMALL, "hydra/job_logging=default", outputs=outputs) == 0
    assert f"is damaged: {told}" in (path / "run.log").read_text()
    assert results(only(outputs)) == before
    (aside,) = [file.parent for file in (outputs / "superseded").rglob("run.json")]
    assert {f.name: f.read_bytes() for f in aside.iterdir() if f.suffix == ".csv"} == harmed


def test_a_damaged_record_is_left_out_of_figures(outputs, caplog):
    assert command_line(*SMALL, "seed=1", outputs=outputs) == 0
    first, second = load_all(outputs)
    cut_short(first.path / "metrics.csv")
    assert [record.path for record in load_all(outputs)] == [second.path]
    assert f"left out: the record {first.path} is damaged: metrics.csv is changed" in caplog.text


def test_a_forced_run_moves_the_record_only_once_it_can_start(outputs, monkeypatch):
    before = results(only(outputs))

    def fails(*args, **named):
        raise OSError("no room")

    with monkeypatch.context() as patch:
        patch.setattr("latticework.models.ising.Lattice.__init__", fails)
        assert command_line(*SMALL, "force=true", outputs=outputs) == 1
    assert results(only(outputs)) == {**before, "error.txt": ANY}
    assert not (outputs / "superseded").exists()
    assert command_line(*SMALL, "force=true", outputs=outputs) == 0
    assert results(only(outputs)) == before
    assert len(list((outputs / "superseded").rglob("run.json"))) == 1


# Nowhere to write.


def limited(size, *words, outputs):
    """Run the command with files limited to `size` bytes, as on a full disk."""
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        os._exit(command_line(*words, outputs=outputs))
    return ended(pid)


def test_a_full_disk_is_told_and_harms_no_earlier_record(outputs, capfd):
    before = results(only(outputs))
    words = ("model.shape=[3,3]", "scale=smoke", "sampler=gibbs", "budget.steps=20000", "~figures")
    assert limited(20_000, *words, "hydra/job_logging=stdout", outputs=outputs) == 1
    told = capfd.readouterr()
    assert "File too large" in told.out + told.err
    assert "Traceback" not in told.out + told.err
    assert results(only(outputs)) == before
    assert command_line(*words, outputs=outputs) == 0, "with room again"
    assert len(load_all(outputs)) == 2


def test_where_not_even_the_error_can_be_written_the_command_says_so(outputs, capfd):
    before = results(only(outputs))
    words = ("model.shape=[3,3]", "scale=smoke", "sampler=gibbs", "~figures")
    assert limited(100, *words, outputs=outputs) != 0
    told = capfd.readouterr()
    assert "File too large" in told.out + told.err
    assert results(only(outputs)) == before


def test_an_outputs_folder_that_cannot_be(tmp_path, capfd):
    (tmp_path / "file").write_text("no folder")
    assert command_line(*SMALL, outputs=tmp_path / "file") != 0
    told = capfd.readouterr()
    assert str(tmp_path / "file") in told.err
    assert "Traceback" not in told.err
    assert (tmp_path / "file").read_text() == "no folder"


# Nothing is unpickled, nothing is unpacked.


def test_nothing_that_is_read_can_run_code_or_write_elsewhere():
    calls = {"load": 0}
    for folder in ("data", "models", "samplers", "experiments", "scripts", "tools"):
        for file in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(file.read_text())
            for node in ast.walk(tree):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                assert not {"pickle", "dill", "cloudpickle", "shelve"} & set(names), file
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                    continue
                assert node.func.attr not in ("extractall", "extract", "unpack_archive"), file
                given = {k.arg: ast.unparse(k.value) for k in node.keywords}
                assert given.get("allow_pickle", "False") == "False", file
                if ast.unparse(node.func) == "torch.load":
                    calls["load"] += 1
                    assert given["weights_only"] == "True", file
    assert calls["load"], "the check looks at what is there"
