"""Checkpoints that cannot be used: damaged, of other settings or another device."""

import csv

import numpy as np
import pytest
import torch
from checkpointed_work import (
    CONFIG,
    One,
    begin,
    content,
    content_of_whole_run,
    crash_work,
    files,
    work,
)
from kills import cut_short, flip_a_byte

import latticework as lw
from latticework.experiments.runs.environment import input_checksums
from latticework.experiments.runs.errors import ConfigurationError
from latticework.sampling.loop_state import from_checkpoint, to_checkpoint


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return content_of_whole_run(tmp_path_factory.mktemp("whole"))


def half_a_row(path):
    with (path / "metrics.csv").open("a") as file:
        file.write("12,0.3")
    (path / "checkpoints" / "work-0000000010.partial").write_bytes(b"half")


def lose_rows(path):
    """8 knows of two rows, 9 of three."""
    lines = (path / "metrics.csv").read_text().splitlines(keepends=True)
    (path / "metrics.csv").write_text("".join(lines[:3]))


def of_checkpoints(harm, *places):
    def harmed(path):
        for place in places:
            harm(path / "checkpoints" / files(path)[place])

    return harmed


@pytest.mark.parametrize(
    ("harm", "iteration"),
    [
        (half_a_row, 9),
        (lose_rows, 8),
        (of_checkpoints(flip_a_byte, -1), 8),
        (of_checkpoints(cut_short, -1), 8),
        (of_checkpoints(cut_short, 0, 1), None),
    ],
)
def test_what_is_damaged_gives_way_to_the_checkpoint_before(tmp_path, expected, harm, iteration):
    crash_work(tmp_path, 10)
    harm(tmp_path)
    run = begin(tmp_path)
    assert run._saved.get("work", {}).get("iteration") == iteration
    assert (tmp_path / "metrics.csv").exists() is (iteration is not None)
    assert content(run, work(run)) == expected


def everything(folder):
    """The bytes of every file below `folder`, by name."""
    return {f.name: f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_another_configuration_starts_afresh_and_keeps_what_is_there(tmp_path, expected, caplog):
    """Hours of work may be in the checkpoints: nothing of them is deleted."""
    crash_work(tmp_path / "run", 9)
    before = everything(tmp_path / "run")
    assert {"metrics.csv", "work-0000000008.pt"} <= set(before)
    run = begin(tmp_path / "run", {**CONFIG, "seed": 1})
    assert "another configuration" in caplog.text
    assert run._saved == everything(tmp_path / "run") == {}
    assert everything(tmp_path / "superseded") == before
    assert content(run, work(run))[1] == expected[1]  # Run itself was given the same seed


def test_a_file_that_was_replaced_takes_the_checkpoint_with_it(tmp_path, caplog):
    file = tmp_path / "model.npz"
    file.write_text("one")
    config = {**CONFIG, "pretrain": {"file": str(file)}}
    run = begin(tmp_path / "run", config)
    run.note(inputs=input_checksums(config))
    list(run.resumable(One(), "work", total=2))
    assert begin(tmp_path / "run", config)._saved
    file.write_text("two")
    assert begin(tmp_path / "run", config)._saved == {}
    assert "pretrain.file has changed since" in caplog.text


def test_another_device_is_refused_and_nothing_is_touched(tmp_path, expected):
    crash_work(tmp_path / "run", 9)
    before = everything(tmp_path / "run")
    told = "made on cpu, and this run is on meta: give device=cpu to continue, or force=true"
    with pytest.raises(ConfigurationError, match=told):
        begin(tmp_path / "run", device="meta")
    assert everything(tmp_path / "run") == before
    begin(tmp_path / "run", device="meta", force=True)
    assert everything(tmp_path / "superseded") == before
    run = begin(tmp_path / "run")
    assert content(run, work(run)) == expected


def test_another_model_starts_afresh_and_the_earlier_checkpoints_are_kept(tmp_path, caplog):
    crash_work(tmp_path / "run", 9)
    run = begin(tmp_path / "run")
    before = everything(tmp_path / "run")
    whole = begin(tmp_path / "whole")
    assert content(run, work(run, hidden=2)) == content(whole, work(whole, hidden=2))
    assert "it has another model" in caplog.text
    assert everything(tmp_path / "superseded") == before


def test_rows_of_a_loop_whose_checkpoint_is_refused_are_cut(tmp_path):
    """Loop A ends with 3 rows. Loop B stops with 3 more, and is then started with another model."""

    def go(size, stop=None):
        run = begin(tmp_path, checkpoint=0.0)
        for iteration in run.resumable(One(torch.nn.Linear(2, 2)), "A", total=3):
            run.log(iteration, v=1)
        for iteration in run.resumable(One(torch.nn.Linear(size, 2)), "B", total=4):
            if iteration == stop:
                return
            run.log(iteration, v=2)

    go(2, stop=4)
    go(3)
    with (tmp_path / "metrics.csv").open() as file:
        steps = [int(row["step"]) for row in csv.DictReader(file)]
    assert steps == [1, 2, 3, 1, 2, 3, 4]


def test_force_and_threads_are_no_part_of_the_configuration(tmp_path):
    """A scheduler that starts a job again gives the same words, force=true among them."""
    crash_work(tmp_path, 9)
    other = {**CONFIG, "threads": 2, "checkpoint": 7}
    assert begin(tmp_path, other, force=True)._saved["work"]["iteration"] == 8


def test_what_cannot_be_stored_is_told(tmp_path):
    with pytest.raises(TypeError, match="got object"):
        list(begin(tmp_path).resumable(One(object()), "work", total=1))


def test_a_tensor_comes_back_on_the_device_of_the_one_that_it_replaces():
    """Rows of the data are on the CPU, whatever the run's device; a list may have grown."""
    run = torch.device("meta")
    rows, chains = torch.empty(0, dtype=torch.long), torch.zeros(2, device=run)
    memory = {"rows": rows, "chains": chains, "drawn": []}
    saved = {"rows": torch.tensor([2, 1]), "chains": torch.ones(2), "drawn": [torch.ones(1)]}
    back = from_checkpoint(memory, saved, run)
    assert back["rows"].tolist() == [2, 1]
    assert back["chains"].device == run
    assert back["drawn"][0].device == run


def test_numbers_of_numpy_are_stored_as_plain_ones(tmp_path):
    """Safe loading refuses numpy's types, so such a checkpoint could never be read."""
    for _ in begin(tmp_path).resumable(One({np.str_("a"): [np.float64(0.1)]}), "work", total=2):
        pass
    document = begin(tmp_path)._saved["work"]
    assert document["memory"] == {"value": {"a": [0.1]}}
    with pytest.raises(TypeError, match="got int64"):
        to_checkpoint(np.int64(1))


def test_the_state_of_another_version_is_refused_before_it_is_used():
    """A sampler's state may get a field; what was stored of the earlier one does not fit."""
    state = lw.GibbsSweep().init(torch.zeros(2, 9), lw.Lattice((3, 3), 0.1))
    saved = to_checkpoint(tuple(state))
    assert type(from_checkpoint(state, saved, torch.device("cpu"))) is type(state)
    with pytest.raises(ValueError, match="another version of the code: .* delete the checkpoint"):
        from_checkpoint(state, saved[:-1], torch.device("cpu"))
