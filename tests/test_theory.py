"""The theorems of Zhang et al. (2022) on enumerated chains, and the targets they are shown on."""

import itertools
import math

import numpy as np
import pytest
import torch
from targets import TARGETS

import latticework as lw
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.bias import bias
from latticework.experiments.tasks.law import law
from latticework.experiments.tasks.measures.stationary import (
    bias_bounds,
    enumerate_proposal,
    in_double,
    l1_distance,
    stationary_law,
)
from latticework.experiments.tasks.preconditioning import Halves, preconditioning
from latticework.experiments.tasks.stochastic_proposal import stochastic_proposal
from latticework.sampling.occupancy import (
    Occupancy,
    independent_floor,
    noise_floor,
    pooled_law,
)

W = [[0.3, -0.5, 0.1], [-0.5, -0.4, 0.2], [0.1, 0.2, 0.6]]
B = [0.2, -0.3, 0.1]
QUADRATIC = {
    "bits": lw.LogQuadratic(W, B, domain=lw.Binary(3)),
    "spins": lw.LogQuadratic(W, B, domain=lw.Binary(3, -1, 1)),
    "ordinal": lw.LogQuadratic(W, B, domain=lw.Ordinal(3, 3)),
    "paper, {0, 1}": lw.quadratic_ising([2, 2], 0.1, 0.2, low=0),
    "paper, {-1, 1}": lw.quadratic_ising([2, 2], 0.1, 0.2),
}
OTHERS = {"sine": lw.Sine(1, 0.1, 0.7), "sine alone": lw.Sine(0, 0, 0.7)}
quadratic = pytest.mark.parametrize("name", QUADRATIC)


def exact(name):
    return in_double(QUADRATIC[name])


# The targets.


@pytest.mark.parametrize("name", [*QUADRATIC, *OTHERS])
def test_closed_form_gradients(name):
    model = in_double((QUADRATIC | OTHERS)[name])
    states = model.domain.enumerate().double()
    log_prob, grad = model.log_prob_and_grad(states)
    torch.testing.assert_close(model.gradient(states), grad)
    points = states.clone().requires_grad_()
    torch.testing.assert_close(log_prob, model(states))
    torch.testing.assert_close(grad, torch.autograd.grad(model(points).sum(), points)[0])


def test_log_quadratic_is_its_formula():
    model, x = exact("ordinal"), torch.tensor([[2.0, 0.0, 1.0]]).double()
    terms = [W[i][j] * x[0, i] * x[0, j] for i, j in itertools.product(range(3), repeat=2)]
    expected = sum(terms) + sum(b * v for b, v in zip(B, x[0], strict=True))
    assert model(x).item() == pytest.approx(float(expected), abs=1e-6)


# Theorem 5.1.


@pytest.mark.parametrize("sampler", [lw.DULA(0.3), lw.DMALA(2.0)])
@pytest.mark.parametrize("name", ["binary", "spins", "categorical", "ordinal", "lattice_potts"])
def test_transition_matrices_are_stochastic_and_keep_their_laws(name, sampler):
    chain = enumerate_proposal(sampler, in_double(TARGETS[name].model))
    one = torch.ones(len(chain.states)).double()
    for matrix in (chain.unadjusted, chain.adjusted):
        assert (matrix >= 0).all()
        torch.testing.assert_close(matrix.sum(-1), one)
        law = stationary_law(matrix)
        torch.testing.assert_close(law @ matrix, law)
    torch.testing.assert_close(law, chain.target)
    torch.testing.assert_close(chain.target, torch.from_numpy(TARGETS[name].law), rtol=1e-5, atol=0)


def appendix_e(model, alpha):
    """pi_alpha ~ Z_alpha pi from differences of U and W alone, by loops over pairs of states."""
    states = model.domain.enumerate().double()
    value, weight = model(states).tolist(), model.weight.numpy()
    points, shape = states.numpy(), len(states)
    mass = np.zeros(shape)
    for i in range(shape):
        for j in range(shape):
            step = points[j] - points[i]
            metric = step @ (np.eye(len(step)) / (2 * alpha) + weight / 2) @ step
            mass[i] += math.exp((value[j] - value[i]) / 2 - metric)
        mass[i] *= math.exp(value[i])
    return torch.from_numpy(mass / mass.sum())


@quadratic
@pytest.mark.parametrize("alpha", [0.05, 1.0, 5.0])
def test_stationary_law_is_the_closed_form_of_appendix_e(name, alpha):
    model = exact(name)
    chain = enumerate_proposal(lw.DULA(alpha), model)
    law = stationary_law(chain.unadjusted)
    torch.testing.assert_close(law, appendix_e(model, alpha), rtol=1e-9, atol=0)
    assert l1_distance(law, chain.target).item() == pytest.approx(
        chain.closed_form_bias.item(), rel=1e-6, abs=1e-14
    )
    assert chain.closed_form_bias <= bias_bounds(model).repaired(alpha) * (1 + 1e-9)


def test_small_biases_are_accurate():
    """Down to 1e-11, where pi_alpha and pi agree in ten digits."""
    for alpha in (0.02, 0.03, 0.05):
        chain = enumerate_proposal(lw.DULA(alpha), exact("paper, {0, 1}"))
        found = l1_distance(stationary_law(chain.unadjusted), chain.target).item()
        assert found == pytest.approx(chain.closed_form_bias.item(), rel=1e-3)
    assert 0 < chain.closed_form_bias < 1e-4


OTHER_TARGETS = {
    "six independent bits, mostly 0": (torch.zeros(6, 6), -3.3, lw.Binary(6), 0.1),
    "a spin with a diagonal": (torch.tensor([[-3.0]]), 1.0, lw.Binary(1, -1, 1), 1.0),
}


@pytest.mark.parametrize("case", OTHER_TARGETS)
def test_theorem_5_1_fails_as_stated(case):
    """Adding a constant to U changes Z but not the bias, so the bound can be violated."""
    weight, bias, domain, alpha = OTHER_TARGETS[case]
    model = in_double(lw.LogQuadratic(weight, bias, domain=domain))
    chain, bound = enumerate_proposal(lw.DULA(alpha), model), bias_bounds(model)
    distance = l1_distance(stationary_law(chain.unadjusted), chain.target).item()
    assert 1.2 * bound.theorem(alpha) < distance < bound.repaired(alpha)
    z = model(chain.states).exp().sum().item()  # the bound, written out
    smallest = torch.linalg.eigvalsh(model.weight)[0].item()
    assert bound.theorem(alpha) == pytest.approx(z * math.exp(-0.5 / alpha - smallest / 2))


# Theorem 5.2.


@pytest.mark.parametrize(("a", "b"), [(1, 0.1), (0, 0)])
def test_theorem_5_2_holds_with_its_proofs_constants(a, b):
    near = in_double(lw.LogQuadratic([[float(a)]], b, domain=lw.Binary(1, -1, 1)))
    states = near.domain.enumerate().double()
    for epsilon, alpha in itertools.product((0, 0.05, 0.3, 1.0), (0.4, 1.0, 4.0)):
        model = in_double(lw.Sine(a, b, epsilon))
        # The gradients agree on the states, so DULA cannot tell the two targets apart.
        torch.testing.assert_close(model.gradient(states), near.gradient(states))
        chain = enumerate_proposal(lw.DULA(alpha), model)
        distance = l1_distance(stationary_law(chain.unadjusted), chain.target)
        assert distance <= bias_bounds(model).theorem(alpha) + 1e-12
        if epsilon > 0:  # control: without its first term the bound fails for a small step
            small = enumerate_proposal(lw.DULA(0.1), model)
            law = stationary_law(small.unadjusted)
            assert l1_distance(law, small.target) > bias_bounds(near).theorem(0.1)


# Theorem 6.1.


def rows(tmp_path, **settings):
    model = lw.Lattice([2, 2], 0.1, 0.2)
    run = Run(tmp_path)
    stochastic_proposal(model=model, sampler=lw.DULA(0.1), data=None, run=run, **settings)
    return Record(tmp_path, {}).metrics


TWO_POINTS = {"outcomes": [-1.0, 1.0], "probabilities": [0.5, 0.5]}


def test_stochastic_proposal_is_the_logistic_formula(tmp_path):
    """One row against the flip probabilities written out; quadratic in sigma, as the mean is 0."""
    settings = {"step_sizes": [0.5], "deviations": [0.01, 0.02], **TWO_POINTS}
    table = rows(tmp_path, **settings)
    states = list(itertools.product([0, 1], repeat=4))
    edges = {(0, 1), (1, 3), (3, 2), (2, 0)}
    worst = 0.0
    for x, i in itertools.product(states, range(4)):
        spins = [2 * v - 1 for v in x]
        around = sum(spins[b if a == i else a] for a, b in edges if i in (a, b))
        gain = (1 - 2 * x[i]) * 2 * (0.2 + 2 * 0.1 * around)

        def flip(noise, gain=gain):
            return 1 / (1 + math.exp(-(gain + noise) / 2 + 1))

        worst = max(worst, 2 * abs((flip(0.01) + flip(-0.01)) / 2 - flip(0)))
    assert table["bias"][0] == pytest.approx(worst, rel=1e-6)
    assert table["bias"][1] / table["bias"][0] == pytest.approx(4, rel=1e-3)
    assert (table["bias"] <= table["with_half"]).all()
    assert (table["with_half"] <= table["theorem"]).all()


def test_noise_must_be_standardised(tmp_path):
    noise = {"outcomes": [-1.0, 2.0], "probabilities": [0.5, 0.5]}
    with pytest.raises(ValueError, match="mean 0 and variance 1"):
        rows(tmp_path, step_sizes=[0.1], deviations=[0.1], **noise)


# Simulations.


@pytest.mark.parametrize("name", ["spins", "categorical", "ordinal"])
def test_occupancy_counts_the_listed_states(name):
    target = TARGETS[name]
    metric, state = Occupancy(), lw.State(target.states, torch.zeros(1), torch.zeros(1))
    carry = metric.init(target.model, state, None)
    for _ in range(3):
        carry = metric.update(carry, state, None, 1)
    assert torch.equal(carry.counts, 3 * torch.eye(len(target.states), dtype=torch.long))


def test_floors_are_those_of_independent_draws():
    """Both floors against the distance that multinomial draws have on average."""
    rng = np.random.default_rng(0)
    law = np.array([0.5, 0.3, 0.15, 0.05])
    repeats, chains, steps = 300, 40, 50
    counts = torch.from_numpy(rng.multinomial(steps, law, size=(repeats, chains)))
    exact_law = torch.from_numpy(law)
    found = torch.stack([l1_distance(pooled_law(c), exact_law) for c in counts])
    error = found.std() / math.sqrt(repeats)
    estimated = torch.stack([noise_floor(c) for c in counts]).mean()
    for floor in (estimated, independent_floor(exact_law, chains * steps)):
        assert abs(found.mean() - floor) < 4 * error
    fewer = independent_floor(exact_law, chains * steps // 2)  # control
    assert abs(found.mean() - fewer) > 4 * error


@pytest.mark.parametrize("low", [0.0, -1.0])
def test_simulation_has_the_enumerated_law(tmp_path, low):
    """Within chance of pi_alpha; not (control) within chance of pi."""
    settings = {"step_sizes": [0.05], "simulated": [0.5], "budget": Budget(1000, 100)}
    model = lw.quadratic_ising([2, 2], 0.1, 0.2, low=low)
    bias(model=model, sampler=lw.DULA(1.0), data=None, run=Run(tmp_path), **settings)
    exact_only, row = (row for _, row in Record(tmp_path, {}).metrics.iterrows())
    assert math.isnan(exact_only["simulated"])
    assert row["step_size"] == 0.5 * (1 - low) ** 2
    # The mean of 16 half-normal numbers spreads by sqrt(pi / 2 - 1) / 4 = 0.19 of its size.
    assert abs(row["simulated_to_own"] / row["noise"] - 1) < 5 * 0.19
    assert row["simulated"] / row["noise"] > 5
    assert row["adjusted"] < 1e-12
    assert row["exact"] == pytest.approx(row["closed_form"], rel=1e-9)


@pytest.mark.parametrize("sampler", [lw.DULA(1.0), lw.DMALA(1.0)])
def test_categorical_chains_find_their_law(tmp_path, sampler):
    """DMALA converges to the target, DULA to its own law; each is the other's control."""
    model = lw.random_potts(2, 3, 2.0)
    budget = Budget(chains=400, steps=400, every=80)
    law(model=model, sampler=sampler, data=None, run=Run(tmp_path), budget=budget)
    end = Record(tmp_path, {}).metrics.iloc[-1]
    names = ["to_unadjusted", "total_variation"]
    right, wrong = names if isinstance(sampler, lw.DULA) else names[::-1]
    assert end[right] < 5 * end["independent"]  # correlated draws are worth fewer
    assert end[wrong] > 20 * end["independent"]
    assert (end["marginal_error"] < 0.02) == isinstance(sampler, lw.DMALA)


# Appendix H.


def test_preconditioner_mixes_where_no_step_size_does(tmp_path):
    model = lw.LogQuadratic([[-0.001, 0.0], [0.0, -1000.0]], domain=lw.Binary(2, -1, 1))
    settings = {"preconditioner": [1000.0, 0.001], "powers": [1, 2]}
    preconditioning(
        model=model,
        sampler=lw.DULA(1.0),
        data=None,
        run=Run(tmp_path),
        step_sizes=[1e-4, 1e-3, 1e4],
        budget=Budget(chains=20, steps=400, every=400),
        **settings,
    )
    table = Record(tmp_path, {}).metrics
    frozen, small, large, scaled, squared = (row for _, row in table.iterrows())
    one_stuck = math.log(0.5) / 2  # -0.3466: one site never moves and the other has mean 0
    assert frozen["log_rmse"] == pytest.approx(0, abs=1e-6)
    assert small["log_rmse"] == pytest.approx(one_stuck, abs=0.01)
    assert squared["log_rmse"] == pytest.approx(one_stuck, abs=0.01)
    assert [scaled["flip_0"], scaled["flip_1"]] == pytest.approx([0.5, 0.5], abs=1e-6)
    assert scaled["log_rmse"] == pytest.approx(-math.log(400) / 2, abs=0.5)
    assert scaled["thinned"] == pytest.approx(-math.log(200) / 2, abs=0.5)
    # A large step flips the second site at every step: right on average, and never random.
    assert large["flip_1"] == 1
    assert large["log_rmse"] < -2
    assert large["thinned"] == pytest.approx(one_stuck, abs=0.02)


def test_halves_split_even_from_odd_steps():
    model = QUADRATIC["bits"]
    metric, x = Halves(), torch.zeros(2, 3)
    carry = metric.init(model, lw.State(x, torch.zeros(2), x), None)
    for value in (1.0, 10.0, 100.0):
        carry = metric.update(carry, lw.State(x + value, torch.zeros(2), x), None, 1)
    assert carry.total[0].unique().tolist() == [10.0]
    assert carry.total[1].unique().tolist() == [101.0]
