"""`latticework.check_draws`: draws of any source against a target; and files of results."""

import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import latticework as lw
from latticework.models.domains import Binary, Categorical
from latticework.models.ising import Lattice
from latticework.sampling.checking import draws as checked
from latticework.sampling.checking import permutation
from latticework.sampling.exact import distribution
from latticework.sampling.targets import load_target
from latticework.scripts import check

LATTICE = Lattice((3, 3), 0.15, -0.2)
STATES, LAW = distribution(LATTICE)


def drawn(law, count, seed):
    rng = torch.Generator().manual_seed(seed)
    return STATES[torch.multinomial(law, count, replacement=True, generator=rng)]


def failed(draws, **given):
    report = lw.check_draws(draws, LATTICE, **given)
    return {outcome.check for outcome in report.outcomes if outcome.status == "fails"}


def test_exact_draws_fail_as_seldom_as_stated():
    """40 sets at an error of 0.2: of Binomial(40, 0.2), more than 16 have probability 1e-3."""
    alarms = sum(bool(failed(drawn(LAW, 60, seed), error=0.2, seed=seed)) for seed in range(40))
    assert alarms <= 16


def test_tempered_shifted_and_shuffled_draws_are_refused():
    exact = drawn(LAW, 1000, 1)
    assert not failed(exact)
    assert {"log-probability", "site means"} <= failed(drawn((0.7 * LAW.log()).softmax(0), 1000, 1))
    shifted = LAW * (1 + 0.5 * STATES[:, 4])
    assert "site means" in failed(drawn(shifted / shifted.sum(), 1000, 1))
    alone = torch.stack([site[torch.randperm(1000)] for site in exact.T], 1)
    assert {"pair means", "distance"} & failed(alone)
    assert "site means" not in failed(alone)


def test_draws_that_repeat_are_refused():
    """300 draws from 4096 equally likely states repeat about ten of them."""
    model, rng = lw.Function(lambda x: 0 * x.sum(-1), Binary(12)), torch.Generator()
    given = model.domain.uniform(300, rng.manual_seed(1))
    assert lw.check_draws(given, model, error=0.01).passed
    report = lw.check_draws(given[:150].repeat(2, 1), model)
    assert "repeats" in {outcome.check for outcome in report.outcomes if outcome.status == "fails"}


def test_energies_are_recomputed():
    exact = drawn(LAW, 200, 2)
    values = LATTICE.log_prob(exact)
    assert "energies" not in failed(exact, log_prob=values + 7)
    assert "energies" in failed(exact, log_prob=-values)


def test_chains_are_thinned_and_a_long_target_has_a_sampled_reference():
    result = lw.sample(LATTICE, "gibbs", steps=2000, burn_in=100, diagnose=False)
    report = lw.check_draws(result.draws, LATTICE)
    assert report.passed
    assert "of 8000 draws" in str(report)
    assert lw.check_draws(drawn(LAW, 200, 3), LATTICE, reference="gibbs").passed


def chain_of(sites):
    return [(site, site + 1) for site in range(sites - 1)]


@pytest.mark.parametrize(
    ("model", "named", "steps"),
    [
        (lw.Lattice((4, 5), 0.1), "GibbsSweep()", 100),
        (lw.Graph(chain_of(20), 0.2), "GibbsSweep()", 100),
        (lw.Factors([(edge, 0.3 * np.eye(2)) for edge in chain_of(20)]), "GibbsSweep()", 100),
        (lw.GraphPotts(chain_of(20), 0.2, 3), "GibbsSweep()", 100),
        (lw.DenseIsing(torch.zeros(20, 20)), "Gibbs()", 2000),
        (lw.Function(lambda x: 0 * x.sum(-1), Binary(20)), "Gibbs()", 2000),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_reference_makes_as_few_steps_as_the_model_allows(model, named, steps, monkeypatch):
    """A sweep of all sites is one step where the model has classes of independent sites."""
    taken, drawn = [], checked.sample

    def noted(*words, **given):
        taken.append(given["steps"] + given["burn_in"])
        assert given["engine"] == "auto"
        return drawn(*words, **given)

    monkeypatch.setattr(checked, "sample", noted)
    given = model.domain.uniform(40, torch.Generator().manual_seed(0))
    assert f"chains of {named}" in lw.check_draws(given, model).about
    assert taken == [steps // 16 * 16]


def test_a_reference_that_takes_long_is_told_beforehand(monkeypatch):
    model = lw.Function(lambda x: 0 * x.sum(-1), Binary(20))
    given = model.domain.uniform(40, torch.Generator().manual_seed(0))
    monkeypatch.setattr(checked, "seconds_per_step", lambda *_, **__: 0.6)
    with pytest.warns(UserWarning, match="about 20 minutes: 2000 steps of 1000 chains of Gibbs"):
        lw.check_draws(given, model)
    monkeypatch.setattr(checked, "seconds_per_step", lambda *_, **__: 0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lw.check_draws(given, model)


@pytest.mark.parametrize("sites", [2, 5, 32, 33, 3000])
def test_pairs_are_of_different_sites(sites):
    """All pairs of few sites; of many sites as many as are compared, without a list of all."""
    codes = torch.randint(2, (3, sites), generator=torch.Generator().manual_seed(0))
    equal, names = permutation._pairs(codes, torch.Generator().manual_seed(0))
    assert len(names) == min(permutation.MAX_PAIRS, sites * (sites - 1) // 2) == equal.shape[1]
    for name, column in zip(names, equal.T, strict=True):
        first, second = map(int, re.findall(r"x\[(\d+)\]", name))
        assert first < second < sites
        assert torch.equal(column, (codes[:, first] == codes[:, second]).float())


def test_categories_may_be_whole_numbers():
    def flat(x):
        return 0 * x.sum((-2, -1))

    given = torch.randint(3, (200, 4), generator=torch.Generator().manual_seed(2))
    states = {"domain": Categorical(4, 3), "error": 0.01}
    assert lw.check_draws(given, flat, **states).passed
    assert not lw.check_draws(given.clamp(max=1), flat, **states).passed


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"draws": torch.zeros(9)}, r"must have shape \[draws, 9\] or \[chains, draws, 9\]"),
        ({"draws": torch.full((5, 9), 2.0)}, "must be 0 or 1"),
        ({"error": 1e-6}, "between 0.001 and 1"),
        ({"log_prob": torch.zeros(3)}, r"one number a draw, \[50, 1\], got \[3\]"),
        ({"log_prob": torch.full((50,), torch.nan)}, r"got \[50\] with 50 NaN"),
        (
            {"draws": torch.zeros(2, 5, 9), "log_prob": torch.zeros(5, 2)},
            r"one number a draw, \[2, 5\], got \[5, 2\]",
        ),
        ({"draws": torch.zeros(1, 9)}, "two draws or more"),
        (
            {"draws": torch.arange(2.0).repeat_interleave(200).expand(9, -1).T[None]},
            "fewer than two independent ones",
        ),
        ({"steps": 16, "reference": "gibbs"}, "the reference does not mix: .*give more steps"),
    ],
)
def test_mistakes_are_refused(given, match):
    with pytest.raises(ValueError, match=match):
        lw.check_draws(**{"draws": drawn(LAW, 50, 1), "target": LATTICE, **given})


@pytest.mark.parametrize("kind", [torch.as_tensor, np.asarray, np.ndarray.tolist, pd.DataFrame])
@pytest.mark.parametrize("number", [float, int, bool])
def test_draws_may_be_any_table_of_numbers(kind, number):
    draws = drawn(LAW, 300, 1).numpy().astype(number)
    values = pd.Series(LATTICE.log_prob(drawn(LAW, 300, 1)).double().numpy(), index=range(5, 305))
    assert lw.check_draws(kind(draws), LATTICE, log_prob=values).passed


def test_a_table_of_words_is_refused():
    with pytest.raises(ValueError, match="draws must be numbers, a tensor, an array or a table"):
        lw.check_draws(pd.DataFrame([["a"] * 9] * 3), LATTICE)


# The command.

FILE = """
import torch
def log_prob(x):
    return x @ torch.linspace(-1, 1, 12) - (x.sum(-1) - 6) ** 2 / 4
def tilted(x):
    return log_prob(x) + x[:, 0]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.py").write_text(FILE)
    return tmp_path


def judged(name, *words):
    return check.main(
        ["--draws", name, "--target", "f.py:log_prob", "--domain", "binary:12", *words]
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_command_judges_a_file_of_draws(folder, capsys):
    """From our own results, whose other arrays are ignored, and from any other source."""
    target = load_target("f.py:log_prob", "binary:12")
    lw.sample(target, "gwg", steps=2000, burn_in=100, diagnose=False).save("ours.npz")
    assert judged("ours.npz", "--reference", "dmala(step_size=0.3)", "--steps", "400") == 0
    assert "chains of DMALA(step_size=0.3)" in " ".join(capsys.readouterr().out.split())

    states, law = distribution(load_target("f.py:tilted", "binary:12"))
    rng = torch.Generator().manual_seed(1)
    draws = states[torch.multinomial(law, 1000, replacement=True, generator=rng)]
    np.savez("tilted.npz", draws=draws, log_prob=target.log_prob(draws))
    assert judged("tilted.npz", "--json", "out.json", "--error", "0.002") == 1
    told = capsys.readouterr().out
    assert "x[0] = 1" in told
    assert "is at most 0.002" in " ".join(told.split())
    outcomes = json.loads((folder / "out.json").read_text())["outcomes"]
    assert {o["check"]: o["status"] for o in outcomes}["energies"] == "ok"


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ([], "name a sampler to check, .* or a file of draws with --draws"),
        (["--draws", "one.npz"], "--draws needs the target"),
        (["--draws", "one.npz", "--target", "f.py:log_prob"], "give --domain"),
        (["dmala", "--draws", "one.npz", "--target", "f.py:log_prob"], "leave out sampler; "),
        (["dmala", "--reference", "gibbs"], "--reference is for draws: add --draws"),
        (["dmala", "--steps", "10"], "--steps is for draws: add --draws"),
        (["--draws", "none.npz", "--target", "f.py:log_prob"], "none.npz is no .npz file"),
        (["--draws", "other.npz", "--target", "f.py:log_prob"], "with an array `draws`"),
        (["--draws", "f.py", "--target", "f.py:log_prob"], "f.py is no .npz file"),
    ],
)
def test_mistakes_of_the_command_are_reported(words, match, folder):
    np.savez("one.npz", draws=np.zeros((20, 12)))
    np.savez("other.npz", x=np.zeros((20, 12)))
    with pytest.raises(ValueError, match=match):
        check.main(words)


# Results: names and files.


def linear(x):
    return x.flatten(1) @ torch.linspace(-1, 1, x[0].numel())


def sampled(**given):
    settings = {"sites": 3, "steps": 30, "names": ["rain", "wind", "sun"], "diagnose": False}
    return lw.sample(linear, "dmala", **{**settings, **given})


def test_names_stand_in_the_summary_and_in_arviz():
    found = sampled(values=4)
    assert list(found.summary().index[[0, 1, -1]]) == ["log_prob", "x[rain, 0]", "x[sun, 3]"]
    assert "x[rain, 0]" in found._repr_html_()
    for categories, dims in ((False, ("site", "value")), (True, ("site",))):
        data = found.to_arviz(categories=categories)
        x, attributes = data["posterior"]["x"], data["posterior"].attrs
        assert x.dims == ("chain", "draw", *dims)
        assert list(x.coords["site"].values) == ["rain", "wind", "sun"]
        assert attributes["seed"] == 0
        assert attributes["domain"] == "Categorical(dim=3, num_values=4)"
        assert data["sample_stats"]["acceptance_rate"].shape == (4,)
    assert torch.equal(found.categories(), found.draws.argmax(-1))
    assert "by DMALA():" in repr(found)


@pytest.mark.parametrize("names", ["abc", ["a", "b"], ["a", "b", "a"], ["a", "b", ""], 3])
def test_bad_names_are_refused(names):
    with pytest.raises(ValueError, match="names must be 3 different words, one a site"):
        sampled(names=names)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_result_is_saved_and_loaded_and_no_file_is_overwritten(tmp_path):
    found, file = sampled(adapt=0.5), tmp_path / "found.npz"
    found.save(file)
    again = lw.SampleResult.load(file)
    assert repr(again) == repr(found)
    assert torch.equal(again.draws, found.draws)
    assert again.sampler == found.sampler
    assert again.domain == Binary(3)
    assert again.adapted.trajectory == found.adapted.trajectory
    with pytest.raises(FileExistsError, match="is not overwritten"):
        found.save(file)
    np.savez(tmp_path / "other.npz", draws=np.zeros(3))
    with pytest.raises(ValueError, match="is no file that SampleResult.save wrote"):
        lw.SampleResult.load(tmp_path / "other.npz")


@pytest.mark.parametrize(("sampler", "engine"), [("gibbs_sweep", "compiled"), ("gibbs", "eager")])
def test_log_probabilities_of_many_draws_come_from_few_calls(sampler, engine, monkeypatch):
    """They are those of the draws. A kernel of lattices evaluates them itself."""
    calls, forward = [], lw.Lattice.forward
    monkeypatch.setattr(
        lw.Lattice, "forward", lambda self, x: calls.append(len(x)) or forward(self, x)
    )
    model = lw.Lattice((4, 4), 0.2, 0.1)
    result = lw.sample(model, sampler, steps=600, engine=engine, diagnose=False)
    assert len(calls) < 60
    assert (sum(calls) >= 600 * 4) == (engine == "eager")
    expected = model(result.draws.flatten(0, 1)).view(4, 600)
    torch.testing.assert_close(result.log_prob, expected)
