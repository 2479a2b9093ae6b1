"""Shared artifacts: made once, reused, and never left half-made."""

import hashlib
import json
import os
import threading

import pytest
import torch

from latticework.data.digits import Digits
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.storage import hash_model, load_or_make_artifact
from latticework.experiments.tasks.target import pretrained
from latticework.models.ising import Lattice
from latticework.models.rbm import RBM
from latticework.samplers.block_gibbs import BlockGibbs


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
