"""A figure that fails keeps no other from being drawn, and is told by the kind of its error."""

import matplotlib.pyplot as plt
import pytest
from command import command_line
from fakes import fake
from matplotlib.figure import Figure
from omegaconf import DictConfig, OmegaConf

import latticework.scripts.figures
import latticework.scripts.report
from latticework.experiments.papers import docs_pages
from latticework.experiments.papers import draw as drawing
from latticework.experiments.papers.draw import draw_all, svg
from latticework.experiments.papers.report_content import Report
from latticework.experiments.papers.report_figures import draw
from latticework.experiments.papers.run_status import ExperimentStatus
from latticework.experiments.records.record import Record

ERRORS = {
    "value": ValueError("bad ink"),
    "key": KeyError("x"),
    "lookup": LookupError("no record holds x"),
    "file": FileNotFoundError("some/run holds no x.npz"),
}
RECORDS = f"(records: {fake().display_path})"
FAILED = [
    f"value was not drawn: ValueError: bad ink {RECORDS}",
    f"key was not drawn: KeyError: 'x' {RECORDS}",
]


def failing(records: list[Record], error: str) -> Figure:
    raise ERRORS[error]


def fine(records: list[Record], label: str = "fine") -> Figure:
    figure, ax = plt.subplots()
    ax.set_xlabel(label)
    return figure


def config(*names: str) -> DictConfig:
    figures = {name: {"_target_": f"{__name__}.failing", "error": name} for name in names}
    figures["untypeset"] = {"_target_": f"{__name__}.fine", "label": "$\\nothing$"}
    figures["fine"] = {"_target_": f"{__name__}.fine"}
    return OmegaConf.create({"name": "some", "figures": figures})


@pytest.fixture
def _without_proofs(monkeypatch):
    """Records in memory have no files to hash."""
    monkeypatch.setattr(Record, "fingerprint", "")


@pytest.mark.usefixtures("_without_proofs")
def test_the_others_are_drawn(tmp_path, caplog):
    files, failed = draw_all(config(*ERRORS), tmp_path, [fake()])
    assert [file.name for file in files] == ["fine.png"]
    assert failed[:2] == FAILED
    assert failed[2].startswith("untypeset was not written: ValueError")
    assert failed[2].endswith(RECORDS)
    assert [record.getMessage() for record in caplog.records] == [
        "lookup was not drawn: no record holds x",
        "file was not drawn: some/run holds no x.npz",
    ]
    plt.close("all")


def test_an_svg_is_the_same_each_time_and_small_or_not_there(monkeypatch):
    text = svg(fine([]))
    assert text == svg(fine([]))
    assert "<svg" in text
    monkeypatch.setattr(drawing, "MAX_SVG_CHARACTERS", len(text) - 1)
    assert svg(fine([])) == ""
    plt.close("all")


@pytest.mark.slow
def test_a_command_draws_the_others_and_exits_with_1(tmp_path, capsys):
    words = [
        "experiment=rates_sec3", "scale=smoke", "model.coupling=0.1",
        f"+figures.bad._target_={__name__}.failing", "+figures.bad.error=key",
        f"+figures.good._target_={__name__}.fine",
    ]  # fmt: skip
    assert command_line(*words, outputs=tmp_path) == 1
    told = capsys.readouterr().out
    assert "figures and tables: bad was not drawn: KeyError: 'x'" in told
    assert {file.stem for file in tmp_path.rglob("*.png")} == {"sec3", "good"}
    assert "good.png" in told
    with pytest.raises(SystemExit) as end:
        latticework.scripts.figures.main([*words, f"outputs={tmp_path}"])
    assert end.value.code.startswith("bad was not drawn: KeyError: 'x' (records: rates_sec3/smoke/")
    assert "good.png" in capsys.readouterr().out


@pytest.mark.usefixtures("_without_proofs")
def test_the_report_tells_what_failed(tmp_path, monkeypatch):
    figures = config(*ERRORS)
    del figures.figures.untypeset
    made = draw(ExperimentStatus("some", "paper", figures, "outputs", (), [fake()]))
    assert [picture.name for picture in made.pictures] == ["fine"]
    failed = ["value was not made: ValueError: bad ink", "key was not made: KeyError: 'x'"]
    assert made.failed == failed
    assert made.reasons_not_made[:2] == failed
    assert made.reasons_not_made[2] == "lookup was not made: no record holds x"
    report = Report({}, [], [], failed)
    monkeypatch.setattr(docs_pages, "build_report", lambda *_, **__: report)
    with pytest.raises(RuntimeError, match="nothing was written: value was not made"):
        docs_pages.refresh(tmp_path)
    monkeypatch.setattr(latticework.scripts.report, "build_report", lambda *_, **__: report)
    monkeypatch.setattr(latticework.scripts.report, "write", lambda *_: ())
    with pytest.raises(SystemExit) as end:
        latticework.scripts.report.main([f"--outputs={tmp_path}"])
    assert end.value.code == "\n".join(failed)
