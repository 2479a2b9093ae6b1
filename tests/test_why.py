"""`latticework why`: what differs between two records, and whether it may."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from command import command_line

from latticework.experiments.records.record import BUNDLES, checksums, load_all, opened
from latticework.scripts import why
from latticework.scripts.why import compare, first_difference

SMALL = ("model.shape=[3,3]", "scale=smoke", "sampler=gwg")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Records of seeds 0 and 1, and seed 0 made again elsewhere."""
    folders = {}
    for name, seed in (("zero", 0), ("one", 1), ("again", 0)):
        outputs = tmp_path_factory.mktemp(name)
        assert command_line(*SMALL, f"seed={seed}", outputs=outputs) == 0
        (record,) = load_all(outputs)
        folders[name] = record.path
    return folders


@pytest.fixture
def copies(made, tmp_path):
    """Copies of them, to be written to, without uncommitted changes."""
    found = {}
    for name, path in made.items():
        found[name] = shutil.copytree(path, tmp_path / name)
        edit(found[name], dirty=False)
    return found


def edit(folder, **facts):
    """Change facts of run.json, as another run would have written them."""
    file = folder / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | facts))


def change_row(folder):
    """Change a number in metrics.csv."""
    file = folder / "metrics.csv"
    table = pd.read_csv(file)
    table.loc[1, "acceptance"] += 1e-6
    table.to_csv(file, index=False)


def rewritten(folder):
    """The record of a run that came to another number, checksum and all."""
    change_row(folder)
    edit(folder, files=checksums(folder))


def other_array(folder):
    np.savez(folder / "last.npz", x=np.zeros(3))
    edit(folder, files=checksums(folder))


def asked(capsys, *records):
    """The exit status, and the page in one line."""
    status = why.main([str(record) for record in records])
    return status, " ".join(capsys.readouterr().out.split())


def test_the_same_run_made_twice(copies, capsys):
    status, page = asked(capsys, copies["zero"], copies["again"])
    assert status == 0
    assert "The numbers are equal, apart from the clock's. The records should be identical." in page


def test_different_seeds(copies, capsys):
    status, page = asked(capsys, copies["zero"], copies["one"])
    assert status == 0
    assert "seed 0 1 yes" in page
    assert "metrics.csv first differs in row " in page
    assert "The records need not be identical, because these differ: seed." in page
    assert [d.what for d in compare(opened(copies["zero"]), opened(copies["one"])).differences] == [
        "seed",
        "outputs",
    ]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (change_row, "metrics.csv is changed"),  # the checksum tells
        (rewritten, "this difference is an error"),
        (other_array, "files that differ: last.npz"),
    ],
)
def test_a_difference_without_a_reason_is_an_error(copies, capsys, change, found):
    change(copies["again"])
    status, page = asked(capsys, copies["zero"], copies["again"])
    assert status == 1
    assert found in page
    assert change is other_array or "first differs in row 2 (step 10), column acceptance" in page


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"versions": {"torch": "1.0"}}, "because these differ: version of"),
        ({"device": "NVIDIA H100"}, "because these differ: device"),
        ({"inputs": {"task.pretrain.file": "x"}}, "same code; these differ: content of task"),
        ({"resumed_from": [{"threads": 7}]}, "same code; these differ: parts made elsewhere"),
        ({"data": {"fingerprint": "x"}}, "because these differ: data.fingerprint"),
        ({"commit": "0" * 40}, "certain only with the same code; these differ: commit"),
        ({"dirty": True}, "same code; these differ: uncommitted changes"),
        (
            {"sources": {"latticework.models.ising": "x"}},
            "same code; these differ: code of latticework.models.ising",
        ),
    ],
)
def test_reasons_for_a_difference(copies, capsys, facts, told):
    rewritten(copies["again"])
    edit(copies["again"], **facts)
    status, page = asked(capsys, copies["zero"], copies["again"])
    assert status == 0
    assert told in page


def test_what_an_older_record_does_not_say_is_no_error(copies):
    document = json.loads((copies["again"] / "run.json").read_text())
    versions = {k: v for k, v in document["versions"].items() if k not in ("numba", "llvmlite")}
    del document["processor"]
    rewritten(copies["again"])
    document["files"] = checksums(copies["again"])
    (copies["again"] / "run.json").write_text(json.dumps({**document, "versions": versions}))
    found = compare(opened(copies["zero"]), opened(copies["again"]))
    assert found.doubts == ["processor", "version of llvmlite", "version of numba"]
    assert found.numbers
    assert not found.is_fault


def test_a_record_in_a_bundle(capsys):
    bundle = BUNDLES / "ising_sampling.zip"
    status, page = asked(capsys, bundle / "sampler=dmala,seed=0", bundle / "sampler=gwg,seed=0")
    assert status == 0
    assert re.search(r"sampler +DMALA +GWG +yes", page)
    assert asked(capsys, *[bundle / "sampler=dmala,seed=0"] * 2)[1].startswith("Configuration")


@pytest.mark.parametrize(
    ("place", "match"),
    [
        (".", "is no finished record: it has no run.json"),
        (BUNDLES / "ising_sampling.zip" / "seed=99", "holds no run seed=99"),
    ],
)
def test_what_is_no_record_is_refused(place, match):
    with pytest.raises(ValueError, match=match):
        why.main([str(place), str(place)])


# Parts.

TABLE = pd.DataFrame({"step": [0, 1, 2], "seconds": [0.0, 1.0, 2.0], "a": [1.0, 2.0, np.nan]})


def test_first_difference():
    assert first_difference(TABLE, TABLE.copy()) == ""
    assert first_difference(TABLE, TABLE.assign(seconds=5.0)) == ""
    told = first_difference(TABLE, TABLE.assign(a=[1.0, 2.5, np.nan]))
    assert told == "metrics.csv first differs in row 2 (step 1), column a: 2.0 and 2.5"
    assert "3 and 2 rows; the first 2 are equal" in first_difference(TABLE, TABLE[:2])
    assert "columns of metrics.csv" in first_difference(TABLE, TABLE.assign(b=1))


def test_rounded_tables_are_compared_to_six_digits_on_common_steps():
    near = TABLE.assign(a=TABLE.a * (1 + 1e-7))[1:]
    assert first_difference(TABLE, near, rounded=True) == ""
    assert first_difference(TABLE, TABLE.assign(a=TABLE.a * (1 + 1e-7))) != ""
    assert first_difference(TABLE, TABLE.assign(a=TABLE.a * 1.001), rounded=True) != ""
