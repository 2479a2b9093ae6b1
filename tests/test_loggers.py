"""The optional trackers write what the record's metrics.csv holds, and need no network."""

import signal
import socket
import time

import pytest
from command import command_line
from documented import CONF
from hydra.utils import instantiate
from kills import ended, start
from omegaconf import OmegaConf
from trackers import of_wandb

from latticework.experiments.records.estimates import Estimate, KeyNumber
from latticework.experiments.records.record import load_all
from latticework.experiments.runs.loggers import RunInfo, WandB
from latticework.experiments.runs.run import Run

pytestmark = pytest.mark.usefixtures("eager")

ROWS = [(0, {"error": 1.0}), (10, {"error": 0.5}), (20, {"error": 0.25})]
CHOICES = {"model": "ising", "data": None, "sampler": "dmala", "task": "sampling"}
CONFIG = {
    "seed": 0,
    "name": "mine",
    "scale": "smoke",
    "sampler": {"step_size": 0.4},
    "task": {"metrics": [{"thin": 5}, {"thin": None}]},
}
NUMBERS = [
    KeyNumber("error", 0.25, 0.01, "chains", references={"exact": Estimate(0.2)}),
    KeyNumber("chosen scan", "random"),
    KeyNumber("undefined", float("nan")),
]
FINAL = {"error": 0.25, "error_error": 0.01, "error_exact": 0.2, "chosen_scan": "random"}


@pytest.fixture(autouse=True)
def _offline(tmp_path, monkeypatch):
    """Every address but this machine's own is out of reach, and no key is asked for."""
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    for key in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(key, str(tmp_path / "wandb_home"))

    def look_up(host, *args, **kwargs):
        assert host in ("localhost", "127.0.0.1", None), f"asked for the address of {host}"
        return found(host, *args, **kwargs)

    found = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def tracker(name, **settings):
    (spec,) = OmegaConf.load(CONF / "logger" / f"{name}.yaml").values()
    return instantiate(spec, **settings)


def logged(name, path, *, last_step=None, rows=ROWS, **settings):
    """Log `rows` and NUMBERS through the tracker of conf/logger/<name>.yaml."""
    logger = tracker(name, **settings)
    path.mkdir(exist_ok=True)
    logger.start(RunInfo(path, CONFIG, CHOICES, last_step))
    run = Run(path, loggers=[logger])
    for step, values in rows:
        run.log(step, **values)
    logger.log_headline(NUMBERS)
    logger.finish()


def written_by_wandb(folder):
    """The runs in the files below `folder`, the earliest first."""
    import wandb

    wandb.teardown()  # waits for the process that writes the file, some time after `finish`
    return [of_wandb(file) for file in sorted(folder.rglob("*.wandb"), key=str)]


def events_of(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return events


def scalars(folder, name):
    return [(event.step, event.value) for event in events_of(folder).Scalars(name)]


def test_tensorboard_writes_the_metrics_and_the_settings_with_the_results(tmp_path):
    logged("tensorboard", tmp_path / "run")
    assert scalars(tmp_path / "run", "error") == [(step, row["error"]) for step, row in ROWS]
    assert [value for _, value in scalars(tmp_path / "run", "final/error")] == [0.25]
    plugins = events_of(tmp_path / "run").summary_metadata
    assert "_hparams_/session_start_info" in plugins
    written = b"".join(file.read_bytes() for file in (tmp_path / "run").rglob("events*"))
    assert b"sampler.step_size" in written
    assert b"task.metrics.0.thin" in written
    assert b"task.metrics.1.thin" not in written  # null is no hyperparameter
    assert b"choice/sampler" in written


def test_tensorboard_hides_rows_that_a_resumed_run_logs_again(tmp_path):
    """The earlier process logged up to step 20; its checkpoint was at step 0."""
    logged("tensorboard", tmp_path / "run")
    logged("tensorboard", tmp_path / "run", last_step=0, rows=[(10, {"error": 7.0})])
    assert scalars(tmp_path / "run", "error") == [(0, 1.0), (10, 7.0)]


def test_wandb_writes_offline(tmp_path):
    """With group, job type, tags and the final numbers as summary."""
    logged("wandb", tmp_path / "run", artifacts=True)
    (run,) = written_by_wandb(tmp_path / "run")
    assert (run["group"], run["job"], run["tags"]) == ("mine/smoke", "sampling", {"ising", "dmala"})
    assert {step: row["error"] for step, row in run["rows"].items()} == {0: 1, 10: 0.5, 20: 0.25}
    assert {name: run["summary"][name] for name in FINAL} == FINAL
    assert run["summary"]["results"]["_type"] == "table-file"
    assert run["exit"] == 0
    (file,) = (tmp_path / "run").rglob("*.wandb")
    assert b"metrics.csv" in file.read_bytes()


def test_a_run_writes_to_both_trackers_in_its_own_folder(tmp_path):
    words = ("model.shape=[2,2]", "scale=smoke", "logger=[wandb,tensorboard]")
    assert command_line(*words, outputs=tmp_path) == 0
    (record,) = load_all(tmp_path)
    (run,) = written_by_wandb(record.path)
    metrics = record.metrics.set_index("step")["acceptance"]
    assert set(run["rows"]) == {0, 10, 20}
    assert run["rows"][20]["acceptance"] == pytest.approx(metrics[20])
    assert run["summary"]["mean_exact"] == pytest.approx(record.document["mean_exact"])
    assert scalars(record.path, "acceptance")[-1] == (20, pytest.approx(metrics[20]))


@pytest.mark.parametrize(
    ("added", "before"),
    [
        ("tensorboard", ()),
        ("wandb", ()),
        ("tensorboard", ("logger=wandb",)),
        ("wandb", ("logger=tensorboard",)),
    ],
)
def test_a_tracker_that_is_added_later_gets_the_record(tmp_path, monkeypatch, added, before):
    """Once, as if it had been there; the record stays."""
    if "logger=wandb" in before:  # its own files are tested above
        for method in ("start", "log", "log_headline", "finish"):
            monkeypatch.setattr(WandB, method, lambda *_: None)
    words = ("model.shape=[2,2]", "scale=smoke", "sampler=gwg")
    assert command_line(*words, *before, outputs=tmp_path) == 0
    (record,) = load_all(tmp_path)
    for _ in range(2):
        assert command_line(*words, f"logger={added}", outputs=tmp_path) == 0
    (after,) = load_all(tmp_path)
    assert after.fingerprint == record.fingerprint
    rows = record.metrics.set_index("step")
    if added == "wandb":
        (run,) = written_by_wandb(record.path)
        assert {step: row["acceptance"] for step, row in run["rows"].items()} == pytest.approx(
            rows["acceptance"].to_dict(), nan_ok=True
        )
        assert run["summary"]["mean_exact"] == pytest.approx(record.document["mean_exact"])
        return
    known = [(step, pytest.approx(x, nan_ok=True)) for step, x in rows["acceptance"].items()]
    assert scalars(record.path, "acceptance") == known
    assert len(scalars(record.path, "final/mean")) == 1


def test_the_figures_of_a_command_are_media(tmp_path):
    words = ("experiment=rates_sec3", "scale=smoke", "task.steps=5", "task.lambdas=3")
    single = ("model.coupling=0.3", "logger=[wandb,tensorboard]")
    assert command_line(*words, *single, outputs=tmp_path) == 0
    folder = tmp_path / "rates_sec3" / "smoke"
    *_, figures = sorted(written_by_wandb(folder), key=lambda run: run["job"] == "figures")
    assert figures["job"] == "figures"
    assert figures["group"] == "rates_sec3/smoke"
    assert figures["rows"][0]["figures/sec3/_type"] == "image-file"
    assert events_of(folder).Tags()["images"] == ["figures/sec3"]


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("log", "a tracker failed and gets no more rows, which metrics.csv has"),
        ("log_headline", "the run is finished, but its tracker did not get the results"),
        ("finish", "a tracker could not end"),
    ],
)
def test_a_tracker_that_fails_leaves_the_run_finished(tmp_path, monkeypatch, capfd, method, told):
    def broken(*_):
        raise RuntimeError("no server")

    target = f"latticework.experiments.runs.loggers.TensorBoard.{method}"
    monkeypatch.setattr(target, broken)
    words = ("model.shape=[2,2]", "scale=smoke", "logger=tensorboard")
    assert command_line(*words, outputs=tmp_path) == 0
    (record,) = load_all(tmp_path)
    assert len(record.metrics) == 3
    assert not list(tmp_path.rglob("error.txt"))
    assert capfd.readouterr().err.count(f"{told}: RuntimeError: no server") == 1


def test_trackers_go_on_after_a_kill(tmp_path):
    """SIGKILL in the second of three iterations: W&B keeps its id, TensorBoard each step once."""
    folder = tmp_path / "conf" / "task"
    folder.mkdir(parents=True)
    folder.joinpath("dying.yaml").write_text("_target_: fakes.dying\n_partial_: true\n")
    words = (
        f"hydra.searchpath=[file://{folder.parent}]", "task=dying", "model.shape=[2,2]",
        "+task.death=SIGKILL", "seed=1", "checkpoint=0", "logger=[wandb,tensorboard]",
    )  # fmt: skip
    outputs = tmp_path / "outputs"
    assert ended(start(*words, outputs=outputs)) == -signal.SIGKILL
    time.sleep(1)  # wandb names its folders by the second
    assert ended(start(*words, outputs=outputs)) == 0
    (record,) = load_all(outputs)
    assert record.metrics["processes"].tolist() == [1, 2, 2]
    *_, after = written_by_wandb(record.path)
    names = sorted(path.name for path in record.path.glob("wandb/offline-run-*"))
    assert [name.rpartition("-")[2] for name in names] == [after["id"]] * 2
    assert set(after["rows"]) == {2, 3}
    assert after["exit"] == 0
    assert [step for step, _ in scalars(record.path, "processes")] == [1, 2, 3]
