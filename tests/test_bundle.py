"""Bundles: small, the same bytes every time, and read exactly as the records they were made of."""

from __future__ import annotations

import json
import re
import shutil
import tracemalloc
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command import command_line

import latticework.scripts.bundle
import latticework.scripts.figures
from latticework.experiments.figures import text
from latticework.experiments.papers import bundle as packing
from latticework.experiments.papers.bundle import (
    CURVE_ROW_STEPS,
    MAX_ARRAY_BYTES,
    MAX_ENTRY_CHARACTERS,
    thin,
    write_bundle,
)
from latticework.experiments.papers.draw import make_all
from latticework.experiments.papers.run_status import load_status
from latticework.experiments.records import archive
from latticework.experiments.records import record as records_module
from latticework.experiments.records.archive import DamagedError, write_archive
from latticework.experiments.records.identity import PARTS, strip_digest
from latticework.experiments.records.record import checksums, load_all
from latticework.experiments.runs.configuration import compose_config, resolve_config
from latticework.experiments.runs.sweeps import declared_sweep

RUN = {"config": {}, "choices": {}, "overrides": [], "versions": {}, "seconds": 1.0}  # run.json


def at_the_papers_scale(folder: Path, outputs: Path) -> Path:
    """A copy of the records of a smoke sweep, as if they had been made at the paper's scale."""
    name = folder.parent.name
    target = shutil.copytree(folder, outputs / name / "paper")
    for file in target.rglob("run.json"):
        document = json.loads(file.read_text())
        document["config"]["scale"] = "paper"
        document.pop("cpu_share", None)  # so that the load of the machine changes no figure
        document["overrides"] = [o for o in document["overrides"] if not o.startswith("scale=")]
        words = [word for word in document["overrides"] if not word.startswith("experiment=")]
        paper = resolve_config(compose_config((f"experiment={name}", "scale=paper", *words)))
        document["config"] |= {part: paper[part] for part in PARTS}  # else "other settings"
        file.write_text(json.dumps(document))
    return target


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    made, as_paper = (tmp_path_factory.mktemp(name) for name in ("made", "outputs"))
    words = ("experiment=ising_sampling", "scale=smoke", "sampler=gwg,dmala", "threads=1")
    assert command_line(*words, "~figures", outputs=made) == 0
    at_the_papers_scale(made / "ising_sampling" / "smoke", as_paper)
    return as_paper


@pytest.fixture
def bundle(outputs, tmp_path):
    assert packed(outputs, tmp_path) == 0
    return tmp_path / "ising_sampling.zip"


def packed(outputs, target, *words, name="ising_sampling"):
    """The exit status of the command."""
    return latticework.scripts.bundle.main([name, f"--outputs={outputs}", f"--to={target}", *words])


def test_a_bundle_reads_as_the_records_do(outputs, bundle):
    records = load_all(outputs / "ising_sampling" / "paper")
    bundled = load_all(bundle)
    assert len(bundled) == len(records) == 2
    for old, new in zip(records, bundled, strict=True):
        assert new.path.name == old.path.name
        assert new.choices == old.choices
        assert new.config["sampler"] == old.config["sampler"]
        assert new.document["seconds_per_step"] == old.document["seconds_per_step"]
        pd.testing.assert_frame_equal(new.metrics, old.metrics, rtol=1e-6, check_dtype=False)
        ess, own = new.arrays("convergence"), old.arrays("convergence")
        np.testing.assert_array_equal(ess["ess"], own["ess"])


def test_only_arrays_that_are_read_are_kept(outputs, bundle):
    (one, *_) = load_all(bundle)
    assert one.has_array("convergence")
    assert one.has_array("trace")  # the run stored it
    with pytest.raises(FileNotFoundError, match=r"holds no trace\.npz"):
        one.arrays("trace")
    assert not one.has_array("never stored")
    assert {"last", "trace"} <= set(one.document["left_out"])


def test_the_same_records_give_the_same_bytes(outputs, bundle, tmp_path):
    again = tmp_path / "again"
    packed(outputs, again)
    assert (again / "ising_sampling.zip").read_bytes() == bundle.read_bytes()
    records = load_all(bundle)
    write_bundle(
        records, declared_sweep("ising_sampling", "paper").config, tmp_path / "of a bundle.zip"
    )
    assert (tmp_path / "of a bundle.zip").read_bytes() == bundle.read_bytes()


def test_new_records_join_those_of_the_bundle(outputs, bundle, tmp_path, capsys):
    """A folder that holds one run again, with another result, and one more seed."""
    folder = shutil.copytree(outputs, tmp_path / "outputs")
    dmala, gwg = sorted((folder / "ising_sampling" / "paper").glob("sampler=*"))
    shutil.rmtree(gwg)
    story = "word " * MAX_ENTRY_CHARACTERS
    edited(shutil.copytree(dmala, dmala.with_name("sampler=dmala,seed=5")), seed=5, story=story)
    edited(dmala, seconds_per_step=7.0)
    old = load_all(bundle)
    assert packed(folder, tmp_path, "--add") == 0
    joined = load_all(bundle)
    names = ("sampler=dmala,seed=0", "sampler=dmala,seed=5", "sampler=gwg,seed=0")
    assert tuple(strip_digest(record.path.name) for record in joined) == names
    assert [record.config["seed"] for record in joined] == [0, 5, 0]
    assert joined[0].document["seconds_per_step"] == 7.0
    assert "left out, except of the first seeds: story of run.json" in capsys.readouterr().out
    assert [record.document.get("entries_left_out") for record in joined] == [None, ["story"], None]
    assert joined[2].document["seconds_per_step"] == old[1].document["seconds_per_step"]
    assert joined[2].has_array("convergence")
    assert packed(folder, tmp_path) == 0  # without --add, only the folder's runs
    assert len(load_all(bundle)) == 2


def edited(run, seed=None, **entries):
    document = json.loads((run / "run.json").read_text()) | entries
    if seed is not None:
        document["config"]["seed"] = seed
        document["overrides"] = [
            f"seed={seed}" if o.startswith("seed=") else o for o in document["overrides"]
        ]
    (run / "run.json").write_text(json.dumps(document))


def test_a_bundle_names_no_folder_of_this_machine(outputs, tmp_path):
    folder = shutil.copytree(outputs, tmp_path / "outputs")
    for file in folder.rglob("run.json"):
        document = json.loads(file.read_text())
        document["config"]["data"] = {"root": "/some/where", "name": "x"}
        document["note"] = {"checkpoint": "/some/where/else.pt"}
        document["overrides"].append("data.root=/some/where")
        file.write_text(json.dumps(document))
    packed(folder, tmp_path, "--others")
    for one in load_all(tmp_path / "ising_sampling.zip"):
        assert "/some" not in json.dumps(one.document)
        assert one.document["note"] == {"checkpoint": "else.pt"}
        assert not {"outputs", "scales", "figures"} & set(one.config)


@pytest.fixture(scope="module")
def sentences(tmp_path_factory):
    made, outputs = (tmp_path_factory.mktemp(name) for name in ("made", "outputs"))
    words = ("experiment=text_infilling", "model=mini_bert", "scale=smoke", "sampler=gibbs")
    assert command_line(*words, "seed=0,1", "threads=1", outputs=made) == 0
    return at_the_papers_scale(made / "text_infilling" / "smoke", outputs)


@pytest.mark.slow
def test_only_sentences_that_figures_show_are_kept(sentences, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "MAX_ENTRY_CHARACTERS", 400)
    records, config = load_all(sentences), declared_sweep("text_infilling", "paper").config
    assert min(len(json.dumps(r.document["generated"])) for r in records) > 400
    file = tmp_path / "text_infilling.zip"
    write_bundle(records, config, file)
    bundled = load_all(file)
    assert [record.config["seed"] for record in bundled] == [0, 1]
    for old, new in zip(records, bundled, strict=True):
        kept = new.config["seed"] == 0
        assert new.document.get("generated") == (old.document["generated"] if kept else None)
        assert new.document.get("entries_left_out") == (None if kept else ["generated"])
        assert new.document["scores"] == old.document["scores"]
    ours, theirs = ({made.name: made for made in make_all(config, r)} for r in (records, bundled))
    assert theirs["fig10a"].content.html == ours["fig10a"].content.html
    pd.testing.assert_frame_equal(theirs["table3"].content, ours["table3"].content)
    write_bundle(bundled, config, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == file.read_bytes()
    with pytest.raises(
        LookupError, match=r"holds no sentences of .*seed=1-\w{8}, only those that its"
    ):
        text.sentences([record for record in bundled if record.config["seed"] == 1])


def test_large_arrays_are_left_out_and_told(outputs, tmp_path, capsys):
    folder = shutil.copytree(outputs, tmp_path / "outputs")
    big = np.random.default_rng(0).random(MAX_ARRAY_BYTES)
    for file in folder.rglob("convergence.npz"):
        np.savez(file, big=big, **dict(np.load(file)))
        run = file.parent / "run.json"
        run.write_text(json.dumps(json.loads(run.read_text()) | {"files": checksums(file.parent)}))
    packed(folder, tmp_path)
    told = capsys.readouterr().out
    assert re.search(
        r"left out: 2 arrays, such as sampler=dmala,seed=0-\w{8}/convergence.npz", told
    )
    records = load_all(tmp_path / "ising_sampling.zip")
    made = {m.name: m for m in make_all(declared_sweep("ising_sampling", "paper").config, records)}
    assert made["fig3"].content is not None
    assert made["fig2_right"].content is None
    assert "holds no convergence.npz" in made["fig2_right"].reason_not_made
    shutil.rmtree(next((folder / "ising_sampling" / "paper").glob("sampler=gwg*")))
    assert packed(folder, tmp_path, "--add") == 0  # keeps a run without its array
    assert len(load_all(tmp_path / "ising_sampling.zip")) == 2


def test_curves_are_thinned_and_nothing_else():
    step = np.arange(0, 5010, 10)
    curve = pd.DataFrame({"step": step, "log_mmd": -np.log1p(step)})
    curve["acceptance"] = np.where(step, 0.5, np.nan)  # there is none before the first step
    less = thin(curve)
    assert 100 < len(less) <= CURVE_ROW_STEPS[0]
    assert (less["step"].iloc[0], less["step"].iloc[-1]) == (0, 5000)
    assert list(less["step"][:10]) == list(step[:10])  # where a log axis shows most
    assert np.diff(less["step"]).max() <= 60
    late = curve.assign(averaged=np.where(step < 2000, np.nan, 1.0))  # over the second half
    assert len(thin(late)) == len(less)
    settings = pd.DataFrame({"step": np.tile(step[:50], 10)})
    sparse = curve.assign(evaluated=np.where(step % 100, np.nan, 1.0))
    for kept in (settings, sparse, curve[: CURVE_ROW_STEPS[0]]):
        assert len(thin(kept)) == len(kept)


def test_a_large_bundle_has_fewer_rows_of_all_its_runs(outputs, tmp_path, monkeypatch):
    """One of its runs was thinned before; both are thinned to the last number of rows."""
    config = declared_sweep("ising_sampling", "paper").config
    records = load_all(shutil.copytree(outputs / "ising_sampling" / "paper", tmp_path / "paper"))
    steps = np.arange(500)
    curve = pd.DataFrame({"step": steps, "seconds": steps, "log_rmse": np.linspace(1, 0, 500)})
    for table, record in zip((thin(curve), curve), records, strict=True):
        table.to_csv(record.path / "metrics.csv", index=False)
    for target, rows in ((200_000, CURVE_ROW_STEPS[0]), (1, CURVE_ROW_STEPS[-1])):
        monkeypatch.setattr(packing, "TARGET_BUNDLE_BYTES", target)
        done = write_bundle(records, config, tmp_path / f"{target}.zip")
        assert done.size == (tmp_path / f"{target}.zip").stat().st_size
        first, second = (one.metrics["step"] for one in load_all(tmp_path / f"{target}.zip"))
        assert list(first) == list(second)
        assert rows / 2 - 3 < len(first) <= rows
        assert (first.iloc[0], first.iloc[-1]) == (0, 499)
    assert list(thin(thin(curve), CURVE_ROW_STEPS[-1])["step"]) != list(
        thin(curve, CURVE_ROW_STEPS[-1])["step"]
    )


def test_records_of_two_places_are_not_mixed(outputs, bundle, tmp_path):
    one = next((outputs / "ising_sampling" / "paper").glob("*dmala*"))
    shutil.copytree(one, tmp_path / "own" / "ising_sampling" / "paper" / one.name)
    held = load_status("ising_sampling", "paper", tmp_path / "own", bundles=bundle.parent)
    assert held is not None
    assert (held.place, len(held.records)) == ("outputs", 1)
    held = load_status("ising_sampling", "paper", None, bundles=bundle.parent)
    assert held is not None
    assert (held.place, len(held.records)) == ("ising_sampling.zip", 2)


@pytest.mark.slow
def test_figures_are_redrawn_from_a_bundle(bundle, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(latticework.scripts.figures, "BUNDLES", bundle.parent)
    target = tmp_path / "drawn"
    latticework.scripts.figures.main(["experiment=ising_sampling", f"outputs={target}"])
    assert (target / "ising_sampling" / "paper" / "figures" / "fig3.png").stat().st_size > 1000
    told = capsys.readouterr().out
    assert f"{target / 'ising_sampling' / 'paper'}: drawing the 2 records of {bundle}" in told
    assert "figure: " in told
    with pytest.raises(SystemExit, match="no finished run"):
        latticework.scripts.figures.main(
            ["experiment=ising_sampling", "scale=quick", f"outputs={target}"]
        )
    with pytest.raises(SystemExit, match="no finished run"):
        latticework.scripts.figures.main(["experiment=rbm_sampling", f"outputs={target}"])


def test_a_bundle_writes_nothing_wherever_its_names_point(tmp_path):
    """A bundle is read in memory, so that no unpacked folder is left behind."""
    file = tmp_path / "in" / "evil.zip"
    file.parent.mkdir()
    names = ("../out/run.json", "/abs/run.json", "good/run.json")
    files = dict.fromkeys(names, json.dumps(RUN).encode())
    write_archive(file, files | {"../out/metrics.csv": b"step\n0\n"})
    found = load_all(file)
    assert "good" in [one.path.name for one in found]
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert [path.name for path in file.parent.iterdir()] == ["evil.zip"]


def test_a_bundle_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "LARGEST", 1000)
    write_archive(tmp_path / "bomb.zip", {"a/run.json": b"0" * 10_000})
    assert (tmp_path / "bomb.zip").stat().st_size < 1000
    with pytest.raises(ValueError, match=r"holds 10\d\d\d bytes"):
        load_all(tmp_path / "bomb.zip")


def test_nothing_to_pack_is_an_error(tmp_path, capsys):
    assert packed(tmp_path, tmp_path) == 1
    assert "no finished run at the paper's scale" in capsys.readouterr().out
    assert packed(tmp_path, tmp_path, name="all") == 0


def packed_again(content: bytes, how: int, declared: int | None = None) -> bytes:
    """A zip file with one entry, `records.zip`; its directory may declare another size."""
    target = BytesIO()
    with zipfile.ZipFile(target, "w", how) as outer:
        outer.writestr("records.zip", content)
    if declared is None:
        return target.getvalue()
    real, other = len(content).to_bytes(4, "little"), declared.to_bytes(4, "little")
    return target.getvalue().replace(real, other)


def inner(how: int, files: dict[str, bytes]) -> bytes:
    target = BytesIO()
    with zipfile.ZipFile(target, "w", how) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


@pytest.mark.parametrize("how", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("where", ["outside", "inside", "a lying size", "arrays"])
def test_no_more_is_unpacked_than_a_bundle_may_hold(how, where, tmp_path, monkeypatch):
    """Sizes are checked before anything is unpacked, in each of the files that lie in another."""
    most = 2**20
    unpacked = 192 * most if where == "a lying size" else 48 * most
    monkeypatch.setattr(archive, "LARGEST", most)
    monkeypatch.setattr(records_module, "LARGEST", most)
    zeros, file = bytes(unpacked), tmp_path / "bomb.zip"
    stored, lzma = zipfile.ZIP_STORED, zipfile.ZIP_LZMA
    if where == "outside":
        file.write_bytes(packed_again(inner(stored, {"a/x": zeros}), how))
    elif where == "inside":
        file.write_bytes(packed_again(inner(how, {"a/x": zeros}), lzma))
    elif where == "a lying size":
        file.write_bytes(packed_again(inner(stored, {"a/x": zeros}), how, declared=most // 2))
    else:
        arrays = inner(how, {"x.npy": npy(zeros)})
        write_archive(file, {"a/run.json": json.dumps(RUN).encode(), "a/x.npz": arrays})
    assert file.stat().st_size < most // 2
    del zeros
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError, match=re.escape(str(file))):
            load_all(file)[0].arrays("x")
        assert tracemalloc.get_traced_memory()[1] < unpacked / 2
    finally:
        tracemalloc.stop()


def npy(content: bytes) -> bytes:
    target = BytesIO()
    np.save(target, np.frombuffer(content, np.uint8))
    return target.getvalue()


def test_entries_that_share_their_bytes_are_refused(tmp_path):
    """Many entries of a directory that point at one file: together they are larger than all."""
    content = inner(zipfile.ZIP_STORED, {"a/run.json": json.dumps(RUN).encode(), "a/x": bytes(999)})
    end = content.rindex(b"PK\5\6")
    start = content.index(b"PK\1\2")
    entry = content[content.rindex(b"PK\1\2") : end]
    directory = content[start:end] + b"".join(
        entry.replace(b"a/x", f"a/{number}".encode()) for number in range(9)
    )
    tail = bytearray(content[end:])
    tail[8:12] = (11).to_bytes(2, "little") * 2
    tail[12:16] = len(directory).to_bytes(4, "little")
    file = tmp_path / "shared.zip"
    file.write_bytes(packed_again(content[:start] + directory + tail, zipfile.ZIP_LZMA))
    with pytest.raises(DamagedError, match="unpack to more than"):
        load_all(file)
