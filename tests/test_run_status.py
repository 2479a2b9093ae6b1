"""Experiments: where they stand in the catalogue, and which of their runs there are."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path

import documented
import pytest
from command import command_line
from report_parts import KNOWN, NOWHERE, PART, section
from test_bundle import at_the_papers_scale

import latticework.scripts.report
import latticework.scripts.reproduce
from latticework.experiments.papers.claims.verdict import Verdict
from latticework.experiments.papers.exhibits import catalogue
from latticework.experiments.papers.report_builder import build_report
from latticework.experiments.papers.report_pages import file_stem
from latticework.experiments.papers.run_status import load_status
from latticework.experiments.records.identity import strip_digest
from latticework.experiments.records.record import BUNDLES, Record, load_all
from latticework.experiments.runs.configuration import parse_overrides
from latticework.experiments.runs.sweeps import (
    CONF,
    compose_settings,
    declared_sweep,
    extra_override_sets,
    overrides_without_seeds_or_variants,
    stored_settings,
    sweep_of_command,
)
from latticework.scripts.reproduce import list_commands

# The catalogue.


def test_every_experiment_has_a_place():
    """A new experiment joins an exhibit of exhibits.yaml, or stands `aside`."""
    there = {file.stem for file in (CONF / "experiment").glob("*.yaml")}
    assert there == {*KNOWN.experiments(), *KNOWN.aside}
    assert not set(KNOWN.experiments()) & set(KNOWN.aside)


@pytest.mark.slow
@pytest.mark.parametrize("exhibit", KNOWN.exhibits, ids=lambda one: one.name)
def test_an_exhibit_names_figures_and_tables_that_there_are(exhibit):
    """No two of them have the same file in docs/results."""
    assert exhibit.paper in KNOWN.papers
    files = []
    for experiment, names in exhibit.items_by_experiment.items():
        config = declared_sweep(experiment, "paper").config
        drawn = {*config.figures, *config.tables}
        assert drawn or names == [], f"{experiment} draws nothing"
        assert set(names or ()) <= drawn
        there = [(k, n) for k in ("figures", "tables") for n, how in config[k].items() if how]
        names = [n for _, n in there] if names is None else names
        files += [(k, file_stem(exhibit, experiment, n)) for k, n in there if n in names]
    assert len(set(files)) == len(files)


def test_experiments_come_in_an_order_that_works():
    order = KNOWN.experiments()
    assert len(order) == len(set(order))
    assert order.index("ebm_learning") < order.index("ais")
    fig9 = ["ebm_learning", "ebm_samples", "ebm_samples_small"]
    assert KNOWN.experiments([KNOWN["fig9"]]) == fig9
    with pytest.raises(KeyError, match="fig99 is not a figure or table"):
        KNOWN["fig99"]


def test_an_exhibit_is_made_by_these_commands():
    assert list_commands(KNOWN, ["fig3"], "quick", ["device=cpu"]) == [
        ["experiment=ising_sampling", "scale=quick", "device=cpu"],
        ["experiment=ising_sampling_compiled", "scale=quick", "device=cpu"],
        ["experiment=ising_dula", "scale=quick", "device=cpu"],
    ]
    cost = list_commands(KNOWN, ["rates-cost"], "paper", [])
    assert [words[2:] for words in cost] == [[], ["model=rbm_usps", "data=usps"]]


def test_a_failure_does_not_stop_the_others(monkeypatch, capsys):
    ran, reported = [], []

    def run(words):
        ran.append(words[2])
        return int("sampling" in words[2])

    monkeypatch.setattr(latticework.scripts.reproduce, "_status", run)
    monkeypatch.setattr(latticework.scripts.report, "main", reported.append)
    assert latticework.scripts.reproduce.main(["fig3", "fig7", "--scale", "smoke"]) == 1
    names = ("ising_sampling", "ising_sampling_compiled", "ising_dula", "ising_connectivity")
    assert ran == [f"experiment={name}" for name in names]
    assert "failed:" in capsys.readouterr().err
    assert latticework.scripts.reproduce.main(["fig7", "outputs=here", "--scale=smoke"]) == 0
    assert reported == [[], ["--outputs", "here"]]
    with pytest.raises(SystemExit):
        latticework.scripts.reproduce.main(["fig99"])


# What there is of an experiment.


@pytest.mark.slow
def test_the_runs_that_are_declared_are_those_that_a_sweep_makes(small_outputs):
    for experiment in ("rates_sec3", "stochastic_proposal"):
        folders = [file.parent.name for file in (small_outputs / experiment).rglob("run.json")]
        assert set(declared_sweep(experiment, "smoke").runs) == set(map(strip_digest, folders))
    assert "sampler=gwg4,seed=4" in declared_sweep("ising_sampling", "paper").runs
    assert len(declared_sweep("ising_sampling", "paper").runs) == 45
    sweep = declared_sweep("rates_cost", "paper")
    assert len(sweep.runs) == 2 * len(sweep_of_command(sweep.config).runs)  # with `also`


@pytest.mark.slow
def test_the_entries_of_also_are_swept_as_their_command_sweeps_them():
    """`declared` composes none of them."""
    every = [
        (name, words)
        for name in documented.names("experiment")
        for words in extra_override_sets(name)
    ]
    assert len(every) > 20
    for experiment, words in every:
        single = [str(o.input_line) for o in parse_overrides(words) if not o.is_sweep_override()]
        config = documented.composed(f"experiment={experiment}", "scale=smoke", *single)
        runs = sweep_of_command(config, words).overrides
        assert runs.items() <= declared_sweep(experiment, "smoke").overrides.items(), (
            experiment,
            words,
        )


@pytest.mark.slow
def test_failed_stopped_and_missing_runs_are_distinguished(small_outputs, report):
    held = load_status("ising_sampling", "smoke", small_outputs, bundles=NOWHERE)
    assert len(held.records) == 2
    assert held.failed == {"sampler=gwg,seed=0": "ValueError: too <large>"}
    assert held.stopped == ["sampler=dula,seed=0"]
    assert len(held.missing) == len(held.runs) - 2
    assert load_status("ising_sampling", "quick", small_outputs, bundles=NOWHERE) is None
    assert section(report, "fig3").state == "in part"
    part, *_ = section(report, "fig3").parts
    assert part.command == "python run.py experiment=ising_sampling scale=smoke"
    text = "\n".join(part.problems)
    assert "sampler=gwg,seed=0 failed: ValueError: too <large>" in text
    assert "stopped or still running: sampler=dula,seed=0" in text
    assert "not run: sampler=hamming_ball,seed=0" in text
    assert section(report, "fig7").state == "missing"
    facts = dict(section(report, "thm6.1").parts[0].facts)
    assert {"Scale", "Runs", "Data", "Seeds", "Device", "Time", "Commit", "Memory"} <= set(facts)
    assert facts["Runs"] == "1 of 1"


def test_more_seeds_count_and_other_settings_do_not(tmp_path):
    assert command_line(*PART, "sampler=dula", "seed=17", outputs=tmp_path) == 0
    other = ("sampler=dula", "seed=0", "sampler.step_size=0.9")
    assert command_line(*PART, *other, outputs=tmp_path) == 0
    held = load_status("ising_sampling", "smoke", tmp_path, bundles=NOWHERE)
    assert [record.config["seed"] for record in held.records] == [17]
    assert [record.config["sampler"]["step_size"] for record in held.undeclared] == [0.9]
    assert [(pool.basis, pool.decides) for pool in held.pools()] == [
        ("smoke", False), ("smoke, other settings", False),
    ]  # fmt: skip


def test_a_declared_run_counts_in_whatever_spelling_it_was_made(tmp_path):
    """A run with a default spelled out is the declared run; made twice, it counts once."""
    words = ("sampler=dmala", "seed=0", "sampler.step_size=.4")
    assert command_line(*PART, *words, outputs=tmp_path) == 0
    (path,) = [file.parent for file in tmp_path.rglob("run.json")]
    assert "sampler.step_size=0.4" in path.name
    for copied in (False, True):
        if copied:
            shutil.copytree(path, path.with_name("sampler.step_size=0.40,sampler=dmala,seed=0"))
        held = load_status("ising_sampling", "smoke", tmp_path, bundles=NOWHERE)
        assert [record.path for record in held.records] == [path]
        assert not held.undeclared
        assert set(held.runs) - set(held.missing) == {"sampler=dmala,seed=0"}


@pytest.mark.slow
def test_the_runs_of_a_command_are_found_by_name_or_by_identity(tmp_path):
    words = ("sampler=dula", "sampler.step_size=0.2,0.9", "seed=0")  # 0.2 is tuned
    assert command_line(*PART, "sampler=dula", outputs=tmp_path) == 0
    assert command_line(*PART, *words, outputs=tmp_path) == 0
    sweep = declared_sweep("ising_sampling", "smoke")
    found = sweep_of_command(sweep.config, words).select_records(load_all(tmp_path))
    assert [r.config["sampler"]["step_size"] for r in found] == [0.2, 0.9]
    assert [sweep.runs_of_record(record) for record in found] == [{"sampler=dula,seed=0"}, None]
    assert (
        sweep_of_command(sweep.config, ["sampler.step_size=interval(0,1)"]).runs == ()
    )  # a search's
    assert sweep_of_command(
        sweep.config, ["sampler.step_size=0.30,.3,3e-1", "sampler=dula"]
    ).runs == ("sampler.step_size=0.3,sampler=dula,seed=0",)


def stands_for(sweep, record, *words, **changes):
    """The runs of the sweep for which a record with other words or settings stands."""
    config = copy.deepcopy(record.config)
    for key, value in changes.items():
        *outer, last = key.split("__")
        node = config
        for name in outer:
            node = node[name]
        node[last] = value
    document = {**record.document, "overrides": list(words), "config": config}
    return sweep.runs_of_record(Record(Path("run"), document))


def test_a_run_that_names_no_seed_has_the_default_one():
    sweep = declared_sweep("ising_sampling", "paper")
    (record,) = [
        record for record in load_all(BUNDLES / "ising_sampling.zip")
        if record.choices["sampler"] == "dula" and record.config["seed"] == 0
    ]  # fmt: skip
    for words in ((), ("sampler=dula",), ("sampler=dula", "seed=0"), ("sampler=gwg", "seed=7")):
        assert stands_for(sweep, record, *words) == {"sampler=dula,seed=0"}  # words do not decide
    assert stands_for(sweep, record, "sampler=dula", "seed=3", seed=3) == {"sampler=dula,seed=3"}
    assert stands_for(sweep, record, "seed=77", seed=77) == set()  # an additional seed
    assert stands_for(sweep, record, "model_seed=1", model_seed=1) == set()
    assert stands_for(sweep, record, "sampler=dula", sampler__step_size=0.9) is None


def changed(value):
    return not value if isinstance(value, bool) else value + 0.123  # no declared value


@pytest.mark.parametrize("bundle", sorted(file.stem for file in BUNDLES.glob("*.zip")))
def test_a_record_of_before_a_default_was_changed_decides_nothing(bundle):
    """Each number of its parts in turn is what a default was before; its words are those of now."""
    sweep = declared_sweep(bundle, "paper")
    records = load_all(BUNDLES / f"{bundle}.zip")
    mine, _ = sweep.split_records(records)
    assert mine
    record = mine[0]
    words = record.document["overrides"]
    swept = {word.partition("=")[0] for run in sweep.overrides.values() for word in run}
    count = 0
    for part in ("model", "sampler", "task"):
        for key, value in (record.config[part] or {}).items():
            if f"{part}.{key}" in swept and isinstance(value, bool):
                continue  # both values are declared
            if isinstance(value, int | float) and value != float("inf"):
                setting = {f"{part}__{key}": changed(value)}
                assert stands_for(sweep, record, *words, **setting) is None, key
                count += 1
    assert count


def test_the_stored_settings_are_those_of_the_files_in_conf():
    """Else python -m workshop.declared stores them again."""
    stored = stored_settings()
    assert stored, "conf/ has changed: python -m workshop.declared"
    for words in sorted(stored)[::150]:
        assert compose_settings(tuple(words.split(" "))) == stored[words]
    names = [name for name in catalogue().experiments() if (BUNDLES / f"{name}.zip").is_file()]
    for name in names:
        for words in declared_sweep(name, "paper").spellings():
            assert " ".join(words) in stored


def test_variants_of_data_count_under_their_own_names():
    sweep = declared_sweep("bnn", "paper")
    assert (
        overrides_without_seeds_or_variants(["data=news_partial", "sampler=dula", "seed=4"])
        in sweep.override_sets
    )
    assert (
        overrides_without_seeds_or_variants(["data=another", "sampler=dula"])
        not in sweep.override_sets
    )
    assert not any("news_partial" in run for run in sweep.runs)  # none of them is owed


def test_records_at_the_papers_scale_decide_and_substitute_data_never(
    small_outputs, report, tmp_path
):
    (entry,) = section(report, "thm6.1").entries
    assert (entry.verdict, entry.indication, entry.basis) == (
        Verdict.OPEN, Verdict.HOLDS, "smoke",
    )  # fmt: skip
    folder = at_the_papers_scale(small_outputs / "stochastic_proposal" / "smoke", tmp_path)
    made = section(build_report(tmp_path, bundles=NOWHERE, drawing=False), "thm6.1")
    assert (made.state, made.entries[0].verdict) == ("complete", Verdict.HOLDS)
    for file in folder.glob("*/run.json"):
        document = json.loads(file.read_text())
        document["data"] = {"variant": "digits", "substitute": True}
        file.write_text(json.dumps(document))
    made = section(build_report(tmp_path, bundles=NOWHERE, drawing=False), "thm6.1")
    assert (made.state, made.entries[0].verdict) == ("substitutes", Verdict.OPEN)
    assert dict(made.parts[0].facts)["Data"] == "digits — SUBSTITUTE"


def test_records_of_earlier_settings_are_labelled(small_outputs):
    """Those that do not name a setting that the experiment has got since."""

    def labels(setting):
        known = replace(KNOWN, settings={"rates_sec3": setting} if setting else {})
        made = build_report(small_outputs, bundles=NOWHERE, known=known, drawing=False)
        parts = section(made, "rates-sec3").parts
        return [text for part in parts for text in part.problems if "outdated" in text]

    (label,) = labels("task.visible_bias")
    assert label.startswith("3 of 3 records are outdated: they lack the setting task.visible_bias")
    assert labels("task.lambdas") == labels(None) == []  # controls: they name the first
