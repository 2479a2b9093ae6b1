"""Figures carry proof of the records they were drawn from, which `latticework trace` checks."""

import json
import shutil

import pytest
from command import command_line
from documented import ROOT
from PIL import Image

import latticework.scripts.figures
from latticework.experiments.papers.draw import make_all, png
from latticework.experiments.records.proof import attached, read
from latticework.experiments.records.record import BUNDLES, load_all
from latticework.experiments.runs.sweeps import declared
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
    assert "2 of 2 records are there and unchanged" in page
    assert "ising_sampling/smoke/" in page
    assert "scripts.figures experiment=ising_sampling scale=smoke" in page
    assert "matplotlib" in page


def edit_metrics(outputs):
    file = sorted(outputs.rglob("metrics.csv"))[0]
    file.write_text(file.read_text().replace("0.", "1.", 1))


def edit_run(outputs):
    """As someone would who also corrects the checksums."""
    file = sorted(outputs.rglob("run.json"))[0]
    file.write_text(json.dumps(json.loads(file.read_text()) | {"seconds": 1.0}))


def remove(outputs):
    shutil.rmtree(sorted(outputs.rglob("run.json"))[0].parent)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (edit_metrics, "changed: metrics.csv is changed"),
        (edit_run, "changed: another run stands there"),
        (remove, "missing"),
    ],
)
def test_a_changed_or_missing_record_is_found(outputs, capsys, change, found):
    change(outputs)
    status, page = asked(capsys, figure(outputs))
    assert status == 1
    assert found in page
    assert "1 of 2 records" in page


def test_a_figure_that_was_moved_names_its_outputs(outputs, tmp_path, capsys):
    moved = shutil.copy(figure(outputs), tmp_path / "paper.png")
    assert asked(capsys, moved, "--outputs", outputs)[0] == 0
    assert asked(capsys, moved, "--outputs", tmp_path / "nowhere")[0] == 1


def test_a_redrawn_figure_has_the_proof_of_the_records_of_now(outputs, capsys):
    before = read(figure(outputs))
    latticework.scripts.figures.main([*WORDS[:2], f"outputs={outputs}"])
    capsys.readouterr()
    assert read(figure(outputs)) == before


def test_a_figure_of_a_bundle_is_verified_against_it(tmp_path, capsys):
    config = declared("ising_sampling", "paper").config
    records = load_all(BUNDLES / "ising_sampling.zip")
    made = next(made for made in make_all(config, records))
    file = tmp_path / "fig3.png"
    file.write_bytes(png(made.content, 60))
    assert len(attached(made.content).records) == len(records)
    status, page = asked(capsys, file)
    assert status == 0
    assert f"{len(records)} of {len(records)} records" in page


def test_a_figure_without_metadata(tmp_path, capsys):
    """Committed figures are such, and so is one that another program saved."""
    plain = tmp_path / "plain.png"
    Image.new("RGB", (4, 4)).save(plain)
    status, page = asked(capsys, plain)
    assert status == 2
    assert "has no metadata of this library" in page


@pytest.mark.parametrize(
    ("place", "match"), [("nowhere.png", "there is no file"), (ROOT / "README.md", "neither a PNG")]
)
def test_what_is_no_figure_is_refused(place, match):
    with pytest.raises(ValueError, match=match):
        trace.main([str(place)])
