"""First-order changes that DMALA reads from a PyMC model, which terms of one site make exact."""

import numpy as np
import pytest

import latticework as lw

pm = pytest.importorskip("pymc")
pt = pytest.importorskip("pytensor.tensor")

MODE = {"mode": "FAST_COMPILE"}  # which compiles nothing
PLAIN = {"compile_kwargs": MODE}


def changes_by_site(model, step, point):
    """Exact changes of the log-probability of each site's other values, and the step's gains."""
    log_prob, here = model.compile_logp(**MODE), step.evaluate_if_changed(point)
    pairs = []
    for name, sites, x, gradient in zip(
        step.names, step.sites, here.x, here.gradients, strict=True
    ):
        gains = sites.gains(x, gradient)
        for site, value in np.ndindex(gains.shape):
            moved = x.copy()
            moved[site] = sites.values[site, value]
            there = {**point, name: moved.reshape(sites.shape).astype(point[name].dtype)}
            pairs.append((gains[site, value], float(log_prob(there)) - float(log_prob(point))))
    return np.array(pairs).T


def test_gains_are_exact_where_terms_depend_on_one_site_each():
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.3, shape=(2, 2))
        z = pm.Categorical("z", [0.1, 0.6, 0.3], shape=4)
        places = pt.constant([[0.0, 1.0], [2.0, -1.0], [0.5, 3.0]])
        pm.Normal("one", places[z, 0] ** 2, 0.5, observed=np.arange(4.0))
        pm.Normal("both", places[z], 2.0, observed=np.ones((4, 2)))
        pm.Normal("grid", places[z, np.arange(2)[:, None]], 2.0, observed=np.ones((2, 4)))
        pm.Poisson("two", pt.exp(pt.switch(x, 1.0, -0.3)), observed=[[0, 2], [1, 5]])
        step = lw.pymc.DMALA([x, z], **PLAIN)
    gains, exact = changes_by_site(model, step, model.initial_point())
    np.testing.assert_allclose(gains, exact, atol=1e-8)
    assert np.abs(exact).max() > 1


def test_gains_follow_entries_and_their_neighbours():
    """A hidden Markov chain: x[1:] and x[:-1] are other sites, and each term has two of them."""
    matrix = np.log([[0.7, 0.2, 0.1], [0.1, 0.5, 0.4], [0.3, 0.3, 0.4]])
    with pm.Model() as model:
        z = pm.Categorical("z", np.ones(3) / 3, shape=5)
        pm.Potential("chain", pt.constant(matrix)[z[:-1], z[1:]].sum())
        step = lw.pymc.DMALA([z], **PLAIN)
    point = {"z": np.array([0, 2, 1, 1, 0])}
    gains, exact = changes_by_site(model, step, point)
    np.testing.assert_allclose(gains, exact, atol=1e-8)


def test_gains_of_a_single_site_are_exact_behind_its_index():
    with pm.Model() as model:
        k = pm.Categorical("k", [0.2, 0.3, 0.5])
        rates = pt.constant([[1.0, 4.0], [2.0, 0.5], [6.0, 3.0]])
        pm.Poisson("y", rates[k], observed=[2, 3])
        step = lw.pymc.DMALA([k], **PLAIN)
    gains, exact = changes_by_site(model, step, model.initial_point())
    np.testing.assert_allclose(gains, exact, atol=1e-8)


def test_slopes_of_numbers_are_differences_of_neighbours():
    with pm.Model() as model:
        n = pm.Binomial("n", 6, [0.2, 0.5, 0.7])
        step = lw.pymc.DMALA([n], **PLAIN)
    at = np.array([0, 3, 6])
    here = step.evaluate_if_changed({"n": at})
    log_prob = model.compile_logp(**MODE)
    for site, (low, high) in enumerate([(0, 1), (2, 4), (5, 6)]):
        ends = []
        for value in (low, high):
            moved = at.copy()
            moved[site] = value
            ends.append(float(log_prob({"n": moved})))
        assert here.gradients[0][0, site] == pytest.approx(ends[1] - ends[0], abs=1e-8)


def test_impossible_values_are_not_proposed():
    with pm.Model():
        z = pm.Categorical("z", [0.5, 0.5, 0.0], shape=3)
        x = pm.Bernoulli("x", [1.0, 0.5])
        step = lw.pymc.DMALA([z, x], tune=False, rng=np.random.default_rng(0), **PLAIN)
    point = {"z": np.array([0, 1, 0]), "x": np.array([1, 0])}
    accepts = []
    for _ in range(200):
        point, (stats,) = step.step(point)
        accepts.append(stats["accept"])
    assert np.mean(accepts) > 0.9
    assert point["z"].max() < 2
