"""Files of a run and shared artifacts: made once, reused, never half-made; full disks; no code."""

import ast
import hashlib
import json
import os
import resource
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from latticework.data.digits import Digits
from latticework.experiments.runs import storage
from latticework.experiments.runs.errors import UnwritableError
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.storage import hash_model, load_or_make_artifact
from latticework.experiments.tasks.target import pretrained
from latticework.models.ising import Lattice
from latticework.models.rbm import RBM
from latticework.samplers.block_gibbs import BlockGibbs

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def run(tmp_path):
    return new_run(tmp_path)


def new_run(outputs, name="a", **settings):
    path = outputs / name
    path.mkdir(exist_ok=True)
    return Run(path, outputs=outputs, **settings)


class Maker:
    """Counts how often it is asked."""

    def __init__(self, value=1.0):
        self.calls, self.value = 0, value

    def __call__(self):
        self.calls += 1
        return {"x": torch.full((3,), self.value)}


def test_made_once_and_reused(run, tmp_path):
    make, other = Maker(), new_run(tmp_path, "b", seed=5)
    first = load_or_make_artifact(run, "thing", {"size": 1}, make)
    again = load_or_make_artifact(other, "thing", {"size": 1}, make)
    assert make.calls == 1
    assert torch.equal(first["x"], again["x"])
    assert run.notes["artifacts"] == other.notes["artifacts"]  # both records name it
    folder = tmp_path / "artifacts" / run.notes["artifacts"][0]
    digest = hashlib.sha256((folder / "tensors.safetensors").read_bytes()).hexdigest()
    assert json.loads((folder / "spec.json").read_text()) == {"size": 1, "sha256": digest}
    load_or_make_artifact(run, "thing", {"size": 2}, make)
    load_or_make_artifact(run, "other", {"size": 1}, make)
    assert make.calls == len(set(run.notes["artifacts"])) == 3  # control


def flip_a_bit(file):
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)


def cut_short(file):
    file.write_bytes(file.read_bytes()[:-2])


@pytest.mark.parametrize("harm", [flip_a_bit, cut_short])
def test_a_damaged_artifact_is_told_moved_aside_and_made_again(run, tmp_path, harm, caplog):
    load_or_make_artifact(run, "thing", {}, Maker())
    (file,) = tmp_path.rglob("tensors.safetensors")
    harm(file)
    harmed = file.read_bytes()
    make = Maker()
    for _ in range(2):  # the second time it is read
        assert load_or_make_artifact(run, "thing", {}, make)["x"].tolist() == [1.0] * 3
    assert make.calls == 1
    assert f"{file} is damaged" in caplog.text
    assert file.with_name("tensors.safetensors.damaged").read_bytes() == harmed


@pytest.mark.parametrize("fails", ["make", "write"])
def test_what_is_broken_off_leaves_no_half_file(run, tmp_path, monkeypatch, fails):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            load_or_make_artifact(run, "thing", {}, interrupted if fails == "make" else Maker())
    assert not list(tmp_path.rglob("tensors.safetensors"))
    assert load_or_make_artifact(run, "thing", {}, Maker(2.0))["x"].tolist() == [2.0] * 3


def test_of_several_who_ask_at_once_one_makes_it(tmp_path):
    make, asked, found = Maker(), threading.Barrier(3), []

    def slowly():
        tensors = make()
        threading.Event().wait(0.05)
        return tensors

    def ask(name):
        run = new_run(tmp_path, name)
        asked.wait()
        found.append(load_or_make_artifact(run, "thing", {}, slowly)["x"])

    threads = [threading.Thread(target=ask, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert make.calls == 1
    assert len(found) == 3


def test_a_fingerprint_knows_settings_parameters_and_buffers():
    base = hash_model(Lattice((4,), 0.1, 0.2))
    assert hash_model(Lattice((4,), 0.1, 0.2)) == base
    others = [
        Lattice((4,), 0.1, 0.3),
        Lattice((4,), 0.3, 0.2),
        Lattice((4,), 0.1, 0.2, periodic=False),
        Lattice((2, 2), 0.1, 0.2),
        RBM(4, 2),
    ]
    assert len({base, *map(hash_model, others)}) == 6
    model = RBM(4, 2)
    before = hash_model(model)
    model.weight.data[0, 0] += 1
    assert hash_model(model) != before


def test_a_trained_model_is_shared_by_all_seeds(tmp_path):
    """Training happens once; the next run loads the same numbers, whatever its own seed."""
    data, settings = Digits(size=8).load(), {"epochs": 0.1, "batch": 20, "learning_rate": 0.01}
    models = []
    for name, seed in (("a", 0), ("b", 1)):
        run = new_run(tmp_path, name, seed=seed)
        with run.seed_global_rng("model"):
            model = RBM(64, 5)
        untrained = model.weight.clone()
        models.append(pretrained(model=model, data=data, run=run, sampler=BlockGibbs(), **settings))
        assert not torch.equal(models[-1].weight, untrained)
    assert torch.equal(models[0].weight, models[1].weight)
    assert len(list(tmp_path.glob("artifacts/rbm-*"))) == 1
    other = new_run(tmp_path, "c", model_seed=1)
    with other.seed_global_rng("model"):
        model = RBM(64, 5)
    pretrained(model=model, data=data, run=other, sampler=BlockGibbs(), **settings)
    assert not torch.equal(model.weight, models[0].weight)


# A file that finds no room.


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


# Each writes a file of several kilobytes, the same one at each call.
WRITERS = {
    "npz": lambda run, seed: run.save("last", x=noise(seed)),
    "safetensors": lambda run, seed: run.save_tensors("model", {"x": noise(seed)}),
    "checkpoint": lambda run, seed: run.checkpoints.write(
        {"loop": "work", "iteration": 1, "memory": {"x": noise(seed)}}
    ),
    "text": lambda run, seed: storage.write_atomically(
        run.path / "tuned.yaml", str(noise(seed).tolist())
    ),
}


@pytest.mark.slow
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


@pytest.mark.slow
def test_an_artifact_and_a_row_that_find_no_room_are_named(tmp_path):
    run = Run(tmp_path, outputs=tmp_path)
    with full(), pytest.raises(UnwritableError, match="^could not write .*tensors.safetensors"):
        load_or_make_artifact(run, "thing", {}, lambda: {"x": noise(0)})
    assert not list(tmp_path.rglob("*.partial"))
    assert torch.equal(
        load_or_make_artifact(run, "thing", {}, lambda: {"x": noise(1)})["x"], noise(1)
    )
    run.log(0, value=1.0)
    with full(20), pytest.raises(UnwritableError, match="^could not write .*metrics.csv: "):
        run.log(1, value=1.0)


# Files that are read.


@pytest.mark.slow
def test_nothing_that_is_read_can_run_code_or_write_elsewhere():
    calls = {"load": 0}
    for folder in ("data", "models", "samplers", "sampling", "experiments", "scripts", "workshop"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
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
