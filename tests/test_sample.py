"""`latticework.sample`: any target with any sampler in one call, its draws and its cost."""

import warnings

import arviz
import numpy as np
import pytest
import torch
from linear_target import WEIGHTS, draw, linear

import latticework as lw
from latticework.sampling import sample as sampling
from latticework.sampling import sample_arguments
from latticework.sampling.targets import parse_domain

pytestmark = pytest.mark.filterwarnings("ignore::latticework.sampling.sample.ConvergenceWarning")


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


def test_a_sampler_that_needs_a_burn_in_says_so():
    x = torch.zeros(4, 5)
    with pytest.warns(lw.ConvergenceWarning, match="Tempered leaves .*; give a burn_in"):
        draw(sampler="pt_dmala", x=x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw(sampler="pt_dmala", x=x, burn_in=20, diagnose=False)
        draw(x=x, diagnose=False)


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
