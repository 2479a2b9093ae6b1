"""The notebooks of docs/gallery run, and show what they say."""

import re
import runpy

import pytest
from documented import ROOT

GALLERY = ROOT / "docs" / "gallery"
SHOWS = {
    "own_target": lambda own: 3 < own["chosen"] < 8 and (own["summary"]["r_hat"] < 1.1).all(),
    "own_sampler": lambda own: own["right"].passed and "invariance fails" in str(own["wrong"]),
    "rbm_six_ways": lambda own: (
        len(own["table"]) == 6 and (own["table"]["error of the means"] < 0.05).all()
    ),
    "learning_an_ebm": lambda own: own["errors"][-1] < own["errors"][0] / 3,
    "infilling": lambda own: len(own["written"]) == 8 and len(own["written"][0]) == 2,
    "reading_records": lambda own: "dmala" in own["ranking"].index[:2],
}


@pytest.mark.parametrize("name", SHOWS)
def test_a_notebook_shows_what_it_says(name, capsys):
    own = runpy.run_path(str(GALLERY / f"{name}.py"))
    assert SHOWS[name](own)
    assert capsys.readouterr().out


def test_every_notebook_is_run_and_listed():
    files = {file.stem for file in GALLERY.glob("*.py")}
    assert files == set(SHOWS)
    assert set(re.findall(r"\((\w+)\.py\)", (GALLERY / "README.md").read_text())) == files


@pytest.mark.parametrize("name", SHOWS)
def test_a_notebook_has_cells_of_text_and_code(name):
    text = (GALLERY / f"{name}.py").read_text()
    assert text.startswith("# %% [markdown]\n# # ")
    assert text.count("# %%") >= 4
