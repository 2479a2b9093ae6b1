"""Text of records is escaped wherever it is printed or written, for the format of that place."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
import shutil
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from fakes import fake
from hydra.utils import get_class
from hypothesis import example, given
from hypothesis import strategies as st
from markdown import Markdown
from markdown_it import MarkdownIt
from omegaconf import OmegaConf

import latticework.scripts.figures
import latticework.scripts.report
import latticework.scripts.trace
from latticework.experiments import CONF, result_tables
from latticework.experiments.figures import text as text_figures
from latticework.experiments.figures.plot import Panel, Plot, Series, finish_plot
from latticework.experiments.papers import draw, rendering, report_content
from latticework.experiments.papers.claims.ledger import CLAIMS, Entry
from latticework.experiments.papers.claims.verdict import Finding, Margin, Number, Verdict
from latticework.experiments.papers.docs_pages import results_pages
from latticework.experiments.papers.exhibits import catalogue
from latticework.experiments.papers.report_html import html_page, write_report
from latticework.experiments.records.escapes import (
    escape_csv,
    escape_html,
    escape_latex,
    escape_markdown,
    escape_terminal,
)
from latticework.experiments.records.estimates import Estimate, KeyNumber
from latticework.experiments.records.record import Record
from latticework.experiments.runs import errors

SECRET = "figures/../../secret.png"
HOSTILE = (
    f"=1 ![i]({SECRET}) <img src=x onerror=y> [red]r[blue] [l](http://evil) [m]: http://evil "
    "`c` *e* _f_ a|b \\input{g} $h$ &lt; <!-- k --> \x1b[31m\x9b2J\u202e"
)
USUAL = (
    "sampler=dmala,seed=0", "step_size 0.1", "[-0.18, -0.12] (5)", "ais_small.zip", "R & D, a < b",
    "bert-base-uncased — SUBSTITUTE", "x[0]", "log RMSE, 95 %", "cpu, 1 thread, PyTorch 2.11.0",
)  # fmt: skip
SIGNS = st.text(st.sampled_from("ab1 _*`[]()<>!|\\&#;:=-+~$.{}/\"'\n\x1b"), max_size=24)
RENDERERS = {
    "GitHub": MarkdownIt("commonmark").enable(["table", "strikethrough"]).render,
    "the site": Markdown(extensions=["tables", "sane_lists", "fenced_code"]).convert,
}
PLACES = {
    "a cell": "| a | b |\n|---|---|\n| {} | z |\n",
    "a line": "a: {}. z\n",
    "an item": "- {}\n",
}

FORMULAS = ("=1+1", "+cmd|x", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1", "-1 / x", "-1 (A1)")
NUMBERS = ("-0.5", "=4", "+1e-3", "-inf", "-", "-333 ± 42 (3) to -328 / -163.50")


class Seen(HTMLParser):
    """The elements and the text of a page, without those of its own style and script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += [f"{name}={value}" for name, value in attrs]

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        self.elements.append(f"comment {data.strip()}")


def words(text: str) -> list[str]:
    """The words of a text whose control characters are replaced."""
    shown = "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cf") and c != "\n" else c
                    for c in text)  # fmt: skip
    return shown.split()


# The functions, each for a format.


@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("place", PLACES)
@given(SIGNS)
@example("&#1")  # a reference without its semicolon
def test_markdown_shows_any_text_as_it_is(renderer, place, text):
    plain = Seen(RENDERERS[renderer](PLACES[place].format("y")))
    seen = Seen(RENDERERS[renderer](PLACES[place].format(escape_markdown(text) + "y")))
    assert seen.elements == plain.elements
    assert seen.text.split() == plain.text.replace("y", " ".join(words(text + "y")), 1).split()


@pytest.mark.parametrize("escape", [escape_markdown, escape_csv, escape_terminal])
def test_usual_names_stay_as_they_are(escape):
    assert [escape(text) for text in USUAL] == list(USUAL)


@given(SIGNS)
def test_html_latex_and_terminals_show_any_text_as_it_is(text):
    seen = Seen(f'<p title="{escape_html(text)}">{escape_html(text)}</p>')
    assert seen.elements == ["p"]
    assert seen.text.split() == words(text)
    bare = re.sub(r"\\[{}$&#%_]|\\text\w+\{\}|\\\(\\pm\\\)", "", escape_latex(text))
    assert not set(bare) & set("\\{}$&#%_^~")
    assert escape_terminal(text).isprintable()


@pytest.mark.parametrize("text", FORMULAS)
def test_a_cell_is_no_formula(text):
    assert escape_csv(text).startswith("'")


@pytest.mark.parametrize("text", [*NUMBERS, "a=b", ""])
def test_numbers_and_other_texts_stay_in_a_cell(text):
    assert escape_csv(text) == text


# The places.


def hostile_records() -> list[Record]:
    """Two records of sentences whose names, settings and words are hostile."""
    entry = {"words": ["a", HOSTILE], "masked": [0], "origin": HOSTILE, "written": [[HOSTILE]]}
    made = []
    for number in range(2):
        record = fake(
            {"step": [1], "acceptance": [0.5], "changed": [1.0]},
            config={"model": {"name": f"{number}{HOSTILE}"}, "task": {"chains": 1, "steps": 1}},
            choices={"sampler": "dmala", "model": f"{number}{HOSTILE}", "data": HOSTILE},
            overrides=[f"model.name={number}{HOSTILE}"],
            scores=dict.fromkeys(text_figures.COLUMNS, 1.0),
            language={"asked": HOSTILE, "used": HOSTILE},
            data={"variant": HOSTILE},
            generated=[entry],
        )
        made.append(record)
    return made


def hostile_figure(records: list[Record]) -> Plot:
    name = re.sub(r"[\x00-\x1f\x80-\x9f\u202e$]", "", HOSTILE)  # what a font and TeX can set
    panel = Panel([Series(name, [0, 1], [0, 1])], xlabel=name)
    figure, axes = plt.subplots()
    panel.draw(axes)
    return finish_plot(figure, [axes], [panel], name)


def harmless(page: str, shown: str = "secret") -> None:
    """The page shows the hostile text, or `shown`, and none of it as markup."""
    seen = Seen(page)
    assert shown in seen.text
    assert "comment k" not in seen.elements
    kinds = ("src=x", "src=fig", "onerror", "href=http://evil", "alt=i")
    assert not [text for text in seen.attributes if text.startswith(kinds)]
    assert not set("\x1b\x9b\u202e") & set(page)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """The folder with the files of figures and tables."""
    folder = tmp_path_factory.mktemp("written")
    figures = {
        "own": {"_target_": f"{__name__}.hostile_figure"},
        "page": {"_target_": "latticework.experiments.figures.text.sentences", "title": HOSTILE},
    }
    tables = {"own": {"_target_": "latticework.experiments.figures.text.table3"}}
    config = OmegaConf.create({"name": "own", "figures": figures, "tables": tables})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Record, "fingerprint", "")  # records in memory have no files to hash
        made = draw.draw_all(config, folder, hostile_records())
    assert not made.failed
    assert len(made.files) == 3
    return folder


def test_files_of_figures_and_tables(written):
    for render in RENDERERS.values():
        harmless(render((written / "tables" / "own.md").read_text()))
    harmless((written / "figures" / "page.html").read_text())
    rows = list(csv.reader((written / "tables" / "own.csv").open()))
    assert sum("secret" in cell for row in rows for cell in row) > 3
    for cell in (cell for row in rows for cell in row):
        assert not cell.startswith(("=", "@")), cell
    latex = (written / "tables" / "own.tex").read_text()
    assert r"\textbackslash{}input\{g\} \$h\$" in latex
    assert not re.search(r"\\input|(?<!\\)[$#%_]", latex)


def test_the_svg_and_the_numbers_of_a_figure():
    plot = hostile_figure([])
    harmless(rendering.svg_text(plot.figure), "Matplotlib")  # its texts are paths
    rows = list(csv.reader(io.StringIO(rendering.csv_text(plot.table))))
    assert any(cell.startswith("'=1") for row in rows for cell in row)
    assert not any(cell.startswith("=") for row in rows for cell in row)
    plt.close(plot.figure)


def hostile_report() -> report_content.Report:
    known = catalogue()
    claim = next(one for one in CLAIMS if one.exhibit == "fig3")
    numbers = [Number(HOSTILE, Estimate(1.0), Estimate(2.0)), Number(HOSTILE, Estimate(3.0))]
    finding = Finding([Margin(HOSTILE, (1.0, 2.0))], numbers, note=HOSTILE)
    entry = Entry(claim, Verdict.OPEN, "paper", finding, needs=HOSTILE)
    table = pd.DataFrame({HOSTILE: [HOSTILE]})
    drawn = report_content.Drawn(
        tables=[("own", table)], reasons_not_made=[HOSTILE], failed=[HOSTILE]
    )
    facts, remedies = [("Data", HOSTILE)], [("python run.py", "makes it again")]
    part = report_content.Part(
        "ising_sampling", "python run.py", None, drawn, facts, [HOSTILE], remedies
    )
    section = report_content.Section(known["fig3"], [entry], [part], [part], "complete")
    return report_content.Report(known.papers, [entry], [section], [HOSTILE])


def test_the_report_and_the_pages_of_docs(tmp_path):
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"\x89PNG secret")
    report = hostile_report()
    folder = tmp_path / "outputs" / "report"
    write_report(report, folder)
    assert {file.name for file in folder.glob("*.html")} == {
        "index.html", "ledger.html", "fig3.html",
    }  # fmt: skip
    for file in folder.glob("*.html"):
        harmless(file.read_text())
        assert_links_stay_in(folder, file)
    for name in ("README.md", "ledger.md", "fig3.md"):
        for render in RENDERERS.values():
            harmless(render(results_pages(report, tmp_path)[name]))


def assert_links_stay_in(folder: Path, file: Path) -> None:
    """Each link and picture of a page is a file that the report wrote."""
    for attribute in Seen(file.read_text()).attributes:
        name, _, target = attribute.partition("=")
        if name in ("src", "href"):
            path = (folder / target).resolve()
            assert path.is_file(), target
            assert path.is_relative_to(folder.resolve()), target


def test_a_page_with_a_link_out_of_its_folder_is_found(tmp_path):
    """The test above would see it."""
    file = tmp_path / "report" / "a.html"
    file.parent.mkdir()
    (tmp_path / "secret.png").write_bytes(b"\x89PNG")
    file.write_text(html_page("# A\n\n![i](../secret.png)"))
    with pytest.raises(AssertionError):
        assert_links_stay_in(file.parent, file)


def no_controls(printed: str) -> None:
    assert "secret" in printed
    assert "[red]r[blue]" in printed
    assert not set("\x1b\x9b\u202e\r") & set(printed)


def test_the_tables_of_a_run_and_of_a_sweep(written, capsys, monkeypatch):
    records = hostile_records()
    heading = f"{HOSTILE} one two"
    monkeypatch.setattr(
        result_tables, "headline", lambda _: [KeyNumber(heading, HOSTILE, unit=HOSTILE)]
    )
    monkeypatch.setattr(result_tables, "WIDTH", 2000)
    for show, given_ in (
        (result_tables.show_run, records[0]),
        (result_tables.show_sweep, records),
        (result_tables.show_table, written / "tables" / "own.md"),
    ):
        show(given_)
        no_controls(capsys.readouterr().out)


def test_lines_of_the_log():
    """By the formatter that Hydra configures."""
    config = OmegaConf.load(CONF / "config.yaml").hydra.job_logging.formatters.simple
    formatter = get_class(config["()"])(config.format)
    record = logging.LogRecord("a", logging.WARNING, "a.py", 1, "%s\nnext", (HOSTILE,), None)
    first, *_ = formatter.format(record).split("\n")
    no_controls(formatter.format(record).replace("\n", ""))
    assert formatter.format(record).endswith("\nnext")
    assert first


def test_commands_that_name_records(tmp_path, capsys, monkeypatch):
    """What they print, and the messages with which they end."""
    monkeypatch.setenv("COLUMNS", "2000")
    run = {"config": {}, "choices": {}, "overrides": [], "versions": {"t": HOSTILE}, "seconds": 1.0}
    place = tmp_path / "outputs" / "rates_sec3" / "smoke"
    names = [re.sub("/", "", f"{number}{HOSTILE}") for number in range(2)]
    for number, name in enumerate(names):
        (place / name).mkdir(parents=True)
        document = run | {"commit": f"{number}{HOSTILE}", "device": f"{number}{HOSTILE}"}
        (place / name / "run.json").write_text(json.dumps(document))
        (place / name / "metrics.csv").write_text(f'"{HOSTILE}"\n{number}\n')
    figure = tmp_path / "figure.png"
    shutil.copy(place / names[0] / "run.json", figure)
    proof = {"figure": HOSTILE, "command": HOSTILE, "records": {HOSTILE: HOSTILE}}
    figure.with_suffix(".json").write_text(json.dumps(proof | {"versions": {HOSTILE: HOSTILE}}))
    latticework.scripts.trace.main([str(figure)])
    no_controls(capsys.readouterr().out)
    (place / names[0] / "run.json").write_text("[")
    shutil.rmtree(place / names[1])
    outputs = f"outputs={tmp_path / 'outputs'}"
    with pytest.raises(SystemExit) as end:
        latticework.scripts.figures.main(["experiment=rates_sec3", "scale=smoke", outputs])
    no_controls(str(end.value.code))
    with pytest.raises(SystemExit), errors.one_line_errors():
        raise ValueError(HOSTILE)
    no_controls(capsys.readouterr().err)
    report = hostile_report()
    monkeypatch.setattr(latticework.scripts.report, "build_report", lambda *_, **__: report)
    with pytest.raises(SystemExit) as end:
        latticework.scripts.report.main([f"--outputs={tmp_path}"])
    no_controls(str(end.value.code))
