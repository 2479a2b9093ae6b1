"""One record for one resolved configuration, in whatever spelling its run is asked for."""

import copy
import json
import os
import re
import shutil
import signal
import sys
from collections import Counter
from importlib import import_module
from types import SimpleNamespace

import pytest
from command import command_line
from fakes import fake
from kills import ended, start

from latticework.experiments.records.estimates import (
    CONF,
    _find_headline,
    _tasks,
    headline,
    last_row,
)
from latticework.experiments.records.grouping import groups
from latticework.experiments.records.identity import (
    BEFORE,
    digest,
    find_run_folder,
    folder_name,
    has_same_identity,
    list_names,
    run_name,
    short_name,
    strip_digest,
)
from latticework.experiments.records.record import load_all, open_record
from latticework.experiments.runs.run import Run

pytestmark = pytest.mark.usefixtures("eager")

SMALL = ("model=ising", "model.shape=[3,3]", "scale=smoke", "sampler=dmala")


def records(outputs):
    return [r for r in load_all(outputs) if "superseded" not in r.path.parts]


def folders(outputs):
    return sorted(path.name for path in (outputs / "sampling" / "smoke").iterdir() if path.is_dir())


def test_settings_that_older_records_lack_mean_null():
    """Else every tempered record of before would be run again."""
    old = {
        "sampler": {"_target_": "latticework.samplers.tempered.Tempered", "rounds": 8},
        "data": {"_target_": "latticework.data.tables.COMPAS", "limit": None},
        "seed": 0,
    }
    new = {**old, "sampler": {**old["sampler"], "acceptance": None, "log_odds": None}}
    new["data"] = {**old["data"], "normalise": None}
    assert digest(old) == digest(new)
    adapted = {**old, "sampler": {**old["sampler"], "acceptance": 0.5}}
    assert digest(old) != digest(adapted)
    assert digest(old) != digest({**old, "sampler": {**old["sampler"], "levels": None}})


def test_spellings_give_one_record(tmp_path):
    """The tuned step size is 0.4: as 0.40 and 4e-1, and not spelled out at all."""
    for step_size in ("0.40", "4e-1"):
        words = (*SMALL, f"sampler.step_size={step_size}")
        assert command_line(*words, outputs=tmp_path) == 0
    (record,) = records(tmp_path)
    assert "sampler.step_size=0.4," in record.path.name
    before = (record.path / "run.json").stat().st_mtime_ns
    assert command_line(*SMALL, outputs=tmp_path) == 0
    assert command_line("scale=smoke", "model.shape=[3, 3]", outputs=tmp_path) == 0  # all defaults
    (record,) = records(tmp_path)
    assert (record.path / "run.json").stat().st_mtime_ns == before
    assert folders(tmp_path) == [record.path.name]
    named = record.path.with_name(strip_digest(record.path.name))
    assert open_record(named).path == open_record(record.path).path == record.path
    assert command_line(*SMALL, "sampler.step_size=0.41", outputs=tmp_path) == 0
    assert command_line(*SMALL, "seed=1", outputs=tmp_path) == 0
    assert len(records(tmp_path)) == 3  # control: other settings and seeds are other records


def test_an_unfinished_run_goes_on_in_another_spelling(tmp_path, monkeypatch, capsys):
    """SIGTERM comes at step 10 of 20."""
    log_row = Run.log

    def interrupt(self, step, **values):
        log_row(self, step, **values)
        if step == 10:
            os.kill(os.getpid(), signal.SIGTERM)

    words = (*SMALL, "hydra/job_logging=default")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "log", interrupt)
        status = command_line(*words, "sampler.step_size=0.3", outputs=tmp_path)
        assert status == 128 + signal.SIGTERM
    (name,) = folders(tmp_path)
    assert command_line(*words, "sampler.step_size=3e-1", outputs=tmp_path) == 0
    assert folders(tmp_path) == [name]
    (record,) = records(tmp_path)
    assert list(record.metrics["step"]) == [0, 10, 20]
    assert "resumes from iteration" in capsys.readouterr().out


def test_two_processes_that_spell_it_differently_make_one_record(tmp_path):
    spellings = ([], ["sampler.step_size=.40"], ["model.bias=2e-1"], ["sampler=dmala"])
    started = [start("scale=smoke", *words, outputs=tmp_path) for words in spellings]
    assert [ended(pid) for pid in started] == [0] * len(spellings)
    assert len(records(tmp_path)) == 1
    assert len(folders(tmp_path)) == 1


def test_a_changed_default_retires_the_record_that_bears_the_name(tmp_path):
    """Once it is what another record has already: no stale record is left to be counted."""
    assert command_line(*SMALL, outputs=tmp_path) == 0
    (stale,) = records(tmp_path)
    sampler = {**stale.config["sampler"], "step_size": 0.7}  # what the default was
    document = {**stale.document, "config": {**stale.config, "sampler": sampler}}
    named = run_name(SMALL, ["scale"]), digest(document["config"])[:8]
    folder = stale.path.rename(stale.path.with_name("-".join(named)))
    (folder / "run.json").write_text(json.dumps(document))
    assert command_line(*SMALL, "sampler.step_size=0.4", outputs=tmp_path) == 0
    assert len(records(tmp_path)) == 2
    assert command_line(*SMALL, outputs=tmp_path) == 0
    (record,) = records(tmp_path)
    assert record.config["sampler"]["step_size"] == 0.4
    assert len(list((tmp_path / "superseded").rglob("run.json"))) == 1


# Names and digests.


def test_names_are_readable_and_have_one_spelling():
    assert run_name([]) == "default"
    assert run_name(["seed=0", "sampler.step_size=3e-1"]) == "sampler.step_size=0.3,seed=0"
    assert run_name(["model.shape=[3, 3]", "seed=1", "seed=2"]) == "model.shape=[3,3],seed=2"
    assert run_name(["scale=smoke", "seed=1"], ["scale"]) == "seed=1"
    cut, same_cut = (run_name([f"task.text='{'a' * 200}{end}'"]) for end in "bc")
    assert cut != same_cut  # a digest tells apart what was cut
    assert len(cut) < 140
    assert run_name(["task.text='a b'"]) != run_name(["task.text='a_b'"])  # or replaced


def test_the_identity_is_of_values_not_of_where_and_how():
    def config(**changes):
        return {
            "task": {
                "steps": 10,
                "data": {"_target_": "latticework.data.images.MNIST", "root": "/a"},
            },
            "sampler": {"step_size": 1.0}, "seed": 0, "budget": {"steps": 10}, "device": "cpu",
            **changes,
        }  # fmt: skip

    mine = digest(config())
    assert digest(config(sampler={"step_size": 1}, device="cuda", budget=None)) == mine
    moved = {"steps": 10, "data": {"_target_": "latticework.data.images.MNIST", "root": "/b"}}
    assert digest(config(task=moved)) == mine
    assert digest(config(seed=1)) != mine
    assert digest(config(seed=1), seeds=False) == digest(config(), seeds=False)
    assert digest(config(sampler={"step_size": 1.5})) != mine
    assert digest(config(sampler={"step_size": True})) != mine
    assert digest(config(sampler={"step_size": None})) != mine
    assert digest(config(sampler={"step_size": float("inf")})) != mine


def test_settings_that_came_later_compare_with_what_was_done_without_them():
    """For verdicts on older records; the folder of a run keeps its digits."""
    for key, value in BEFORE.items():
        *outer, last = key.split(".")
        old: dict = {"task": {"pretrain": {"a": 1}}, "data": {"a": 1}, "sampler": {"a": 1}}
        new = copy.deepcopy(old)
        node = new
        for name in outer:
            node = node[name]
        node[last] = value
        assert digest(old, seeds=False) == digest(new, seeds=False)
        assert digest(old) != digest(new)
        node[last] = "another"
        assert digest(old, seeds=False) != digest(new, seeds=False)
        assert node[last] == "another"  # the settings themselves stay


def test_what_only_passes_numbers_on_is_not_part_of_the_identity():
    """Nodes of older configurations that a run is not built from: an older record still matches."""
    parts = {"model": {"hidden": 3}, "task": {"chains": 4, "pretrain": None}, "seed": 0}
    older = {
        **parts,
        "scales": {"paper": {"chains": 4, "hidden": 3, "blog": 1}},
        "budget": {"chains": 4, "warmup": 5, "learning_rate": 0.1},
        "hidden": {"compas": 3, "blog": 1},
        "buffers": {"mnist": 8},
        "iterations": {"gibbs": 50},
        "negatives": {"particles": 100},
        "start": {"_partial_": True},
        "truth": {"shape": [3, 3]},
        "conventions": "correct",
    }
    newer = {**parts, "scales": {"paper": {"hidden": {"others": 3}}}, "budget": {"chains": 4}}
    assert digest(older) == digest(newer)
    assert has_same_identity({"config": older}, newer)
    for key, value in {"model": {"hidden": 4}, "task": {**parts["task"], "pretrain": {}}}.items():
        assert not has_same_identity({"config": older}, {**newer, key: value})  # control


def test_a_finished_folder_goes_before_an_unfinished_one(tmp_path):
    config = {"task": {"steps": 1}}
    for name in "abcd":
        folder = tmp_path / folder_name(config, [f"x={name}"], ())
        folder.mkdir()
        (folder / ("run.json" if name == "c" else ".lock" if name == "b" else "empty")).touch()
    names = {find_run_folder(tmp_path, config, list_names(tmp_path)).name}
    shutil.rmtree(tmp_path / folder_name(config, ["x=c"], ()))
    names.add(find_run_folder(tmp_path, config, list_names(tmp_path)).name)
    assert {strip_digest(name) for name in names} == {"x=b", "x=c"}
    assert find_run_folder(tmp_path, {"task": {"steps": 2}}, list_names(tmp_path)) is None


def test_a_module_that_moves_changes_no_number_and_runs_nothing_again(tmp_path, capsys):
    """The record of a run is found, shown and grouped as before, wherever its classes were then."""
    assert command_line(*SMALL, outputs=tmp_path) == 0
    (new,) = records(tmp_path)
    text = json.dumps({**new.document, "mark": "moved"})
    for place in ("samplers.langevin", "models.ising", "experiments.tasks.sampling"):
        assert f"latticework.{place}." in text
        text = text.replace(f"latticework.{place}.", "latticework.gone.")
    (new.path / "run.json").write_text(text)
    capsys.readouterr()
    assert command_line(*SMALL, "hydra/job_logging=default", outputs=tmp_path) == 0
    shown = capsys.readouterr().out
    assert "already finished" in shown
    assert "has changed since" not in shown
    (old,) = records(tmp_path)
    assert old.document["mark"] == "moved"
    assert digest(old.config) == digest(new.config)
    assert [len(group.records) for group in groups([old, new])] == [1]  # the same run
    assert headline(old) == headline(new) != last_row(new)


def test_a_task_that_is_gone_is_said_to_be_gone(caplog):
    record = fake({"step": [0], "a": [1.0]}, config={"task": {"_target_": "latticework.gone.task"}})
    assert headline(record) == last_row(record)
    assert "latticework.gone.task is not a task of conf/task" in caplog.text


def test_a_record_imports_no_code(tmp_path, monkeypatch, caplog):
    """Only tasks of conf/task, whatever its `_target_` is. A loaded module may be used."""
    (tmp_path / "planted.py").write_text("raise SystemExit('executed')")
    monkeypatch.syspath_prepend(tmp_path)
    targets = ["planted.task", "planted", "antigravity.sample", "workshop.slurm.main"]
    for target in [*targets, "latticework.experiments.records.estimates.task", "", None]:
        record = fake({"step": [0], "a": [1.0]}, config={"task": {"_target_": target}})
        assert headline(record) == last_row(record)
        assert f"{target} is not a task of conf/task" in caplog.text
    assert not {"planted", "antigravity", "workshop.slurm"} & set(sys.modules)
    monkeypatch.setitem(sys.modules, "loaded", SimpleNamespace(headline=lambda _: ["its own"]))
    record = fake(config={"task": {"_target_": "loaded.task"}, "published": {}})
    assert _find_headline(record)(record) == ["its own"]


def test_every_task_of_the_package_has_its_headline():
    for name, path in _tasks().items():
        record = fake(config={"task": {"_target_": path}})
        module = import_module(path.rpartition(".")[0])
        assert _find_headline(record) is getattr(module, "headline", last_row), name


def test_short_names_are_those_of_one_class_or_function_each():
    """In all that a run is built from. A name outside of this package keeps its path."""
    assert short_name("torch.optim.Adam") == "torch.optim.Adam"
    texts = [file.read_text() for file in CONF.rglob("*.yaml")]
    paths = {path for text in texts for path in re.findall(r"_target_: (latticework[\w.]+)", text)}
    drawn = "latticework.experiments.figures."
    known = Counter(short_name(path) for path in paths if not path.startswith(drawn))
    assert len(known) > 90
    assert [name for name, count in known.items() if count > 1] == []


def test_other_records_are_not_opened(tmp_path, monkeypatch):
    """A sweep asks for each of its runs beside thousands of records: their names suffice."""
    for number in range(30):
        folder = tmp_path / f"x={number}-{number:08x}"
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({"config": {"task": {"a": number}}}))
    wanted = {"task": {"a": "new"}, "seed": 3}
    folder = tmp_path / f"x=new-{digest(wanted)[:8]}"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    opened = Counter()
    open_file = os.open

    def count(path, *args, **kwargs):
        opened[str(path)] += 1
        return open_file(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", count)
    names = list_names(tmp_path)
    for seed in range(20):
        place = find_run_folder(tmp_path, {"task": {"a": "new"}, "seed": seed}, names)
        assert place == (folder if seed == 3 else None)
    assert not opened
