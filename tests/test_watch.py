"""A run that a signal kills is told: which run, which signal, what to try."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from command import command_line

from latticework.experiments.results.record import load_all
from latticework.experiments.running import watch

ROOT = Path(__file__).resolve().parent.parent
SEEDS = ("seed=0,1,2", "--multirun")  # 1 dies
TRIES = {"SIGSEGV": "ONEDNN_MAX_CPU_ISA", "SIGABRT": "ONEDNN_MAX_CPU_ISA", "SIGKILL": "memory"}


@pytest.fixture
def words(tmp_path):
    """A command whose task is tests/fakes.py's `dying`."""
    folder = tmp_path / "conf" / "task"
    folder.mkdir(parents=True)
    folder.joinpath("dying.yaml").write_text("_target_: fakes.dying\n_partial_: true\n")
    search = f"hydra.searchpath=[file://{folder.parent}]"
    return search, "task=dying", "model.shape=[2,2]", "checkpoint=0", "hydra/job_logging=default"


def run_by_a_child(*words, outputs):
    """The exit status of the command in a forked process, and all that it and its own wrote."""
    here, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(there, 1)
        os.dup2(there, 2)
        os.close(there)
        os.close(here)
        status = 70
        try:
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            status = command_line(*words, outputs=outputs, watched=True)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)
    os.close(there)
    with os.fdopen(here) as stream:
        text = stream.read()  # until the last of them has ended
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


def record_of(seed, outputs):
    (folder,) = [
        file.parent for file in outputs.rglob("metrics.csv") if f"seed={seed}" in str(file)
    ]
    return folder


@pytest.mark.parametrize("death", TRIES)
def test_a_sweep_tells_which_run_died_and_the_same_command_goes_on(death, words, tmp_path):
    outputs = tmp_path / "outputs"
    command = (*words, f"+task.death={death}", *SEEDS)
    status, text = run_by_a_child(*command, outputs=outputs)
    assert status == -getattr(signal, death)
    folder = record_of(1, outputs)
    (line,) = [line for line in text.splitlines() if line.startswith(f"  {folder}")]
    assert death in line
    assert "1 run died:" in text
    assert TRIES[death] in text
    assert "The same command resumes" in text
    assert "Traceback" not in text
    assert ("string_at" in (folder / ".crash").read_text()) is (death == "SIGSEGV")

    status, text = run_by_a_child(*command, outputs=outputs)
    assert (status, "died:" in text) == (0, False)
    log = (folder / "run.log").read_text()
    assert f"ran this before and died of {'a signal' if death == 'SIGKILL' else death}" in log
    assert "dying resumes from iteration 1" in log
    for record in load_all(outputs):
        went_on = record.document["config"]["seed"] == 1
        assert record.metrics["processes"].tolist() == ([1, 2, 2] if went_on else [1, 1, 1])
        assert not {".crash", ".holder"} & {file.name for file in record.path.iterdir()}


def test_joblib_tells_it_too(words, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    command = (*words, "+task.death=SIGSEGV", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    done = typed(*command, *SEEDS, folder=tmp_path)  # joblib cannot be used after a fork
    text = done.stdout + done.stderr
    assert done.returncode == 1
    assert "a process of the sweep died (SIGSEGV" in text
    assert f"  {record_of(1, tmp_path / 'outputs')}  killed by SIGSEGV" in text
    assert "The same command resumes" in text
    assert "Traceback" not in text


def typed(*words, folder):
    """`python run.py <words>` in a process of its own, in `folder`, records in its outputs/."""
    paths = [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, ROOT / "run.py", *words],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "LATTICEWORK_OUTPUTS": str(folder / "outputs"),
        },
        cwd=folder,
        capture_output=True,
        text=True,
    )


def test_a_single_run_as_a_user_types_it(words, tmp_path):
    done = typed(*words, "+task.death=SIGSEGV", "seed=1", folder=tmp_path)
    assert done.returncode == -signal.SIGSEGV
    folder = record_of(1, tmp_path / "outputs")
    assert f"  {folder}  killed by SIGSEGV\n" in done.stderr


def test_runs_that_fail_or_finish_are_not_told_as_dead(words, tmp_path):
    for command, expected in (
        ((*words, "+task.death=SIGSEGV", "seed=0"), 0),
        (("model.shape=[2,2]", "scale=smoke", "sampler.step_size=-1"), 1),
    ):
        status, text = run_by_a_child(*command, outputs=tmp_path / "outputs")
        assert status == expected
        assert "died" not in text
        assert "killed" not in text
    assert not list((tmp_path / "outputs").rglob(".crash"))


def test_a_command_that_dies_outside_of_its_runs_is_told():
    told = subprocess.run(  # whose parent is not the process named: it has died
        [sys.executable, "-I", "-S", watch.__file__, "1"],
        input=json.dumps(["/nowhere", {}]) + "\n",
        capture_output=True,
        text=True,
    )
    assert told.stderr.strip().startswith("The command was killed by a signal.")


def test_runs_that_died_in_an_earlier_command_are_not_told_again(tmp_path):
    ended = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    ended.wait()
    host = socket.gethostname()
    for name, who in (
        ("old", f"process {ended.pid} on {host}"),
        ("new", f"process {ended.pid} on {host}"),
        ("living", f"process {os.getppid()} on {host}"),
        ("elsewhere", f"process {ended.pid} on another-{host}"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".holder").write_text(who)
    known = {str(tmp_path / "old"): f"process {ended.pid} on {host}"}
    for how, text in (("failed", "1 run died"), ("ended", "")):
        told = subprocess.run(
            [sys.executable, "-I", "-S", watch.__file__, str(os.getpid())],
            input=f"{json.dumps([str(tmp_path), known])}\n{how}\n",
            capture_output=True,
            text=True,
        ).stderr
        assert text in told
        assert (str(tmp_path / "new") in told) is (how == "failed")
        assert not any(str(tmp_path / name) in told for name in ("old", "living", "elsewhere"))


def test_with_a_crash_the_other_runs_in_hand_ended_with_it(tmp_path):
    for name in ("crashed", "bystander"):
        (tmp_path / name).mkdir()
    (tmp_path / "crashed" / ".crash").write_text("Fatal Python error: Bus error\n\n...")
    (tmp_path / "bystander" / ".crash").write_text("")
    told = watch.told([tmp_path / "bystander", tmp_path / "crashed"])
    assert f"  {tmp_path / 'crashed'}  killed by SIGBUS\n" in told
    assert f"  {tmp_path / 'bystander'}  ended with the others\n" in told
    assert "2 runs died" in told
