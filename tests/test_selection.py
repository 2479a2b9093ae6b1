"""`lw.VariableSelection`: marginal likelihood, inclusion probabilities, coefficients, errors."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import dblquad, quad
from sklearn.datasets import load_diabetes

import latticework as lw

DIABETES = load_diabetes(as_frame=True)


def regression(rows=30, variables=5, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, variables))
    x[:, 1] += 0.8 * x[:, 0]
    return x, 1.5 + x[:, 0] - 0.4 * x[:, 2] + rng.normal(size=rows)


def test_the_marginal_likelihood_is_the_integral_over_coefficients_and_noise():
    """One variable against none: over coefficient and noise, the intercept summed out."""
    x, y = regression(rows=9)
    x = x[:, :1]
    g, n = 4.0, 9
    model = lw.VariableSelection(x, y, inclusion=0.3, g=g)
    xc, yc = x[:, 0] - x.mean(), y - y.mean()
    size = xc @ xc

    def density(s, b=0.0):
        """The law of y given the log noise s and b, with the intercept integrated out."""
        noise = math.exp(s)
        return (math.exp(-((yc - b * xc) @ (yc - b * xc)) / 2 / noise**2)
                * noise ** -(n - 1))  # fmt: skip

    def joint(b, s):
        spread = math.sqrt(g / size) * math.exp(s)
        return density(s, b) * math.exp(-((b / spread) ** 2) / 2) / spread / math.sqrt(2 * math.pi)

    without = quad(density, -4, 4, epsabs=0)[0]
    with_it = dblquad(joint, -4, 4, -8, 8, epsabs=0, epsrel=1e-7)[0]
    change = float(torch.diff(model(torch.tensor([[0.0], [1.0]], dtype=torch.float64))))
    assert change == pytest.approx(math.log(with_it / without * 0.3 / 0.7), abs=1e-5)


def enumerate_posterior(x, y, inclusion, g):
    """Log posterior and mean coefficients of every set, by least squares."""
    n, p = x.shape
    xc, yc = x - x.mean(0), y - y.mean()
    laws, means, states = [], [], lw.Binary(p).enumerate().numpy()
    for state in states:
        columns = xc[:, state > 0]
        b = np.linalg.lstsq(columns, yc, rcond=None)[0] if state.any() else np.zeros(0)
        missed = np.square(yc - columns @ b).sum() / np.square(yc).sum()
        k = len(b)
        law = (n - k - 1) / 2 * np.log1p(g) - (n - 1) / 2 * np.log1p(g * missed)
        laws.append(law + k * np.log(inclusion) + (p - k) * np.log(1 - inclusion))
        mean = np.zeros(p)
        mean[state > 0] = b * g / (1 + g)
        means.append(mean)
    law = np.exp(np.array(laws) - max(laws))
    return states, law / law.sum(), np.array(means)


@pytest.mark.parametrize(("inclusion", "g"), [(0.5, None), (0.2, 10.0)])
def test_inclusion_probabilities_and_coefficients_are_those_of_enumeration(inclusion, g):
    x, y = regression()
    states, law, means = enumerate_posterior(x, y, inclusion, g or len(y))
    model = lw.VariableSelection(x, y, inclusion=inclusion, g=g)
    truth = lw.exact(model)
    assert truth.mean.numpy() == pytest.approx(law @ states, abs=1e-9)
    every = torch.from_numpy(states).double()
    assert model(every).softmax(0).numpy() == pytest.approx(law, abs=1e-9)
    assert model.coefficients(every).numpy() == pytest.approx(means, abs=1e-9)


def test_the_changes_of_flips_are_those_of_the_log_probability():
    model = lw.VariableSelection(*regression(), inclusion=0.2, g=12.0)
    x = model.domain.enumerate().double()
    flipped = (x.unsqueeze(1) - torch.eye(5)).abs()
    change = model(flipped.flatten(0, 1)).view(len(x), 5) - model(x).unsqueeze(1)
    sites = torch.tensor([3, 0, 4])
    assert torch.allclose(model.differences(x, (), sites), change[:, sites], atol=1e-9)
    log_prob, gradient = model.log_prob_and_grad(x)
    assert torch.allclose(log_prob, model(x), atol=1e-9)
    assert torch.allclose(gradient, change * (1 - 2 * x), atol=1e-9)


@pytest.mark.parametrize("sampler", ["gibbs", "gwg", "dmala(step_size=1.0)"])
def test_a_summary_has_the_inclusion_probabilities_by_name(sampler):
    """Samplers that read the gradient move, too: it says what flips do."""
    x, y = regression()
    model = lw.VariableSelection(pd.DataFrame(x, columns=list("abcde")), y)
    result = lw.sample(model, sampler, chains=8, steps=1000, burn_in=100)
    assert result.converged
    assert result.acceptance.mean() > 0.2
    table, truth = result.summary(), lw.exact(model).mean.numpy()
    assert list(table.index) == ["log_prob", *(f"x[{name}]" for name in "abcde")]
    rows = table.iloc[1:]
    assert (np.abs(rows["mean"] - truth) < 5 * rows["mcse_mean"]).all()
    averaged = model.coefficients(result.draws.flatten(0, 1)).mean(0)
    every = model.domain.enumerate().double()
    expected = model(every).softmax(0) @ model.coefficients(every)
    assert averaged.numpy() == pytest.approx(expected.numpy(), abs=0.05)
    assert expected.abs().max() > 0.5  # control


def test_the_reference_is_this_model():
    reference = lw.reference("select_10").model
    model = lw.VariableSelection(DIABETES.data, DIABETES.target)
    every = model.domain.enumerate().double()
    assert isinstance(reference, lw.VariableSelection)
    assert torch.allclose(model(every), reference(every), rtol=0, atol=1e-4)  # single precision


def test_tables_arrays_and_tensors_are_alike():
    x, y = regression()
    frame = pd.DataFrame(x, columns=list("abcde"))
    model = lw.VariableSelection(frame, pd.Series(y))
    assert model.names == tuple("abcde")
    every = model.domain.enumerate()
    for features, targets in ((x, y), (torch.tensor(x), torch.tensor(y)), (x.tolist(), y.tolist())):
        other = lw.VariableSelection(features, targets)
        torch.testing.assert_close(other(every), model(every), rtol=1e-6, atol=1e-6)
    known = model.condition_on({"a": 1})
    assert known.names == tuple("bcde")


def broken(change):
    x, y = regression()
    change(x, y)
    return x, y


def set_nan(x, y):
    x[3, 1] = np.nan


def set_constant(x, y):
    x[:, 2] = 0.1


def set_sum(x, y):
    x[:, 4] = x[:, 0] * 3 - x[:, 3] + 2


def set_targets(x, y):
    y[:] = 0.3


REFUSED = {
    "NaN": (broken(set_nan), {}, r"features must be finite, got nan at \[3, 1\]"),
    "constant": (broken(set_constant), {}, "variable 2 is constant; leave it out"),
    "collinear": (broken(set_sum), {}, "variable 4 is determined by the variables before it"),
    "targets": (broken(set_targets), {}, "targets must differ"),
    "shape": ((np.ones((4, 2)), np.ones(5)), {}, r"got \[4, 2\] and \[5\]"),
    "rows": ((np.ones((4, 3)), np.ones(4)), {}, "3 variables need 5 rows or more, got 4"),
    "words": (([["a"]], [1.0]), {}, "features must be numbers"),
    "inclusion": (regression(), {"inclusion": 1.0}, "inclusion must be a probability"),
    "g": (regression(), {"g": -1.0}, "g must be a positive number"),
    "names": (regression(), {"names": "abcdd"}, "names must be 5 different ones, got 4"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_valid_is_refused(case):
    numbers, settings, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        lw.VariableSelection(*numbers, **settings)
