"""The rate of a run in a race: evaluations, effective samples, budgets, the search."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from targets import TARGETS
from torch import Generator

import latticework as lw
from latticework.sampling import starts
from latticework.sampling.checking.targets import Target
from latticework.sampling.evaluations import evaluations_of_step
from latticework.sampling.tuning import race as contests
from latticework.sampling.tuning import setup
from latticework.sampling.tuning.race import Race
from latticework.sampling.tuning.setup import (
    Allowance,
    Quality,
    TuningSetup,
    ess_of_worst,
    fit_blocks,
    quality,
)
from workshop.laws.steps import dmala, gwg, random_walk


def summed(domain):
    return lw.Function(lambda x: x.flatten(1).sum(-1), domain)


RBM, RING = TARGETS["rbm"].model, TARGETS["ring"].model
ROWS, FIELD = lw.synthetic_regression(40, 6), lw.DenseIsing(torch.zeros(6, 6), 0.1)
TEMPERED = lw.Tempered(lw.DMALA(0.2), schedule=[0.4, 0.7, 1.0])


@pytest.mark.parametrize(
    ("sampler", "model", "expected"),
    [
        (lw.DMALA(0.4), summed(lw.Binary(5)), 1),  # value and gradient together
        (lw.Gibbs(), summed(lw.Binary(5)), 2),  # each value of the site
        (lw.Gibbs(2), summed(lw.Binary(5)), 4),
        (lw.LocallyBalanced(), summed(lw.Binary(5)), 6),  # itself and its neighbours
        (lw.Gibbs(), summed(lw.Categorical(5, 3)), 3),
        (lw.HammingBall(3, 1), summed(lw.Binary(5)), 4),
        (lw.StochasticDULA(0.1, 10), ROWS, 0.25),  # a minibatch: its part of the rows
        (lw.StochasticDULA(0.1, 40), ROWS, 1),
        (lw.DMALA(0.4), RBM, 1),  # closed forms
        (lw.GWG(), RBM, 1),
        (lw.GWG(), RING, 1),  # all differences, though a lattice updates only some
        (lw.BlockGibbs(), RBM, 1),  # no counted call
        (TEMPERED, RBM, 3),  # each replica, as for a function of x
        (TEMPERED, lw.Function(RBM.forward, RBM.domain), 3),
        (TEMPERED, RING, 3),
        (lw.Gibbs(), FIELD, 1 / 6),  # a local change: sites over all sites, for each pattern
        (lw.Gibbs(2), FIELD, 4 * 2 / 6),
        (lw.LocallyBalanced(), FIELD, 1),
        (lw.HammingBall(3, 1), FIELD, 4 / 2),
    ],
    ids=str,
)
def test_evaluations_of_a_step(sampler, model, expected):
    x = model.domain.uniform(7, Generator().manual_seed(0))
    found = evaluations_of_step(sampler, model, x, Generator().manual_seed(1))
    assert found == pytest.approx(7 * expected)


def test_quality_is_arvizs_of_the_worst_and_the_median_site_and_of_the_energy():
    result = lw.sample(lambda x: 3 * x[:, 0], "gibbs", sites=3, steps=300, chains=4)
    found = quality(result)
    table = result.summary(digits=None)
    sites = table.drop("log_prob")
    assert found.ess == pytest.approx(sites["ess_bulk"].min())
    assert found.ess_median == pytest.approx(sites["ess_bulk"].median())
    assert found.ess_energy == pytest.approx(table["ess_bulk"]["log_prob"])
    assert found.r_hat == pytest.approx(table["r_hat"].max())
    assert found.worst == min(found.ess, found.ess_energy)


def test_chains_that_are_stuck_have_no_effective_samples():
    """At one value or at several; a site at which all draws of all chains agree is left out."""
    frozen = lw.sample(lambda x: 99 * x[:, 0], "gibbs", x=torch.ones(4, 3), sites=3, steps=90)
    assert frozen.draws[..., 1].var() > 0
    alone = quality(frozen)
    assert (alone.still, alone.ess > 0, math.isfinite(alone.r_hat)) == (1, True, True)
    apart = lw.sample(lambda x: 0 * x.sum(-1), lw.DMALA(1e-9), sites=3, steps=90, chains=4)
    assert apart.draws.var(1).max() == 0
    found = quality(apart)
    assert (found.ess, found.ess_median, found.score, found.r_hat) == (0, 0, 0, math.inf)
    assert math.isnan(found.ess_energy)


def test_a_stuck_site_beside_one_that_moves_leaves_no_effective_samples():
    """Two sites that are locked together, in half of the chains at 0 and in the others at 1."""
    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 0.0]]).repeat(2, 1)
    locked = lw.sample(
        lambda x: 99 * (x[:, 0] == x[:, 1]) + x[:, 2], "gibbs", x=x, sites=3, steps=90
    )
    found = quality(locked)
    assert (found.ess, found.worst, found.r_hat, found.still) == (0, 0, math.inf, 0)
    assert found.score > 0  # a search still prefers that the third site moves


def test_what_a_sampler_learns_first_is_learned_once_and_charged():
    """PAVG learns with 256 pilots, here in 20 steps, for all trials and runs together."""
    called = []

    def counting(x):
        called.append(len(x))
        return x @ torch.linspace(-1, 1, 4)

    contest = Race(
        lw.Function(counting, lw.Binary(4)), Allowance(2000, "evaluations"), 8, range(3), 2
    )
    found = contest.enter(
        "pavg", lw.PAVG(1.0, burn_in=20), {"step_size": {"low": 0.5, "high": 2.0}}
    )
    assert called.count(256) == 21
    assert found.beforehand["evaluations"] == 21 * 256 / 8
    assert found.sampler == lw.PAVG(found.fields["step_size"], burn_in=20)
    at_most = 2000 * 8 + 3 * 100 * 8  # with the starts of the runs and their checks
    assert sum(called) < at_most
    space = {"step_size": {"low": 0.5, "high": 2.0}}
    for amount, given, part in ((1000, space, "half of the budget"), (600, {}, "the budget")):
        poor = dataclasses.replace(contest, budget=Allowance(amount, "evaluations"))
        found = poor.enter("pavg", lw.PAVG(1.0, burn_in=20), given)
        assert found.laps == []
        assert found.note.startswith(f"{part} does not pay for 672 evaluations by each")


@pytest.mark.parametrize(
    ("sampler", "space"),
    [(lw.DMALA(0.5), {"step_size": {"low": 0.4, "high": 0.6}})]
    + [
        (each, {})
        for each in (
            lw.DMALA(0.5), lw.GWG(), lw.Gibbs(), lw.Gibbs(2), lw.RandomWalk(),
            lw.LocallyBalanced(), lw.HammingBall(3, 1),
        )
    ],
    ids=str,
)  # fmt: skip
def test_a_budget_is_what_the_target_receives(sampler, space):
    """All of it without tuning, half with it; draws are paid, and the warm-up is in no rate."""
    rows = []

    def counting(x):
        rows.append(len(x))
        return x @ torch.linspace(-1, 1, 4)

    model = lw.Function(counting, lw.Binary(4))
    contest = Race(model, Allowance(1500, "evaluations"), 8, range(3), 2)
    found = contest.enter("x", sampler, space)
    part = 8 * 1500 / 2 if space else 8 * 1500
    spent = sum(lap.spent for lap in found.laps)
    assert 0.9 * part < spent <= part
    assert sum(rows) < 1.2 * 8 * 1500  # with starts and checks of each run
    each = evaluations_of_step(sampler, model, torch.zeros(8, 4), Generator().manual_seed(0))
    for lap in found.laps:
        assert lap.evaluations < lap.spent
        assert lap.evaluations == pytest.approx(0.8 * lap.steps * each, rel=0.05)


def test_rates_are_those_of_a_long_run(monkeypatch):
    """The exact worst inefficiency of random-scan Gibbs on n free sites is 2 n - 1 steps."""
    contest = Race(lw.DenseIsing(torch.zeros(5, 5)), Allowance(4000, "evaluations"), 8, range(3))
    found = contest.enter("gibbs", lw.Gibbs(scan="random"), {})
    evaluations_of_a_step = 1 / 5
    exact = 1 / 9 / evaluations_of_a_step
    assert found.interval("evaluations").middle == pytest.approx(exact, rel=0.15)


def quality_of(*ess):
    """A run with these ESS of the log-probability and of the entries."""
    numbers = [value for value in ess if value is not None]
    return Quality(min(numbers), 1.0, 1.0, math.nan, 1.0, 0, ess)


def test_all_runs_choose_the_quantity_whose_ess_counts():
    """What is still in a run has no ESS there; a run in which a quantity is stuck counts 0."""
    runs = [quality_of(50, 90), quality_of(80, 70), quality_of(90, 40)]
    assert ess_of_worst(runs) == [90, 70, 40]
    assert ess_of_worst([quality_of(50, None), quality_of(80, 10)]) == [50, 10]
    assert ess_of_worst([quality_of(None, 50), quality_of(None, 60)]) == [50, 60]
    assert ess_of_worst([quality_of(50, 0), quality_of(80, 90)]) == [0, 90]


def test_the_ess_of_the_worst_is_that_of_one_quantity():
    """The smallest of nine close estimates with errors of 15 % is a tenth too low."""
    rng, ratios, smallest = np.random.default_rng(0), [], []
    exact = 100 * np.linspace(1, 1.3, 9)
    for _ in range(400):
        runs = [quality_of(*(exact * np.exp(rng.normal(0, 0.15, 9)))) for _ in range(4)]
        ratios += ess_of_worst(runs)
        smallest += [run.worst for run in runs]
    assert np.mean(np.log(ratios)) == pytest.approx(math.log(100), abs=0.04)
    assert np.mean(np.log(smallest)) < math.log(90)


def coupled(x):
    """Eight spins on a ring: sites are alike, so each may seem the worst."""
    spins = 2 * x - 1
    return 0.4 * (spins * spins.roll(1, -1)).sum(-1) + 0.1 * spins.sum(-1)


def exact_rate(matrix, target):
    """Effective samples a step of the worst entry or of the log-probability's normal scores.

    With (I - P + 1 pi) y = h, the sum of autocovariances of h over all lags is 2 <h, y> - <h, h>.
    """
    level = np.unique(target.log_prob.round(6), return_inverse=True)[1]
    mass = np.bincount(level, target.law)
    scores = norm.ppf(mass.cumsum() - mass / 2)[level]
    values = np.column_stack((scores, target.z))
    values = values - target.law @ values
    solved = np.linalg.solve(np.eye(len(matrix)) - matrix + target.law, values)
    own, shared = target.law @ values**2, target.law @ (values * solved)
    return (own / (2 * shared - own)).min()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "law"),
    [
        (lw.DMALA(0.3), dmala),
        (lw.GWG(), gwg),
        (lw.RandomWalk(), random_walk),
    ],
    ids=["dmala", "gwg", "random_walk"],
)
def test_rates_are_those_of_the_exact_transition_matrix(sampler, law):
    """Short runs, in which the smallest estimate of each is a tenth to a quarter too low."""
    target = Target(lw.Function(coupled, lw.Binary(8)))
    x = target.model.domain.uniform(8, Generator().manual_seed(0))
    each = evaluations_of_step(sampler, target.model, x, Generator().manual_seed(0)) / 8
    seeds = range(12)
    contest = Race(target.model, Allowance(1500 * each * len(seeds), "evaluations"), 8, seeds)
    found = contest.enter("x", sampler, {})
    exact = exact_rate(law(sampler, target).after[0], target) / each
    assert found.interval("evaluations").middle == pytest.approx(exact, rel=0.14)


def test_a_chain_that_never_moved_leaves_no_rank():
    """However good the others are."""
    moving = lw.sample(lambda x: 0 * x.sum(-1), lw.DMALA(1.0), sites=3, steps=400, chains=60)
    assert quality(moving).r_hat < 1.1
    moving.draws[7] = moving.draws[7, :1]
    assert quality(moving).r_hat == math.inf


def test_annealed_starts_are_made_once_and_charged(monkeypatch):
    monkeypatch.setattr(starts, "ANNEALED_START_STEPS", 30)
    made, annealed = [], starts.anneal_starts

    def counted(*words):
        made.append(1)
        return annealed(*words)

    monkeypatch.setattr(contests, "anneal_starts", counted)
    model = lw.Function(lambda x: x @ torch.linspace(-1, 1, 4), lw.Binary(4))
    contest = Race(model, Allowance(800, "evaluations"), 4, range(3), 2, annealed=True)
    found = contest.enter("dmala", lw.DMALA(0.5), {"step_size": {"low": 0.5, "high": 2.0}})
    assert len(made) == 1
    assert 30 <= found.beforehand["evaluations"] <= 2 * 30 + 3
    assert len(found.laps) == 3
    assert math.isfinite(found.seen.start)


def test_draws_are_evenly_spaced():
    contest = TuningSetup(lw.Function(lambda x: x.sum(-1), lw.Binary(4)), 3, max_draws=10)
    stint = contest.sample_run(lw.DMALA(0.2), 93, 0)
    assert (stint.thin, stint.burn_in, stint.steps) == (7, 14, 91)
    assert stint.result.draws.shape == (3, 11, 4)


def test_the_search_prefers_what_moves_where_a_site_is_stuck_in_every_trial():
    """The first two sites are equal in every chain's life; the third is free."""
    lock = torch.tensor([[0.0, 40, 0], [40, 0, 0], [0, 0, 0]])
    contest = TuningSetup(lw.DenseIsing(lock), 8)
    fields, rate = contest.tune_fields(
        "dmala", lw.DMALA(1e-3), {"step_size": {"choices": [1e-3, 2.0]}},
        [Allowance(1200, "evaluations")], 6, seed=1,
    )  # fmt: skip
    assert fields == {"step_size": 2.0}
    assert 0 < rate < 1e-3


@pytest.mark.slow
def test_the_scores_of_two_settings_keep_their_ratio_with_the_budget(monkeypatch):
    """Long chains have .35 and 1.8 effective samples a step of 16 chains, within a fifth."""
    monkeypatch.setattr(setup, "MAX_DRAWS", 400)
    contest = TuningSetup(lw.Lattice((6,), 0.15, 0.3), 16, "compiled")
    rates = {
        (size, budget): contest.rate(lw.DMALA(size), [Allowance(budget, "evaluations")], 0)
        for size in (0.15, 0.4)
        for budget in (1500, 40_000)
    }
    for budget in (1500, 40_000):
        assert 3 < rates[0.4, budget] / rates[0.15, budget] < 9
    for size in (0.15, 0.4):
        assert rates[size, 40_000] == pytest.approx(rates[size, 1500], rel=0.4)


def test_blocks_fit_the_target():
    space = {"sites": {"low": 2, "high": 16}}
    small = lw.Function(lambda x: x.flatten(1).sum(-1), lw.Binary(4))
    sampler, found = fit_blocks(lw.HammingBall(), space, small)
    assert (sampler.sites, found["sites"]) == (4, {"low": 2, "high": 4})
    many = lw.Function(lambda x: x.flatten(1).sum(-1), lw.Categorical(9, 5))
    sampler, found = fit_blocks(lw.Gibbs(), space, many)
    assert 5 ** found["sites"]["high"] <= 1024
    endless = lw.Function(lambda x: -x.square().sum(-1), lw.Integer(3))
    assert fit_blocks(lw.Gibbs(4), {}, endless)[0].sites == 3
    assert fit_blocks(lw.DMALA(0.4), {}, small) == (lw.DMALA(0.4), {})


def test_budgets_are_read():
    assert Allowance.read("5s") == Allowance(5, "seconds")
    assert Allowance.read("2e4evaluations") == Allowance(20000, "evaluations")
    assert Allowance.read(".5s") == Allowance(0.5, "seconds")
    assert Allowance.read("1.5 s") == Allowance(1.5, "seconds")
    assert Allowance.read("1e") == Allowance(1, "evaluations")
