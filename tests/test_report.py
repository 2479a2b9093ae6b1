"""The report: what it gathers, its page and its twin, and the page in a real browser."""

from __future__ import annotations

import base64
import json
import math
import re
import shlex
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import FOUND, Browser
from command import command_line
from fakes import fake
from omegaconf import OmegaConf
from test_bundle import at_the_papers_scale

import latticework.scripts.bundle
import latticework.scripts.report
import latticework.scripts.reproduce
from latticework.experiments.papers import axis, committed, kept, view
from latticework.experiments.papers.claims.ledger import CLAIMS, Entry
from latticework.experiments.papers.claims.verdict import Finding, Margin, Number, Verdict
from latticework.experiments.papers.deciding import deciding
from latticework.experiments.papers.draw import make_all
from latticework.experiments.papers.exhibits import catalogue
from latticework.experiments.papers.holdings import Holding, holding
from latticework.experiments.papers.page import html, markdown, write
from latticework.experiments.papers.results import results_page, stem
from latticework.experiments.papers.view import Report, gather
from latticework.experiments.records.duration import duration
from latticework.experiments.records.estimate import Estimate, number
from latticework.experiments.records.folders import without_digits
from latticework.experiments.records.record import BUNDLES, load_all
from latticework.experiments.runs.sweeps import CONF, asked, declared, exists, kind
from latticework.scripts.reproduce import commands

ROOT = CONF.parent
KNOWN = catalogue()
NOWHERE = Path("/nowhere")  # no bundles


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two experiments in full, a part of one, of which a run failed and another was stopped."""
    folder = tmp_path_factory.mktemp("outputs")
    assert command_line("experiment=stochastic_proposal", "scale=smoke", outputs=folder) == 0
    assert command_line("experiment=rates_sec3", "scale=smoke", outputs=folder) == 0
    part = ("experiment=ising_sampling", "scale=smoke", "sampler=gibbs,dmala")
    assert command_line(*part, outputs=folder) == 0
    for sampler, error in (("gwg", "ValueError: too <large>\n\nTraceback"), ("dula", None)):
        run = folder / "ising_sampling" / "smoke" / f"sampler={sampler},seed=0"
        (run / ".hydra").mkdir(parents=True)
        if error:
            (run / "error.txt").write_text(error)
    return folder


@pytest.fixture(scope="module")
def report(outputs: Path) -> Report:
    return gather(outputs, bundles=NOWHERE)


@pytest.fixture(scope="module")
def page(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(report, tmp_path_factory.mktemp("report"))[0]


# The catalogue.


def test_every_experiment_has_a_place():
    """A new experiment joins an exhibit of exhibits.yaml, or stands `aside`."""
    there = {file.stem for file in (CONF / "experiment").glob("*.yaml")}
    assert there <= {*KNOWN.experiments(), *KNOWN.aside}
    assert not set(KNOWN.experiments()) & set(KNOWN.aside)


@pytest.mark.parametrize("exhibit", KNOWN.exhibits, ids=lambda one: one.name)
def test_an_exhibit_names_figures_and_tables_that_there_are(exhibit):
    assert exhibit.paper in KNOWN.papers
    for experiment, names in exhibit.of.items():
        if exists(experiment):
            config = declared(experiment, "paper").config
            there = {*config.figures, *config.tables}
            assert set(names or ()) <= there, experiment
            assert there, f"{experiment} draws nothing"


def test_the_spec_s_ids_are_there():
    names = {exhibit.name for exhibit in KNOWN.exhibits}
    tables = {f"table{number}" for number in range(1, 5)}
    figures = {"fig1a", "fig1b", *(f"fig{number}" for number in range(2, 10))}
    rates = {f"rates-{name}" for name in ("fig1", "fig2", "fig3", "sec3", "cost")}
    assert tables | figures | rates | {"thm6.1", "appB", "appD", "appH"} <= names
    with pytest.raises(KeyError, match="fig99 is not a figure or table"):
        KNOWN["fig99"]


def test_experiments_come_in_an_order_that_works():
    order = KNOWN.experiments()
    assert len(order) == len(set(order))
    assert order.index("ebm_learning") < order.index("ais")
    fig9 = ["ebm_learning", "ebm_samples", "ebm_samples_small"]
    assert KNOWN.experiments([KNOWN["fig9"]]) == fig9


def test_an_exhibit_is_made_by_these_commands():
    assert commands(KNOWN, ["fig3"], "quick", ["device=cpu"]) == [
        ["experiment=ising_sampling", "scale=quick", "device=cpu"],
        ["experiment=ising_sampling_compiled", "scale=quick", "device=cpu"],
        ["experiment=ising_dula", "scale=quick", "device=cpu"],
    ]
    cost = commands(KNOWN, ["rates-cost"], "paper", [])
    assert [words[2:] for words in cost] == [[], ["model=rbm_usps", "data=usps"]]
    everything = commands(KNOWN, ["all"], "paper", [])
    assert len(everything) > len(KNOWN.exhibits) / 2
    with pytest.raises(KeyError):
        commands(KNOWN, ["fig99"], "paper", [])


def test_a_failure_does_not_stop_the_others(monkeypatch, capsys):
    ran, reported = [], []

    def run(words):
        ran.append(words[2])
        return int("sampling" in words[2])

    monkeypatch.setattr(latticework.scripts.reproduce, "_status", run)
    monkeypatch.setattr(latticework.scripts.report, "main", reported.append)
    assert latticework.scripts.reproduce.main(["fig3", "fig7", "--scale", "smoke"]) == 1
    assert ran == [
        "experiment=ising_sampling",
        "experiment=ising_sampling_compiled",
        "experiment=ising_dula",
        "experiment=ising_connectivity",
    ]
    assert "failed or missing" in capsys.readouterr().err
    assert latticework.scripts.reproduce.main(["fig7", "outputs=here", "--scale=smoke"]) == 0
    assert reported == [[], ["--outputs", "here"]]
    monkeypatch.setattr(latticework.scripts.reproduce, "exists", lambda name: False)
    assert latticework.scripts.reproduce.main(["fig7"]) == 1  # nothing is there to be run
    with pytest.raises(SystemExit):
        latticework.scripts.reproduce.main(["fig99"])


# What there is of an experiment.


def test_the_runs_that_are_declared_are_those_that_a_sweep_makes(outputs):
    for experiment in ("rates_sec3", "stochastic_proposal"):
        folders = [file.parent.name for file in (outputs / experiment).rglob("run.json")]
        assert set(declared(experiment, "smoke").runs) == set(map(without_digits, folders))
    assert "sampler=gwg4,seed=4" in declared("ising_sampling", "paper").runs
    assert len(declared("ising_sampling", "paper").runs) == 45
    also = KNOWN.also["rates_cost"]
    assert len(declared("rates_cost", "paper", also).runs) == 2 * len(
        declared("rates_cost", "paper").runs
    )


def test_failed_stopped_and_missing_runs_are_told_apart(outputs):
    held = holding("ising_sampling", "smoke", outputs, bundles=NOWHERE)
    assert held is not None
    assert len(held.records) == 2
    assert held.failed == {"sampler=gwg,seed=0": "ValueError: too <large>"}
    assert held.stopped == ["sampler=dula,seed=0"]
    assert len(held.missing) == len(held.runs) - 2
    assert holding("ising_sampling", "quick", outputs, bundles=NOWHERE) is None


def test_more_seeds_count_and_other_settings_do_not(tmp_path):
    words = ("experiment=ising_sampling", "scale=smoke", "sampler=dula")
    assert command_line(*words, "seed=17", outputs=tmp_path) == 0
    assert command_line(*words, "seed=0", "sampler.step_size=0.9", outputs=tmp_path) == 0
    held = holding("ising_sampling", "smoke", tmp_path, bundles=NOWHERE)
    assert held is not None
    assert [record.config["seed"] for record in held.records] == [17]
    assert [record.config["sampler"]["step_size"] for record in held.others] == [0.9]
    assert [(pool.basis, pool.decides) for pool in held.pools()] == [
        ("smoke", False), ("smoke, other settings", False),
    ]  # fmt: skip


def test_a_declared_run_counts_in_whatever_spelling_it_was_made(tmp_path):
    """A run with a default spelled out is the declared run; made twice, it counts once."""
    words = ("experiment=ising_sampling", "scale=smoke", "sampler=dmala", "seed=0")
    assert command_line(*words, "sampler.step_size=.4", outputs=tmp_path) == 0
    held = holding("ising_sampling", "smoke", tmp_path, bundles=NOWHERE)
    assert held is not None
    assert "sampler.step_size=0.4" in held.records[0].path.name
    assert not held.others
    assert "sampler=dmala,seed=0" in held.runs
    assert set(held.runs) - set(held.missing) == {"sampler=dmala,seed=0"}
    path = held.records[0].path
    shutil.copytree(path, path.with_name("sampler.step_size=0.40,sampler=dmala,seed=0"))
    held = holding("ising_sampling", "smoke", tmp_path, bundles=NOWHERE)
    assert held is not None
    assert [record.path for record in held.records] == [path]
    assert not held.others


def test_what_a_command_asks_for_is_found_by_name_or_by_identity(tmp_path):
    words = ("sampler=dula", "sampler.step_size=0.2,0.9", "seed=0")  # 0.2 is tuned
    part = ("experiment=ising_sampling", "scale=smoke")
    assert command_line(*part, "sampler=dula", outputs=tmp_path) == 0
    assert command_line(*part, *words, outputs=tmp_path) == 0
    sweep = declared("ising_sampling", "smoke")
    command = asked(sweep.config, words)
    records = load_all(tmp_path)
    found = command.found(records)
    assert [r.config["sampler"]["step_size"] for r in found] == [0.2, 0.9]
    assert [sweep.stands_for(record) for record in found] == [{"sampler=dula,seed=0"}, None]
    assert asked(sweep.config, ["sampler.step_size=interval(0,1)"]).runs == ()  # a search's
    assert asked(sweep.config, ["sampler.step_size=0.30,.3,3e-1", "sampler=dula"]).runs == (
        "sampler.step_size=0.3,sampler=dula,seed=0",
    )


def test_variants_of_data_count_under_their_own_names():
    kinds = declared("bnn", "paper").kinds
    assert kind(["data=news_partial", "sampler=dula", "seed=4"]) in kinds
    assert kind(["data=omniglot_derived", "sampler=dula"]) in declared("ais", "paper").kinds
    assert kind(["data=another", "sampler=dula"]) not in kinds
    runs = declared("bnn", "paper").runs  # none of them is owed
    assert not any("news_partial" in run for run in runs)


def test_substitute_data_never_decide(outputs, tmp_path):
    folder = at_the_papers_scale(outputs / "rates_sec3" / "smoke", tmp_path)
    held = holding("rates_sec3", "paper", tmp_path, bundles=NOWHERE)
    assert held is not None
    assert [(pool.basis, pool.decides) for pool in held.pools()] == [("paper", True)]
    for file in folder.glob("*/run.json"):
        document = json.loads(file.read_text())
        document["data"] = {"variant": "digits", "substitute": True}
        file.write_text(json.dumps(document))
    held = holding("rates_sec3", "paper", tmp_path, bundles=NOWHERE)
    assert held is not None
    assert [(p.basis, p.decides) for p in held.pools()] == [("paper, substitutes", False)]
    made = gather(tmp_path, bundles=NOWHERE)
    (section,) = [one for one in made.sections if one.exhibit.name == "rates-sec3"]
    assert section.state == "substitutes"
    assert section.entries[0].verdict is Verdict.OPEN
    assert "digits — SUBSTITUTE" in html(made)


def test_records_at_the_papers_scale_decide(outputs, tmp_path):
    at_the_papers_scale(outputs / "rates_sec3" / "smoke", tmp_path)
    made = gather(tmp_path, bundles=NOWHERE)
    (entry,) = [one for one in made.entries if one.claim.name == "rates-sec3-unlearning"]
    assert (entry.verdict, entry.basis) == (Verdict.HOLDS, "paper")
    (section,) = [one for one in made.sections if one.exhibit.name == "rates-sec3"]
    assert section.state == "complete"


def test_smoke_records_decide_nothing(report):
    verdicts = {entry.verdict for entry in report.entries}
    assert verdicts == {Verdict.OPEN, Verdict.NOT_RUN}
    (entry,) = [one for one in report.entries if one.claim.name == "rates-sec3-unlearning"]
    assert (entry.indication, entry.basis) == (Verdict.HOLDS, "smoke")


def test_a_run_notes_its_memory(outputs):
    for file in outputs.rglob("run.json"):
        assert 2**24 < json.loads(file.read_text())["peak_memory_bytes"] < 2**40


# The page and its twin.


class Reader(HTMLParser):
    """Tags that are opened and closed in order, images, addresses and ids."""

    VOID = {"meta", "link", "img", "line", "circle", "path", "br"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[dict] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.addresses += [found[key] for key in ("href", "src", "action") if key in found]
        self.ids += [found["id"]] if "id" in found else []
        if tag == "img":
            self.images.append(found)
        if tag not in self.VOID:
            self.open.append(tag)

    handle_startendtag = handle_starttag

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def test_the_page_holds_everything_in_itself(page):
    text = page.read_text()
    reader = read(text)
    assert len(reader.images) >= 4
    for image in reader.images:
        assert image["src"].startswith("data:image/png;base64,iVBOR")
        assert len(image["alt"]) > 20
        assert int(image["width"]) > 100
    assert all(one.startswith(("#", "data:")) for one in reader.addresses)
    files = [one.partition("base64,")[2] for one in reader.addresses if "text/csv" in one]
    texts = [base64.b64decode(one).decode() for one in files]
    assert sum(text.startswith("panel,series,x,y") for text in texts) == len(reader.images)
    assert "http" not in re.sub(r"base64,[\w+/=]+", "", text)
    assert "url(" not in text
    assert "@import" not in text
    assert len(reader.ids) == len(set(reader.ids))
    assert {one[1:] for one in reader.addresses if one.startswith("#")} <= set(reader.ids)


def test_the_page_opens_with_the_ledger_and_shows_every_exhibit(page, report):
    text = page.read_text()
    places = [text.index(f'<section id="{name}">') for name in ("ledger", "fig1a")]
    assert places == sorted(places)
    for exhibit in KNOWN.exhibits:
        assert f'<section id="{exhibit.name}">' in text
    for entry in report.entries:
        assert f'id="claim-{entry.claim.name}"' in text


def test_what_failed_stopped_or_is_missing_is_told_with_its_command(page, report):
    (section,) = [one for one in report.sections if one.exhibit.name == "fig3"]
    assert section.state == "in part"
    part, *_ = section.parts  # the others are its companions
    assert part.command == "python run.py experiment=ising_sampling scale=smoke"
    text = "\n".join(part.problems)
    assert "sampler=gwg,seed=0 failed: ValueError: too <large>" in text
    assert "stopped or still running: sampler=dula,seed=0" in text
    assert "not run: sampler=hamming_ball,seed=0" in text
    assert "too &lt;large&gt;" in page.read_text()  # escaped
    (section,) = [one for one in report.sections if one.exhibit.name == "fig7"]
    assert section.state == "missing"
    assert section.parts[0].command == "python run.py experiment=ising_connectivity"
    (facts,) = [dict(part.facts) for part in section.parts]
    assert facts == {}
    (section,) = [one for one in report.sections if one.exhibit.name == "thm6.1"]
    facts = dict(section.parts[0].facts)
    assert {"Scale", "Runs", "Data", "Seeds", "Device", "Time", "Commit"} <= set(facts)
    assert facts["Runs"] == "1 of 1"


def test_successive_seeds_are_a_span():
    documents = [{"config": {"seed": seed, "model_seed": 3}} for seed in (9, 0, 2, 1, 7, 0, 5, 6)]
    assert view._seeds(documents) == "0 to 2, 5 to 7, 9"
    documents = [{"config": {"seed": None, "model_seed": seed}} for seed in (0, 1)]
    assert view._seeds(documents) == "models 0, 1"


def test_the_twin_says_the_same_and_its_figures_are_there(page, report):
    text = (page.parent / "report.md").read_text()
    assert text == markdown(report)
    linked = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert len(linked) == len(read(page.read_text()).images)
    for name in linked:
        assert (page.parent / name).read_bytes().startswith(b"\x89PNG")
    for entry in report.entries:
        verdict = report.word(entry.verdict)
        assert f"| {entry.claim.text} ({entry.claim.source}) | {verdict}" in text


def test_the_report_is_made_by_its_command(outputs, capsys):
    latticework.scripts.report.main(["--outputs", str(outputs), "--scale", "smoke"])
    assert f"report: {outputs / 'report' / 'index.html'}" in capsys.readouterr().out
    shutil.rmtree(outputs / "report")


def test_a_report_of_nothing_names_every_command(tmp_path):
    made = gather(tmp_path, bundles=NOWHERE)
    text = html(made)
    assert made.counts["not run"] == len(made.entries)
    for shown in (text, markdown(made)):  # an installed package has no folder of bundles
        assert "does not contain the committed records" in shown
        assert "not run" not in shown.replace('data-verdict="not run"', "")
    for experiment in KNOWN.experiments():
        assert f"python run.py experiment={experiment}" in text
    assert read(text).images == []


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
    assert number(value) == text


def test_durations_are_told_in_words():
    found = [duration(seconds) for seconds in (0.05, 7.2, 9.96, 42.3, 99.7, 754, 9000, 3e5)]
    assert found == [
        "0.05 s", "7.2 s", "10 s", "42 s", "2 min", "13 min", "2.5 h", "3.5 days",
    ]  # fmt: skip


# What is kept.


def test_only_what_changed_is_drawn_again(outputs, tmp_path, monkeypatch):
    """A new record redraws the figures of its experiment, a new version of the code all figures."""
    shutil.copytree(outputs, tmp_path / "outputs")
    drawn = []

    def noted(config, *rest):
        drawn.append(config.name)
        return make_all(config, *rest)

    monkeypatch.setattr(view, "make_all", noted)

    def made():
        drawn.clear()
        report = gather(tmp_path / "outputs", bundles=NOWHERE, keep=tmp_path / "kept")
        return sorted(drawn), html(report)

    every = ["ising_sampling", "rates_sec3", "stochastic_proposal"]
    first = made()
    assert first[0] == every
    assert made() == ([], first[1])
    words = ("experiment=ising_sampling", "scale=smoke", "sampler=gibbs", "seed=1")
    assert command_line(*words, outputs=tmp_path / "outputs") == 0
    names, page = made()
    assert names == ["ising_sampling"]
    assert page != first[1]
    assert "seeds 0-1" in figure_titles(tmp_path / "outputs")
    assert page == html(gather(tmp_path / "outputs", bundles=NOWHERE))  # nothing is kept
    monkeypatch.setattr(kept, "drawing", lambda: "other code")
    assert made()[0] == every


def figure_titles(outputs):
    """The heads of the legends of Figure 3."""
    held = holding("ising_sampling", "smoke", outputs, bundles=NOWHERE)
    made = next(make_all(held.config, held.shown))
    return " ".join(legend.get_title().get_text() for legend in made.content.legends)


def test_the_stamp_changes_with_a_file_of_the_code(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "SOURCES", (tmp_path,))
    stamps = []
    for text in ("a = 1", "a = 2", "a = 1"):
        (tmp_path / "some.py").write_text(text)
        kept.drawing.cache_clear()
        stamps.append(kept.stamp([]))
    kept.drawing.cache_clear()
    assert stamps[0] == stamps[2] != stamps[1]


# What would decide.


def entry(*margins, basis="paper", indication=None, experiment="ising_sampling"):
    claim = next(one for one in CLAIMS if one.experiment == experiment)
    finding = Finding(margins)
    return Entry(claim, finding.verdict()[0], basis, finding, indication=indication)


def test_the_command_names_the_seeds_that_would_decide():
    near = Margin("near", (0.1, -0.05, 0.12, 0.02, 0.1))
    sure = Margin("sure", (1.0, 1.1, 0.9, 1.0, 1.2))
    count = near.seeds_needed()
    assert count is not None
    assert 5 < count < 30
    nearer = Margin("nearer", (0.1, -0.03, 0.12, 0.02, 0.1))
    assert nearer.seeds_needed() < count
    command = deciding(entry(sure, near, nearer))
    assert command == f"python run.py experiment=ising_sampling 'seed=range({count})'"
    words = shlex.split(command)[3:]
    runs = asked(declared("ising_sampling", "paper").config, words).runs
    assert len(runs) == 9 * count
    assert deciding(entry(Margin("one", (1.0,)))).endswith("'seed=range(5)'")
    assert deciding(entry(sure)) == "python run.py experiment=ising_sampling"


def test_claims_over_models_ask_for_models():
    (claim,) = (claim for claim in CLAIMS if claim.name == "rates-fig3-consistency")
    open_ = Margin("near", (0.1, -0.05, 0.12, 0.02, 0.1))
    command = deciding(replace(entry(open_), claim=claim))
    assert command.startswith("python run.py experiment=rates_fig3_words 'model_seed=range(1,")


def test_where_seeds_would_not_decide_there_is_no_command():
    for margin in (
        Margin("even", (1.0, -1.0)),
        Margin("bounded", (0.1,), limits=lambda level: (-1.0, 1.0)),
        Margin("low", (-1.0, -1.1), at_least=True),
        Margin("undefined", (math.nan, 1.0)),
    ):
        assert deciding(entry(margin, Margin("one", (1.0,)))) == ""


def test_records_that_cannot_decide_are_replaced_by_the_papers_runs():
    found = entry(Margin("one", (1.0,)), basis="quick", indication=Verdict.OPEN)
    assert deciding(found) == "python run.py experiment=ising_sampling"
    (cost,) = (claim for claim in CLAIMS if claim.experiment == "rates_cost")
    both = deciding(replace(found, claim=cost), KNOWN.also["rates_cost"])
    assert both == (
        "python run.py experiment=rates_cost && "
        "python run.py experiment=rates_cost model=rbm_usps data=usps"
    )


def test_intervals_share_one_axis():
    """Zero is at the same place for all; a bar reaches it exactly if the claim is not decided."""

    def bar(*values, **more):
        found = axis.interval(Margin("a", values, **more))
        zero = re.search(r'class="zero" x1="([\d.]+)"', found)[1]
        ends = re.search(r'class="bar" x1="([\d.]+)" x2="([\d.]+)"', found)
        return float(zero), *(map(float, ends.groups()) if ends else ())

    zero, low, high = bar(1.0, 1.1, 0.9)
    assert zero == axis.WIDTH / 2 < low < high
    assert bar(1000.0, 1100.0, 900.0) == (zero, low, high)  # whatever the unit
    assert bar(-1.0, -1.1, -0.9) == pytest.approx((zero, 2 * zero - high, 2 * zero - low))
    _, low, high = bar(0.1, -0.1, 0.2)
    assert low < zero < high
    _, low, high = bar(5.0, limits=lambda level: (0.0, 10.0))
    assert low == zero
    assert bar(1.0) == bar(1.0, exact=True) == (zero,)  # of a single run; of no length
    assert axis.interval(Margin("a", (math.nan,))) == ""


# What is committed.


def test_a_block_of_a_page_is_replaced_and_nothing_else():
    text = "a\n<!-- times -->\nold\n<!-- /times -->\nb\n"
    assert committed.replaced(text, "times", "new") == text.replace("old", "\nnew\n")
    with pytest.raises(ValueError, match="no block <!-- ledger -->"):
        committed.replaced(text, "ledger", "new")


def test_what_is_committed_is_made_from_bundles(outputs, tmp_path):
    at_the_papers_scale(outputs / "rates_sec3" / "smoke", tmp_path / "outputs")
    bundles = tmp_path / "bundles"
    words = ["rates_sec3", f"--outputs={tmp_path / 'outputs'}", f"--to={bundles}"]
    assert latticework.scripts.bundle.main(words) == 0
    (tmp_path / "docs" / "results").mkdir(parents=True)
    for name in ("README.md", "docs/reproducing.md", "docs/benchmark.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    committed.refresh(tmp_path, bundles)
    results = tmp_path / "docs" / "results"
    assert "| holds |" in (results / "ledger.md").read_text()
    assert (results / "rates_sec3-sec3.png").read_bytes().startswith(b"\x89PNG")
    readme = (tmp_path / "README.md").read_text()
    assert re.search(r"Breuleux et al. \(2011\): 1 of \d+ claims hold here \(not ", readme)
    assert re.search(r"Our readings: 0 of \d+ claims hold here \(not ", readme)
    assert re.search(
        r"`rates_sec3` \|.*, measured \|", (tmp_path / "docs/reproducing.md").read_text()
    )


def test_the_time_of_a_sweep_is_that_of_all_its_runs():
    """Half of the runs have finished: the time is extrapolated, and says so."""
    runs = ("dmala-0", "dmala-1", "dmala-2", "dmala-3")
    done = [fake(seed=seed, device="cpu") for seed in range(4)]
    for record, seconds in zip(done, (60, 180, 120, 120), strict=True):
        record.document["seconds"] = seconds

    def held(records, there):
        parts = "ising_sampling", "paper", OmegaConf.create(), "a bundle", runs, records
        return Holding(*parts, done=frozenset(there))

    half, whole = held(done[:2], runs[:2]), held(done, runs)
    more = held(done, runs[:2])  # the other half has seeds that were not declared
    assert committed.time_of(more, {}, gpu=False) == "8 min, extrapolated from 4 runs"
    assert committed.time_of(half, {}, gpu=False) == "8 min, extrapolated from 2 runs"
    assert committed.time_of(half, {"cpu": "60 h, projected"}, gpu=False) == "60 h, projected"
    assert committed.time_of(whole, {"cpu": "60 h, projected"}, gpu=False) == "8 min, measured"
    assert committed.time_of(whole, {"gpu": "1 min, projected"}, gpu=True) == "1 min, projected"
    assert committed.time_of(None, {}, gpu=False) == committed.UNKNOWN


def test_the_committed_ledger_is_that_of_the_committed_records():
    """`python -m latticework.scripts.report --committed` was run after the last change."""
    made = gather(None, scales=("paper",), drawing=False)
    assert (ROOT / "docs/results/ledger.md").read_text() == committed.ledger_page(made)
    for file, name, text in committed.blocks(made, KNOWN, ROOT, BUNDLES):
        assert file.read_text() == committed.replaced(file.read_text(), name, text), file.name
    page = results_page(made, ROOT / "docs" / "results")
    assert (ROOT / "docs/results/README.md").read_text() == page


def test_no_figure_or_table_of_an_exhibit_overwrites_another():
    for exhibit in KNOWN.exhibits:
        written = []
        for name, wanted in exhibit.of.items() if len(exhibit.of) > 1 else ():
            config = declared(name, "paper").config
            for what in ("figures", "tables"):
                drawn = [one for one, how in (config.get(what) or {}).items() if how]
                files = {stem(exhibit, name, one) for one in drawn if one in (wanted or drawn)}
                written += [(what, file) for file in files]
        assert len(set(written)) == len(written)
        if exhibit.name == "fig3":
            expected = ("fig3", "ising_sampling_compiled-fig3", "fig3_dula")
            assert written == [("figures", file) for file in expected]


def test_the_numbers_of_a_section_have_names_of_their_own(tmp_path):
    """Numbers of one name name their experiments; where the paper prints none, the page says so."""
    number, other = Number("speed", Estimate(1.0)), Number("mass", Estimate(2.0))
    margins = (Margin("m", (1.0,)),)
    claims = {claim.experiment: claim for claim in CLAIMS}
    entries = [
        Entry(claims[name], Verdict.OPEN, finding=Finding(margins, numbers))
        for name, numbers in (("rates_fig2", (number, other)), ("rates_fig2_mnist", (number,)))
    ]
    section = view.Section(KNOWN["rates-fig2"], entries, [], [], "complete")
    report = Report({}, [], [section], {}, 0, [], {}, [])
    page = results_page(report, tmp_path)
    for text in ("speed (rates_fig2) |", "speed (rates_fig2_mnist) |", "| mass |"):
        assert page.count(text) == 1
    assert "The paper prints no number of this." in page
    printed = Entry(
        entries[0].claim,
        Verdict.OPEN,
        finding=Finding(margins, (Number("speed", Estimate(1.0), Estimate(3.0)),)),
    )
    page = results_page(replace(report, sections=[replace(section, entries=[printed])]), tmp_path)
    assert "| speed | 1 | 3 |" in page
    assert "prints no number" not in page


def test_a_table_beside_the_paper_opens_its_section_and_the_others_are_folded(tmp_path):
    """In this order: what is not the paper's, the numbers beside the paper's, the rest."""
    names = ["table1_beside", "table1"]
    exhibit = replace(KNOWN["table1"], of={"ais_small": names})
    held = Holding("ais_small", "paper", declared("ais_small", "paper").config, "outputs", (), [])
    part = view.Part("ais_small", "its command", held, view.Drawn(), [], [])
    sections = [view.Section(exhibit, [], [part], [], "complete")]
    report = Report({}, [], sections, {}, 0, [], {}, [])
    for name in reversed(names):
        (tmp_path / f"{name}.md").write_text(f"| {name} |")
        page = results_page(report, tmp_path)
        if name == "table1":
            assert "<details" not in page  # control: nothing opens the section
    words = (
        exhibit.caveat,
        "| table1_beside |",
        "<details",
        "| table1 |",
        "</details>",
        "its com",
    )
    assert [page.count(word) for word in words] == [1] * len(words)
    places = [page.index(word) for word in words]
    assert places == sorted(places)


def test_every_note_belongs_to_an_exhibit():
    names = {file.stem for file in (ROOT / "docs/results/notes").glob("*.md")}
    assert names - {exhibit.name for exhibit in KNOWN.exhibits} == {"bench"}


def test_pages_are_short_enough_for_github_to_render():
    """It shows Markdown of up to 512 kB."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    assert [page.name for page in pages if page.stat().st_size > 500_000] == []


def test_tables_have_as_many_cells_in_each_row():
    """A bar inside a cell has to be escaped, or a row has too many cells."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    blocks = [
        block for page in pages for block in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.M)
    ]
    assert len(blocks) > 100
    for block in blocks:
        bars = {len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}
        assert len(bars) == 1, block


def test_every_file_that_the_results_page_links_exists():
    folder = ROOT / "docs" / "results"
    links = re.findall(r"\]\(([^)#]+)\)", (folder / "README.md").read_text())
    assert len(links) > 40
    assert [link for link in links if not (folder / link).exists()] == []


def test_committed_pictures_are_small():
    sizes = {f.name: f.stat().st_size for f in (ROOT / "docs" / "results").glob("*.png")}
    assert sizes
    assert {name: size for name, size in sizes.items() if size > 200_000} == {}


# In a real browser.


@pytest.mark.skipif(FOUND is None, reason="no Chromium is installed")
def test_the_page_in_a_browser(page, tmp_path):
    browser = Browser(tmp_path / "profile")
    try:
        shades = {}
        for width, dark in ((1280, False), (1280, True), (390, False)):
            browser.open(page, width=width, height=900, dark=dark)
            browser.value("[...document.images].forEach(one => { one.loading = 'eager' })")
            assert browser.value(
                "Promise.all([...document.images].map(one => one.decode())).then(() => true)"
            )
            images = browser.value("[...document.images].map(one => [one.naturalWidth, one.alt])")
            assert len(images) >= 4
            assert all(size > 100 and alt for size, alt in images)
            assert browser.value("document.documentElement.scrollWidth") <= width
            paint = "getComputedStyle(document.{}).backgroundColor"
            shades[width, dark] = browser.value(paint.format("body"))
            assert browser.value(paint.format("querySelector('figure')")) == "rgb(255, 255, 255)"
            assert browser.errors() == []
            wide = (
                "[...document.querySelectorAll('.scroll')].map(s => s.scrollWidth - s.clientWidth)"
            )
            assert (
                width > 400 or max(browser.value(wide)) <= 0
            )  # every column is on a phone's screen
            assert all(one.startswith(("file:", "data:")) for one in browser.requested())
        assert shades[1280, False] == shades[390, False] != shades[1280, True]

        browser.open(page, width=1280, height=900)
        column = "[...document.querySelectorAll('.ledger tbody tr')].map(r => r.cells[0].innerText)"
        before = browser.value(column)
        press = "document.querySelector('.ledger th button').click()"
        browser.value(press)
        up = browser.value(column)
        browser.value(press)
        down = browser.value(column)
        assert before != up
        assert sorted(up) == sorted(before)
        assert down == up[::-1]
        sorts = "document.querySelector('.ledger th').getAttribute('aria-sort')"
        assert browser.value(sorts) == "descending"

        rows = "[...document.querySelectorAll('.ledger tbody tr')].filter(r => r.offsetHeight > 0)"
        count = browser.value(f"{rows}.length")
        box = "document.querySelector('.tally [data-verdict=\"not run\"]')"
        few = int(browser.value(f"{box}.querySelector('b').innerText"))
        assert 0 < few < count
        browser.value(f"{box}.click()")
        assert browser.value(f"{rows}.length") == few
        assert browser.value(f"{rows}.every(r => r.innerText.includes('not run'))")
        assert browser.value("document.getElementById('filtered').innerText").startswith("Shown: ")
        browser.value(f"{box}.click()")
        assert browser.value(f"{rows}.length") == count

        heard = "document.execCommand = () => { window.heard = document.activeElement.value }"
        refuse = "navigator.clipboard.writeText = text => { throw Error('refused') }"
        button = "document.querySelector('#claim-fig7-connectivity .copy')"
        browser.value(f"{heard}; {refuse}; {button}.click()")
        command = "python run.py experiment=ising_connectivity"
        assert browser.value("new Promise(r => setTimeout(() => r(window.heard), 50))") == command
        assert browser.value(f"{button}.innerText") == "copied"

        browser.call("Emulation.setEmulatedMedia", media="print")
        shown = "getComputedStyle(document.querySelector('{}')).display"
        assert browser.value(shown.format(".ledger thead")) == "table-header-group"  # repeated
        assert browser.value(shown.format(".copy")) == "none"
        browser.call("Emulation.setEmulatedMedia", media="")
        with pytest.raises(AssertionError):  # control: an error would be seen
            browser.value("nothing.at.all")
    finally:
        browser.close()


def test_records_of_earlier_settings_are_labelled(tmp_path):
    """Those that do not name a setting that the experiment has got since."""
    assert command_line("experiment=rates_sec3", "scale=smoke", outputs=tmp_path) == 0

    def labels(setting):
        known = replace(KNOWN, settings={"rates_sec3": setting} if setting else {})
        made = gather(tmp_path, bundles=NOWHERE, known=known, drawing=False)
        (section,) = [one for one in made.sections if one.exhibit.name == "rates-sec3"]
        return [text for part in section.parts for text in part.problems if "outdated" in text]

    (label,) = labels("task.visible_bias")
    assert label.startswith("3 of 3 records are outdated: they lack the setting task.visible_bias")
    assert "`python run.py experiment=rates_sec3 scale=smoke`" in label
    assert labels("task.lambdas") == labels(None) == []  # controls: they name the first
