"""Signals in every phase of a command, and runs whose process a fault ended."""

import ctypes
import os
import pickle
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from command import command_line
from kills import ended

from latticework.experiments.finish.sweep_clock import SweepClock
from latticework.experiments.records.record import load_all
from latticework.experiments.runs.recording import _held
from latticework.experiments.runs.signals import (
    CONTINUES,
    RESUMES,
    STARTS,
    Stopped,
    answered,
    death,
    stoppable,
)

ROOT = Path(__file__).resolve().parent.parent
SEEDS = ("seed=0,1,2", "--multirun")  # 1 dies

# A sweep of one run, which trains its model and samples its truth.
WORDS = (
    "experiment=rbm_sampling",
    "sampler=gibbs",
    "seed=0",
    "scale=smoke",
    "data=digits",
    "~figures.fig8",
    "hydra/job_logging=default",
)
# In the order of a command: a function that it calls in this phase, and what it says when stopped.
PHASES = {
    "experiments.finish.finish.checked": CONTINUES,  # of a sweep: some of its runs may be there
    "models.rbm.RBM.__init__": STARTS,
    "experiments.tasks.learning.updates.Updates.update": "at training 1 of ",
    "models.domain.Binary.uniform": RESUMES,  # of the truth's chains: the model is trained
    "experiments.runs.run.Run.log": "at sampling 0 of ",
    "experiments.finish.finish.drawn": CONTINUES,
}
NUMBERS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


def stopped(name, number, outputs, words=WORDS):
    """The exit status of the command that gets a signal when it calls a function the first time."""
    place, _, attribute = f"latticework.{name}".rpartition(".")
    try:
        holder = import_module(place)
    except ModuleNotFoundError:
        module, _, of = place.rpartition(".")
        holder = getattr(import_module(module), of)
    whole = getattr(holder, attribute)

    def call(*args, **named):
        patch.undo()
        os.kill(os.getpid(), number)
        return whole(*args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holder, attribute, call)
        return command_line(*words, outputs=outputs)


@pytest.mark.parametrize("turn", [0, 1])
def test_a_command_stops_in_each_phase_and_the_same_command_goes_on(turn, tmp_path, capfd):
    handlers = [signal.getsignal(number) for number in NUMBERS]
    for phase, (name, where) in enumerate(PHASES.items()):
        number = NUMBERS[(phase + turn) % len(NUMBERS)]
        assert stopped(name, number, tmp_path) == 128 + number, name
        told = "".join(capfd.readouterr())
        assert told.count(f"stopped by {number.name} {where}") == 1, name
        assert "Traceback" not in told
        assert not list(tmp_path.rglob("error.txt"))
        assert not list(tmp_path.rglob(".holder"))
        assert len(list(tmp_path.rglob("run.json"))) == (phase == len(PHASES) - 1)
    assert command_line(*WORDS, outputs=tmp_path) == 0
    assert list(tmp_path.rglob("fig4.png"))
    assert [signal.getsignal(number) for number in NUMBERS] == handlers


def typed(*words, module, number, folder):
    """Send a signal to `python run.py <words>` while it imports a module, and one more as it ends.

    The exit status, and what was written to stderr after it.
    """
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", ROOT / "run.py", *words],
        env={**os.environ, "LATTICEWORK_OUTPUTS": str(folder)},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    text = []
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("import time:") and line.split("|")[-1].strip() == module:
            process.send_signal(number)
        elif line.startswith("stopped by"):
            process.send_signal(signal.SIGINT)
        if not line.startswith("import time:"):
            text.append(line)
    return process.wait(), "".join(text)


@pytest.mark.parametrize(
    ("module", "number", "where"),
    [
        ("omegaconf", signal.SIGTERM, STARTS),
        ("latticework.experiments.runs.recording", signal.SIGINT, ""),
    ],
)
def test_a_command_stops_while_it_imports(module, number, where, tmp_path):
    """Hydra; or what a run needs, when the sweep has begun to count its runs."""
    words = ("model.shape=[2,2]", "engine=eager", "budget.steps=100000000", "seed=0,1")
    status, text = typed(*words, "--multirun", module=module, number=number, folder=tmp_path)
    assert f"stopped by {number.name} {where}" in text
    assert "Traceback" not in text
    assert status in (128 + number, -signal.SIGINT)  # the second comes before the exit, or after
    assert not list(tmp_path.rglob(".sweep-*")) or status == -signal.SIGINT


def test_c_code_that_exits_the_process_leaves_the_line_and_no_holder(tmp_path, capfd):
    """As NumPy's import_array does: it calls PyErr_Print."""
    pid = os.fork()
    if pid == 0:
        with stoppable(), _held(tmp_path):
            assert (tmp_path / ".holder").exists()
            ctypes.pythonapi.PyRun_SimpleString(b"import os; os.kill(os.getpid(), 15)")
        os._exit(70)
    assert ended(pid) == 128 + signal.SIGTERM
    assert f"stopped by SIGTERM {STARTS}\n" in capfd.readouterr().err
    assert not (tmp_path / ".holder").exists()


def test_handlers_of_a_launcher_stay():
    came = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: came.append(number))
    try:
        with answered():
            os.kill(os.getpid(), signal.SIGUSR2)
            assert came == [signal.SIGUSR2]
            with pytest.raises(Stopped, match="stopped by SIGUSR1") as stop:
                os.kill(os.getpid(), signal.SIGUSR1)
            stop.value.told = True  # else at the exit of the tests
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_what_a_worker_raises_reaches_the_command():
    stop = Stopped(128 + signal.SIGTERM)
    stop.where, stop.told = STARTS, True
    again = pickle.loads(pickle.dumps(stop))
    assert (str(again), again.code, again.told) == (f"stopped by SIGTERM {STARTS}", 143, True)


def test_counts_of_killed_sweeps_are_removed(tmp_path):
    gone = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    gone.wait()
    mine = SweepClock.started(tmp_path, 2)
    mine.ended(executed=True)
    killed = mine.file.with_name(mine.file.name.replace(f"-{os.getpid()}-", f"-{gone.pid}-"))
    elsewhere = mine.file.with_name(f".sweep-another-{gone.pid}-1")
    for file in (killed, elsewhere):
        file.touch()
    SweepClock.started(tmp_path, 2)
    assert [file.exists() for file in (mine.file, killed, elsewhere)] == [True, False, True]


# A process that a fault ended.


@pytest.fixture
def dying(tmp_path):
    """A command whose task is tests/fakes.py's `dying`."""
    folder = tmp_path / "conf" / "task"
    folder.mkdir(parents=True)
    folder.joinpath("dying.yaml").write_text("_target_: fakes.dying\n_partial_: true\n")
    search = f"hydra.searchpath=[file://{folder.parent}]"
    return search, "task=dying", "model.shape=[2,2]", "checkpoint=0", "hydra/job_logging=default"


TOLD = {
    "SIGSEGV": ("was killed by SIGSEGV", "ONEDNN_MAX_CPU_ISA", "string_at"),
    "SIGKILL": ("was killed (SIGKILL)", "memory runs out", ""),
}


@pytest.mark.parametrize("fault", TOLD)
def test_the_next_command_tells_how_a_run_died_and_goes_on(fault, dying, tmp_path):
    outputs = tmp_path / "outputs"
    command = (*dying, f"+task.death={fault}", *SEEDS)
    how, advice, place = TOLD[fault]
    pid = os.fork()
    if pid == 0:
        command_line(*command, outputs=outputs, crashes=True)
        os._exit(70)
    assert ended(pid) == -getattr(signal, fault)
    (folder,) = [file.parent for file in outputs.rglob(".holder")]
    assert "seed=1" in folder.name
    assert place in (folder / ".crash").read_text()
    assert bool(place) is bool((folder / ".crash").read_text())

    assert command_line(*command, outputs=outputs, crashes=True) == 0
    log = (folder / "run.log").read_text()
    assert f"process {pid} on " in log
    assert f"ran this before and {how}" in log
    assert advice in log
    assert "dying resumes from iteration 1" in log
    for record in load_all(outputs):
        went_on = record.document["config"]["seed"] == 1
        assert record.metrics["processes"].tolist() == ([1, 2, 2] if went_on else [1, 1, 1])
        assert not {".crash", ".holder"} & {file.name for file in record.path.iterdir()}


def test_the_faults_of_faulthandler_are_known_by_their_signals(tmp_path):
    """Each as it writes it, in a process that sends itself the signal."""
    for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL"):
        with (tmp_path / ".crash").open("w") as file:
            code = f"import os; os.kill(os.getpid(), {int(getattr(signal, name))})"
            words = [sys.executable, "-I", "-S", "-X", "faulthandler", "-c", code]
            subprocess.run(words, stderr=file)
        assert f"killed by {name}." in death(tmp_path)


def test_joblib_tells_that_a_process_died(dying, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    paths = [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    words = (*dying, "+task.death=SIGSEGV", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    done = subprocess.run(  # joblib cannot be used after a fork
        [sys.executable, ROOT / "run.py", *words, *SEEDS],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "LATTICEWORK_OUTPUTS": str(tmp_path / "outputs"),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "a process of the sweep died (SIGSEGV" in done.stderr
    assert "The same command resumes, and says which run had died" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not list((tmp_path / "outputs").rglob(".sweep-*"))
