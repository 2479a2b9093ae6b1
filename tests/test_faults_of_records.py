"""Records, bundles and data that are damaged: each reader names the file, the fault and what to do.

The exit status is not 0, and there is no traceback.
"""

import json
import lzma
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import ANY

import pandas as pd
import pytest
from command import SMALL, command_line, only, results
from fakes import fake
from kills import cut_short, flip_a_byte
from matplotlib.figure import Figure
from omegaconf import OmegaConf

import latticework.scripts.figures
from latticework.data import text
from latticework.experiments.figures.plot import Plot
from latticework.experiments.papers.drawn import Picture
from latticework.experiments.papers.exhibits import catalogue
from latticework.experiments.papers.rendering import save_figure, write_table
from latticework.experiments.papers.report_builder import build_report
from latticework.experiments.papers.report_figures import draw_experiment
from latticework.experiments.papers.run_status import ExperimentStatus, load_status
from latticework.experiments.records.archive import DamagedError, write_archive
from latticework.experiments.records.files import ABANDONED_AFTER, write_file
from latticework.experiments.records.identity import DIGEST_CHARACTERS
from latticework.experiments.records.record import (
    OPTIONAL,
    PARTS,
    Record,
    describe_damage,
    load_record,
    open_record,
)
from latticework.experiments.runs import errors
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.sweeps import declared_sweep

RUN = {
    "config": {"data": None, "model": {}, "sampler": {}, "task": {}, "seed": 0, "model_seed": 0},
    "choices": {},
    "overrides": ["model.coupling=0.1"],
    "versions": {"torch": "2"},
    "seconds": 1.0,
    "files": {},
}
FIGURE = ("figures.sec3=null", "+figures.own._target_=test_figure_files.fine")
WHOLE, BROKEN = "model.coupling=0.1", "broken"
UNREADABLE = "run.json cannot be read"
RECORDS = {  # run.json: what is said of it
    b'{"config": {"data': f"{UNREADABLE} (JSONDecodeError)",
    b"\xff\xfe": f"{UNREADABLE} (UnicodeDecodeError)",
    b"": f"{UNREADABLE} (JSONDecodeError)",
    b"[1]": "run.json holds no record, but a list",
    json.dumps(RUN | {"config": 3}).encode(): "config in run.json must be a mapping",
    json.dumps(RUN | {"choices": None}).encode(): "choices in run.json must be a mapping",
    json.dumps(RUN | {"files": None}).encode(): "files in run.json must be a mapping",
    json.dumps(RUN | {"overrides": [1]}).encode(): "overrides in run.json must hold texts only",
    json.dumps(RUN | {"config": {"task": 3}}).encode(): "config.task in run.json must be a mapping",
    b"[" * 200_000: f"{UNREADABLE} (ValueError)",
    b"[" * 150 + b"]" * 150: f"{UNREADABLE} (ValueError)",
    json.dumps(RUN | {"files": {"a.npz": "0"}}).encode(): "a.npz is missing",
    json.dumps(
        RUN | {"overrides": [{"a": 1}]}
    ).encode(): "overrides in run.json must hold texts only",
    json.dumps(RUN | {"data": "mnist"}).encode(): "data in run.json must be a mapping",
    json.dumps(
        RUN | {"config": {"seed": "0"}}
    ).encode(): "config.seed in run.json must be a whole number",
}
ODD = (None, True, 3, -1e400, "x", "", [], [3], [[]], [{}], {}, {"a": 3}, {"a": {"b": []}})


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 16]) + content[middle + 1 :]


BUNDLES: dict[str, Callable[[bytes], bytes]] = {
    "another file": lambda _: b"not a bundle",
    "empty": lambda _: b"",
    "cut short": lambda content: content[:-100],
    "a flipped byte": flipped,
}


def said(capsys, call: Callable[[], object]) -> str:
    """What a command that must fail says."""
    with pytest.raises(SystemExit) as end, errors.one_line_errors():
        sys.exit(call())
    captured = capsys.readouterr()
    text = captured.out + captured.err
    if isinstance(end.value.code, str):
        return text + end.value.code
    assert end.value.code not in (0, None)
    return text


def figures(outputs, *words):
    return latticework.scripts.figures.main(
        ["experiment=rates_sec3", *FIGURE, f"outputs={outputs}", *words]
    )


@pytest.fixture
def folder(tmp_path):
    """A folder of two finished records."""
    folder = tmp_path / "rates_sec3" / "smoke"
    for name in (WHOLE, BROKEN):
        (folder / name).mkdir(parents=True)
        (folder / name / "run.json").write_text(json.dumps(RUN))
        (folder / name / "metrics.csv").write_text("step\n0\n")
    return folder


def test_damaged_records(folder, tmp_path, capsys):
    """The other one is drawn."""
    broken = {}
    for number, (content, message) in enumerate(RECORDS.items()):
        path = shutil.copytree(folder / BROKEN, folder / f"{BROKEN}{number}")
        (path / "run.json").write_bytes(content)
        broken[path] = message
    shutil.rmtree(folder / BROKEN)
    told = said(capsys, lambda: figures(tmp_path, "scale=smoke"))
    assert len(list(tmp_path.rglob("own.png"))) == 1
    for path, message in broken.items():
        assert f"left out: the record {path} is damaged: {message}; run its command again" in told
        found = said(capsys, lambda path=path: load_record(path))
        assert message in found
        assert str(path) in found.replace("\n", "")


def test_an_odd_entry_stops_no_figure_of_the_others(folder, tmp_path):
    """Whatever stands in an entry of run.json: the record is left out and named, or it counts."""
    shutil.rmtree(folder / BROKEN)
    names = {*RUN, *OPTIONAL, *(f"config.{name}" for name in [*PARTS, "other"])}
    for name in names:
        for number, odd in enumerate(ODD):
            path = shutil.copytree(folder / WHOLE, folder / f"{name}-{number}")
            within, _, part = name.partition(".")
            entry = {**RUN["config"], part: odd} if part else odd
            (path / "run.json").write_text(json.dumps(RUN | {within: entry}))
    with pytest.raises(SystemExit) as end:
        figures(tmp_path, "scale=smoke")
    assert str(end.value.code).count("is damaged") > len(names)
    assert len(list(tmp_path.rglob("own.png"))) == 1
    made = build_report(tmp_path, scales=["smoke"], bundles=tmp_path)
    assert len(made.failed) > len(names)
    assert [one.exhibit.name for one in made.sections if one.parts[0].holding] == ["rates-sec3"]


def test_a_figure_that_cannot_be_written_stops_no_other(monkeypatch):
    config = OmegaConf.create({"name": "some", "figures": {
        "bad": {"_target_": "test_figure_files.fine", "label": "$\\nothing$"},
        "good": {"_target_": "test_figure_files.fine"},
    }})  # fmt: skip
    monkeypatch.setattr(Record, "fingerprint", "")
    made = draw_experiment(ExperimentStatus("some", "paper", config, "outputs", (), [fake()]))
    assert [picture.name for picture in made.pictures] == ["good"]
    assert made.failed == made.reasons_not_made
    assert made.failed[0].startswith("bad was not made: ValueError")


def plant(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Put a record with each fault into `folder`; the names of those that cannot be read."""

    def record(name: str, **changes: object) -> Path:
        path = folder / name
        path.mkdir(parents=True)
        (path / "run.json").write_text(json.dumps(RUN | changes))
        return path

    opened = os.open
    forbidden = record("of-another-user") / "metrics.csv"
    forbidden.write_text("step\n0\n")

    def refuse(path, *args, **kwargs):  # root may read what is forbidden to others
        if str(path) == str(forbidden):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    (record("deep") / "run.json").write_bytes(b"[" * 200_000)
    (record("linked-csv") / "metrics.csv").symlink_to(folder / "nothing")
    os.mkfifo(record("piped-csv") / "metrics.csv")
    for name, make in {"linked-json": Path.symlink_to, "piped-json": os.mkfifo}.items():
        path = record(name) / "run.json"
        path.unlink()
        make(path, *([folder / "nothing"] if name == "linked-json" else []))
    record("numbers-as-overrides", overrides=[1])
    unreadable = sorted(path.name for path in folder.iterdir())
    record("malformed-overrides", overrides=["a=b=((", "=", ""])
    for name, make in {"linked-error": Path.symlink_to, "piped-error": os.mkfifo}.items():
        make(record(name) / "error.txt", *([folder / "nothing"] if "link" in name else []))
    return unreadable


def test_neighbours_that_cannot_be_read_hide_no_failure_and_stop_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A run, a run that fails, and a sweep of both, in the folder of records with all faults."""
    unreadable = plant(tmp_path / "rates_sec3" / "smoke", monkeypatch)
    quick = ("experiment=rates_sec3", "scale=smoke", "task.steps=5", "task.lambdas=3")
    failing = "model.shape=[9,9] model.coupling=0.3"  # too many states for an exact answer
    for words, status, figures in (
        ("model.coupling=0.3", 0, 1),
        (failing, 1, 0),
        ("model.coupling=wrong,0.3", 1, 1),
    ):
        assert command_line(*quick, *words.split(), outputs=tmp_path) == status
        told = "".join(capfd.readouterr())
        assert told.count("sec3.png") == figures
        assert ("1 failed:" in told) == (status == 1)
        for name in unreadable:
            assert f"left out of figures and tables: the record {tmp_path}" in told
            assert f"/{name} is damaged" in told


PLANTED = (
    "run.json.partial", ".holder", ".holder.partial", "error.txt", "error.txt.partial",
    "metrics.csv", "metrics.csv.partial", "last.npz", "last.npz.partial", ".trackers",
    ".trackers.partial",
)  # fmt: skip


@pytest.mark.parametrize("sampler", ["gwg", "block_gibbs"])  # the latter fails
def test_no_planted_link_is_followed(sampler: str, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    words = ("model.shape=[2,2]", "scale=smoke", f"sampler={sampler}")
    status = command_line(*words, outputs=tmp_path / "outputs")
    (folder,) = (path.parent for path in tmp_path.rglob("*/.hydra"))
    (folder / "run.json").unlink(missing_ok=True)
    for name in PLANTED:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(precious)
    assert command_line(*words, outputs=tmp_path / "outputs") == status
    assert precious.read_text() == "kept"
    assert (folder / ("run.json" if status == 0 else "error.txt")).is_file()
    assert not (folder / "error.txt").is_symlink()


WRITERS = {
    "own.png": lambda file: save_figure(Plot(Figure()), file),
    "own.csv": lambda file: write_table(pd.DataFrame({"a": [1]}), file),
    "page.png": lambda file: Picture("page", b"image", {".svg": "<svg/>"}).write(file),
    "runs.zip": lambda file: write_archive(file, {"a/run.json": b"{}"}),
}


@pytest.mark.parametrize("name", WRITERS)
def test_figures_tables_and_bundles_replace_a_planted_link(name: str, tmp_path: Path) -> None:
    precious, folder = tmp_path / "precious", tmp_path / name
    folder.mkdir()
    precious.write_text("kept")
    for suffix in (".png", ".pdf", ".csv", ".md", ".tex", ".svg", ".json", ".zip"):
        planted = (folder / name).with_suffix(suffix)
        planted.symlink_to(precious)
    WRITERS[name](folder / name)
    assert precious.read_text() == "kept"
    assert (folder / name).is_file()
    assert not (folder / name).is_symlink()


@pytest.mark.parametrize("name", WRITERS)
def test_two_processes_may_write_one_file_at_once(name: str, tmp_path: Path, monkeypatch) -> None:
    """Another process writes the whole file just before each of ours takes its place."""
    file, replace = tmp_path / name, Path.replace
    write, interruptions = WRITERS[name], []

    def replace_second(self: Path, target: Path) -> Path:
        if not interruptions:
            interruptions.append(target)
            write(file)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", replace_second)
    write(file)
    assert interruptions
    assert file.is_file()
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize(("age", "remains"), [(0.0, True), (2 * ABANDONED_AFTER, False)])
def test_the_half_file_of_a_killed_process_is_deleted_later(age, remains, tmp_path: Path) -> None:
    target, half = tmp_path / "own[1].csv", tmp_path / "own[1].csv.7-1.partial"
    half.write_text("hal")
    os.utime(half, (time.time() - age,) * 2)
    write_file(target, "whole")
    assert target.read_text() == "whole"
    assert half.exists() is remains


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_what_is_no_file_of_errors_is_named_in_the_report(make, tmp_path: Path) -> None:
    """A pipe would block whoever reads it."""
    folder = tmp_path / "rates_sec3" / "smoke" / "model.coupling=0.1"
    (folder / ".hydra").mkdir(parents=True)
    make(folder / "error.txt")
    status = load_status("rates_sec3", "smoke", tmp_path)
    (cause,) = status.failed.values()
    assert cause.startswith("error.txt cannot be read (")


@pytest.mark.parametrize("fault", BUNDLES)
def test_a_damaged_bundle(fault, tmp_path, capsys, monkeypatch):
    file = tmp_path / "rates_sec3.zip"
    write_archive(file, {"a/run.json": json.dumps(RUN).encode()})
    file.write_bytes(BUNDLES[fault](file.read_bytes()))
    monkeypatch.setattr(latticework.scripts.figures, "BUNDLES", tmp_path)
    message = f"the bundle {file} cannot be read ("
    advice = "): restore it, with git or from a copy, or make it again with python -m "
    for command in (
        lambda: figures(tmp_path / "outputs"),
        lambda: open_record(f"{file}/a"),
        lambda: build_report(
            tmp_path / "outputs", bundles=tmp_path, known=catalogue(), drawing=False
        ),
    ):
        found = said(capsys, command)
        assert message in found
        assert advice in found
        assert len(found.strip().splitlines()) == 1


def test_the_report_names_a_damaged_record_and_fails(folder, tmp_path):
    (folder / BROKEN / "run.json").write_text("[")
    made = build_report(tmp_path, scales=["smoke"], bundles=tmp_path, drawing=False)
    (fault,) = made.failed
    assert fault.startswith(f"the record {folder / BROKEN} is damaged: {UNREADABLE}")
    assert any(f"{BROKEN} failed: the record" in p for s in made.sections
               for part in s.parts for p in part.problems)  # fmt: skip


def test_a_damaged_run_is_not_listed_as_not_run_too(folder, tmp_path):
    run = declared_sweep("rates_sec3", "smoke").runs[1]  # the first is WHOLE
    broken = (folder / BROKEN).rename(folder / f"{run}-{'0' * DIGEST_CHARACTERS}")
    (broken / "run.json").write_text("[")
    held = load_status("rates_sec3", "smoke", tmp_path, bundles=tmp_path)
    assert list(held.failed) == [run]
    assert run in held.missing


def test_a_damaged_matrix_of_reviews_is_made_again(tmp_path, caplog):
    texts = [f"good food number {'ab'[n % 2] * (n + 2)}" for n in range(20)]
    lines = "".join(json.dumps({"text": one}) + "\n" for one in texts)
    file: Path = tmp_path / "imdb_labelled_50k.jsonl.xz"
    file.write_bytes(lzma.compress(lines.encode()))
    reviews = text.Reviews(words=3, cache=str(tmp_path / "cache"))
    first = reviews._load_cached(file)
    (stored,) = (tmp_path / "cache").rglob("*.npz")
    stored.write_bytes(flipped(stored.read_bytes())[:200])
    again = reviews._load_cached(file)
    assert "is damaged" in caplog.text
    assert [part.tolist() for part in again] == [part.tolist() for part in first]


# Records that are damaged are set aside and made again.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "harm", "told"),
    [
        ("metrics.csv", cut_short, "metrics.csv is changed"),
        ("last.npz", flip_a_byte, "last.npz is changed"),
        ("last.npz", Path.unlink, "last.npz is missing"),
        ("run.json", cut_short, "run.json cannot be read"),
    ],
)
def test_a_damaged_record_is_named_set_aside_and_made_again(outputs, name, harm, told):
    before = results(only(outputs))
    path = only(outputs).path
    harm(path / name)
    harmed = (path / "metrics.csv").read_bytes()
    assert told in describe_damage(path)
    with pytest.raises(DamagedError, match=f"is damaged: {told}"):
        load_record(path)
    assert command_line(*SMALL, "hydra/job_logging=default", outputs=outputs) == 0
    assert f"is damaged: {told}" in (path / "run.log").read_text()
    assert results(only(outputs)) == before
    (aside,) = [file.parent for file in (outputs / "superseded").rglob("run.json")]
    assert (aside / "metrics.csv").read_bytes() == harmed


@pytest.mark.slow
def test_a_forced_run_moves_the_record_only_once_it_can_start(outputs, monkeypatch):
    before = results(only(outputs))

    def fails(*args, **named):
        raise OSError("no room")

    with monkeypatch.context() as patch:
        patch.setattr("latticework.models.ising.Lattice.__init__", fails)
        assert command_line(*SMALL, "force=true", outputs=outputs) == 1
    assert results(only(outputs)) == {**before, "error.txt": ANY}
    assert not (outputs / "superseded").exists()
    # A kill may leave checkpoints beside run.json: a forced run does not resume from them.
    run = Run(only(outputs).path, config=only(outputs).config)
    run.checkpoints.write({"loop": "sampling", "iteration": 1})
    assert command_line(*SMALL, "force=true", outputs=outputs) == 0
    assert results(only(outputs)) == before
    assert len(list((outputs / "superseded").rglob("run.json"))) == 1
