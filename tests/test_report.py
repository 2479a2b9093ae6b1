"""The report and the pages of docs: what they gather, and how they say it."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import documented
import pandas as pd
import pytest
from command import command_line
from fakes import fake
from omegaconf import OmegaConf
from test_bundle import at_the_papers_scale

import latticework.scripts.bundle
import latticework.scripts.report
import latticework.scripts.reproduce
from latticework.experiments.papers import (
    docs_blocks,
    docs_pages,
    report_content,
    report_figures,
    run_facts,
)
from latticework.experiments.papers import run_status as inventory
from latticework.experiments.papers.claims.ledger import CLAIMS, DLP, RATES, Entry
from latticework.experiments.papers.claims.verdict import Finding, Margin, Number, Verdict
from latticework.experiments.papers.docs_pages import results_pages
from latticework.experiments.papers.draw import make_all
from latticework.experiments.papers.drawn import Drawn, Picture
from latticework.experiments.papers.exhibits import catalogue
from latticework.experiments.papers.kept import forget_oldest, kept_or_drawn
from latticework.experiments.papers.rendering import markdown
from latticework.experiments.papers.report_builder import build_report
from latticework.experiments.papers.report_content import Report
from latticework.experiments.papers.report_html import html_page, write
from latticework.experiments.papers.report_pages import MAX_DIFFERENCES, TABLES, split_note, stem
from latticework.experiments.papers.run_status import ExperimentStatus, load_status
from latticework.experiments.records.estimates import Estimate, duration, format_estimate
from latticework.experiments.records.identity import strip_digest
from latticework.experiments.records.record import BUNDLES, Record, load_all
from latticework.experiments.runs.sweeps import (
    CONF,
    compose_settings,
    declared_sweep,
    extra_override_sets,
    overrides_without_seeds_or_variants,
    stored_settings,
    sweep_of_command,
)
from latticework.scripts.reproduce import commands

ROOT = CONF.parent
KNOWN = catalogue()
NOWHERE = Path("/nowhere")  # no bundles
SMOKE = ("scale=smoke", "~figures", "~tables")  # the report draws them
PART = ("experiment=ising_sampling", *SMOKE)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two experiments in full, a part of one, of which a run failed and another was stopped."""
    folder = tmp_path_factory.mktemp("outputs")
    for name in ("stochastic_proposal", "rates_sec3"):
        assert command_line(f"experiment={name}", *SMOKE, outputs=folder) == 0
    assert command_line(*PART, "sampler=gibbs,dmala", outputs=folder) == 0
    for sampler, error in (("gwg", "ValueError: too <large>\n\nTraceback"), ("dula", None)):
        run = folder / "ising_sampling" / "smoke" / f"sampler={sampler},seed=0"
        (run / ".hydra").mkdir(parents=True)
        if error:
            (run / "error.txt").write_text(error)
    return folder


@pytest.fixture(scope="module")
def report(outputs: Path) -> Report:
    """Its figures are kept where the command looks for them."""
    return build_report(outputs, bundles=NOWHERE, keep=outputs / "report" / "kept")


def section(made: Report, name: str) -> report_content.Section:
    (found,) = [one for one in made.sections if one.exhibit.name == name]
    return found


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
        assert {*config.figures, *config.tables}, f"{experiment} draws nothing"
        assert set(names or ()) <= {*config.figures, *config.tables}
        there = [(k, n) for k in ("figures", "tables") for n, how in config[k].items() if how]
        names = [n for _, n in there] if names is None else names
        files += [(k, stem(exhibit, experiment, n)) for k, n in there if n in names]
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
    assert commands(KNOWN, ["fig3"], "quick", ["device=cpu"]) == [
        ["experiment=ising_sampling", "scale=quick", "device=cpu"],
        ["experiment=ising_sampling_compiled", "scale=quick", "device=cpu"],
        ["experiment=ising_dula", "scale=quick", "device=cpu"],
    ]
    cost = commands(KNOWN, ["rates-cost"], "paper", [])
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
def test_the_runs_that_are_declared_are_those_that_a_sweep_makes(outputs):
    for experiment in ("rates_sec3", "stochastic_proposal"):
        folders = [file.parent.name for file in (outputs / experiment).rglob("run.json")]
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
        config = documented.composed(f"experiment={experiment}", "scale=smoke", *words)
        runs = sweep_of_command(config, words).overrides
        assert runs.items() <= declared_sweep(experiment, "smoke").overrides.items(), (
            experiment,
            words,
        )


@pytest.mark.slow
def test_failed_stopped_and_missing_runs_are_distinguished(outputs, report):
    held = load_status("ising_sampling", "smoke", outputs, bundles=NOWHERE)
    assert len(held.records) == 2
    assert held.failed == {"sampler=gwg,seed=0": "ValueError: too <large>"}
    assert held.stopped == ["sampler=dula,seed=0"]
    assert len(held.missing) == len(held.runs) - 2
    assert load_status("ising_sampling", "quick", outputs, bundles=NOWHERE) is None
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
    assert [record.config["sampler"]["step_size"] for record in held.others] == [0.9]
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
        assert not held.others
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


def test_records_at_the_papers_scale_decide_and_substitute_data_never(outputs, report, tmp_path):
    (entry,) = section(report, "thm6.1").entries
    assert (entry.verdict, entry.indication, entry.basis) == (
        Verdict.OPEN, Verdict.HOLDS, "smoke",
    )  # fmt: skip
    folder = at_the_papers_scale(outputs / "stochastic_proposal" / "smoke", tmp_path)
    made = section(build_report(tmp_path, bundles=NOWHERE, drawing=False), "thm6.1")
    assert (made.state, made.entries[0].verdict) == ("complete", Verdict.HOLDS)
    for file in folder.glob("*/run.json"):
        document = json.loads(file.read_text())
        document["data"] = {"variant": "digits", "substitute": True}
        file.write_text(json.dumps(document))
    made = section(build_report(tmp_path, bundles=NOWHERE, drawing=False), "thm6.1")
    assert (made.state, made.entries[0].verdict) == ("substitutes", Verdict.OPEN)
    assert dict(made.parts[0].facts)["Data"] == "digits — SUBSTITUTE"


def test_records_of_earlier_settings_are_labelled(outputs):
    """Those that do not name a setting that the experiment has got since."""

    def labels(setting):
        known = replace(KNOWN, settings={"rates_sec3": setting} if setting else {})
        made = build_report(outputs, bundles=NOWHERE, known=known, drawing=False)
        parts = section(made, "rates-sec3").parts
        return [text for part in parts for text in part.problems if "outdated" in text]

    (label,) = labels("task.visible_bias")
    assert label.startswith("3 of 3 records are outdated: they lack the setting task.visible_bias")
    assert labels("task.lambdas") == labels(None) == []  # controls: they name the first


# The report.


def test_the_report_has_its_figures_and_is_made_by_its_command(outputs, report, capsys):
    folder = outputs / "report"
    (folder / "figures").mkdir(exist_ok=True)
    (folder / "figures" / "earlier.png").write_bytes(b"")
    latticework.scripts.report.main(["--outputs", str(outputs), "--scale", "smoke"])
    assert f"report: {folder / 'index.html'}" in capsys.readouterr().out
    assert write(report, folder) == folder / "index.html"
    pages = {file.name: file.read_text() for file in folder.glob("*.html")}
    names = {f"{exhibit.name}.html" for exhibit in KNOWN.exhibits}
    assert set(pages) == {"index.html", "ledger.html", *names}
    files = set(re.findall(r'(?:src|href)="([^"]+)"', "".join(pages.values())))
    assert [name for name in files if not (folder / name).is_file()] == []  # nothing from a host
    drawn = {file.name for file in (folder / "figures").iterdir()}
    linked = {name.removeprefix("figures/") for name in files if name.startswith("figures/")}
    assert len(linked) >= 4
    assert {name for name in drawn if name.endswith(".png")} <= linked | {
        f"{Path(name).stem}.png" for name in linked
    }
    assert "earlier.png" not in drawn
    assert "fig3-smoke.svg" in linked
    assert "too &lt;large&gt;" in pages["fig3.html"]  # escaped
    assert len(re.findall(r"<tr>\s<td>", pages["ledger.html"])) == len(report.entries) + len(
        report.groups
    )
    shutil.rmtree(folder)


def test_the_report_opens_with_a_gallery(report, tmp_path):
    """A row an exhibit: its figure, the paper's number and ours, and its verdicts; tables after."""
    page = write(report, tmp_path).read_text()
    rows = re.findall(r"<tr>.*?</tr>", page[: page.index("<h2>Claims counted")], re.DOTALL)
    by_exhibit = {}
    for row in rows:
        if match := re.search(r'href="([^"]+)\.html"', row):
            by_exhibit[match[1]] = row
    assert list(by_exhibit) == [exhibit.name for exhibit in KNOWN.exhibits]
    assert '<img src="figures/fig3-smoke.png"' in by_exhibit["fig3"]
    assert '<span class="verdict open">' in by_exhibit["thm6.1"]
    assert '<span class="verdict unrun">' in by_exhibit["fig7"]
    assert KNOWN["fig7"].heading in by_exhibit["fig7"]


@pytest.mark.parametrize("bundles", [NOWHERE, ROOT], ids=["installed", "checkout"])
def test_the_command_prints_the_counts_of_its_page(bundles, tmp_path, monkeypatch, capsys):
    """The counts cover the claims of the two papers, not our readings or later papers."""
    made = build_report(tmp_path, bundles=bundles, drawing=False)
    verdicts = [Verdict.HOLDS, Verdict.FAILS, *[Verdict.OPEN] * 2] * len(made.entries)
    entries = [
        replace(entry, verdict=verdict)
        for entry, verdict in zip(made.entries, verdicts, strict=False)
    ]
    entries[0] = made.entries[0]  # not run
    made = replace(made, entries=entries)
    monkeypatch.setattr(latticework.scripts.report, "build_report", lambda *_, **__: made)
    latticework.scripts.report.main(["--outputs", str(tmp_path)])
    first, *_ = (line for line in capsys.readouterr().out.splitlines() if "claims" in line)
    page = (tmp_path / "report" / "index.html").read_text()
    assert first in page
    rows = re.findall(r"<tr>(.*?)</tr>", page[page.index("<h2>Claims counted") :], re.DOTALL)
    sums = [0] * 4
    for row in rows[1:]:
        name, *cells = re.findall(r"<td>(.*?)</td>", row)
        if name not in ("Our readings", "Later samplers"):
            sums = [total + int(cell) for total, cell in zip(sums, cells, strict=True)]
    assert list(map(int, re.findall(r"\d+", first.partition(": ")[2])[:4])) == sums


def test_a_note_is_shown_with_the_committed_records_and_with_no_others(outputs, tmp_path):
    note = "- It differs.\n\nDiary."
    few = replace(KNOWN, exhibits=(KNOWN["fig1a"], KNOWN["fig3"]))
    made = build_report(outputs, known=few, drawing=False)
    home = write(made, tmp_path, {"fig3": note, "fig1a": note})  # fig3 has runs in `outputs`
    pages = {name: (home.parent / f"{name}.html").read_text() for name in ("fig1a", "fig3")}
    assert "<li>It differs.</li>" in pages["fig1a"]
    assert pages["fig1a"].index("How the runs were made") < pages["fig1a"].index("<p>Diary.</p>")
    assert "It differs" not in pages["fig3"]


def test_a_report_of_nothing_names_every_command(tmp_path):
    made = build_report(tmp_path, bundles=NOWHERE)
    assert made.paper_counts["not run"] == len(made.paper_entries)
    assert {entry.claim.group for entry in made.paper_entries} == {DLP, RATES}
    home = write(made, tmp_path / "report")
    assert "does not contain the committed records" in home.read_text()
    text = "".join(file.read_text() for file in home.parent.glob("*.html"))
    assert "not run" not in text  # an installed package has no folder of bundles
    for experiment in KNOWN.experiments():
        assert f"python run.py experiment={experiment}" in text


def test_links_between_pages_lead_to_their_html():
    page = html_page("# A & B\n\n[a](README.md) [b](fig3.md) [c](records/README.md) [d](x.csv)")
    assert re.findall(r'<a href="([^"]+)">[abcd]<', page) == [
        "index.html", "fig3.html", "records/README.md", "x.csv",
    ]  # fmt: skip
    assert "<title>A &amp; B</title>" in page


def test_a_note_begins_with_a_few_bullets():
    assert split_note("- a\n  b\n- c\n\nd\n\ne") == ("- a\n  b\n- c", "d\n\ne")
    assert split_note("a\n\n- b") == ("", "a\n\n- b")
    assert split_note("") == ("", "")
    most = "\n".join(["- a"] * MAX_DIFFERENCES)
    assert split_note(most) == (most, "")
    with pytest.raises(ValueError, match="more than 5 bullets"):
        split_note(f"{most}\n- a")


def test_a_cost_of_a_step_comes_last_and_is_no_headline(tmp_path):
    """Unless an exhibit has no other claims."""
    printed = {"fig5": "seconds", "rates-cost": "time of a step"}
    for name, headline in printed.items():
        entries = []
        for claim in (claim for claim in CLAIMS if claim.exhibit == name):
            what = "time of a step" if claim.name.endswith("-cost") else "seconds"
            number = Number(what, Estimate(2.0), Estimate(1.0))
            finding = Finding([Margin("m", (1.0,))], [number])
            entries.append(Entry(claim, Verdict.OPEN, finding=finding))
        section = report_content.Section(KNOWN[name], entries, [], [], "complete")
        pages = results_pages(Report({}, entries, [section], []), tmp_path)
        assert f"{headline}: the paper 1, here 2" in pages["README.md"]
        quantities = re.findall(r"^\| (seconds|time of a step) \|", pages[f"{name}.md"], re.M)
        assert quantities == sorted(quantities)
        claims = re.findall(r"^\| (?:Our reading: )?(.*?) \| <span", pages[f"{name}.md"], re.M)
        assert "a step of DMALA costs" in claims[-1] or name == "rates-cost"


@pytest.mark.slow
def test_only_what_changed_is_drawn_again(outputs, tmp_path, monkeypatch):
    """A new record redraws the figures of its experiment, a new version of the code all figures."""
    shutil.copytree(outputs, tmp_path / "outputs")
    drawn = []

    def noted(config, *rest):
        drawn.append(config.name)
        return make_all(config, *rest)

    monkeypatch.setattr(report_figures, "make_all", noted)

    def made():
        drawn.clear()
        report = build_report(tmp_path / "outputs", bundles=NOWHERE, keep=tmp_path / "kept")
        pictures = [p for s in report.sections for part in s.parts for p in part.drawn.pictures]
        return sorted(drawn), {picture.name: picture.texts.get(".csv") for picture in pictures}

    every = ["ising_sampling", "rates_sec3", "stochastic_proposal"]
    first = made()
    assert first[0] == every
    assert made() == ([], first[1])
    words = (*PART, "sampler=gibbs", "seed=1")
    assert command_line(*words, outputs=tmp_path / "outputs") == 0
    names, curves = made()
    assert names == ["ising_sampling"]
    assert curves["fig3"] != first[1]["fig3"]
    monkeypatch.setattr(inventory, "hash_drawing_code", lambda: "other code")
    assert made()[0] == every


def drawn_once() -> Drawn:
    """A figure with all its files, and a table with every kind of cell."""
    texts = {".svg": "<svg/>", ".csv": "x\n1\n", ".html": "<p>\u00b1</p>", ".json": "{}\n"}
    table = pd.DataFrame(
        {
            "text": ["a_b", None],
            "estimate": [Estimate(0.1, 0.2, 3), Estimate(float("nan"), None, 1)],
            "whole": [12_345_678, 2],
            "gap": pd.Series([12_345_678, None], dtype=object),
            "number": [1 / 3, float("nan")],
            "flag": [True, False],
        }
    )
    return Drawn([Picture("one", b"\x89PNG", texts)], [("table", table)], ["x: why"], ["x: why"])


def test_kept_figures_are_files_that_come_back_as_they_were(tmp_path):
    """A file that was changed, or an index that holds something else, is drawn again."""
    made = []

    def draw():
        made.append(1)
        return drawn_once()

    def shown(drawn):
        tables = [(name, markdown(table)) for name, table in drawn.tables]
        return drawn.pictures, tables, drawn.reasons_not_made, drawn.failed

    whole = shown(drawn_once())
    for _ in range(2):
        assert shown(kept_or_drawn(tmp_path, "a stamp", draw)) == whole
    assert len(made) == 1
    (entry,) = tmp_path.iterdir()
    files = sorted(entry.iterdir())
    assert [file.name for file in files] == [
        "0.csv", "0.html", "0.json", "0.png", "0.svg", "drawn.json",
    ]  # fmt: skip
    for content in (b"", b"changed", b"[]", b'{"pictures": 3}', b'{"pictures": [{"name": 1}]}'):
        for file in files:
            before = len(made)
            file.write_bytes(content)
            assert shown(kept_or_drawn(tmp_path, "a stamp", draw)) == whole
            assert len(made) == before + 1, (file, content)
            assert shown(kept_or_drawn(tmp_path, "a stamp", draw)) == whole
            assert len(made) == before + 1, "it is kept again"
    kept_or_drawn(tmp_path, "another stamp", draw)
    kept_or_drawn(None, "a stamp", draw)
    assert len(list(tmp_path.iterdir())) == 2
    for place, age in zip(sorted(tmp_path.iterdir()), (5, 9), strict=True):
        os.utime(place / "drawn.json", (age, age))
    newest = sorted(tmp_path.iterdir())[1]
    forget_oldest(tmp_path, 1)
    assert list(tmp_path.iterdir()) == [newest]


def test_the_report_keeps_images_and_text_and_no_pickles(outputs, tmp_path):
    shutil.copytree(outputs / "rates_sec3", tmp_path / "outputs" / "rates_sec3")
    for _ in range(2):
        build_report(tmp_path / "outputs", bundles=NOWHERE, keep=tmp_path / "kept")
    kinds = {file.suffix for file in (tmp_path / "kept").rglob("*") if file.is_file()}
    assert kinds == {".png", ".svg", ".csv", ".json"}


def test_the_stamp_changes_with_a_file_of_the_code(tmp_path, monkeypatch):
    monkeypatch.setattr(inventory, "SOURCES", (tmp_path,))
    stamps = []
    for text in ("a = 1", "a = 2", "a = 1"):
        (tmp_path / "some.py").write_text(text)
        inventory.hash_drawing_code.cache_clear()
        stamps.append(inventory.hash_records([]))
    inventory.hash_drawing_code.cache_clear()
    assert stamps[0] == stamps[2] != stamps[1]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Estimate(-6.8512, 0.1312, 5), "-6.85 ± 0.13 (5)"),
        (Estimate(-0.359, 0.0003), "-0.3590 ± 0.0003"),
        (Estimate(65_812.3, 1200.0, 5), "65,812 ± 1,200 (5)"),
        (Estimate(0.5, None, 1), "0.5"),
        (Estimate(0.5, 0.0, 3), "0.5 (3)"),
        (None, ""),
    ],
)
def test_numbers_have_as_many_digits_as_make_sense(value, text):
    assert format_estimate(value) == text


def test_durations_and_successive_seeds():
    found = [duration(seconds) for seconds in (0.05, 7.2, 9.96, 42.3, 99.7, 754, 9000, 3e5)]
    assert found == [
        "0.05 s", "7.2 s", "10 s", "42 s", "2 min", "13 min", "2.5 h", "3.5 days",
    ]  # fmt: skip
    documents = [{"config": {"seed": seed, "model_seed": 3}} for seed in (9, 0, 2, 1, 7, 0, 5, 6)]
    assert run_facts.describe_seeds(documents) == "0 to 2, 5 to 7, 9"
    documents = [{"config": {"seed": None, "model_seed": seed}} for seed in (0, 1)]
    assert run_facts.describe_seeds(documents) == "models 0, 1"


# The pages of docs.


def test_a_block_of_a_page_is_replaced_and_nothing_else():
    text = "a\n<!-- times -->\nold\n<!-- /times -->\nb\n"
    assert docs_blocks.replace_block(text, "times", "new") == text.replace("old", "\nnew\n")
    with pytest.raises(ValueError, match="no block <!-- ledger -->"):
        docs_blocks.replace_block(text, "ledger", "new")


def test_pages_are_made_from_bundles(outputs, tmp_path, monkeypatch):
    at_the_papers_scale(outputs / "stochastic_proposal" / "smoke", tmp_path / "outputs")
    bundles = tmp_path / "bundles"
    words = ["stochastic_proposal", f"--outputs={tmp_path / 'outputs'}", f"--to={bundles}"]
    assert latticework.scripts.bundle.main(words) == 0
    few = replace(KNOWN, exhibits=(KNOWN["thm6.1"], KNOWN["fig1a"]), aside=[])
    monkeypatch.setattr(docs_pages, "catalogue", lambda: few)
    (tmp_path / "docs" / "results").mkdir(parents=True)
    for name in ("README.md", "docs/reproducing.md", "docs/benchmark.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    docs_pages.refresh(tmp_path, bundles)
    results = tmp_path / "docs" / "results"
    assert ">holds</span> |" in (results / "ledger.md").read_text()
    assert (results / "thm61.png").read_bytes().startswith(b"\x89PNG")
    readme = (tmp_path / "README.md").read_text()
    assert re.search(r"Zhang et al. \(2022\): 1 holds, \d+ were not run", readme)
    times = (tmp_path / "docs/reproducing.md").read_text()
    assert re.search(r"`stochastic_proposal` \|.*, measured \|", times)


def test_the_time_of_a_sweep_is_that_of_all_its_runs():
    """Half of the runs have finished: the time is extrapolated, and says so."""
    runs = ("dmala-0", "dmala-1", "dmala-2", "dmala-3")
    done = [fake(seed=seed, device="cpu") for seed in range(4)]
    for record, seconds in zip(done, (60, 180, 120, 120), strict=True):
        record.document["seconds"] = seconds

    def time(records, there, gpu=False, **noted):
        parts = "ising_sampling", "paper", OmegaConf.create(), "a bundle", runs, records
        return docs_blocks.time_of(ExperimentStatus(*parts, done=frozenset(there)), noted, gpu=gpu)

    assert time(done, runs[:2]) == "8 min, extrapolated from 4 runs"  # two of other seeds
    assert time(done[:2], runs[:2]) == "8 min, extrapolated from 2 runs"
    assert time(done[:2], runs[:2], cpu="60 h, projected") == "60 h, projected"
    assert time(done, runs, cpu="60 h, projected") == "8 min, measured"
    assert time(done, runs, gpu=True) == docs_blocks.UNKNOWN


def test_numbers_of_one_name_name_their_experiments(tmp_path):
    """Where the paper prints none, the page says so."""
    one, other = Number("speed", Estimate(1.0)), Number("mass", Estimate(2.0))
    printed = Number("speed", Estimate(1.0), Estimate(3.0))
    claims = {claim.experiment: claim for claim in CLAIMS}

    def page(**numbers):
        entries = [
            Entry(claims[name], Verdict.OPEN, finding=Finding([Margin("m", (1.0,))], some))
            for name, some in numbers.items()
        ]
        own = report_content.Section(KNOWN["rates-fig2"], entries, [], [], "complete")
        return results_pages(Report({}, [], [own], []), tmp_path)["rates-fig2.md"]

    shown = page(rates_fig2=[one, other], rates_fig2_mnist=[one])
    for text in ("speed (rates_fig2) |", "speed (rates_fig2_mnist) |", "| mass |"):
        assert shown.count(text) == 1
    assert "The paper prints no number of this." in shown
    shown = page(rates_fig2=[printed])
    assert "| speed | 3 | 1 |" in shown
    assert "prints no number" not in shown


def test_a_page_shows_the_paper_our_figure_numbers_and_verdicts_before_the_diary(tmp_path):
    """In this order, as on each committed page."""
    results = ROOT / "docs" / "results"
    for exhibit in KNOWN.exhibits:
        text = (results / f"{exhibit.name}.md").read_text()
        marks = (
            f"# {exhibit.heading}\n", "> The paper: ", "\n![", "\n| quantity | the paper | here |",
            "\n## Claims", "\n## What differs from the paper", "\n## Runs", "<details",
        )  # fmt: skip
        diary = text.index("<summary>How the runs were made")
        places = [text.index(mark) for mark in marks[:-1] if mark in text[:diary]]
        assert places == sorted(places), exhibit.name
        assert text.index("> The paper: ") < 1000
        differences = text.partition(marks[5])[2].partition("\n## ")[0]
        assert differences.count("\n- ") <= MAX_DIFFERENCES


def test_a_table_beside_the_paper_opens_its_section_and_the_others_are_folded(tmp_path):
    """In this order: what is not the paper's, the numbers beside the paper's, the rest."""
    exhibit = replace(
        KNOWN["table1"], items_by_experiment={"ais_small": ["table1_beside", "table1"]}
    )
    held = ExperimentStatus(
        "ais_small", "paper", declared_sweep("ais_small", "paper").config, "outputs", (), []
    )
    part = report_content.Part("ais_small", "its command", held, report_content.Drawn(), [], [])
    sections = [report_content.Section(exhibit, [], [part], [], "complete")]
    for name in ("table1", "table1_beside"):
        (tmp_path / TABLES).mkdir(exist_ok=True)
        (tmp_path / TABLES / f"{name}.md").write_text(f"| {name} |")
        page = results_pages(Report({}, [], sections, []), tmp_path)["table1.md"]
        folded = "<summary>table1: the whole table" in page
        assert folded == (name == "table1_beside")  # else nothing opens the section
    words = exhibit.caveat, "| table1_beside |", "<details", "| table1 |", "</details>", "its com"
    places = [page.index(word) for word in words]
    assert places == sorted(places)


MIN_WIDTH = 576  # pixels of a page 7.2 inches wide at the smallest number of dots an inch


def width(file: Path) -> int:
    """Pixels of a PNG."""
    return int.from_bytes(file.read_bytes()[16:20])


def test_committed_files_are_complete_and_small():
    """A bar inside a cell has to be escaped, or a row has too many cells."""
    results, pages = ROOT / "docs" / "results", [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    notes = {file.stem for file in (results / "notes").glob("*.md")}
    assert notes - {exhibit.name for exhibit in KNOWN.exhibits} == {"bench"}
    texts = [file.read_text() for file in results.glob("*.md")]
    links = [link for text in texts for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    assert len(links) > 140
    assert [link for link in links if not (results / link).exists()] == []
    shown = [link for text in texts for link in re.findall(r"!\[[^]]*\]\((.+)\)", text)]
    wide = [link for link in shown if link.endswith(".png")]
    narrow = [link for link in wide if width(results / link) < MIN_WIDTH]
    assert narrow == []
    assert [page.name for page in pages if page.stat().st_size > 500_000] == []  # GitHub's limit
    pictures = results.glob("*.[ps][nv]g")
    assert [file.name for file in pictures if file.stat().st_size > 200_000] == []
    tables = [
        found for page in pages for found in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.M)
    ]
    assert len(tables) > 100
    for rows in tables:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows.splitlines()}) == 1, rows


# The notes.

NOT_OF_A_RUN = re.compile(
    r"\{\{.*?\}\}|`[^`]*`|\]\([^)]*\)"  # computed; a command; a link
    r"|\b(?:Figure|Table|Section|Theorem|seeds?|models?) \d+(?:(?:,| to| and|-) ?\d+)*"
    r"|\b[A-Za-z]\w*-\d+\b|\b\d+x\d+\b"  # GWG-1, WikiText-103; a lattice
    r"|\b(?:19|20)\d\d\b",  # a year
    re.DOTALL,
)
TYPED = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
REPEATED = {  # test rows that equal a training row (`data.splits.repeated`), and test rows
    798: "COMPAS", 1_234: "COMPAS", 938: "Blog", 10_863: "Blog", 7_027: "Blog, published",
    9_044: "Adult",
}  # fmt: skip
TOLD: dict[str, dict[float, str]] = {  # what a note types beside these, and whose number it is
    "appB": {10_000: "the steps of scale=paper"},
    "appH": {-5.4: "-log(50,000) / 2"},
    "fig5": {
        0.2: "the step size of conf/tuned",
        2_000: "the samples to learn from, in conf/task",
        4_000: "14,000 - 10,000 iterations",
        10_000: "the iterations of scale=paper",
    },
    "fig7": {
        2.5: "125,000 / 50,000",
        50_000: "the paper's iterations",
        125_000: "the paper's iterations",
        160: "the 200 seeds of the command without 40",
    },
    "log-z": {1.36: "0.6 over the critical coupling", 2.72: "1.2 over the critical coupling"},
    "rates-cost": {1.6: "784 x 500 weights of four bytes, in MB"},
    "rates-fig1": {10_000: "the samples of scale=paper"},
    "rates-fig2": {0.51: "the decay of conf/tuned", 500_000: "the samples of scale=paper"},
    "rates-fig3": {20_000: "the samples of scale=paper", 99: "the rows of log(20,000 / 99)"},
    "table1": {95: "per cent of an interval", 784: "the pixels", 2_307: "Caltech's test rows"},
    "table1-later": {20: "the chains of scale=paper", 50_000: "the betas of scale=paper"},
    "table2": REPEATED | {
        32: "repeated rows of Blog, published", 256: "the modulus of the released scripts",
        7_501: "the weights of COMPAS",
    },
    "table4": REPEATED | {15: "the seeds at an earlier look"},
}  # fmt: skip


def numbers(text: str) -> set[float]:
    return {float(found.replace(",", "").replace("_", "")) for found in TYPED.findall(text)}


@pytest.mark.parametrize(
    "file", sorted((ROOT / "docs/results/notes").glob("*.md")), ids=lambda file: file.stem
)
def test_a_note_types_no_number_of_a_run(file):
    """Only numbers of its page, of a command, of its experiments, and those of TOLD.

    A number of runs is computed: `{{ last(...) }}`.
    """
    text = file.read_text()
    page = (file.parents[1] / file.name).read_text()
    written = set(docs_pages.fill_note(text, BUNDLES).splitlines())
    known = numbers("\n".join(line for line in page.splitlines() if line not in written))
    for command in re.findall(r"`([^`]*)`", text):
        known |= numbers(command)
    for exhibit in (one for one in KNOWN.exhibits if one.name == file.stem):
        for experiment in exhibit.items_by_experiment:
            known |= numbers((CONF / "experiment" / f"{experiment}.yaml").read_text())
    told = set(TOLD.get(file.stem, {}))
    assert numbers(NOT_OF_A_RUN.sub(" ", text)) - known - told == set()
    assert told <= numbers(text), "no longer typed"


def test_a_typed_number_is_found_and_a_computed_one_is_not():
    text = "It takes 0.37 s on 4x4 sites (Table 3, seeds 1 and 2), `x=5`, {{ last('a', 0.5) }}."
    assert numbers(NOT_OF_A_RUN.sub(" ", text)) == {0.37}


def test_a_number_of_runs_is_that_of_the_committed_records():
    """As the page shows it: GWG-1 after its iterations, and another setting."""
    settings = {"sampler": "gwg", "task.iterations": 14000}
    assert (
        docs_pages.format_last_reading(BUNDLES, "ising_learning", "log_rmse", settings)
        in (ROOT / "docs/results/fig5.md").read_text()
    )
    with pytest.raises(LookupError, match="no committed run of ising_learning has task.steps=7"):
        docs_pages.format_last_reading(BUNDLES, "ising_learning", "log_rmse", {"task.steps": 7})
    with pytest.raises(LookupError, match="differ in more than their seed"):
        docs_pages.format_last_reading(BUNDLES, "ising_learning", "log_rmse", {"sampler": "dmala"})
