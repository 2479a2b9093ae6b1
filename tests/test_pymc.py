"""DMALA as PyMC's step method, with the real PyMC: the law of a step, and posteriors."""

import itertools
import pickle

import arviz as az
import numpy as np
import pytest
from targets import Asymmetric, Target

import latticework as lw
from workshop.laws.steps import dmala, langevin_proposal

pm = pytest.importorskip("pymc")
cloudpickle = pytest.importorskip("cloudpickle")
pt = pytest.importorskip("pytensor.tensor")

MODE = {"mode": "FAST_COMPILE"}  # which compiles nothing
PLAIN = {"compile_kwargs": MODE}
SILENT = {"progressbar": False, "compute_convergence_checks": False, "cores": 1}
BINARY = "binary", Asymmetric(lw.Binary(3))
ORDINAL = "ordinal", Asymmetric(lw.Ordinal(2, 4), scale=0.4)
CATEGORICAL = "categorical", Asymmetric(lw.Categorical(2, 3))
TARGETS = [BINARY, ORDINAL, CATEGORICAL]


def model_of(kind, target):
    """The target of our tests as a PyMC model with one variable x."""
    linear, pair, wave = (getattr(target, n).double().numpy() for n in ("linear", "pair", "wave"))
    with pm.Model() as model:
        if kind == "binary":
            z = pm.Bernoulli("x", 0.5, shape=3)
        elif kind == "ordinal":
            z = pm.DiscreteUniform("x", 0, 3, shape=2)
        else:
            z = pt.eye(3)[pm.Categorical("x", np.ones(3) / 3, shape=2)].flatten()
        z = z.astype("float64")
        smooth = pt.dot(linear, z) + pt.dot(pt.dot(z, pair), z)
        pm.Potential("target", smooth + 0.6 * pt.cos(2 * pt.dot(wave, z)))
    return model


def states_of(target):
    """All states in PyMC's form, `[states, sites]`."""
    z = target.z.astype(int)
    if isinstance(target.domain, lw.Categorical):
        return z.reshape(len(z), target.domain.dim, -1).argmax(-1)
    return z


@pytest.mark.parametrize(("kind", "energy"), TARGETS, ids=[kind for kind, _ in TARGETS])
def test_a_step_has_the_law_of_our_sampler(kind, energy):
    """Proposals to rounding, and draws of whole steps, against the paper's formulas."""
    target, sampler = Target(energy), lw.DMALA(0.7)
    states = states_of(target)
    place = {tuple(state): number for number, state in enumerate(states)}
    with model_of(kind, energy):
        step = lw.pymc.DMALA(step_size=0.7, tune=False, rng=np.random.default_rng(3), **PLAIN)
    assert [v.name for v in step.vars] == ["x"]
    proposal, law = langevin_proposal(sampler, target), dmala(sampler, target).after[0]
    log_probs, counts, repeats = [], np.zeros_like(law), 400
    for number, state in enumerate(states):
        here = step.evaluate_if_changed({"x": state})
        log_probs.append(here.log_prob)
        logs = [step.log_proposal(step.log_proposals(here), [y]) for y in states]
        np.testing.assert_allclose(np.exp(logs), proposal[number], rtol=1e-6, atol=1e-12)
        for _ in range(repeats):
            counts[number, place[tuple(step.step({"x": state})[0]["x"])]] += 1
    np.testing.assert_allclose(np.diff(log_probs), np.diff(target.log_prob), atol=1e-5)
    deviation = np.sqrt(repeats * law * (1 - law)) + 1e-9
    enough = law * (1 - law) * repeats > 5
    assert enough.sum() > len(states)
    assert np.abs((counts - repeats * law) / deviation)[enough].max() < 4.5
    wrong = dmala(lw.DMALA(4.0), target).after[0]  # control: the test tells step sizes apart
    assert np.abs((counts - repeats * wrong) / deviation)[enough].max() > 6


def enumerate_law(model, **values):
    """The exact probability of each joint state: arrays of the states by name, and the law."""
    names = list(values)
    log_prob, states, logs = model.compile_logp(**MODE), [], []
    for choice in itertools.product(*values.values()):
        state = dict(zip(names, map(np.array, choice), strict=True))
        states.append(choice)
        logs.append(float(log_prob(state)))
    weights = np.exp(np.array(logs) - max(logs))
    columns = zip(*states, strict=True)
    return dict(zip(names, map(np.array, columns), strict=True)), weights / weights.sum()


def scores(draws, exact):
    """Errors of the means of `[chains, draws, ...]`, in their standard errors."""
    draws, exact = np.asarray(draws, float), np.ravel(exact)
    draws = draws.reshape(*draws.shape[:2], -1)
    result = []
    for site in range(draws.shape[2]):
        values = draws[..., site]
        error = values.std() / np.sqrt(az.ess(values))
        result.append((values.mean() - exact[site]) / max(error, 1e-3))
    return np.array(result)


def bits(sites, values=2):
    return [np.array(state) for state in itertools.product(range(values), repeat=sites)]


@pytest.mark.slow
def test_kinds_of_variables_in_one_step_have_their_joint_law():
    """Against all states of a model where each variable depends on the others."""
    with pm.Model() as model:
        x = pm.Bernoulli("x", [0.2, 0.6], shape=2)
        z = pm.Categorical("z", [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
        k = pm.Binomial("k", 4, 0.2 + 0.5 * x[0])
        n = pm.Truncated("n", pm.Poisson.dist(2.0), upper=3)
        height = pt.constant([-1.0, 0.5, 2.0])[z]
        pm.Normal("y", height * x + 0.3 * k - 0.5 * n, 1.0, observed=[0.4, 1.1])
        step = lw.pymc.DMALA()
        trace = pm.sample(4000, tune=1000, step=step, chains=2, random_seed=1, **SILENT)
    values = {"x": bits(2), "z": bits(2, 3), "k": list(range(5)), "n": list(range(4))}
    states, law = enumerate_law(model, **values)
    draws = trace.posterior
    for name in values:
        every = states[name].reshape(len(law), -1)
        assert np.abs(scores(draws[name], law @ every)).max() < 4.5, name
        assert np.abs(scores(draws[name].values ** 2, law @ every**2)).max() < 4.5, name
    product = draws.x.values[..., 0] * draws.k.values
    assert abs(scores(product, law @ (states["x"][:, 0] * states["k"]))[0]) < 4.5
    stats = trace.sample_stats
    assert float(stats.accept.mean()) == pytest.approx(0.574, abs=0.1)
    sizes = stats.dmala_step_size
    assert (sizes.max("draw") == sizes.min("draw")).all()  # frozen
    assert stats.dmala_step_size.values[0, 0] != stats.dmala_step_size.values[1, 0]
    moved = (np.diff(draws.z.values, axis=1) != 0).any(-1)
    assert (stats.changed.values[:, 1:][moved] > 0).all()


@pytest.mark.slow
def test_a_change_point_has_its_law():
    counts = np.array([4, 5, 4, 3, 6, 4, 1, 0, 2, 1, 1, 0])
    with pm.Model() as model:
        change = pm.DiscreteUniform("change", 0, 12)
        rate = pt.switch(np.arange(12) < change, 4.0, 1.2)
        pm.Poisson("y", rate, observed=counts)
        trace = pm.sample(
            3000, tune=1000, step=lw.pymc.DMALA([change], step_size=4.0), chains=2,
            random_seed=2, **SILENT,
        )  # fmt: skip
    states, law = enumerate_law(model, change=list(range(13)))
    for value in np.flatnonzero(law > 0.02):
        assert abs(scores(trace.posterior.change.values == value, law[value])[0]) < 4.5
    assert states["change"][law.argmax()] == 6


@pytest.mark.slow
def test_labels_of_a_mixture_and_their_weight_have_their_joint_law():
    """The labels by DMALA, their weight by NUTS; summed over the weight, labels are enumerated."""
    heights, data = np.array([-1.0, 1.5]), np.array([-1.4, -0.3, 0.2, 0.6, 1.9])
    with pm.Model():
        weight = pm.Beta("weight", 2.0, 3.0)
        z = pm.Bernoulli("z", weight, shape=5)
        pm.Normal("y", pt.constant(heights)[z], 1.0, observed=data)
        trace = pm.sample(
            2500, tune=600, step=[lw.pymc.DMALA([z]), pm.NUTS([weight])], chains=2,
            random_seed=3, **SILENT,
        )  # fmt: skip
    from scipy.special import betaln

    every = np.array(bits(5))
    ones = every.sum(1)
    logs = betaln(2 + ones, 3 + 5 - ones) - ((data - heights[every]) ** 2).sum(1) / 2
    law = np.exp(logs - logs.max())
    law /= law.sum()
    assert np.abs(scores(trace.posterior.z, law @ every)).max() < 4.5
    assert abs(scores(trace.posterior.weight, law @ ((2 + ones) / 10))[0]) < 4.5
    product = trace.posterior.z.sum("z_dim_0") * trace.posterior.weight
    assert abs(scores(product, law @ (ones * (2 + ones) / 10))[0]) < 4.5


@pytest.mark.slow
def test_spike_and_slab_has_its_joint_law_beside_nuts():
    """The inclusion of a column by DMALA, coefficients by NUTS; the marginal law is closed."""
    rng = np.random.default_rng(4)
    design = rng.normal(size=(12, 3))
    y = design @ [0.9, 0.0, 0.4] + rng.normal(size=12)
    with pm.Model():
        x = pm.Bernoulli("x", 0.4, shape=3)
        beta = pm.Normal("beta", 0.0, 1.0, shape=3)
        pm.Normal("y", pt.dot(design, x * beta), 1.0, observed=y)
        trace = pm.sample(
            2500, tune=600, step=[lw.pymc.DMALA([x]), pm.NUTS([beta])], chains=2,
            random_seed=5, **SILENT,
        )  # fmt: skip
    every, logs = np.array(bits(3)), []
    for included in every:
        columns = design * included
        covariance = np.eye(12) + columns @ columns.T
        logs.append(
            -np.linalg.slogdet(covariance)[1] / 2 - y @ np.linalg.solve(covariance, y) / 2
            + included.sum() * np.log(0.4) + (3 - included.sum()) * np.log(0.6)
        )  # fmt: skip
    law = np.exp(np.array(logs) - max(logs))
    law /= law.sum()
    assert np.abs(scores(trace.posterior.x, law @ every)).max() < 4.5
    assert np.ptp(law @ every) > 0.2  # control: no common value fits


class CountedStep:
    """Counts the evaluations of a step."""

    def __init__(self, step):
        self.step, self.function, self.calls = step, step.function, 0
        step.function = self

    def __call__(self, *values):
        self.calls += 1
        return self.function(*values)


def test_a_step_evaluates_once_and_once_more_if_another_step_moved():
    with pm.Model() as model:
        level = pm.Normal("level")
        pm.Normal("unrelated")
        x = pm.Bernoulli("x", 0.5, shape=20)
        pm.Normal("y", level * x, 1.0, observed=np.ones(20))
        step = lw.pymc.DMALA([x], rng=np.random.default_rng(1), **PLAIN)
    counted = CountedStep(step)
    point = model.initial_point()
    for _ in range(10):
        point, _ = step.step(point)
    assert counted.calls == 11
    point, _ = step.step({**point, "unrelated": np.array(3.0)})  # which x does not depend on
    assert counted.calls == 12
    before = step.current.log_prob
    point["level"] = np.array(0.7)
    assert step.evaluate_if_changed(point).log_prob != before
    assert counted.calls == 13
    point["x"] = 1 - point["x"]
    step.step(point)
    assert counted.calls == 15


def test_chains_in_processes_are_those_of_one_process():
    """The step is pickled, and its random numbers are those of PyMC's seeds."""
    traces = []
    with pm.Model():
        x = pm.Bernoulli("x", 0.3, shape=4)
        pm.Potential("pairs", (x[1:] * x[:-1]).sum().astype("float64"))
        used = lw.pymc.DMALA([x], **PLAIN)  # by several runs: each begins anew
        for cores in (1, 2, 2):
            seed = 7 if len(traces) < 2 else 8
            trace = pm.sample(
                50, tune=50, step=used, chains=2, random_seed=seed,
                **{**SILENT, "cores": cores},
            )  # fmt: skip
            traces.append(trace.posterior.x.values)
        step = lw.pymc.DMALA([x], step_size=0.5, **PLAIN)
        copy = pickle.loads(cloudpickle.dumps(step))  # as PyMC does
        point = {"x": np.array([0, 1, 0, 1])}
        for one in (step, copy):
            one.rng = np.random.default_rng(2)
        assert (step.step(point)[0]["x"] == copy.step(point)[0]["x"]).all()
        copy.sampling_state = step.sampling_state
        assert copy.step_size == step.step_size != 0.5
    np.testing.assert_array_equal(traces[0], traces[1])
    assert (traces[0] != traces[2]).any()
    assert (traces[0][0] != traces[0][1]).any()


def test_the_step_size_of_a_chain_is_tuned_from_the_start_and_then_frozen():
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.3, shape=30)
        pm.Potential("pairs", -0.05 * pt.square(x.sum()).astype("float64"))
        start = {"step_size": 0.1, **PLAIN}
        step = lw.pymc.DMALA([x], rng=np.random.default_rng(1), **start)
        fixed = lw.pymc.DMALA([x], tune=False, rng=np.random.default_rng(1), **start)
    frozen = []
    for _ in range(2):
        point = model.initial_point()
        step.reset_tuning()
        assert (step.step_size, step.tune) == (0.1, True)
        for _ in range(600):
            point, _ = step.step(point)
        step.stop_tuning()
        frozen.append(step.step_size)
        accepts = []
        for _ in range(600):
            point, (stats,) = step.step(point)
            accepts.append(stats["accept"])
        assert step.step_size == frozen[-1] == stats["dmala_step_size"]
        assert np.mean(accepts) == pytest.approx(0.574, abs=0.08)
    assert frozen[0] != frozen[1]
    fixed.reset_tuning()
    fixed.step(point)
    assert (fixed.tune, fixed.step_size) == (False, 0.1)


REFUSED = {
    "Poisson": (lambda: pm.Poisson("v", 3.0), 'no largest value.*pm.Truncated."v", pm.Poisson'),
    "Geometric": (lambda: pm.Geometric("v", 0.3), r"no largest value.*pm.Metropolis\(\[v\]\)"),
    "Normal": (lambda: pm.Normal("v"), r"continuous \(Normal\).*pm.NUTS\(\[v\]\)"),
    "half": (
        lambda: pm.Truncated("v", pm.Poisson.dist(3.0), lower=1),
        "no largest value.*lower= and upper=",
    ),
    "random": (
        lambda: pm.Binomial("v", pm.DiscreteUniform("n", 1, 5), 0.5),
        "bounds of v depend on other variables.*pm.Metropolis",
    ),
    "vector": (lambda: pm.Multinomial("v", 5, [0.5, 0.5]), "does not know the values of v"),
    "inflated": (
        lambda: pm.ZeroInflatedPoisson("v", 0.5, 3.0),
        "does not know the values of v.*moves Bernoulli, Categorical",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_other_variables_are_refused_with_what_to_use(kind):
    make, message = REFUSED[kind]
    with pm.Model():
        variable = make()
        with pytest.raises(ValueError, match=message):
            lw.pymc.DMALA([variable])


def test_bad_settings_and_models_without_discrete_variables_are_refused():
    with pm.Model():
        pm.Normal("y")
        with pytest.raises(ValueError, match="no discrete variable"):
            lw.pymc.DMALA()
        x = pm.Bernoulli("x", 0.5)
        with pytest.raises(ValueError, match="step_size must be positive"):
            lw.pymc.DMALA([x], step_size=0.0)
        with pytest.raises(ValueError, match="target_accept must be between 0 and 1"):
            lw.pymc.DMALA([x], target_accept=1.0)
        assert len(lw.pymc.DMALA([x], blocked=False).vars) == 1


def test_bounds_of_each_site_are_kept():
    low, high = np.array([-2, 0, 3]), np.array([1, 1, 9])
    with pm.Model():
        v = pm.DiscreteUniform("v", low, high)
        trace = pm.sample(
            1500,
            tune=500,
            step=lw.pymc.DMALA([v], **PLAIN),
            chains=2,
            random_seed=3,
            **SILENT,
        )
    draws = trace.posterior.v.values
    assert (draws.min((0, 1)) == low).all()
    assert (draws.max((0, 1)) == high).all()
    assert np.abs(scores(draws, (low + high) / 2)).max() < 4.5
