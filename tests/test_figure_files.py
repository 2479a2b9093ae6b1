"""Files of figures and tables: what they hold, and what happens if a figure fails."""

import inspect
from io import StringIO

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from command import command_line
from fakes import fake
from hydra.utils import get_method
from matplotlib.figure import Figure
from omegaconf import DictConfig, OmegaConf

import latticework.scripts.figures
import latticework.scripts.report
from latticework.experiments import CONF
from latticework.experiments.figures.acceptance import Boxes
from latticework.experiments.figures.log_z import Stairs
from latticework.experiments.figures.means import means_by_reading
from latticework.experiments.figures.plot import (
    Bars,
    ErrorBars,
    HorizontalBars,
    Level,
    Panel,
    Plot,
    Series,
    draw_panels,
    finish_plot,
    mean_line,
    points_table,
)
from latticework.experiments.papers import docs_pages, rendering
from latticework.experiments.papers.draw import PAPER_LIMITS, draw_all
from latticework.experiments.papers.rendering import csv_text, png_bytes, svg_text, write_table
from latticework.experiments.papers.report_content import Report
from latticework.experiments.papers.report_figures import draw_experiment
from latticework.experiments.papers.run_status import ExperimentStatus
from latticework.experiments.records.estimates import Estimate
from latticework.experiments.records.record import Record

mpl.use("Agg")
RESULTS = CONF.parent / "docs" / "results"
MAX_FILE_BYTES = 200_000  # bytes of a picture in docs/results


# Tables of figures.


def test_lines_have_their_bands_and_names():
    runs = [fake({"step": [0, 5], "y": [1.0, last]}) for last in (2.0, 3.0, 4.0)]
    averages = means_by_reading(runs, "y", "step", slice(0, 2))
    panels = [
        Panel([mean_line("GWG-1", averages)], title="one"),
        Panel([Series("a bound", [1, 2], [3, 4], named=False)], xlabel="steps", ylabel="error"),
    ]
    table = points_table(panels)
    assert table["panel"].tolist() == ["1 one"] * 2 + ["2 steps"] * 2
    assert table["series"].tolist() == ["GWG-1", "GWG-1", "a bound", "a bound"]
    assert table["x"].tolist() == [0, 5, 1, 2]
    assert table["y"].tolist() == [1, 3, 3, 4]
    np.testing.assert_array_equal(table["low"], [1, 2, np.nan, np.nan])
    np.testing.assert_array_equal(table["high"], [1, 4, np.nan, np.nan])
    pd.testing.assert_frame_equal(pd.read_csv(StringIO(csv_text(table))), table, check_dtype=False)


def test_whole_numbers_stay_whole_beside_a_level():
    panel = Panel([Series("a", [110266], [0.123456]), Level("floor", 2.0)])
    assert csv_text(points_table([panel])) == ("panel,series,x,y\n1,a,110266,0.12346\n1,floor,,2\n")


SERIES = {  # of each kind, with the points that Matplotlib draws
    "line": (Series("s", [1, 2], [3, 4], [2, 3], [4, 5]), [[1, 3], [2, 4]]),
    "bars": (Bars("s", ["a", "b"], [0.5, 3], base=0.1), [[0, 0.5], [1, 3]]),
    "horizontal": (HorizontalBars("s", ["a", "b"], [2, 3]), [[0, 2], [1, 3]]),
    "error bars": (ErrorBars("s", [1, 2], [3, 4], [2, 3], [4, 5]), [[1, 3], [2, 4]]),
    "level": (Level("s", 7.0), [[0, 7], [1, 7]]),  # in shares of the panel's width
    "steps": (Stairs("s", [0, 1, 2], [3, 4, np.nan]), [[0, 3], [1, 4]]),
    "box": (Boxes("s", np.array([3.0, 4.0]), 0, color="red"), [[0.4, 3], [0.4, 4]]),
}


def drawn_points(ax, kind):
    if kind == "bars":
        return [[bar.get_center()[0], bar.get_y() + bar.get_height()] for bar in ax.patches]
    if kind == "horizontal":
        return [[bar.get_center()[1], bar.get_x() + bar.get_width()] for bar in ax.patches]
    if kind == "steps":
        values, edges, _ = ax.patches[0].get_data()
        return np.column_stack([edges[:-1], values]).tolist()
    line = ax.lines[-1] if kind == "box" else ax.lines[0]
    return line.get_xydata().tolist()


def kinds_of(cls):
    return {cls}.union(*(kinds_of(kind) for kind in cls.__subclasses__()))


@pytest.mark.parametrize("kind", SERIES)
def test_every_kind_of_series_is_drawn_at_the_points_of_its_table(kind):
    assert {type(series) for series, _ in SERIES.values()} == kinds_of(Series)
    series, expected = SERIES[kind]
    figure, ax = plt.subplots()
    draw_panels([ax], [Panel([series])])
    np.testing.assert_allclose(drawn_points(ax, kind), expected)
    table = points_table([Panel([series])])
    drawn = [y for _, y in expected]
    assert set(table["y"].dropna()) == set(drawn)
    plt.close(figure)


# Files.


def test_files_of_a_figure_are_the_same_each_time_and_a_large_svg_is_not_there(monkeypatch):
    assert png_bytes(fine([]).figure) == png_bytes(fine([]).figure)
    figure = fine([]).figure
    text = svg_text(figure)
    assert text == svg_text(fine([]).figure)
    assert "<svg" in text
    monkeypatch.setattr(rendering, "MAX_SVG_CHARACTERS", len(text) - 1)
    assert svg_text(figure) == ""
    plt.close("all")


def test_committed_pictures_are_small():
    files = [file for file in RESULTS.iterdir() if file.suffix in (".png", ".svg")]
    assert len(files) > 50
    assert [file.name for file in files if file.stat().st_size > MAX_FILE_BYTES] == []


def test_a_table_is_written_for_programs_and_for_readers(tmp_path):
    frame = pd.DataFrame(
        {
            "data set": ["a_b", "c"],
            "ours": [Estimate(0.12345, 0.5, 3), Estimate(2.0)],
            "paper": [None, Estimate(1.0)],
        }
    )
    csv, markdown, latex = write_table(frame, tmp_path / "table.csv")
    back = pd.read_csv(csv)
    assert list(back) == ["data set", "ours", "ours (spread)", "ours (runs)", "paper"]
    assert back["ours"].tolist() == [0.12345, 2.0]
    assert back["paper"].isna().tolist() == [True, False]
    assert "| a_b        | 0.12 ± 0.50 (3) |" in markdown.read_text()
    assert r"a\_b & 0.12 \(\pm\) 0.50 (3)" in latex.read_text()


def declared_limits():
    """Each figure of conf/ that has a limit of the paper: its experiment, name and settings."""
    for file in sorted((CONF / "experiment").rglob("*.yaml")):
        for name, settings in (OmegaConf.load(file).get("figures") or {}).items():
            limits = {*PAPER_LIMITS} & {*(settings or ())}
            if limits:
                yield pytest.param(settings._target_, limits, id=f"{file.stem}-{name}")


@pytest.mark.parametrize(("target", "limits"), list(declared_limits()))
def test_a_figure_with_a_limit_of_the_paper_can_be_drawn_without_it(target, limits):
    parameters = inspect.signature(get_method(target)).parameters
    assert {parameters[limit].default for limit in limits} == {None}


@pytest.mark.usefixtures("_without_proofs")
@pytest.mark.parametrize("within", ["", "own/sampler=gwg"])
def test_own_runs_have_their_table_and_no_limit_of_the_paper(within, tmp_path, monkeypatch):
    tops = []
    settings = {"_target_": f"{__name__}.noting_top", "top": 2.5, "where": {"of": "${name}"}}
    config = OmegaConf.create({"name": "some", "figures": {"fine": settings}})
    monkeypatch.setattr(f"{__name__}.TOPS", tops)
    (file,) = draw_all(config, tmp_path, [fake()], within).files
    assert file == tmp_path / "figures" / within / "fine.png"
    assert tops == [(None if within else 2.5, {"of": "some"})]
    assert pd.read_csv(file.with_suffix(".csv"))["y"].tolist() == [2, 3]
    assert {f.suffix for f in file.parent.iterdir()} == {".png", ".pdf", ".csv", ".json"}


TOPS: list = []


def noting_top(records: list[Record], where: dict[str, str], top: float | None = None) -> Plot:
    TOPS.append((top, where))
    return fine(records, top=top)


def test_own_sweeps_have_a_table_with_a_row_for_each_setting(tmp_path):
    records = [
        fake(
            {"step": [0, 5], "y": [9.0, last]}, sampler=sampler, seed=seed,
            config={"task": {"_target_": "some.task"}},
        )
        for sampler, seed, last in (("gwg", 0, 1.0), ("gwg", 1, 3.0), ("dmala", 0, 5.0))
    ]  # fmt: skip
    config = OmegaConf.create({"name": "some"})
    (file,) = draw_all(config, tmp_path, records, "own/seed=0,1").files
    assert file == tmp_path / "tables/own/seed=0,1/sweep.csv"
    table = pd.read_csv(file, index_col="sampler")
    assert table["runs"].to_dict() == {"GWG-1": 2, "DMALA": 1}
    assert table["y"].to_dict() == {"GWG-1": 2.0, "DMALA": 5.0}
    assert table.loc["GWG-1", "y (spread)"] == pytest.approx(2**0.5)
    assert draw_all(config, tmp_path, records).files == []  # of declared runs: only the exhibits
    assert draw_all(config, tmp_path, records[:1], "own/seed=0").files == []


# Figures that fail.


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


def failing(records: list[Record], error: str) -> Plot:
    raise ERRORS[error]


def fine(records: list[Record], label: str = "fine", top: float | None = None) -> Plot:
    panel = Panel([Series("line", [0, 1], [2, 3])], xlabel=label, ylim=(None, top))
    figure, ax = plt.subplots()
    panel.draw(ax)
    return finish_plot(figure, [ax], [panel], "A line.")


def bare(records: list[Record]) -> Figure:
    return fine(records).figure


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


@pytest.mark.usefixtures("_without_proofs")
def test_a_figure_without_a_table_is_drawn_with_a_warning(tmp_path):
    """One release long: figure functions returned figures."""
    figures = OmegaConf.create({"name": "some", "figures": {"bare": f"{__name__}.bare"}})
    figures.figures.bare = {"_target_": f"{__name__}.bare"}
    with pytest.warns(FutureWarning, match="bare is a Figure without its table"):
        written = draw_all(figures, tmp_path, [fake()])
    assert [file.name for file in written.files] == ["bare.png"]
    assert not list(tmp_path.rglob("*.csv"))


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
    assert (next(tmp_path.rglob("good.png")).with_suffix(".csv")).exists()
    with pytest.raises(SystemExit) as end:
        latticework.scripts.figures.main([*words, f"outputs={tmp_path}"])
    assert end.value.code.startswith("bad was not drawn: KeyError: 'x' (records: rates_sec3/smoke/")
    assert "good.png" in capsys.readouterr().out


@pytest.mark.usefixtures("_without_proofs")
def test_the_report_tells_what_failed(tmp_path, monkeypatch):
    figures = config(*ERRORS)
    del figures.figures.untypeset
    made = draw_experiment(ExperimentStatus("some", "paper", figures, "outputs", (), [fake()]))
    assert [picture.name for picture in made.pictures] == ["fine"]
    failed = ["value was not made: ValueError: bad ink", "key was not made: KeyError: 'x'"]
    assert made.failed == failed
    assert made.reasons_not_made[:2] == failed
    assert made.reasons_not_made[2] == "lookup was not made: no record holds x"
    report = Report({}, [], [], failed)
    monkeypatch.setattr(docs_pages, "build_report", lambda *_, **__: report)
    with pytest.raises(RuntimeError, match="nothing was written: value was not made"):
        docs_pages.refresh_pages(tmp_path)
    monkeypatch.setattr(latticework.scripts.report, "build_report", lambda *_, **__: report)
    monkeypatch.setattr(latticework.scripts.report, "write_report", lambda *_: ())
    with pytest.raises(SystemExit) as end:
        latticework.scripts.report.main([f"--outputs={tmp_path}"])
    assert end.value.code == "\n".join(failed)
