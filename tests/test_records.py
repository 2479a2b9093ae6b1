"""What a run leaves behind: records that are skipped, superseded, redrawn, or say what failed."""

import csv
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from command import SMALL, command_line, only

import latticework.experiments.callback
import latticework.run
from latticework.experiments.figures.style import mark_substitute, new_figure
from latticework.experiments.records.record import Budget, load_all, load_record
from latticework.experiments.runs import environment
from latticework.experiments.runs.environment import changed_inputs, input_checksums
from latticework.experiments.runs.recording import _describe_substitute
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.sweeps import Sweep
from latticework.models.rbm import RBM

ROOT = Path(__file__).resolve().parent.parent


def superseded(outputs):
    return sorted(file.parent for file in (outputs / "superseded").rglob("run.json"))


def content(folder):
    """Every file's bytes and time of writing, without .hydra, which Hydra always rewrites."""
    files = [f for f in sorted(folder.rglob("*")) if f.is_file() and ".hydra" not in f.parts]
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def numbers(record):
    """metrics.csv without its clock."""
    with (record.path / "metrics.csv").open() as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def edit(record, **changes):
    """Rewrite run.json, as if another version of the project had made it."""
    (record.path / "run.json").write_text(json.dumps({**record.document, **changes}))


# One run.


def test_run_json_says_what_was_run_with_what(finished):
    document = only(finished).document
    assert document["overrides"] == ["model.shape=[3,3]", "scale=smoke", "sampler=gwg"]
    packages = {"python", "torch", "numpy", "numba", "llvmlite", "hydra-core"}
    assert packages <= set(document["versions"])
    assert document["processor"].endswith(torch.backends.cpu.get_cpu_capability())
    assert document["device"].startswith("cpu")
    assert document["threads"] == 1
    assert document["seconds_per_step"] > 0
    assert document["evaluations_per_step"] + document["local_evaluations_per_step"] == 1


def test_the_commit_of_another_project_is_not_taken(tmp_path, monkeypatch):
    """A wheel in .venv of a user's own repository lies inside a work tree too."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init"], ["commit", "--allow-empty", "-m", "theirs"]):
        if subprocess.run([*git, *words], cwd=tmp_path, capture_output=True).returncode:
            pytest.skip("no git")
    package = tmp_path / ".venv" / "latticework"
    package.mkdir(parents=True)
    monkeypatch.setattr(environment, "ROOT", package.resolve())
    assert environment.commit.__wrapped__() == {"commit": None, "dirty": None}
    monkeypatch.setattr(environment, "ROOT", tmp_path.resolve())
    assert environment.commit.__wrapped__()["commit"]


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((4, 7, 3), "steps must be a multiple of every, got 7 and 3"),
        ((0, 7, 7), "chains must be positive, got 0"),
        ((4, -7, 7), "steps must be positive, got -7"),
        ((4, 7, 0), "every must be positive, got 0"),
    ],
)
def test_a_budget_that_cannot_be_run_is_refused(counts, message):
    with pytest.raises(ValueError, match=message):
        Budget(*counts)


def test_the_command_line_sets_the_budget_and_names_what_is_wrong(tmp_path, capfd):
    words = (*SMALL, "budget.steps=30", "budget.chains=3")
    assert command_line(*words, outputs=tmp_path) == 0
    record = only(tmp_path)
    assert record.budget == Budget(chains=3, steps=30, every=10)
    assert list(record.metrics["step"]) == [0, 10, 20, 30]
    assert record.arrays("last")["x"].shape == (3, 9)
    assert record.arrays("trace")["trace"].shape == (15, 3, 9)  # the second half
    with pytest.raises(FileNotFoundError, match="samples"):
        record.arrays("samples")
    assert command_line(*SMALL, "budget.steps=25", outputs=tmp_path) == 1
    assert "steps must be a multiple of every, got 25 and 10" in "".join(capfd.readouterr())


OWN = """
from latticework.samplers.locally_balanced import LocallyBalanced
class Own(LocallyBalanced):
    pass
"""


def test_code_that_changed_since_a_run_is_told(tmp_path, monkeypatch, caplog):
    """A run of an edited sampler is skipped, and its old numbers are not taken for new ones."""
    monkeypatch.syspath_prepend(tmp_path)
    words = (*SMALL[:2], "sampler=locally_balanced", "sampler._target_=own_code.Own")
    file, outputs = tmp_path / "own_code.py", tmp_path / "outputs"
    file.write_text(OWN)
    assert command_line(*words, outputs=outputs) == 0
    noted = only(outputs).document["sources"]
    assert {"own_code", "latticework.models.ising"} <= set(noted)
    assert "latticework.sampling.metrics" in noted  # of a list
    environment._hash.cache_clear()  # as in another process
    assert command_line(*words, outputs=outputs) == 0
    assert "has changed" not in caplog.text
    file.write_text(f"{OWN}# edited")
    assert command_line(*words, outputs=outputs) == 0
    assert "has changed" not in caplog.text  # this process has loaded the old code
    environment._hash.cache_clear()
    assert command_line(*words, outputs=outputs) == 0
    assert "the code of own_code has changed since this run" in caplog.text
    assert not superseded(outputs)
    sys.modules.pop("own_code")
    environment._hash.cache_clear()


def test_force_runs_it_again_and_keeps_the_old_record(outputs):
    old = only(outputs)
    before = numbers(old)
    edit(old, mark="old")
    assert command_line(*SMALL, "force=true", outputs=outputs) == 0
    assert "mark" not in only(outputs).document
    assert numbers(only(outputs)) == before  # the same command, the same numbers
    (aside,) = superseded(outputs)
    assert load_record(aside).document["mark"] == "old"
    assert numbers(load_record(aside)) == before


def test_experiments_of_one_name_leave_one_anothers_records(tmp_path):
    words = ("name=shared", "scale=smoke", "model.shape=[2,2]", "sampler=gwg", "seed=0")
    for experiment in ("ising_sampling", "ising_sampling_compiled"):
        assert command_line(f"experiment={experiment}", *words, outputs=tmp_path) == 0
    assert command_line(*words, outputs=tmp_path) == 0
    assert len(load_all(tmp_path)) == 3
    assert not superseded(tmp_path)


def test_a_model_whose_file_was_replaced_is_sampled_again(tmp_path):
    """The configuration holds the file's name, the record its checksum."""
    file, outputs = tmp_path / "model.npz", tmp_path / "outputs"
    words = ("scale=smoke", "model=rbm", "model.visible=6", "model.hidden=3", "sampler=gwg")
    load = (*words, "pretrain=stored", f"task.pretrain.file='{file}'")

    def store(value):
        np.savez(file, **{k: np.full(v.shape, value) for k, v in RBM(6, 3).state_dict().items()})

    store(np.float32(0.1))
    assert command_line(*load, outputs=outputs) == 0
    before = only(outputs).document
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert before["inputs"] == {"task.pretrain.file": digest}
    store(np.float32(0.2))
    assert command_line(*load, outputs=outputs) == 0
    assert only(outputs).document["loaded"] != before["loaded"]
    assert len(superseded(outputs)) == 1
    for gone in (False, True):  # as it is, and without the file
        if gone:
            file.unlink()
        stays = content(only(outputs).path)
        assert command_line(*load, outputs=outputs) == 0
        assert content(only(outputs).path) == stays


def test_an_unfinished_run_starts_afresh(outputs):
    """A record without run.json did not finish: none of its rows may be among the new ones."""
    record = only(outputs)
    (record.path / "run.json").unlink()
    with pytest.raises(FileNotFoundError, match="no finished run"):
        load_all(outputs)
    assert command_line(*SMALL, outputs=outputs) == 0
    assert list(only(outputs).metrics["step"]) == [0, 10, 20]
    assert not superseded(outputs)


@pytest.mark.parametrize("words", [(), ("seed=0,1", "-m")], ids=["run", "sweep"])
@pytest.mark.parametrize("by", ["variable", "word"])
def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch, by, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    given = {"variable": "~/y", "word": "elsewhere"}[by]
    more = ("outputs='~/y'",) if by == "word" else ()
    assert command_line(*SMALL[:2], "sampler=gwg", *more, *words, outputs=given) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert len(load_all(tmp_path / "home" / "y" / "sampling" / "smoke")) == (2 if words else 1)


# Sweeps and failures.


def test_a_failing_run_does_not_stop_the_sweep(tmp_path, capsys):
    words = (*SMALL[:2], "sampler=block_gibbs,gwg", "--multirun")
    assert command_line(*words, outputs=tmp_path) == 1
    out = capsys.readouterr().out
    assert "1 failed:" in out
    assert only(tmp_path).choices["sampler"] == "gwg"
    (error,) = tmp_path.rglob("error.txt")
    summary, *trace = error.read_text().splitlines()
    assert "sampler=block_gibbs" in error.parent.name
    assert summary.startswith("UnsupportedModelError: BlockGibbs needs a restricted Boltzmann")
    assert any("Traceback" in line for line in trace)
    assert f"{error.parent}  {summary}" in out
    assert not (error.parent / "run.json").exists()

    # Asked for again: what finished is skipped, what failed is tried again and told again.
    before = content(only(tmp_path).path)
    assert command_line(*words, outputs=tmp_path) == 1
    assert content(only(tmp_path).path) == before

    # An old failure is not this command's.
    assert command_line(*SMALL, outputs=tmp_path) == 0


NO_FILE = ("pretrain=stored", "task.pretrain.file=none")  # a run fails that finds no model there


def test_the_failure_of_another_command_is_not_this_commands(tmp_path):
    """Another process fails in the same folder while this command runs."""
    assert command_line(*SMALL, *NO_FILE, outputs=tmp_path) == 1
    (error,) = tmp_path.rglob("error.txt")
    os.utime(error, (time.time() + 1000,) * 2)
    assert command_line(*SMALL, outputs=tmp_path) == 0
    assert command_line(*SMALL, "seed=0,1", "--multirun", outputs=tmp_path) == 0


@pytest.mark.slow
def test_failures_under_their_own_names_compose_no_run_again(tmp_path, monkeypatch):
    """A composition takes 0.1 s, and a sweep may have hundreds of runs."""

    def composed(*_):
        raise AssertionError

    monkeypatch.setattr(Sweep, "runs_of_record", composed)
    monkeypatch.setattr(latticework.experiments.callback, "_show_sweep", lambda *_: None)
    words = (*SMALL, *NO_FILE, "~figures", "seed=0,1", "--multirun")
    assert command_line(*words, outputs=tmp_path) == 1


def test_samplers_of_a_sweep_share_their_start(tmp_path):
    words = ("experiment=ising_sampling", "scale=smoke", "~figures", "sampler=gwg,dula")
    words += ("model.shape=[3,3]",)
    assert command_line(*words, outputs=tmp_path) == 0
    dula, gwg = load_all(tmp_path)
    assert (gwg.choices["sampler"], dula.choices["sampler"]) == ("gwg", "dula")
    assert gwg.metrics["log_rmse"][0] == dula.metrics["log_rmse"][0]
    assert gwg.metrics["log_rmse"][2] != dula.metrics["log_rmse"][2]


def test_a_run_that_succeeds_at_last_leaves_no_error(tmp_path):
    assert command_line(*SMALL, *NO_FILE, outputs=tmp_path) == 1
    (error,) = tmp_path.rglob("error.txt")
    assert "must be an existing file, got none" in error.read_text()
    words = (*SMALL, "budget.every=5")
    assert command_line(*words, outputs=tmp_path) == 0
    error.rename(only(tmp_path).path / "error.txt")
    (only(tmp_path).path / "run.json").unlink()
    assert command_line(*words, outputs=tmp_path) == 0
    assert not list(tmp_path.rglob("error.txt"))


# Substitute data.

DIGITS = ("model.shape=[2,2]", "scale=smoke", "data=mnist", "data.root=null", "data.download=false")


def test_a_sweep_reads_its_data_once(tmp_path):
    """Runs that name the same data share them; a run that names others does not."""
    latticework.run.load_data.cache_clear()
    words = ("model.shape=[2,2]", "scale=smoke", "data=digits", "sampler=gibbs", "~figures")
    assert command_line(*words, "seed=0,1,2", "-m", outputs=tmp_path) == 0
    assert latticework.run.load_data.cache_info()[:2] == (2, 1)  # hits, misses
    assert command_line(*words, "data.seed=1", outputs=tmp_path) == 0
    assert latticework.run.load_data.cache_info()[:2] == (2, 2)


def test_a_substitute_is_marked_and_kept_until_it_is_forced(tmp_path, monkeypatch, caplog):
    monkeypatch.delenv("LATTICEWORK_DATA", raising=False)
    words = (*DIGITS, f"data.cache={tmp_path / 'none'}")
    assert command_line(*words, outputs=tmp_path) == 0
    record = only(tmp_path)
    assert "digits" in record.substitute
    assert "in place of mnist" in record.substitute
    texts = []
    for records in ([record], []):
        figure, _ = new_figure()
        mark_substitute(figure, records)
        texts.append([text.get_text() for text in figure.texts])
    assert texts[0] == [f"SUBSTITUTE DATA\n{record.substitute}"]
    assert texts[1] == []

    before = content(record.path)
    caplog.clear()
    with caplog.at_level("WARNING"):
        assert command_line(*words, outputs=tmp_path) == 0
    assert content(record.path) == before
    assert "force=true runs it again" in caplog.text

    # The folder matches, but the data may be elsewhere now, so the run does not count as finished.
    (tmp_path / "root").mkdir()
    elsewhere = [f"data.root={tmp_path / 'root'}" if "root" in w else w for w in words]
    assert command_line(*elsewhere, outputs=tmp_path) == 0
    assert len(superseded(tmp_path)) == 1
    assert command_line(*elsewhere, "data.strict=true", outputs=tmp_path) == 1
    (error,) = tmp_path.rglob("error.txt")
    assert error.read_text().startswith("MissingFileError")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"data": {"substitute": True, "variant": "digits"}}, "SUBSTITUTE of its data: digits"),
        ({"data": {"substitute": False, "variant": "mnist"}}, ""),
        ({"data": None}, ""),
        (
            {"language": {"substitute": True, "used": "mini_bert", "asked": "bert"}},
            "SUBSTITUTE MODEL: mini_bert in place of bert",
        ),
        ({"language": {"substitute": False, "used": "bert", "asked": "bert"}}, ""),
    ],
)
def test_a_record_of_a_substitute_is_said_to_be_one(document, words):
    assert _describe_substitute(document) == words


def test_a_folder_with_a_model_that_was_replaced_is_noticed(tmp_path):
    config = {"model": {"language": {"checkpoint": str(tmp_path / "bert")}, "checkpoint": 300}}
    assert input_checksums(config) == {}  # a name on the hub
    (tmp_path / "bert" / ".cache").mkdir(parents=True)
    for name in ("vocab.txt", "model.safetensors"):
        (tmp_path / "bert" / name).write_text(name)
    earlier = {"inputs": input_checksums(config)}
    assert list(earlier["inputs"]) == ["model.language.checkpoint"]
    (tmp_path / "bert" / ".lock").write_text("hidden")
    assert changed_inputs(earlier, config) == ""
    (tmp_path / "bert" / "model.safetensors").write_text("trained further")
    assert changed_inputs(earlier, config) == "model.language.checkpoint"


# Chance.


def draw(generator):
    return torch.rand(4, generator=generator).tolist()


def test_a_generator_depends_on_seed_and_purpose_only(tmp_path):
    run, again = Run(tmp_path, seed=3), Run(tmp_path / "other", seed=3, model_seed=9)
    first = draw(run.rng("chain"))
    draw(run.rng("start"))
    torch.rand(5)
    assert draw(run.rng("chain")) == first  # whatever was drawn before
    assert draw(again.rng("chain")) == first  # in whatever folder, with whatever model seed
    others = [run.rng("start"), Run(tmp_path, seed=4).rng("chain"), run.shared_rng("chain")]
    assert len({tuple(draw(rng)) for rng in others} | {tuple(first)}) == 4


def test_seeded_code_leaves_the_global_generator_alone(tmp_path):
    state = torch.get_rng_state()
    with Run(tmp_path, seed=1).seed_global_rng("model"):
        first = torch.rand(3)
    with Run(tmp_path, seed=2).seed_global_rng("model"):
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), state)


def test_rows_must_have_the_columns_of_the_first(tmp_path):
    run = Run(tmp_path)
    run.log(0, error=1.0)
    with pytest.raises(ValueError, match="surprise"):
        run.log(1, error=1.0, surprise=2.0)
