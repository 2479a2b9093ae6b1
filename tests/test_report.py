"""The report: its page, its figures that are kept, and how it writes numbers."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from command import command_line
from report_parts import KNOWN, NOWHERE, PART, ROOT

import latticework.scripts.report
from latticework.experiments.papers import (
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
from latticework.experiments.papers.kept import forget_oldest, kept_or_drawn
from latticework.experiments.papers.rendering import markdown
from latticework.experiments.papers.report_builder import build_report
from latticework.experiments.papers.report_content import Report
from latticework.experiments.papers.report_html import html_page, write_report
from latticework.experiments.papers.report_pages import MAX_DIFFERENCES, split_note
from latticework.experiments.records.estimates import Estimate, duration, format_estimate


def test_the_report_has_its_figures_and_is_made_by_its_command(small_outputs, report, capsys):
    folder = small_outputs / "report"
    (folder / "figures").mkdir(exist_ok=True)
    (folder / "figures" / "earlier.png").write_bytes(b"")
    latticework.scripts.report.main(["--outputs", str(small_outputs), "--scale", "smoke"])
    assert f"report: {folder / 'index.html'}" in capsys.readouterr().out
    assert write_report(report, folder) == folder / "index.html"
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
    page = write_report(report, tmp_path).read_text()
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


def test_a_note_is_shown_with_the_committed_records_and_with_no_others(small_outputs, tmp_path):
    note = "- It differs.\n\nDiary."
    few = replace(KNOWN, exhibits=(KNOWN["fig1a"], KNOWN["fig3"]))
    made = build_report(small_outputs, known=few, drawing=False)
    home = write_report(made, tmp_path, {"fig3": note, "fig1a": note})  # fig3 has runs there
    pages = {name: (home.parent / f"{name}.html").read_text() for name in ("fig1a", "fig3")}
    assert "<li>It differs.</li>" in pages["fig1a"]
    assert pages["fig1a"].index("How the runs were made") < pages["fig1a"].index("<p>Diary.</p>")
    assert "It differs" not in pages["fig3"]


def test_a_report_of_nothing_names_every_command(tmp_path):
    made = build_report(tmp_path, bundles=NOWHERE)
    assert made.paper_counts["not run"] == len(made.paper_entries)
    assert {entry.claim.group for entry in made.paper_entries} == {DLP, RATES}
    home = write_report(made, tmp_path / "report")
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
def test_only_what_changed_is_drawn_again(small_outputs, tmp_path, monkeypatch):
    """A new record redraws the figures of its experiment, a new version of the code all figures."""
    shutil.copytree(small_outputs, tmp_path / "outputs")
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


def test_the_report_keeps_images_and_text_and_no_pickles(small_outputs, tmp_path):
    shutil.copytree(small_outputs / "rates_sec3", tmp_path / "outputs" / "rates_sec3")
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
