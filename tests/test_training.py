"""A model that is meant to be learned is trained, loaded, or refused with a command that works."""

import re
import shlex

import pytest
import torch
from command import command_line
from hydra.core.hydra_config import HydraConfig
from test_configs import names, part

import latticework as lw
from latticework.experiments.records.record import load_all
from latticework.experiments.runs.errors import ConfigurationError
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.storage import hash_model
from latticework.experiments.tasks.stored_models import stored
from latticework.experiments.tasks.target import RECIPES, ensure_trained, random

OFFLINE = ("data.download=false", "data.root=null")  # the bundled digits, out loud
LEARNED = {
    "rbm": "pretrain=cd",
    "rated_rbm": "pretrain=fpcd",
    "rbm_mnist": "pretrain=fpcd",
    "rbm_usps": "pretrain=fpcd",
    "rbm_reviews": "pretrain=fpcd",
    "resnet": "experiment=ebm_learning",
    "learned_ising": "experiment=ising_learning",
}


def refusal(capsys, *words, outputs):
    """What a command says that is refused, on one line, and the command that it names."""
    assert command_line(*words, outputs=outputs) == 1
    captured = capsys.readouterr()
    (line,) = re.findall(r"this \w+ has random weights .*", captured.out + captured.err)[-1:]
    (command,) = re.findall(r"`python run\.py (.*?)`", line)
    return line, shlex.split(command)


# Which models are meant to be learned.


@pytest.mark.parametrize("name", names("model"))
def test_each_model_says_whether_it_is_meant_to_be_learned(name):
    target = part("model", name)._target_
    recipe = RECIPES.get(target.rpartition(".")[2], "")
    assert recipe == LEARNED.get(name, "")
    if recipe:
        group, _, choice = recipe.partition("=")
        assert choice in names(group)


@pytest.mark.parametrize(
    "make", [lambda: lw.RBM(6, 3), lambda: lw.RatedRBM(6, 3), lambda: lw.LearnedIsing((2, 3))]
)
def test_a_state_that_is_loaded_ends_it(make):
    model = make()
    assert model.untrained
    state, mark = model.state_dict(), hash_model(model)
    model.load_state_dict(state)
    assert not model.untrained
    assert hash_model(model) == mark  # artifacts are found as before
    assert not lw.Lattice((2, 3), 0.1).untrained
    assert lw.ResNet((2, 4), 2, 1).untrained


# The command line.


@pytest.mark.parametrize("task", ["sampling", "isl", "tune", "ais"])
def test_random_weights_are_refused_by_every_task_that_uses_a_model(task, tmp_path, capsys):
    words = [f"task={task}", "model=rbm_mnist", "data=mnist", "sampler=gwg", *OFFLINE]
    line, command = refusal(capsys, "scale=smoke", *words, outputs=tmp_path)
    assert line.startswith("this RatedRBM has random weights and is meant to be trained: train it")
    assert command == ["scale=smoke", *words, "pretrain=fpcd"]
    assert not load_all_or_none(tmp_path)


def load_all_or_none(outputs):
    try:
        return load_all(outputs)
    except FileNotFoundError:
        return []


SMALL = {
    "resnet": ["model.maps=4", "model.blocks=2"],
    "learned_ising": ["model.shape=[3,3]"],
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fields"), SMALL.items())
def test_a_learned_model_is_learned_by_the_command_and_loaded(name, fields, tmp_path, capsys):
    words = ["scale=smoke", f"model={name}", *fields, "sampler=dmala", "seed=1"]
    line, command = refusal(capsys, *words, outputs=tmp_path)
    assert command[0] == LEARNED[name]
    offline = OFFLINE if name == "resnet" else ()
    assert command_line(*command, *offline, outputs=tmp_path) == 0
    (file,) = tmp_path.rglob("model.safetensors")
    assert "pretrain=stored task.pretrain.file=<record>/model.safetensors" in line
    load = ["pretrain=stored", f"task.pretrain.file='{file}'"]
    assert command_line(*words, *load, outputs=tmp_path / "used") == 0
    (record,) = load_all(tmp_path / "used")
    assert record.document["loaded"]


def test_random_weights_can_be_asked_for(tmp_path):
    words = ["scale=smoke", "model=rbm", "model.hidden=5", "sampler=gwg", "pretrain=random"]
    assert command_line(*words, outputs=tmp_path) == 0
    (record,) = load_all(tmp_path)
    assert record.document["untrained"]


def test_data_of_another_size_are_told(tmp_path, capsys):
    words = ["scale=smoke", "model=rbm_usps", "data=mnist", "sampler=gwg", "pretrain=cd", *OFFLINE]
    assert command_line(*words, outputs=tmp_path) == 1
    captured = capsys.readouterr()
    assert "RatedRBM has 256, the data have 784" in captured.out + captured.err


# As functions.


def test_a_model_that_was_trained_by_hand_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)  # of a command before
    run, model = Run(tmp_path), lw.RBM(6, 3)
    with pytest.raises(ConfigurationError, match="load a state .* pretrain=cd trains it"):
        ensure_trained(model, None, run, None)
    mine = lw.Function(lambda x: x.sum(-1), lw.Binary(3))
    mine.untrained = True  # a class for which there is no recipe
    with pytest.raises(ConfigurationError, match=r"\(load_state_dict\)$"):
        ensure_trained(mine, None, run, None)
    assert ensure_trained(model, None, run, random) is model
    assert run.notes["untrained"]
    other = lw.RBM(6, 3)
    other.load_state_dict(model.state_dict())
    assert ensure_trained(other, None, run, None) is other


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_a_state_is_loaded_from_a_record_or_refused(suffix, tmp_path):
    run, model, file = Run(tmp_path), lw.RBM(6, 3), tmp_path / f"model.{suffix}"
    with pytest.raises(ConfigurationError, match="must be an existing file, got nowhere"):
        stored(model=model, data=None, run=run, file="nowhere")
    run.save("model", **model.state_dict())
    run.save_tensors("model", model.state_dict())
    loaded = stored(model=lw.RBM(6, 3), data=None, run=run, file=str(file))
    assert torch.equal(loaded.weight, model.weight)
    assert run.notes["loaded"] == hash_model(model)
    with pytest.raises(ConfigurationError, match=r"does not hold the state of this RBM \(Error"):
        stored(model=lw.RBM(5, 3), data=None, run=run, file=str(file))
    file.write_text("junk")
    with pytest.raises(ConfigurationError, match="does not hold the state of this RBM"):
        stored(model=model, data=None, run=run, file=str(file))


@pytest.mark.parametrize("name", ["state.pt", "state.safetensors", "state.npz", "cut.npz"])
def test_files_of_another_kind_are_refused_in_words(tmp_path, name):
    """Nothing of a pickled file is read, and an empty or a cut one is told as such."""
    file = tmp_path / name
    if name == "state.pt":
        torch.save(lw.RBM(4, 2).state_dict(), file)
    else:
        file.write_bytes(b"PK\x03\x04" if name == "cut.npz" else b"")
    told = {
        "state.pt": r"got a file that ends in .pt, .*safetensors.torch.save_file\(model.state_dict",
        "cut.npz": "does not hold the state of this RBM",
    }.get(name, "got an empty file, ")
    with pytest.raises(ConfigurationError, match=told):
        stored(model=lw.RBM(4, 2), data=None, run=Run(tmp_path), file=str(file))
