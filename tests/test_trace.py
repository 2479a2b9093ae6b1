"""`latticework trace`: are the records of a figure unchanged?"""

import json
import shutil

import pytest
from command import command_line
from documented import ROOT

from latticework.experiments.papers.draw import provenance_json
from latticework.experiments.records.identity import strip_digest
from latticework.experiments.records.record import BUNDLES, load_all
from latticework.scripts import trace

WORDS = ("experiment=ising_sampling", "scale=smoke", "seed=0", "sampler=dmala,gwg")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """The outputs of a small sweep with its figures."""
    outputs = tmp_path_factory.mktemp("drawn") / "outputs"
    assert command_line(*WORDS, outputs=outputs) == 0
    return outputs


@pytest.fixture
def outputs(drawn, tmp_path):
    return shutil.copytree(drawn, tmp_path / "outputs")


def figure(outputs, suffix=".png"):
    (found,) = outputs.rglob(f"fig3{suffix}")
    return found


def asked(capsys, *words):
    status = trace.main([str(word) for word in words])
    return status, " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("suffix", [".png", ".pdf"])
def test_untouched_records_are_verified(outputs, capsys, suffix):
    status, page = asked(capsys, figure(outputs, suffix))
    assert status == 0
    assert "2 of 2 are there and unchanged" in page
    assert "ising_sampling/smoke/" in page
    assert "scripts.figures experiment=ising_sampling scale=smoke" in page
    assert "matplotlib" in page


def no_results(folder):
    file = folder / "metrics.csv"
    file.write_text(file.read_text().replace("0.", "1.", 1))


def another_run(folder):
    document = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(document | {"seconds": 1.0}))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (no_results, "changed: metrics.csv is changed"),
        (another_run, "changed: another run stands there"),
        (shutil.rmtree, "missing"),
    ],
)
def test_a_record_that_changed_is_found(outputs, capsys, change, told):
    change(sorted(outputs.rglob("run.json"))[0].parent)
    status, page = asked(capsys, figure(outputs))
    assert status == 1
    assert told in page
    assert "1 of 2 are there" in page


def test_a_figure_that_was_moved_names_its_outputs(outputs, tmp_path, capsys):
    moved = shutil.copy(figure(outputs), tmp_path / "paper.png")
    for other in (None, '{"a": 1}', "[]", "{"):  # its JSON stayed behind, or is another file
        if other:
            moved.with_suffix(".json").write_text(other)
        status, page = asked(capsys, moved)
        assert status == 2
        assert "no paper.json beside paper.png names its records: copy it too" in page
    shutil.copy(figure(outputs, ".json"), tmp_path / "paper.json")
    assert asked(capsys, moved, "--outputs", outputs)[0] == 0
    assert asked(capsys, moved, "--outputs", tmp_path / "nowhere")[0] == 1


def test_a_record_of_release_0_2_that_another_run_replaced_is_told(outputs, capsys):
    """Its name had no digits. The record that is found has them."""
    file = figure(outputs, ".json")
    document = json.loads(file.read_text())
    document["records"] = {strip_digest(k): v for k, v in document["records"].items()}
    file.write_text(json.dumps(document))
    assert asked(capsys, figure(outputs))[0] == 0  # the same record, renamed
    another_run(sorted(outputs.rglob("run.json"))[0].parent)
    status, page = asked(capsys, figure(outputs))
    assert (status, "changed: another run stands there" in page) == (1, True)


def test_a_figure_of_committed_records_names_their_bundle(tmp_path, capsys, monkeypatch):
    shown = ROOT / "docs" / "results" / "fig3.png"
    status, page = asked(capsys, shown)
    assert (status, "ising_sampling.zip" in page) == (0, True)
    records = load_all(BUNDLES / "ising_sampling.zip")
    found = json.loads(provenance_json("fig3", "", records))["records"]
    assert found == json.loads(shown.with_suffix(".json").read_text())["records"]
    monkeypatch.setattr(trace, "BUNDLES", tmp_path)
    assert asked(capsys, shown)[0] == 1
    (tmp_path / "ising_sampling.zip").write_bytes(b"another")
    assert "changed: another bundle stands there" in asked(capsys, shown)[1]


def test_what_is_no_figure_is_refused():
    with pytest.raises(ValueError, match="there is no file"):
        trace.main(["nowhere.png"])
