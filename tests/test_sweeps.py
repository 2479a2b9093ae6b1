"""A sweep is the same however it is written: its counts, failures, table and exit status."""

import io
import os
import re
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from command import command_line

from latticework.experiments import callback

pytestmark = pytest.mark.usefixtures("eager")

TINY = ("model.shape=[2,2]", "scale=smoke")
NAMES = "gibbs,gwg,block_gibbs"  # block Gibbs needs a restricted Boltzmann machine, and fails
FILE = """# @package _global_
# A sweep of three samplers.
name: sampling
hydra:
  mode: MULTIRUN
  sweeper:
    params:
      sampler: {sampler}
"""
WAYS = {
    "a list": (f"sampler={NAMES}", "-m"),
    "a list in another order": ("sampler=block_gibbs,gwg,gibbs", "-m"),
    "choice": (f"sampler=choice({NAMES})", "-m"),
    "shuffle": (f"sampler=shuffle({NAMES})", "-m"),
    "glob": (f"sampler=glob([{NAMES}])", "-m"),
    "glob that excludes": ("sampler=glob([gibbs,gwg,block_*,dlmc*],exclude=dlmc*)", "-m"),
    "a file": ("experiment=mine",),
    "a file with a glob": ("experiment=mine_by_glob",),
    "one batch for each run": (f"sampler={NAMES}", "hydra.sweeper.max_batch_size=1", "-m"),
    "joblib": (f"sampler={NAMES}", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "-m"),
    "submitit": (f"sampler={NAMES}", "hydra/launcher=submitit_local", "-m"),
    "glob by joblib": (
        f"sampler=glob([{NAMES}])", "hydra/launcher=joblib", "hydra.launcher.n_jobs=1", "-m",
    ),
}  # fmt: skip
SLOW = ("submitit",)  # it asks every few seconds whether its jobs are done
NUMBERS = {  # 20 steps are no multiple of 9
    "a list": "9,10",
    "choice": "choice(9,10)",
    "range": "range(9,11)",
    "a range that is shuffled": "shuffle(range(9,11))",
    "a sorted list": "sort(10,9)",
}


def told(outputs: Path, *words: str) -> tuple[int, str]:
    """The exit status of a command, and what it prints."""
    text = io.StringIO()
    with redirect_stdout(text):
        status = command_line(*TINY, *words, outputs=outputs)
    return status, text.getvalue()


def said_of_a_sweep(outputs: Path, *words: str) -> dict[str, object]:
    status, text = told(outputs, *words)
    lines = text.splitlines()
    ended = [line for line in lines if re.match(r"\d+ of \d+ runs", line)]
    failures = [line.split()[0] for line in lines if line.startswith(f"  {outputs}")]
    return {
        "status": status,
        "announced": [line.split()[0] for line in lines if " runs in " in line],
        "counts": [line.split()[2] for line in ended],
        "failures": [Path(path).name for path in failures],
        "failed": [line for line in lines if line.endswith(" failed:")],
        "table": sorted({"Gibbs-1", "GWG-1"} & {line.strip().partition(" ")[0] for line in lines}),
    }


@pytest.fixture
def files(tmp_path: Path) -> str:
    """A folder with experiments of one's own, as a word of the command."""
    folder = tmp_path / "conf" / "experiment"
    folder.mkdir(parents=True)
    for name, sampler in {"mine": NAMES, "mine_by_glob": f'"glob([{NAMES}])"'}.items():
        (folder / f"{name}.yaml").write_text(FILE.format(sampler=sampler))
    return f"hydra.searchpath=[file://{folder.parent}]"


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.slow] * (way in SLOW)) for way in WAYS]
)
def test_a_sweep_of_options_is_the_same_however_it_is_written(
    way: str, tmp_path: Path, files: str
) -> None:
    words = WAYS[way]
    for package in ("joblib", "submitit"):
        if package in "".join(words):
            pytest.importorskip(f"hydra_plugins.hydra_{package}_launcher")
    if words[0].startswith("experiment="):
        words = (files, *words)
    in_process = "hydra/launcher" not in "".join(words)
    for attempt in ("run", "repeated"):
        said = said_of_a_sweep(tmp_path / "outputs", *words)
        (failure,) = said.pop("failures")
        assert re.fullmatch(r"sampler=block_gibbs-[0-9a-f]{8}|model.shape.*block_gibbs.*", failure)
        counts = said.pop("counts")
        if in_process:  # else other processes print them
            assert counts == ["3"] * 3, attempt
        assert said == {
            "status": 1, "announced": ["3"], "failed": ["1 failed:"], "table": ["GWG-1", "Gibbs-1"],
        }, attempt  # fmt: skip


@pytest.mark.parametrize("way", NUMBERS)
def test_a_sweep_of_numbers_is_the_same_however_it_is_written(way: str, tmp_path: Path) -> None:
    said = said_of_a_sweep(tmp_path, "sampler=gwg", f"budget.every={NUMBERS[way]}", "-m")
    (failure,) = said["failures"]
    assert "budget.every=9," in failure
    assert (said["status"], said["announced"], said["failed"]) == (1, ["2"], ["1 failed:"])
    assert said["counts"] == ["2"] * 2


def test_a_run_that_is_named_twice_is_counted_as_often_as_it_is_started(tmp_path: Path) -> None:
    status, text = told(tmp_path, "sampler=gwg", "model.bias=0.3,.3", "-m")
    assert status == 0
    assert text.startswith("2 runs in ")
    assert "2 of 2 runs" in text
    assert len(list(tmp_path.rglob("run.json"))) == 1


BROKEN = """
from hydra.experimental.callback import Callback
class Broken(Callback):
    def {name}(self, **kwargs):
        raise RuntimeError("of a callback")
"""


@pytest.mark.parametrize("words", [(), ("seed=0,1", "-m")], ids=["run", "sweep"])
@pytest.mark.parametrize("place", ["start", "job_start", "job_end", "end"])
def test_a_callback_that_raises_ends_the_command_with_an_error(
    words: tuple[str, ...], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    whole = "multirun" if words else "run"
    name = f"on_{place}" if "job" in place else f"on_{whole}_{place}"
    module = f"broken_{whole}_{place}"
    (tmp_path / f"{module}.py").write_text(BROKEN.format(name=name))
    monkeypatch.syspath_prepend(tmp_path)
    added = f"+hydra.callbacks.broken._target_={module}.Broken"
    assert command_line(*TINY, added, *words, outputs=tmp_path / "outputs") == 1
    assert f"Callback Broken.{name} raised RuntimeError: of a callback" in capfd.readouterr().err


def test_an_outcome_is_handed_over_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system's clock is an hour behind: `error.txt` seems older than the command."""
    replace = os.replace

    def replace_in_the_past(source, target):
        replace(source, target)
        os.utime(target, (1.0, 1.0))

    monkeypatch.setattr(Path, "replace", lambda self, target: replace_in_the_past(self, target))
    assert command_line(*TINY, "sampler=block_gibbs", outputs=tmp_path) == 1
    (error,) = tmp_path.rglob("error.txt")
    assert error.stat().st_mtime == 1.0  # else this test shows nothing
    said = said_of_a_sweep(tmp_path, f"sampler={NAMES}", "-m")
    assert (said["status"], said["failed"]) == (1, ["1 failed:"])
    assert said["table"] == ["GWG-1", "Gibbs-1"]


def test_what_a_run_of_a_sweep_reads_does_not_grow_with_the_records_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new run lists their names once to be found and once to be claimed; a finished run never."""
    listed, loaded, counted = [], [], []
    list_folder, load_record, open_path = os.listdir, callback.load_record, Path.open
    monkeypatch.setattr(os, "listdir", note_first(listed, list_folder))
    monkeypatch.setattr(callback, "load_record", note_first(loaded, load_record))
    monkeypatch.setattr(Path, "open", note_first(counted, open_path))
    words = ("sampler=gwg", "seed=range(4)", "-m")
    folder = str(tmp_path / "sampling" / "smoke")
    for listings in (2, 0):
        assert told(tmp_path, *words)[0] == 0
        assert listed.count(folder) <= 4 * listings
        assert sorted(Counter(loaded).values()) == [2] * 4  # for its line, and for the table
        assert sum("/.sweep-" in path for path in counted) == 4  # to append a byte
        for noted in (listed, loaded, counted):
            noted.clear()


def note_first(noted: list[str], call: Callable[..., object]) -> Callable[..., object]:
    """Return `call`, which then notes its first argument."""

    def note(*args: object, **named: object) -> object:
        noted.extend(map(str, args[:1]))
        return call(*args, **named)

    return note
