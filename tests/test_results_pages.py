"""The pages of docs/results and their notes: blocks, order, links, and no typed number of a run."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import fake
from omegaconf import OmegaConf
from report_parts import KNOWN, ROOT
from test_bundle import at_the_papers_scale

import latticework.scripts.bundle
from latticework.experiments.papers import (
    docs_blocks,
    docs_pages,
    report_content,
)
from latticework.experiments.papers.claims.ledger import CLAIMS, Entry
from latticework.experiments.papers.claims.verdict import Finding, Margin, Number, Verdict
from latticework.experiments.papers.docs_pages import results_pages
from latticework.experiments.papers.report_content import Report
from latticework.experiments.papers.report_pages import MAX_DIFFERENCES, TABLES
from latticework.experiments.papers.run_status import ExperimentStatus
from latticework.experiments.records.estimates import Estimate
from latticework.experiments.records.record import BUNDLES
from latticework.experiments.runs.sweeps import (
    CONF,
    declared_sweep,
)

# The pages of docs.


def test_a_block_of_a_page_is_replaced_and_nothing_else():
    text = "a\n<!-- times -->\nold\n<!-- /times -->\nb\n"
    assert docs_blocks.replace_block(text, "times", "new") == text.replace("old", "\nnew\n")
    with pytest.raises(ValueError, match="no block <!-- ledger -->"):
        docs_blocks.replace_block(text, "ledger", "new")


def test_pages_are_made_from_bundles(small_outputs, tmp_path, monkeypatch):
    at_the_papers_scale(small_outputs / "stochastic_proposal" / "smoke", tmp_path / "outputs")
    bundles = tmp_path / "bundles"
    words = ["stochastic_proposal", f"--outputs={tmp_path / 'outputs'}", f"--to={bundles}"]
    assert latticework.scripts.bundle.main(words) == 0
    few = replace(KNOWN, exhibits=(KNOWN["thm6.1"], KNOWN["fig1a"]), aside=[])
    monkeypatch.setattr(docs_pages, "catalogue", lambda: few)
    (tmp_path / "docs" / "results").mkdir(parents=True)
    for name in ("README.md", "docs/reproducing.md", "docs/benchmark.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    docs_pages.refresh_pages(tmp_path, bundles)
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
