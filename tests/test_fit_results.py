"""Rows that `latticework.fit` takes or refuses, and its results in files."""

import pandas as pd
import pytest
import torch
from fit_models import DATA, STARTS, STRIPES, rbm, rows_of
from safetensors.torch import load_file
from targets import TARGETS

import latticework as lw
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.stored_models import stored

# The result and its file.


@pytest.mark.parametrize("name", STARTS)
def test_a_result_is_read_as_it_was_written(tmp_path, name):
    start = STARTS[name]
    result = lw.fit(start(), STRIPES, epochs=2)
    result.save(tmp_path / "model.safetensors")
    loaded = lw.FitResult.load(tmp_path / "model.safetensors", start())
    assert repr(loaded) == repr(result)
    assert loaded.history == result.history
    assert not loaded.model.untrained
    x = STRIPES.float()
    assert torch.equal(loaded.model(x), result.model(x))
    with pytest.raises(FileExistsError, match="not overwritten"):
        result.save(tmp_path / "model.safetensors")
    task = stored(
        model=start(), data=None, run=Run(tmp_path), file=str(tmp_path / "model.safetensors")
    )
    assert torch.equal(task(x), result.model(x))


def test_files_of_other_kinds_and_models_are_refused(tmp_path):
    file = tmp_path / "model.safetensors"
    result = lw.fit(rbm(), STRIPES, epochs=1)
    with pytest.raises(ValueError, match=r"ends in \.safetensors, got"):
        result.save(tmp_path / "model.pt")
    result.save(file)
    assert set(load_file(file)) == {"weight", "visible_bias", "hidden_bias"}
    with pytest.raises(ValueError, match="does not hold the parameters of this RBM"):
        lw.FitResult.load(file, rbm(hidden=5))
    with pytest.raises(ValueError, match="does not hold the parameters of this Graph"):
        lw.FitResult.load(file, STARTS["graph"]())
    file.write_text("text")
    with pytest.raises(ValueError, match=r"is no file that FitResult\.save wrote"):
        lw.FitResult.load(file, rbm())


def test_a_result_says_what_it_is():
    text = repr(lw.fit(rbm(), STRIPES, epochs=2))
    assert text.startswith(
        "<RBM on Binary(dim=8, low=0.0, high=1.0) learned by pcd with BlockGibbs("
    )
    assert "updates in" in text
    assert "; pseudolikelihood -" in text


# Rows.


def test_rows_may_be_a_table_an_array_or_images():
    x = STRIPES[:60]
    expected = lw.fit(rbm(), x, epochs=1).model.weight
    images = x.view(-1, 2, 4).numpy().astype(bool)
    table = pd.DataFrame(x.numpy())
    for data in (x.float(), x.numpy(), images, table, x.tolist()):
        assert torch.equal(lw.fit(rbm(), data, epochs=1).model.weight, expected)


def test_spins_are_learned():
    graph = lw.LogQuadratic(torch.zeros(3, 3), domain=lw.Binary(3, -1, 1))
    with pytest.raises(ValueError, match="LogQuadratic has no parameters to learn"):
        lw.fit(graph, torch.ones(10, 3))


REFUSED = {
    "shape": ({"data": torch.zeros(10, 7)}, r"data must have shape \[rows, 8\], got \[10, 7\]"),
    "one row": ({"data": torch.zeros(8)}, r"data must have shape \[rows, 8\], got \[8\]"),
    "no rows": ({"data": torch.zeros(0, 8)}, r"data must have shape \[rows, 8\], got \[0, 8\]"),
    "few rows": ({"data": torch.zeros(2, 8)}, "learning needs 2 training rows or more, got 1"),
    "words": ({"data": [["a"] * 8] * 4}, "data must be numbers, a tensor, an array or a table"),
    "grey": ({"data": torch.full((10, 8), 0.5)}, r"such as \[0.5.*images > 0.5"),
    "spins": ({"data": -torch.ones(10, 8)}, "every entry of data must be 0"),
    "NaN": (
        {"data": torch.ones(10, 8).index_fill(0, torch.tensor([3]), torch.nan)},
        "no missing values, got NaN or infinity in row 3",
    ),
    "held-out NaN": (
        {"held_out": torch.full((3, 8), torch.nan)}, "held_out must have no missing values"
    ),
    "held-out shape": ({"held_out": torch.ones(3, 4)}, r"held_out must have shape \[rows, 8\]"),
    "share": ({"held_out": 1.5}, "held_out must be a share between 0 and 1.*got 1.5"),
    "no held-out rows": ({"held_out": None}, "give held_out, a share or rows, or stop=None"),
    "negatives": ({"negatives": "pdc"}, "negatives 'pdc' is not known: did you mean pcd"),
    "stop": ({"stop": "pseudolikelyhood"}, "did you mean pseudolikelihood"),
    "sampler": ({"sampler": "block_gibs"}, "did you mean block_gibbs"),
    "epochs": ({"epochs": 0}, "epochs must be an integer of at least 1, got 0"),
    "steps": ({"steps": 0}, "steps must be an integer of at least 1, got 0"),
    "batch": ({"batch": 2.5}, "batch must be an integer"),
    "rate": ({"learning_rate": -1.0}, "learning_rate must be positive, got -1.0"),
    "seed": ({"seed": 0.5}, "seed must be an integer"),
    "device": ({"device": "gpu"}, "device must be cpu, cuda"),
    "kernel of AIS": ({"stop": "ais", "sampler": "dula"}, "DULA.* does not"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_valid_is_refused(case):
    given, message = REFUSED[case]
    arguments = {"data": STRIPES, "epochs": 1, **given}
    with pytest.raises(ValueError, match=message):
        lw.fit(rbm(), **arguments)


def test_models_that_cannot_be_learned_are_refused():
    with pytest.raises(ValueError, match="Lattice has no parameters to learn; Graph"):
        lw.fit(lw.Lattice((2, 4), 0.2), STRIPES)
    with pytest.raises(ValueError, match="learn the whole model, then condition_on"):
        lw.fit(rbm().condition_on({0: 1}), STRIPES[:, 1:])
    with pytest.raises(ValueError, match=r"single precision, got torch\.float64"):
        lw.fit(rbm().double(), STRIPES)
    with pytest.raises(TypeError, match="must be an EnergyModel, got function"):
        lw.fit(lambda x: x.sum(-1), STRIPES)
    with pytest.raises(ValueError, match="herding sets the hidden units of an RBM, got Graph"):
        lw.fit(STARTS["graph"](), STRIPES, "herding")
    with pytest.raises(ValueError, match="the pseudolikelihood needs sites of equally many"):
        lw.fit(TARGETS["ragged"].model, rows_of(TARGETS["ragged"].model))
    forbidding = lw.GraphPotts([[0, 1]], -torch.inf, 2)
    with pytest.raises(ValueError, match=r"10 of 20 training rows no finite log-probability, such"):
        lw.fit(forbidding, torch.eye(2)[torch.tensor([[0, 1]] * 10 + [[1, 1]] * 10)], stop=None)
    with pytest.raises(ValueError, match="a Dataset has rows of 0 and 1"):
        lw.fit(TARGETS["graph_potts"].model, DATA)
