"""The summary and the verdict of `latticework.sample`, of states and of functions of x."""

import re

import numpy as np
import pytest
import torch
from documented import ROOT, blocks
from linear_target import draw, linear

import latticework as lw
from latticework.sampling import sample_arguments

pytestmark = pytest.mark.filterwarnings("ignore::latticework.sampling.sample.ConvergenceWarning")


# Diagnostics.


def locked(x):
    """The first site is always 1; the next two are equal, and one at a time cannot change."""
    return linear(x).masked_fill((x[:, 0] < 0.5) | (x[:, 1] != x[:, 2]), -torch.inf)


LOCKED = torch.ones(4, 5).index_fill(0, torch.tensor([0, 1]), 0).index_fill(1, torch.tensor(0), 1)


def test_the_summary_names_constant_and_stuck_sites():
    summary = draw(locked, lw.Gibbs(), x=LOCKED, steps=400).summary()
    assert summary.attrs["constant"] == ["x[0]"]
    assert summary.attrs["stuck"] == ["x[1]", "x[2]"]
    assert summary["note"].tolist() == ["", "constant", "stuck", "stuck", "", ""]
    assert summary.loc["x[0]", ["ess_bulk", "r_hat"]].isna().all()
    assert summary.loc["x[1]", ["ess_bulk", "r_hat"]].tolist() == [0, np.inf]  # no filter drops it
    assert summary.loc["x[3]", ["ess_bulk", "ess_tail", "r_hat", "mcse_mean"]].notna().all()
    assert list(summary.index) == ["log_prob", *(f"x[{site}]" for site in range(5))]


# The verdict.


def test_chains_in_two_modes_do_not_mix():
    with pytest.warns(lw.ConvergenceWarning, match="does not mix: R-hat inf at x"):
        found = draw(locked, lw.Gibbs(), x=LOCKED, steps=400)
    assert not found.converged
    assert "2 of 5 sites never changed in a chain, 1 of 5 sites constant" in repr(found)


def test_frozen_chains_are_called_so():
    """Two of five sites are on, so that no single flip is possible; pairs of sites move."""

    def two_on(x):
        return linear(x).masked_fill(x.sum(-1) != 2, -torch.inf)

    with pytest.warns(
        lw.ConvergenceWarning, match="does not mix: no chain ever moved; try a sampler"
    ):
        frozen = draw(two_on, "gibbs", steps=400)
    assert frozen.acceptance.mean() == 1  # which looks perfect
    found = draw(two_on, "gibbs(sites=2, scan=random)", steps=400, diagnose=False)
    assert (found.draws != found.draws[:, :1]).any(2).any(1).all()


def test_what_cannot_be_judged_is_not_called_converged(recwarn):
    for given, text in (({}, "80 draws, at least 400"), ({"chains": 1, "steps": 400}, "a single")):
        found = draw(**given)
        assert f"not judged: {text}" in repr(found)
        assert not found.converged
    assert not recwarn.list


def test_starts_that_agree_are_told(recwarn):
    draw(x=torch.eye(5)[:4])
    draw(x=torch.zeros(4, 5), diagnose=False)
    assert not recwarn.list
    with pytest.warns(
        lw.ConvergenceWarning, match="starts agree in 4.5 of 5 sites, so R-hat cannot"
    ):
        draw(x=torch.eye(5)[[0, 0, 0, 0]] + torch.tensor([[0.0], [0], [0], [1]]) * torch.eye(5)[1])


def in_one_mode(chains, sites, level):
    """Starts `[chains, sites]` of which each site is one with probability `level`."""
    rng = torch.Generator().manual_seed(1)
    return torch.bernoulli(torch.full((chains, sites), level), generator=rng)


@pytest.mark.parametrize("diagnose", [True, False])
@pytest.mark.parametrize("chains", [4, 8, 100])
@pytest.mark.filterwarnings("ignore::latticework.ConvergenceWarning")
def test_what_starts_cannot_show_belongs_to_the_verdict_for_good(tmp_path, chains, diagnose):
    """With few chains and many, after a file, and of functions of x. Their R-hat is good."""
    x = in_one_mode(chains, 20, 0.95)
    flat = {"target": lambda x: 0 * x.sum(-1), "sampler": "dmala(step_size=3.0)", "sites": 20}
    found = draw(**flat, x=x, steps=1000, diagnose=diagnose)
    found.save(tmp_path / "found.npz")
    for result in (found, lw.SampleResult.load(tmp_path / "found.npz")):
        assert (result.converged, result.verdict.judged) == (False, False)
        assert "not judged: R-hat 1" in repr(result)
        for text in (repr(result), result.verdict.text, result.verdict(of=lambda x: x[:, 0]).text):
            assert re.search(r"but the starts agree in 1\d(.\d)? of 20 sites", text)


@pytest.mark.parametrize("domain", [lw.Binary(40, -1, 1), lw.Categorical(40, 3), lw.Ordinal(40, 4)])
@pytest.mark.parametrize("chains", [1, 2, 9])
def test_starts_are_alike_or_not_on_every_domain(domain, chains):
    random = domain.uniform(chains, torch.Generator().manual_seed(0))
    assert sample_arguments.describe_equal_starts(random) == ""
    same = random[:1].expand_as(random)
    assert ("agree in 40 of 40" in sample_arguments.describe_equal_starts(same)) == (chains > 1)


def test_the_documented_functions_of_x_have_verdicts_and_rows(capsys):
    """Labels are never exchanged, so they do not mix; which points share one does."""
    (source,) = [code for code in blocks(ROOT / "docs" / "library.md", "python") if "of=" in code]
    told: dict = {}
    exec(source, told)
    labels, pairs, *table = capsys.readouterr().out.splitlines()
    assert labels.startswith("does not mix: R-hat")
    assert pairs.startswith("converged: R-hat")
    assert [row.split()[0] for row in table[1:]] == [
        "log_prob",
        *(f"together[{k}]" for k in range(6)),
    ]
    found, together = told["result"], told["together"]
    mixed = {"together": together, "last": lambda x: x[:, 3, 0]}
    assert not found.verdict(of=mixed).converged
    rows = found.summary(of=mixed, digits=None)
    states = torch.cartesian_prod(*[torch.arange(2)] * 4)
    states = torch.nn.functional.one_hot(states, 2).float()
    law = told["clusters"](states).softmax(0)
    exact = law @ together(states).float()
    for pair in range(6):
        mean, error = rows.loc[f"together[{pair}]", ["mean", "mcse_mean"]]
        assert abs(mean - float(exact[pair])) < 5 * np.nan_to_num(error) + 1e-3


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda x: x.sum(), r"of must map states \[.*\] to \[80\] or \[80, ...\], got \[\]"),
        (lambda x: x.sum(0), r"got \[5\]"),
        (lambda x: x.sum(-1) / 0, "of must be finite at every draw"),
    ],
)
def test_functions_of_x_are_checked(function, match):
    found = draw()
    with pytest.raises(ValueError, match=match):
        found.verdict(of={"of": function})
    with pytest.raises(ValueError, match=match):
        found.summary(of={"of": function})


def test_a_function_that_never_changes_is_not_judged():
    found = draw(steps=400)
    judged = found.verdict(of=lambda x: x.sum(-1) >= 0)
    assert (judged.converged, judged.judged) == (False, False)
    assert "never changed, in any draw" in judged.text


def test_an_annealed_start_reaches_a_mode_behind_a_barrier():
    """Beyond eight of twelve sites; half of the uniform states are at six or fewer."""
    levels = torch.tensor([8.0] * 8 + [0.0, 0.0, 20.0, 30.0, 40.0])

    def beyond(**given):
        found = draw(
            lambda x: levels[x.sum(-1).long()], "gibbs", sites=12, steps=1, chains=300, **given
        )
        return float((found.draws.sum(-1) > 9).float().mean())

    assert beyond(start="annealed") > 0.2
    assert beyond(burn_in=500) < 0.12  # control: as many steps without annealing
