"""The optional trackers write what the record's metrics.csv holds, and need no network."""

import socket
from pathlib import Path

import pytest
from command import command_line
from hydra.utils import instantiate
from omegaconf import OmegaConf

from latticework.experiments.results.record import load_all
from latticework.experiments.running.run import Run

CONF = Path(__file__).resolve().parent.parent / "conf"
ROWS = [(0, {"error": 1.0}), (10, {"error": 0.5}), (20, {"error": 0.25})]


def logged(name, path):
    """Log ROWS through the tracker of conf/logger/<name>.yaml."""
    (logger,) = (
        instantiate(spec) for spec in OmegaConf.load(CONF / "logger" / f"{name}.yaml").values()
    )
    path.mkdir()
    logger.start(path, {"seed": 0})
    run = Run(path, loggers=[logger])
    for step, values in ROWS:
        run.log(step, **values)
    logger.finish()


def test_tensorboard_writes_the_metrics(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logged("tensorboard", tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    read = [(event.step, event.value) for event in events.Scalars("error")]
    assert read == [(step, values["error"]) for step, values in ROWS]


def test_wandb_writes_offline(tmp_path, monkeypatch):
    """With every address but this machine's own out of reach, and nothing asked of a key."""
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    for key in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(key, str(tmp_path / "wandb_home"))

    def look_up(host, *args, **kwargs):
        assert host in ("localhost", "127.0.0.1", None), f"asked for the address of {host}"
        return found(host, *args, **kwargs)

    found = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    logged("wandb", tmp_path / "run")
    import wandb

    wandb.teardown()  # waits for the process that writes the file, some time after `finish`
    (file,) = (tmp_path / "run").rglob("*.wandb")
    assert b"error" in file.read_bytes()


def test_a_run_writes_to_its_loggers_in_its_own_folder(tmp_path):
    words = ("model.shape=[2,2]", "scale=smoke", "logger=tensorboard")
    assert command_line(*words, outputs=tmp_path) == 0
    (record,) = load_all(tmp_path)
    assert list(record.path.glob("tensorboard/events*"))
    assert len(record.metrics) == 3


@pytest.mark.parametrize("name", ["files"])
def test_files_are_written_whatever_the_logger(name):
    """The default adds nothing: the record itself is the log."""
    assert not OmegaConf.load(CONF / "logger" / f"{name}.yaml")
