"""`latticework.sample`: any target with any sampler in one call, checked at the door."""

import copy
import re
import warnings

import arviz
import numpy as np
import pandas as pd
import pytest
import torch
from documented import ROOT, blocks
from torch import nn

import latticework as lw
from latticework.models.base import NotDifferentiableError
from latticework.sampling import sample as sampling
from latticework.sampling import sample_arguments
from latticework.sampling.targets import parse_domain

pytestmark = pytest.mark.filterwarnings("ignore::latticework.sampling.sample.ConvergenceWarning")
WEIGHTS = torch.linspace(-1, 1, 5)


def linear(x):
    return x @ WEIGHTS


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(WEIGHTS.clone())

    def forward(self, x):
        return x @ self.weights


def draw(target=linear, sampler="dmala", **given):
    settings = {"sites": 5, "steps": 20, **given}
    return lw.sample(target, sampler, **settings)


# The law.


@pytest.mark.parametrize(
    ("values", "precision"),
    [
        ((0.1, 0.7), torch.float32),
        ((0.1, 0.7), torch.float64),
        ((0.2, 0.9), torch.float32),
        ((-0.3, 1.1), torch.float64),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "sampler",
    [lw.Gibbs(), lw.Gibbs(2), lw.HammingBall(2, 1), lw.GWG(), lw.DMALA(0.5), lw.AVG(0.5)],
    ids=str,
)
def test_any_two_values_are_sampled(sampler, values, precision):
    """Draws hold exactly these two values, with the right frequency."""
    domain, slope = lw.Binary(3, *values), 3.0
    x = domain.uniform(200, torch.Generator().manual_seed(1)).to(precision)
    found = lw.sample(
        lambda x: slope * x.sum(-1), sampler, domain=domain, x=x, steps=100, burn_in=50
    )
    assert set(found.draws.unique().tolist()) == {domain.low, domain.high}
    high = torch.tensor(slope * (domain.high - domain.low)).sigmoid()
    assert abs((found.draws == domain.high).float().mean() - high) < 0.02


def test_chains_start_where_the_target_is_positive():
    """Seven eighths of all states are impossible, so some of 50 uniform starts would be."""
    found = draw(lambda x: linear(x).masked_fill(x[:, :3].sum(-1) < 3, -torch.inf), chains=50)
    assert found.log_prob.isfinite().all()


def test_the_log_probability_keeps_its_precision():
    found = draw(lambda x: linear(x).double() + 1e9, "gwg", steps=200)
    assert found.log_prob.dtype == torch.float64
    assert found.summary().loc["log_prob", "sd"] > 0.1
    assert draw().log_prob.dtype == torch.float32


# What comes back.


def test_the_draws_are_those_of_the_chain():
    """Every second state after the third step of run_chain, from the same start."""
    x = lw.Binary(5).uniform(4, torch.Generator().manual_seed(9))
    found = draw(sampler=lw.DMALA(0.4), x=x, steps=6, thin=2, burn_in=3, seed=1)
    rng = torch.Generator().manual_seed(1)
    model = lw.Function(linear, lw.Binary(5))
    readings = list(lw.run_chain(lw.DMALA(0.4), model, x, rng, steps=9, every=1))
    for number, step in enumerate((5, 7, 9)):
        assert torch.equal(found.draws[:, number], readings[step].state.x)


@pytest.mark.parametrize("target", [linear, lambda x: linear(x) - 1e9 * (x.sum(-1) - 2).relu()])
def test_the_log_probability_is_that_of_the_draws(target):
    """Also where chains start at a large penalty, in whose rounding all else is lost."""
    found = draw(target, "locally_balanced", x=torch.ones(4, 5), steps=50, diagnose=False)
    np.testing.assert_array_equal(found.log_prob[:, 20:], target(found.draws[:, 20:]))


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_steps_into_nan_are_told(engine, request):
    if engine == "fused":
        request.getfixturevalue("uncompiled")
    x = torch.eye(5)[:4]

    def target(x):
        return torch.where(x.sum(-1) > 3, torch.nan, linear(x))

    with pytest.warns(
        lw.sampling.sample.ConvergenceWarning, match="of 400 steps met a log-probability of NaN or"
    ):
        found = draw(target, "random_walk", x=x, steps=100, engine=engine)
    assert found.draws.sum(-1).max() == 3


def test_acceptance_is_that_after_the_burn_in_of_each_chain():
    x = torch.zeros(3, 5)
    found = draw(sampler=lw.DMALA(4.0), x=x, steps=4, burn_in=2, seed=1)
    model, rng = lw.Function(linear, lw.Binary(5)), torch.Generator().manual_seed(1)
    state, probabilities = lw.DMALA(4.0).init(x, model), []
    for _ in range(6):
        state, info = lw.DMALA(4.0).step(state, model, rng)
        probabilities.append(info.accept_prob.clone())
    torch.testing.assert_close(found.acceptance, torch.stack(probabilities[2:]).mean(0))
    assert len(set(found.acceptance.tolist())) == 3


def test_the_mean_is_the_exact_one():
    found = draw(chains=100, steps=100, burn_in=50)
    truth = lw.exact(lw.Function(linear, lw.Binary(5))).mean.float()
    summary = found.summary(digits=None)
    mean, error = (summary[name].to_numpy()[1:] for name in ("mean", "mcse_mean"))
    assert np.abs((mean - truth.numpy()) / error).max() < 4.5
    assert np.abs((mean - 0.5) / error).max() > 10  # control: the uniform start's mean


@pytest.mark.parametrize(
    ("given", "domain"),
    [
        ({"sites": 3}, lw.Binary(3)),
        ({"sites": 3, "values": (-1, 1)}, lw.Binary(3, -1, 1)),
        ({"sites": 3, "values": 4}, lw.Categorical(3, 4)),
        ({"sites": 3, "values": range(4)}, lw.Ordinal(3, 4)),
        ({"domain": lw.Integer(3)}, lw.Integer(3)),
    ],
    ids=str,
)
def test_ways_to_say_the_domain(given, domain):
    found = lw.sample(lambda x: -x.flatten(1).square().sum(-1), "gwg", steps=4, **given)
    assert found.domain == domain
    assert found.draws.shape == (4, 4, *domain.shape)


def test_domains_of_a_command_line():
    assert parse_domain("spins:7") == lw.Binary(7, -1, 1)
    assert parse_domain("categorical:7,3") == lw.Categorical(7, 3)
    assert parse_domain("naturals:2") == lw.Integer(2, 1, 0)
    for wrong in ("binary", "binary:x", "ternary:3", "categorical:4"):
        with pytest.raises(ValueError, match="is not a domain; write binary:SITES"):
            parse_domain(wrong)


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


# The cost.


class Rows:
    """A target that counts the states it is given."""

    def __init__(self):
        self.rows = 0

    def __call__(self, x):
        self.rows += len(x)
        return x @ WEIGHTS


COUNTED = [
    "dmala", "gwg", "gwg(flips=2)", "gibbs", "locally_balanced", "random_walk", "pavg(burn_in=9)",
    "hamming_ball(sites=3, radius=1)", "pt_dmala",
]  # fmt: skip


@pytest.mark.parametrize(
    ("sampler", "given"),
    [(name, {}) for name in COUNTED]
    + [("dmala", {"adapt": 0.5}), ("gibbs", {"start": "annealed"})],
    ids=str,
)
def test_the_evaluations_are_those_that_the_target_received(sampler, given):
    """With starts, checks, what the sampler learns first, adaptation and kept draws."""
    target = Rows()
    found = draw(target, sampler, burn_in=3, thin=2, **given)
    assert found.evaluations == target.rows


def test_a_draw_of_a_langevin_sampler_costs_no_evaluation():
    one, other = Rows(), Rows()
    draw(one, "dmala", thin=1)
    found = draw(other, "dmala", thin=20)
    assert one.rows == other.rows
    torch.testing.assert_close(found.log_prob, linear(found.draws))


@pytest.mark.slow
@pytest.mark.parametrize("adapt", [None, 0.5])
def test_a_compiled_chain_costs_what_an_eager_one_costs(adapt):
    """The compiled step calls no method that could be counted, nor does a draw's balance hold."""
    model = lw.Lattice((3, 2), 0.2, 0.1)

    def cost(engine, steps):
        given = {"steps": steps, "thin": steps, "adapt": adapt, "engine": engine}
        return lw.sample(model, "dmala", diagnose=False, **given).evaluations

    for engine in ("compiled", "eager"):
        assert cost(engine, 50) - cost(engine, 5) == pytest.approx(4 * 45)
    adaptation = 60 * 20 * 4 if adapt else 0
    assert 0 <= cost("compiled", 5) - adaptation - 4 * 5 < 4 * 20  # starts, checks and the draw


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # ArviZ folds a fair coin to a constant
def test_the_summary_is_arvizs():
    found = draw(chains=2, steps=400)
    columns = ["mean", "sd", "mcse_mean", "ess_bulk", "ess_tail", "r_hat"]
    ours = found.summary(digits=None).loc["x[0]":, columns]
    theirs = arviz.summary(found.to_arviz(), round_to="none").loc[:, columns]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)  # single precision


@pytest.mark.parametrize("engine", ["eager", "compiled"])
@pytest.mark.parametrize(
    ("steps", "thin", "diagnose", "told"),
    [
        (10**6, 1, False, r"draws take 0.6 GB; 0.21 GB free: thin=8 needs 75 MB"),
        (
            10**6,
            1,
            True,
            r"draws take 0.6 GB, their diagnostics 8 GB; 0.21 GB free: thin=160 needs 3.8 MB",
        ),
        (10**7, 10, False, r"draws take 0.6 GB; 0.21 GB free: thin=80 needs 75 MB"),
        (999_983, 1, False, r"0.6 GB; 0.21 GB free: take fewer chains or steps, or keep=.summary"),
    ],
)
def test_draws_that_do_not_fit_are_refused_before_the_first_step(
    monkeypatch, steps, thin, diagnose, told, engine
):
    """Each draw of 100 chains takes 2 bytes for 10 sites and 4 for its log-probability."""
    monkeypatch.setattr(sample_arguments, "free_memory", lambda: 210_000_000)
    monkeypatch.setattr(sampling, "start_draws", lambda *_: pytest.fail("it made steps"))
    model = lw.Graph([[i, i + 1] for i in range(9)], 0.1)
    with pytest.raises(ValueError, match=told):
        lw.sample(
            model, "gibbs", chains=100, steps=steps, thin=thin, diagnose=diagnose, engine=engine
        )


def test_free_memory_is_told_where_the_system_tells_it():
    free = sample_arguments.free_memory()
    assert free is None or 2**20 < free < 2**50
    assert draw(steps=4).draws.shape == (4, 4, 5)


# The door.


def test_starts_without_probability_are_refused_with_advice():
    """All sites of the first half are on and no other, which no random state has."""
    half = torch.arange(200) < 100

    def half_on(x):
        return (x.sum(-1) * 0).masked_fill((x != half).any(-1), -torch.inf)

    told = r"-inf at the start of \d of 4 chains.* positive probability .*sample\(..., x=states\)"
    with pytest.raises(ValueError, match=told):
        draw(half_on, sites=200)
    told = "gradient of Function is NaN or inf .*finite penalties in place of -inf, or a sampler"
    with pytest.raises(ValueError, match=told):
        draw(lambda x: (x.sum(-1) - 2).abs().sqrt(), "dmala", x=torch.ones(4, 5).tril(-1)[[2] * 4])


ONE_HOT = r"x is one-hot: x.argmax\(-1\) gives the values 0 to 2 .* values=range\(3\) makes"
WITH_NUMPY = "compute with torch functions.*lambda x: torch.as_tensor"
TABLE = torch.ones(5, 3)


@pytest.mark.parametrize(
    ("function", "values", "told"),
    [
        (lambda x: TABLE[torch.arange(5), x.long()].sum(-1), 3, ONE_HOT),
        (lambda x: (x[:, 1:] == x[:, :-1]).float().sum(-1), 3, ONE_HOT),
        (lambda x: x.sum(-1), 3, ONE_HOT),
        (lambda x: np.sum(np.asarray(x), axis=-1), (0, 1), WITH_NUMPY),
        (lambda x: np.sum(np.asarray(x), axis=(1, 2)), 3, WITH_NUMPY),
        (lambda x: np.sum(x), (0, 1), WITH_NUMPY),
    ],
)
@pytest.mark.parametrize("sampler", ["gibbs", "random_walk", "gwg"])
def test_what_a_target_misreads_is_told_with_a_remedy(function, values, told, sampler):
    with pytest.raises(ValueError, match=told):
        draw(function, sampler, values=values)


@pytest.mark.parametrize(
    "kind", [list, tuple, np.array, pd.Index, pd.Series, dict.fromkeys, lambda words: iter(words)]
)
def test_names_are_any_sequence_of_words(kind):
    found = draw(names=kind(["a", "b", "c", "d", "e"]))
    assert found.names == ("a", "b", "c", "d", "e")
    assert list(found.summary().index)[1:] == [f"x[{name}]" for name in "abcde"]
    with pytest.raises(ValueError, match="got 'a' more than once"):
        draw(names=["a", "b", "c", "d", "a"])


def doubles(x):
    x *= 2
    return x.sum(-1)


def copies_a_site(x):
    """No state of equal sites shows it."""
    x[:, 0] = x[:, 1]
    return x.sum(-1)


FAULTS = {
    "doubles x": (doubles, "Function writes into the states that it is given.* x = x.clone"),
    "copies a site": (copies_a_site, "Function writes into the states"),
    "other sites": (
        lambda x: x @ torch.ones(7),
        r"could not evaluate x of shape \[4, 5\] .*Runtime",
    ),
    "mixes chains": (
        lambda x: x.sum(-1) + x.mean(),
        "of chain .* beside some chains and .* beside others; each chain's",
    ),
    "counts the rows": (
        lambda x: x.sum(-1) + 1e-3 * torch.arange(len(x)),
        "of chain .* beside some chains and .* beside others; each chain's",
    ),
    "depends on their number": (
        lambda x: x.sum(-1) + len(x),
        "of chain 0 is .* among 4 chains and .* alone; it must not depend on the number",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_target_is_refused(fault):
    target, match = FAULTS[fault]
    with pytest.raises(ValueError, match=match):
        draw(target)


def test_rounding_of_many_terms_is_no_fault():
    """Terms of 10^5 sites cancel in the sum, and their rounding does not."""
    sites = 100_000

    def target(x, step):
        return x.sum(-1) - sites / 2 + step * torch.arange(len(x))

    draw(lambda x: target(x, 1e-3), "gibbs", sites=sites, steps=1, diagnose=False)
    with pytest.raises(ValueError, match="beside some chains"):
        draw(lambda x: target(x, 0.1), "gibbs", sites=sites, steps=1, diagnose=False)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"x": torch.zeros(5)}, r"x must have shape \[chains, 5\].* x.unsqueeze\(0\) is one chain"),
        ({"x": torch.zeros(4, 5), "chains": 3}, "x has 4 chains and chains is 3"),
        ({"steps": 2.0}, "steps must be an integer of at least 1"),
        ({"steps": 10, "thin": 3}, "steps must be a multiple of thin, got 10 and 3"),
        ({"burn_in": -1}, "burn_in must be a whole number of steps"),
        ({"sites": None}, "the states of linear are not known: give domain="),
        ({"sites": None, "values": 3}, "values needs sites"),
        ({"values": (1, 5, 9)}, r"values must be two .* got \(1, 5, 9\)"),
        ({"domain": lw.Binary(5)}, "either domain or sites"),
        ({"sites": 20.0}, "sites must be an integer of at least 1, got 20.0"),
        ({"values": 2.0}, r"values must be two numbers, range\(k\), or .* got 2.0; give domain="),
        ({"values": (0, None)}, r"values must be two numbers, .* got \(0, None\)"),
        ({"seed": 2**70}, "seed must be an integer of at most 64 bits, such as 0, got 118"),
        ({"device": "gpu"}, r"device must be cpu, cuda, cuda:1 \.\.\. or auto, got 'gpu'$"),
        ({"sampler": "dmalla"}, "sampler 'dmalla' is not known: did you mean dmala"),
        ({"sampler": "gwg(flip=2)"}, "gwg has no setting flip: did you mean flips"),
        ({"sampler": "gwg(2)"}, r"'gwg\(2\)' is not a sampler with settings; write gwg\(field=va"),
        ({"values": (0, 1e20)}, "the values of a site must be less than .* apart, got 0.0 and 1e"),
        (
            {"adapt": "best"},
            "adapt must be .* acceptance, cycle, locally_balanced, random_walk, got",
        ),
        ({"adapt": 5}, "target must be between 0 and 1, got 5"),
        ({"adapt": np.float32(5)}, "target must be between 0 and 1, got 5.0"),
        ({"adapt": [0.5]}, r"target must be a number or one of .*, got \[0.5\]"),
        ({"x": torch.zeros(4, 5).half()}, r"single or double precision, .*float16; use x.float"),
        (
            {"x": torch.full((4, 5), 2.0**23 + 1), "domain": lw.Integer(5), "sites": None},
            "integers above 8.39e.06 are not exact in torch.float32",
        ),
        ({"start": "warm"}, "start must be uniform or annealed, without x, got 'warm'"),
        ({"start": "annealed", "x": torch.zeros(4, 5)}, "start must be .* without x"),
    ],
    ids=str,
)
def test_faulty_arguments_are_refused(given, match):
    with pytest.raises(ValueError, match=match):
        draw(**given)


def test_a_random_target_is_refused():
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(50, 1, bias=False), nn.Flatten(0))
    with pytest.raises(ValueError, match=r"random or changes from call to call.* module.eval\(\)"):
        draw(module, sites=50)
    assert draw(module.eval(), sites=50).draws.shape == (4, 20, 50)


def test_a_sampler_that_needs_a_burn_in_says_so():
    x = torch.zeros(4, 5)
    with pytest.warns(lw.ConvergenceWarning, match="Tempered leaves .*; give a burn_in"):
        draw(sampler="pt_dmala", x=x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw(sampler="pt_dmala", x=x, burn_in=20, diagnose=False)
        draw(x=x, diagnose=False)


@pytest.mark.parametrize("given", [lambda m: m, lambda m: lambda x: m(x)], ids=["itself", "inside"])
def test_batch_normalisation_in_training_mode_is_refused_and_left_as_it_was(given):
    module = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 1), nn.Flatten(0))
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(ValueError, match=r"^the target calls BatchNorm1d in .*module.eval\(\)"):
        draw(given(module))
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert draw(module.eval().requires_grad_(False)).draws.shape == (4, 20, 5)


@pytest.mark.parametrize("sampler", ["dmala", "gwg"])
def test_a_module_without_a_gradient_in_x_is_refused(sampler):
    class Rounding(Linear):
        def forward(self, x):
            return (x > 0.5).float() @ self.weights

    with pytest.raises(NotDifferentiableError, match="cannot be differentiated in x; use diff"):
        draw(Rounding(), sampler)
    assert draw(Rounding(), "gibbs").draws.shape == (4, 20, 5)


def test_other_types_are_refused():
    with pytest.raises(TypeError, match=r"got <class .*DMALA'>; write DMALA\(...\)"):
        draw(sampler=lw.DMALA)
    with pytest.raises(TypeError, match="the target must be a function"):
        draw(torch.zeros(3))
    with pytest.raises(ValueError, match="Lattice has the domain"):
        lw.sample(lw.Lattice((3, 2), 0.2, 0.1), "dmala", domain=lw.Binary(4))
    with pytest.raises(lw.UnsupportedModelError, match="BlockGibbs needs"):
        draw(sampler="block_gibbs")


@pytest.mark.parametrize("threads", [1, 2])
def test_chains_run_on_the_threads_that_are_asked_for(threads):
    seen = set()

    def log_prob(x):
        seen.add(torch.get_num_threads())
        return x.sum(-1)

    torch.set_num_threads(3 - threads)
    asked = {} if threads == 1 else {"threads": threads}
    lw.sample(log_prob, "dmala", sites=3, steps=2, **asked)
    assert (seen, torch.get_num_threads()) == ({threads}, 3 - threads)


def test_the_number_of_threads_is_checked():
    with pytest.raises(ValueError, match="threads"):
        draw(threads=0)
