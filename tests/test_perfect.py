"""Coupling from the past: its law against lists, its refusals, and mistakes that would show."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Generator

import latticework as lw
from latticework.samplers.compiled.philox import step_keys
from latticework.samplers.compiled.sweeps import coupling
from latticework.sampling.exact import distribution
from latticework.sampling.perfect import couple_from_the_past

DRAWS = 40_000
RARE = 1e-4  # of each chi-square test; seeds are fixed


def rbm():
    model = lw.RBM(5, 3)
    rng = Generator().manual_seed(3)
    model.weight.data = torch.rand(5, 3, generator=rng) * 1.5
    model.visible_bias.data = torch.linspace(-2, -0.5, 5)
    model.hidden_bias.data = torch.tensor([-1.0, 0.2, -2.0])
    return model


MODELS = {
    "3x3 with a field": lambda: lw.Lattice((3, 3), 0.2, 0.1),
    "open 3x3, a field a site": lambda: lw.Lattice(
        (3, 3), 0.25, torch.linspace(-0.6, 0.5, 9).tolist(), periodic=False
    ),
    "2x4 with two colours": lambda: lw.Lattice((2, 4), 0.2, 0.05),
    "cube": lambda: lw.Lattice((2, 2, 2), 0.2, 0.02),
    "graph": lambda: lw.Graph(
        [[0, 1], [1, 2], [0, 2], [2, 3], [3, 4]], [0.3, 0.5, 0.2, 0.9, 0.0], [0.1, -0.3, 0.2, 0, -1]
    ),
    "RBM": rbm,
}


def p_value(x, model):
    """The p-value of a chi-square test of the draws."""
    states, p = distribution(model)
    powers = 2 ** np.arange(states.shape[1])
    number = (states.numpy() @ powers).astype(int)
    expected = np.zeros(len(number))
    expected[number] = p.numpy() * len(x)
    counts = np.bincount((x.numpy() @ powers).astype(int), minlength=len(number))
    return pooled_p_value(counts, expected)


def pooled_p_value(counts, expected):
    """Bins that are expected less than 10 times are one with the last of the others."""
    often = expected >= 10
    counts, rare = counts[often].astype(float), counts[~often].sum()
    expected, seldom = expected[often].copy(), expected[~often].sum()
    counts[-1] += rare
    expected[-1] += seldom
    return chisquare(counts, expected * counts.sum() / expected.sum()).pvalue


@pytest.mark.parametrize("name", MODELS)
def test_draws_have_the_listed_law(name):
    model = MODELS[name]()
    assert p_value(lw.perfect(model, DRAWS, 1), model) > RARE


def test_energies_of_the_4x4_torus():
    """65,536 states are too many to count: levels of energy, and the number of ones."""
    model = lw.Lattice((4, 4), 0.15, 0.05)
    states, p = distribution(model)
    x = lw.perfect(model, DRAWS, 2)
    for quantity in (model.log_prob, lambda x: x.sum(-1)):
        levels, place = quantity(states).mul(100).round().unique(return_inverse=True)
        expected = torch.zeros(len(levels), dtype=p.dtype).index_add_(0, place, p) * len(x)
        drawn = torch.searchsorted(levels, quantity(x).mul(100).round())
        counts = drawn.bincount(minlength=len(levels))
        assert pooled_p_value(counts.numpy(), expected.numpy()) > RARE


@pytest.mark.parametrize("name", MODELS)
def test_the_first_draws_are_those_of_fewer_and_of_the_seed(name):
    model = MODELS[name]()
    many = lw.perfect(model, 200, 5)
    assert many.equal(lw.perfect(model, 200, 5))
    assert many[:64].equal(lw.perfect(model, 64, 5))
    assert not many.equal(lw.perfect(model, 200, 6))
    model.domain.check(many)


def torus():
    """The 6x6 torus as a graph."""
    site = np.arange(36).reshape(6, 6)
    edges = [np.stack((site, np.roll(site, -1, axis)), -1).reshape(-1, 2) for axis in (0, 1)]
    return lw.Graph(np.concatenate(edges), 0.4, 0.02)


def test_both_bounds_use_the_same_numbers():
    """The lower state never passes the upper one, and both are what one chain alone would be."""
    sites = coupling.sites_of_graph(torus().form())
    rng = np.random.default_rng(0)
    low, high = np.zeros(36, np.uint8), np.ones(36, np.uint8)
    for _ in range(50):
        before = low.copy(), high.copy()
        u = rng.random(36)
        thresholds = np.log(u / (1 - u))
        coupling.sweep_both(*sites, thresholds, low, high)
        assert (low <= high).all()
        for state, after in zip(before, (low, high), strict=True):
            coupling.sweep_both(*sites, thresholds, state, state.copy())
            assert (state == after).all()
    assert (low == high).all()


def test_the_first_attempt_decides_nothing():
    """Who has met by time 0 from -T has the same state from any earlier time."""
    for name in MODELS:
        model = MODELS[name]()
        x, sweeps = couple_from_the_past(model, 500, 4, 2**16, first_sweeps=1)
        assert x.equal(lw.perfect(model, 500, 4))
        assert len(np.unique(sweeps)) > 3


def tied():
    """Three sites that seldom differ."""
    return lw.Graph([[0, 1], [1, 2]], [0.8, 0.6], [0.12, 0.0, -0.05])


def test_a_dropped_draw_would_show():
    x, sweeps = couple_from_the_past(tied(), DRAWS, 7, 2**16, first_sweeps=1)
    assert p_value(x, tied()) > RARE
    early = x[torch.from_numpy(sweeps <= 2)]
    assert DRAWS / 4 < len(early) < DRAWS * 0.95
    assert p_value(early, tied()) < 1e-12


def test_fresh_numbers_on_a_restart_would_show():
    sites = coupling.sites_of_graph(tied().form())
    x = np.empty((DRAWS, 3), np.float32)
    waiting, attempt = np.arange(DRAWS), 1
    for key in step_keys(12, Generator().manual_seed(8)):  # a key each attempt: the mistake
        states, sweeps = np.empty((DRAWS, 2, 3), np.uint8), np.empty(DRAWS, np.int64)
        coupling.couple(0, DRAWS, *sites, key, attempt, attempt, states, sweeps)
        met = sweeps[waiting] > 0
        x[waiting[met]] = states[waiting[met], 0]
        waiting, attempt = waiting[~met], 2 * attempt
    assert not len(waiting)
    assert p_value(torch.from_numpy(x), tied()) < 1e-12


def test_the_state_at_the_time_of_meeting_would_show():
    sites = coupling.sites_of_graph(tied().form())
    rng = np.random.default_rng(9)
    x = np.empty((4000, 3), np.float32)
    for row in range(len(x)):
        low, high = np.zeros(3, np.uint8), np.ones(3, np.uint8)
        while (low != high).any():
            u = rng.random(3)
            coupling.sweep_both(*sites, np.log(u / (1 - u)), low, high)
        x[row] = low
    assert p_value(torch.from_numpy(x), tied()) < 1e-6


@pytest.mark.slow
def test_bonds_of_the_torus_against_the_formula():
    from workshop.references import tori

    coupling_ = 0.35
    truth = tori.kaufman(16, 16, coupling_)
    model = lw.Lattice([16, 16], coupling_ / 2)
    log_prob = model.log_prob(lw.perfect(model, 2000, 3)).double()
    assert abs(log_prob.mean() - truth.energy) < 4.5 * math.sqrt(truth.variance / 2000)
    assert abs(log_prob.var() / truth.variance - 1) < 0.2


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: lw.Lattice((3, 3), -0.2), "the coupling of all sites is -0.2"),
        (lambda: lw.Graph([[0, 1], [1, 2]], [0.5, -0.25]), r"edge \(1, 2\) has the weight -0.25"),
        (lambda: negative_rbm(), "visible 1 and hidden 2 have the weight -3"),
        (lambda: lw.Function(lambda x: x.sum(-1), lw.Binary(3)), "a Lattice, Graph or RBM"),
        (lambda: lw.sherrington_kirkpatrick(5, 1.0), "a DenseIsing is also a Graph"),
    ],
)
def test_other_models_are_refused(model, words):
    with pytest.raises(lw.NotMonotoneError, match=words):
        lw.perfect(model(), 2)


def negative_rbm():
    model = rbm()
    model.weight.data[1, 2] = -3
    return model


def test_one_failure_is_an_error():
    cold = lw.Lattice((8, 8), 0.5)
    with pytest.raises(lw.NotCoupledError, match="of 20 draws did not couple in 64 sweeps"):
        lw.perfect(cold, 20, max_sweeps=64)
    with pytest.raises(ValueError, match="draws must be an integer of at least 1"):
        lw.perfect(cold, 0)
