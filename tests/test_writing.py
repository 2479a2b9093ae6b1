"""A full disk: said in plain words for every file of a record, and nothing is lost."""

import resource
from contextlib import contextmanager

import pytest
import torch
from command import command_line

from latticework.data.wordpiece import SPECIAL, tokenizer_of
from latticework.experiments.records.record import load_all
from latticework.experiments.runs import writing
from latticework.experiments.runs.artifacts import artifact
from latticework.experiments.runs.errors import UnwritableError
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.mlm_pretraining import export
from latticework.models.masked_lm import untrained


@contextmanager
def full(size=2000):
    """No file may grow beyond `size` bytes; the system then refuses as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def tree(folder):
    """Every file below `folder` but locks, and what is in it."""
    return {f: f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}


def noise(seed):
    return torch.randn(40, 50, generator=torch.Generator().manual_seed(seed))


def checkpoint(run, seed):
    run.checkpoints.write({"loop": "work", "iteration": 1, "memory": {"x": noise(seed)}})


def network(run, seed):
    torch.manual_seed(seed)
    pieces = [*SPECIAL, *"abcdefgh"]
    model = untrained(len(pieces), hidden=16, layers=1, heads=2, positions=8)
    export(model, tokenizer_of(pieces), run.path / "model")


# Each writes a file of several kilobytes, the same one at each call.
WRITERS = {
    "npz": lambda run, seed: run.save("last", x=noise(seed)),
    "safetensors": lambda run, seed: run.save_tensors("model", {"x": noise(seed)}),
    "checkpoint": checkpoint,
    "text": lambda run, seed: writing.write(run.path / "tuned.yaml", str(noise(seed).tolist())),
    "network": network,
}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_that_finds_no_room_leaves_the_one_before_it(kind, tmp_path):
    run, write = Run(tmp_path), WRITERS[kind]
    with full(), pytest.raises(UnwritableError, match="^could not write .*: File too large"):
        write(run, 0)
    assert not tree(tmp_path)
    write(run, 0)
    before = tree(tmp_path)
    with full(), pytest.raises(UnwritableError):
        write(run, 1)
    assert tree(tmp_path) == before
    write(run, 1)
    assert tree(tmp_path).keys() == before.keys()
    assert tree(tmp_path) != before


def test_an_artifact_that_finds_no_room_is_made_again(tmp_path):
    run = Run(tmp_path / "run", outputs=tmp_path)
    with full(), pytest.raises(UnwritableError, match="^could not write .*tensors.safetensors"):
        artifact(run, "thing", {}, lambda: {"x": noise(0)})
    assert not list(tmp_path.rglob("*.partial"))
    assert torch.equal(artifact(run, "thing", {}, lambda: {"x": noise(1)})["x"], noise(1))


def test_a_row_that_finds_no_room_is_told(tmp_path):
    run = Run(tmp_path)
    run.log(0, value=1.0)
    with full(20), pytest.raises(UnwritableError, match="^could not write .*metrics.csv: "):
        run.log(1, value=1.0)


# One command for each kind of file that is the first to find no room.
COMMANDS = {
    "ema_000002.safetensors": ("task=ebm_learning", "model=rbm", "sampler=gibbs", "checkpoint=300"),
    "learning-0000000000.pt": ("task=ebm_learning", "model=rbm", "sampler=gibbs", "checkpoint=0"),
    "diverged.pt": ("task=ebm_learning", "model=rbm", "sampler=gibbs", "task.largest_loss=1e-9"),
}


@pytest.mark.parametrize("file", COMMANDS)
def test_a_command_says_which_file_found_no_room_and_goes_on_with_room(file, tmp_path, capfd):
    # Eager kernels: compiled ones would be the first that find no room, where they are not cached.
    words = ("scale=smoke", "engine=eager", "data=digits", *COMMANDS[file], "~figures")
    assert command_line("scale=smoke", "model.shape=[2,2]", outputs=tmp_path) == 0
    before = tree(tmp_path)
    with full(20_000):
        assert command_line(*words, "hydra/job_logging=stdout", outputs=tmp_path) == 1
    said = "".join(capfd.readouterr())
    assert f"{file} (" in said or f"{file}: " in said
    assert "failed: could not write " in said
    assert "enforce fail" not in said
    assert "Traceback" not in said
    assert tree(tmp_path).items() >= before.items()
    if file == "diverged.pt":
        return
    assert command_line(*words, outputs=tmp_path) == 0, "with room again"
    assert len(load_all(tmp_path)) == 2
