"""Tempering where states are impossible: paths, levels, counts of the possible states."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
import torch
from plain import agree
from replicas import errors_off
from torch import Generator

import latticework as lw
from latticework.models.paths import path_of
from latticework.sampling.ladder_estimates import Ladders, estimate, levels_of

pytestmark = pytest.mark.usefixtures("no_grad")


def test_ladders_learn_where_most_states_are_impossible(tmp_path):
    """Replicas that began where f is 0 would stay there, and all swaps be rejected."""

    def target(x):
        return (x @ torch.linspace(-1, 1, 10)).masked_fill(x.sum(-1) > 3, -torch.inf)

    class Own(lw.RandomWalk):
        """Without a name: a file keeps its text."""

    settings = {"sites": 10, "chains": 8, "steps": 400, "burn_in": 40, "temper": True}
    found = lw.sample(target, Own(1), diagnose=False, **settings)
    assert len(found.ladders.schedule) < 12
    found.save(tmp_path / "own.npz")
    loaded = lw.SampleResult.load(tmp_path / "own.npz")
    assert loaded.log_z == found.log_z
    assert "Own(length=1)" in loaded.sampler


def test_log_z_where_states_are_impossible():
    """The base draws some, and the levels above never do."""

    def target(x):
        return torch.where(x.sum(-1) == 3, -torch.inf, x.sum(-1) / 2)

    model = lw.Function(target, lw.Binary(6))
    settings = {"chains": 8, "steps": 1000, "burn_in": 10, "temper": True, "diagnose": False}
    found = lw.sample(model, "gibbs", **settings).log_z
    exact = float(lw.exact(model).log_z)
    for value in (found.value, found.forward, found.backward):
        assert errors_off(found._replace(value=value), exact, 8) < 5


ORDERED = np.array([[0.0, -inf], [0.0, 0.0]])  # a chain of them has as many states as sites + 1
APART_3 = np.where(np.eye(3) > 0, -inf, 0.0)
ZEROS = {
    "binary": lw.Factors([((i, i + 1), ORDERED + 0.3) for i in range(3)]),
    "categorical": lw.Factors([((i, i + 1), APART_3 - 0.2 * i) for i in range(2)]),
    "mixed": lw.Factors([((0, 1), np.array([[0.1, -inf, 0.4], [-inf, 0.2, 0.3]]))]),
}
LISTS = [[0.2, -inf, 0.1], [0.0, 0.4, -0.3], [0.5, -inf, -inf]]
POTTS = {  # with the tables that it is
    "potts graph": (
        lw.GraphPotts([[0, 1], [1, 2]], [-inf, 0.7], 3, LISTS),
        [((0, 1), APART_3), ((1, 2), 0.7 * np.eye(3))],
    ),
    "potts lattice": (
        lw.LatticePotts((3,), 3, -inf, LISTS, periodic=False),
        [((0, 1), APART_3), ((1, 2), APART_3)],
    ),
}
TABLES = {name: model.factors for name, model in ZEROS.items()}
for potts, (made, tables) in POTTS.items():
    ZEROS[potts] = made
    TABLES[potts] = [*tables, *(((i,), np.array(LISTS[i])) for i in range(3))]


@pytest.mark.parametrize("name", ZEROS)
def test_a_softened_path_prices_zeros_and_ends_at_the_target(name):
    """Its values, local methods and log-ratios, with one b a row."""
    model = ZEROS[name]
    x = model.domain.enumerate().float()
    path, base = path_of(model), -np.log(len(x))
    rest = lw.Factors([(s, np.where(np.isfinite(log), log, 0)) for s, log in TABLES[name]])
    zeros = lw.Factors([(s, np.isinf(log) * 1.0) for s, log in TABLES[name]])
    k, g = zeros.log_prob(x), rest.log_prob(x)
    path.move_to(torch.zeros(()))
    known = path.know(x)
    torch.testing.assert_close(path.target_log_prob(x, known), model.log_prob(x))
    for b in (0.0, 0.3, 0.8, 1.0):
        path.move_to(torch.full((len(x),), b))
        expected = (1 - b) * base + b * g - (1e5 if b == 1 else b / (1 - b)) * k
        torch.testing.assert_close(path(x), expected, rtol=1e-4, atol=1e-4)
        path.move_to(torch.tensor(b))
        if b < 1:  # where rounding errors are not those of 1e5
            agree(path, lw.Function(path.forward, model.domain), x, 1e-3, gradient=False)
    path.move_to(torch.full((len(x),), 0.3))
    ratio = path.log_ratio(known, torch.tensor(1.0))
    assert torch.equal(ratio.isneginf(), k > 0)


@pytest.mark.parametrize("sites", [4, 10, 24])
def test_ladders_count_the_states_of_tables_with_zeros(sites, recwarn):
    """At 24 sites one uniform state of 671,089 is possible."""
    model = lw.Factors([((i, i + 1), ORDERED) for i in range(sites - 1)])
    sampler = lw.Tempered(lw.GibbsSweep(), 7)
    x = torch.zeros(8, sites)
    sampler = replace(sampler, **sampler.learn_fields(x, model))
    assert len(sampler.schedule) <= 20
    rng, states = Generator().manual_seed(0), []
    state = sampler.init(x, model)
    for _ in range(500):
        state, _ = sampler.step(state, model, rng)
        states.append(levels_of(state))
        assert model.log_prob(state.x).isfinite().all()
    found = Ladders.from_draws(state, states, state.trips, 500)
    assert abs(found.log_z.value - np.log(sites + 1)) < 0.5
    assert not [each for each in recwarn if each.category is RuntimeWarning]


GRID = [(i, i + 1) for i in range(36) if i % 6 < 5] + [(i, i + 6) for i in range(30)]
CHEQUERED = torch.eye(3)[[(i // 6 + i) % 2 for i in range(36)]].repeat(8, 1, 1)


def tables_on_grid(table):
    return lw.Factors([(edge, table) for edge in GRID])


@pytest.mark.parametrize(
    ("kernel", "model"),
    [
        ("gibbs_sweep", lw.GraphPotts([[0, 1], [1, 2], [2, 3], [3, 0]], -inf, 3)),
        ("metropolis_sweep", lw.LatticePotts((4,), 3, -inf)),
        ("gibbs", lw.GraphPotts([[0, 1], [1, 2]], [-inf, 0.7], 3, LISTS)),
        ("gibbs_sweep", lw.GraphPotts([[0, 1], [1, 2], [2, 3]], -inf, 3).condition_on({0: 1})),
        ("swendsen_wang", lw.LatticePotts((3,), 3, 0.7, LISTS)),
    ],
)
def test_ladders_count_the_states_of_potts_models(kernel, model):
    settings = {"chains": 8, "steps": 1000, "burn_in": 50, "temper": True, "diagnose": False}
    found = lw.sample(model, kernel, **settings)
    exact = float(lw.exact(model).log_z)
    assert errors_off(estimate(found.ladders.up, found.ladders.down), exact, 8) < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "states", "start"),
    [
        (tables_on_grid(np.array([[0.0, 0.0], [0.0, -inf]])), 5_598_861, torch.zeros(8, 36)),
        (tables_on_grid(APART_3), 101_596_896, CHEQUERED),
        (lw.GraphPotts(GRID, -inf, 3), 101_596_896, CHEQUERED),
        (lw.LatticePotts((6, 6), 3, -inf, periodic=False), 101_596_896, CHEQUERED),
    ],
)
def test_ladders_count_independent_sets_and_colourings(model, states, start):
    settings = {"x": start, "steps": 1000, "burn_in": 200, "temper": True, "diagnose": False}
    found = lw.sample(model, "gibbs_sweep", **settings)
    assert len(found.ladders.schedule) < 30
    assert errors_off(estimate(found.ladders.up, found.ladders.down), np.log(states), 8) < 5


@pytest.mark.parametrize("sites", [12, 20, 40])
def test_impossible_states_are_no_reason_for_more_levels(sites, recwarn):
    """A function of zeros alone, whose draws from b = 0 are mostly or all impossible."""
    model = lw.Function(
        lambda x: torch.where((x[:, 1:] * x[:, :-1]).sum(-1) > 0, -torch.inf, 0.0),
        lw.Binary(sites),
    )
    settings = {"x": torch.zeros(8, sites), "steps": 20, "burn_in": 4, "temper": True}
    found = lw.sample(model, "gibbs", diagnose=False, **settings)
    assert len(found.ladders.schedule) == 6
    assert found.log_z.high == inf
    assert not [each for each in recwarn if each.category is RuntimeWarning]
