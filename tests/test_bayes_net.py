"""The binary Bayesian network: formula, inputs, rounding and minibatches (else: test_models)."""

import math

import torch
from torch import Generator

import latticework as lw

ROWS, FEATURES, HIDDEN = 23, 4, 6


def net():
    rng = Generator().manual_seed(1)
    features = torch.randn(ROWS, FEATURES, generator=rng, dtype=torch.float64)
    targets = torch.rand(ROWS, generator=rng, dtype=torch.float64)
    return lw.BayesNet(features, targets, HIDDEN, 30.0)


def states(model):
    return model.domain.uniform(5, Generator().manual_seed(0)).to(model.targets.dtype)


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


def by_loops(model, x, features, targets):
    """-scale * mean of (sigmoid(out) - y)^2, one number at a time."""
    values = []
    for chain in x.tolist():
        weight = [2 * v - 1 for v in chain]
        total = 0.0
        for row, y in zip(features.tolist(), targets.tolist(), strict=True):
            out = weight[-1]
            for unit in range(HIDDEN):
                z = weight[FEATURES * HIDDEN + unit]
                z += sum(f * weight[i * HIDDEN + unit] for i, f in enumerate(row))
                out += weight[(FEATURES + 1) * HIDDEN + unit] * math.tanh(z)
            total += (1 / (1 + math.exp(-out)) - y) ** 2
        values.append(-model.scale * total / len(targets))
    return torch.tensor(values, dtype=x.dtype)


def test_without_a_scale_log_pi_is_minus_the_sum_of_squares():
    """The sum is over the rows that the network is given; a minibatch keeps the scale of all."""
    plain = net()
    features, targets = plain.inputs[:, :-1], plain.targets
    model = lw.BayesNet(features, targets, HIDDEN, None)
    x = states(model)
    errors = (model.predict(x, features) - targets).square()
    close(model(x), -errors.sum(1))
    close(model.log_prob_and_grad(x)[0], -errors.sum(1))
    fewer = model.on(features[:9], targets[:9])
    close(fewer(x), -errors[:, :9].sum(1))
    close(model.minibatch(torch.arange(9))(x), -errors[:, :9].mean(1) * ROWS)
    close(plain.on(features[:9], targets[:9])(x), -errors[:, :9].mean(1) * plain.scale)


def test_inputs_that_are_loaded_count():
    """What is computed from the inputs in advance follows them."""
    old, new = (lw.synthetic_bayes_net(3, 4, rows=20, seed=seed) for seed in (0, 1))
    x = new.domain.uniform(3, Generator().manual_seed(0))
    sites = torch.arange(new.domain.dim)
    expected = new.log_prob_and_grad(x)[1], new.differences(x, new.cache(x), sites)
    old.log_prob_and_grad(x)
    old.load_state_dict(new.state_dict())
    found = old.log_prob_and_grad(x)[1], old.differences(x, old.cache(x), sites)
    torch.testing.assert_close(found, expected)
    old.inputs.mul_(2)
    torch.testing.assert_close(
        old.log_prob_and_grad(x)[1], lw.EnergyModel.log_prob_and_grad(old, x)[1]
    )
    assert (old.log_prob_and_grad(x)[1] - expected[0]).abs().max() > 0.01  # control


def test_log_probability_is_the_formula():
    model = net()
    x = states(model)
    assert model.domain.dim == (FEATURES + 2) * HIDDEN + 1
    close(model(x), by_loops(model, x, model.inputs[:, :-1], model.targets))
    errors = model.predict(x, model.inputs[:, :-1]) - model.targets
    close(model(x), -30 * errors.square().mean(1))


def test_single_precision_loses_little_in_many_gibbs_steps():
    model = lw.synthetic_bayes_net(5, 50, rows=40)
    gibbs, rng = lw.Gibbs(1, "random"), Generator().manual_seed(4)
    state = gibbs.init(states(model), model)
    for _ in range(2000):
        state, _ = gibbs.step(state, model, rng)
    exact = lw.synthetic_bayes_net(5, 50, rows=40).double()(state.x.double())
    assert (state.cache[1] - exact).abs().max() < 2e-4
    assert (model.cache(states(model))[1] - exact).abs().max() > 1  # control: elsewhere


def test_a_minibatch_estimates_without_bias():
    """Over all rows, one at a time, value and gradient average to the full batch's."""
    model, x = net(), states(net())
    parts = [model.minibatch(torch.tensor([row])).log_prob_and_grad(x) for row in range(ROWS)]
    log_prob, grad = model.log_prob_and_grad(x)
    close(torch.stack([value for value, _ in parts]).mean(0), log_prob)
    close(torch.stack([part for _, part in parts]).mean(0), grad)
    batch = torch.tensor([2, 19, 11])
    features, targets = model.inputs[batch, :-1], model.targets[batch]
    close(model.minibatch(batch)(x), by_loops(model, x, features, targets))
    assert (model.minibatch(batch)(x) - log_prob).abs().max() > 0.01  # control
