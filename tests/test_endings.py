"""What a command shows at its end: a run, the comparison of a sweep, and its progress."""

import json
import multiprocessing
import re

import numpy as np
import pandas as pd
import pytest
from command import command_line
from fakes import fake

import latticework.experiments.result_tables
from latticework.experiments.papers.exhibits import catalogue
from latticework.experiments.papers.rendering import write_table
from latticework.experiments.records.estimates import (
    Estimate,
    KeyNumber,
    format_estimate,
    headline,
)
from latticework.experiments.records.likelihood import log_z_error
from latticework.experiments.records.record import load_all
from latticework.experiments.result_tables import _format_numbers, show_sweep, show_table
from latticework.experiments.runs.outcomes import RunCounter
from latticework.scripts.reproduce import tables

pytestmark = pytest.mark.usefixtures("eager")

TINY = ("model.shape=[2,2]", "scale=smoke")


def row(lines, first):
    """The cells of the row whose first cell is `first`."""
    (found,) = [cells for line in lines if (cells := re.split(r" {2,}", line.strip()))[0] == first]
    return found


# A run.


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    return tmp_path_factory.mktemp("outputs")


def test_a_run_ends_with_its_numbers_their_errors_and_the_exact_value(outputs, capsys):
    assert command_line(*TINY, outputs=outputs) == 0
    lines = capsys.readouterr().out.splitlines()
    (record,) = load_all(outputs)
    found, exact = record.arrays("convergence"), record.document["mean_exact"]
    mean = Estimate(float(found["mean"]), float(found["mean_error"]))
    assert row(lines, "mean") == ["mean", format_estimate(mean), f"exact {exact:.4g}"]
    assert row(lines, "ESS worst")[1] == f"{np.nanmin(found['ess']):.4g}"
    assert any("20 evaluations a chain" in line for line in lines)
    assert any(line.startswith("sampling, ising, dmala, seed 0") for line in lines)


def test_a_run_that_cannot_be_shown_is_finished_all_the_same(tmp_path, capsys, monkeypatch):
    def broken(_):
        raise RuntimeError("no terminal")

    monkeypatch.setattr(latticework.experiments.result_tables, "show_run", broken)
    assert command_line(*TINY, outputs=tmp_path) == 0
    assert "complete, but could not be shown: RuntimeError: no terminal" in capsys.readouterr().out


def test_ais_shows_log_z_its_bounds_and_the_exact_value(tmp_path, capsys):
    assert command_line(*TINY, "task=ais", outputs=tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    (record,) = load_all(tmp_path)
    facts = record.document
    log_z = format_estimate(Estimate(facts["log_z"], log_z_error(record)))
    assert row(lines, "log Z") == ["log Z", log_z, f"exact {facts['log_z_exact']:.4g}"]
    shown = float(row(lines, "log Z at least")[1].split()[0])
    assert shown == pytest.approx(facts["log_z_lower"], abs=0.05)
    assert any("standard error over chains" in line for line in lines)


def test_a_single_failure_is_told_once(tmp_path, capsys):
    assert command_line(*TINY, "sampler=block_gibbs", outputs=tmp_path) == 1
    told = capsys.readouterr()
    assert (told.out + told.err).count("BlockGibbs needs a restricted Boltzmann machine") == 1
    assert "the traceback is in" in told.out


# The headline of a record.


def measured(value, *, sampler="dmala", seed=0, **more):
    """A record of task=sampling with this log RMSE and acceptance."""
    task = {"_target_": "latticework.experiments.tasks.sampling.sample", "steps": 20}
    columns = {"step": [0, 20], "log_rmse": [0.0, value], "acceptance": [1.0, 0.5]}
    config = {"task": task, "model_seed": 0, **more.pop("config", {})}
    return fake(columns, sampler=sampler, seed=seed, config=config, **more)


def test_the_papers_number_stands_beside_ours_on_the_real_data():
    config = {"published": {"log_rmse": ["fig4", "dmala"], "acceptance": ["fig4", "nothing"]}}
    first, second = headline(measured(-2.0, config=config))
    assert first.references == {"paper": Estimate(-6.5)}
    assert second.references == {}
    data = {"variant": "digits", "substitute": True}
    assert headline(measured(-2.0, config=config, data=data))[0].references == {}
    for scale, count in (("paper", 1), ("quick", 1), ("smoke", 0)):
        scaled = measured(-2.0, config={**config, "scale": scale})
        assert len(headline(scaled)[0].references) == count


@pytest.mark.parametrize("task", ["elsewhere.of_ones_own", "latticework.experiments.tasks.ais.ais"])
def test_without_a_headline_the_last_readings_are_shown(task, tmp_path):
    """A task that declares none, an older record that lacks a fact, and one that logs nothing."""
    columns, config = {"step": [0, 1], "seconds": [0, 1], "ess": [2.0, 1.0]}, {"_target_": task}
    assert headline(fake(columns, config={"task": config})) == [KeyNumber("ess", 1.0)]
    entries = {"choices": {}, "overrides": [], "versions": {}, "seconds": 1.0}
    (tmp_path / "run.json").write_text(json.dumps({"config": {"task": config}, **entries}))
    (record,) = load_all(tmp_path)
    assert headline(record) == []


# Several runs.


COUPLINGS = {0.1: -3.0, 0.3: -2.0}
SAMPLERS = {"gwg": -2.0, "dula": -2.95, "dmala": -3.0}
SWEEPS = {
    "three seeds a row": [
        measured(mean + off, sampler=sampler, seed=seed)
        for sampler, mean in SAMPLERS.items()
        for seed, off in enumerate((0.0, 0.1, -0.1))
    ],
    "two seeds a row": [
        measured(mean + seed / 9, sampler=sampler, seed=seed)
        for sampler, mean in SAMPLERS.items()
        for seed in (0, 1)
    ],
    "different targets": [
        measured(mean + 0.01 * seed, seed=seed, config={"model": {"coupling": coupling}})
        for coupling, mean in COUPLINGS.items()
        for seed in range(3)
    ],
    "seeds of one setting": [measured(-2.0 - seed, seed=seed) for seed in (3, 1)],
    "too wide": [measured(-2, sampler="gwg"), measured(-3)],
}


@pytest.mark.parametrize("counts", [(1, 3), (3, 1), (1, 1, 2), (1, 1), (2, 2), (4,)])
def test_a_table_has_one_kind_of_error(counts, monkeypatch, capsys):
    """Standard errors within a run, or standard deviations over seeds where a row has several."""

    def heads(record):
        return [KeyNumber("mean", record.config["seed"] / 7, 0.25, "chains")]

    monkeypatch.setattr(latticework.experiments.result_tables, "headline", heads)
    samplers = ("gwg", "dula", "dmala")
    show_sweep([
        fake(sampler=sampler, seed=seed)
        for sampler, count in zip(samplers, counts, strict=False)
        for seed in range(count)
    ])  # fmt: skip
    told = capsys.readouterr().out
    several = max(counts) > 1
    assert ("± standard deviations over" in told) == several
    assert ("± is a standard error over chains" in told) == (not several)
    assert ("± 0.25" in told) == (not several)


@pytest.mark.parametrize("name", SWEEPS)
def test_the_rows_of_a_sweep_show_means_and_spreads(name, golden, capsys, monkeypatch):
    """Means and standard deviations over seeds. rich breaks what is too wide into lines."""
    if name == "too wide":
        monkeypatch.setattr(latticework.experiments.result_tables, "WIDTH", 32)
    show_sweep(SWEEPS[name])
    golden(capsys.readouterr().out)


def test_a_sweep_tells_its_progress_and_compares_its_runs(tmp_path, capsys):
    words = (*TINY, "sampler=gwg,block_gibbs,dmala", "--multirun")
    assert command_line(*words, outputs=tmp_path) == 1
    told = capsys.readouterr().out
    assert told.startswith(f"3 runs in {tmp_path}")
    assert re.search(r"^1 of 3 runs: \S+sampler=gwg: mean ", told, re.MULTILINE)
    assert re.search(r"^2 of 3 runs: \S+: failed: Unsupp", told, re.MULTILINE)
    assert re.search(r"^3 of 3 runs: \S+sampler=dmala: mean ", told, re.MULTILINE)
    assert sum("of 3 runs" in line for line in told.splitlines()) == 3
    lines = told.splitlines()
    assert len(row(lines, "GWG-1")) == len(row(lines, "DMALA")) > 4
    assert not list(tmp_path.rglob(".sweep-*"))


def test_runs_are_counted_over_all_processes(tmp_path):
    counter = RunCounter.start(tmp_path, 8)
    with multiprocessing.get_context("fork").Pool(4) as pool:
        lines = [pool.apply_async(counter.count_run, [f"seed={n}"]) for n in range(8)]
        told = sorted(line.get() for line in lines)
    assert [line.partition(":")[0] for line in told] == [f"{n} of 8 runs" for n in range(1, 9)]
    assert {line.partition(": ")[2] for line in told} == {f"seed={n}" for n in range(8)}


def test_a_search_without_a_number_of_runs_counts_them(tmp_path):
    counter = RunCounter.start(tmp_path, 0)
    assert counter.count_run("a\nb") == "1 runs so far: a b"
    assert counter.count_run("c") == "2 runs so far: c"


def test_runs_that_print_into_their_own_logs_are_told_as_they_end(tmp_path, capsys):
    """In two calls of a launcher, as a search makes them; runs before them are not told again."""
    counter = RunCounter.start(tmp_path, 4)
    counter.count_run("before")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for names in (["one", "two"], ["three"]):
            with counter.follow():
                pool.map(counter.count_run, names, chunksize=1)
            told = capsys.readouterr().out.splitlines()
            assert sorted(line.rpartition(": ")[2] for line in told) == sorted(names)
    assert told == ["4 of 4 runs: three"]
    with pytest.raises(KeyError), counter.follow():  # what a launcher raises goes on
        raise KeyError


# Tables of the papers.


def test_a_papers_table_is_shown(tmp_path, golden, capsys):
    frame = pd.DataFrame([{"data": "compas", "RMSE": Estimate(0.5, 0.1, 3), "budget": "x" * 120}])
    write_table(frame, tmp_path / "table2.csv")
    show_table(tmp_path / "table2.md")
    golden(capsys.readouterr().out.replace(str(tmp_path), "."))


def test_make_shows_the_tables_that_it_was_asked_for(tmp_path):
    for name in ("bnn/quick/tables/table2.md", "bnn/quick/tables/more.md", "bnn/paper/tables/a.md"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    found = tables(catalogue(), ["table2"], "quick", tmp_path)
    assert [file.name for file in found] == ["more.md", "table2.md"]
    assert tables(catalogue(), ["all"], "quick", tmp_path) == []
    assert tables(catalogue(), ["fig3"], "quick", tmp_path) == []


def test_texts_over_seeds_are_short():
    """Where chains of a benchmark disagree, each seed has its own R-hat, which may be infinite."""

    def text(*values):
        numbers = [KeyNumber("R-hat", value) for value in values]
        return _format_numbers(numbers, has_spreads=True)

    assert text("infinite", 1.23456789) == "1.235, infinite"
    assert text("infinite", "infinite") == "infinite"
    assert text("infinite", 20.2601, 40.351, 3.2) == "20.26 and 3 others"
