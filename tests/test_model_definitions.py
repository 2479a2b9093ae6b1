"""Models by their definitions: lattices, Potts, RBM, spin glass, factorial hidden Markov model."""

import copy
import itertools
import math

import pytest
import torch
from small_models import POTTS_SHAPES, SHAPES, close, lattice, potts, rbm, states
from torch import Generator
from torch.distributions import Bernoulli, Normal

import latticework as lw
from latticework.models.lattice import colouring, neighbour_sum, neighbour_table


def adjacency(shape, periodic):
    """Site by site from the coordinates, edges once: an axis of length two joins its ends once."""
    where = list(itertools.product(*map(range, shape)))
    matrix = torch.zeros(len(where), len(where), dtype=torch.float64)
    for (i, here), (j, there) in itertools.product(enumerate(where), repeat=2):
        gaps = [abs(a - b) for a, b in zip(here, there, strict=True)]
        if periodic:
            gaps = [min(gap, size - gap) for gap, size in zip(gaps, shape, strict=True)]
        matrix[i, j] = float(sum(gaps) == 1)
    return matrix


@pytest.mark.parametrize("periodic", [True, False], ids=["periodic", "open"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lattice_is_the_dense_model_of_its_edges(shape, periodic):
    model, matrix = lattice(shape, periodic), adjacency(shape, periodic)
    twin = lw.DenseIsing(model.coupling * matrix, model.bias)
    x, every = states(model), torch.arange(model.domain.dim)
    close(model.adjacency(), matrix)
    close(model(x), twin(x))
    close(model.log_prob_and_grad(x)[1], twin.log_prob_and_grad(x)[1])
    close(model.log_odds(x, (), every), twin.log_odds(x, twin.cache(x), every))


@pytest.mark.parametrize("periodic", [True, False], ids=["periodic", "open"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_neighbour_table_is_the_neighbour_sum(shape, periodic):
    """And neighbours have different classes, of which there are few."""
    neighbours, exists = neighbour_table(shape, periodic)
    x = torch.randn(3, math.prod(shape), generator=Generator().manual_seed(0), dtype=torch.float64)
    around = (x[:, neighbours] * exists).sum(-1)
    close(neighbour_sum(x, shape, periodic), around)
    close(neighbour_sum(x, shape, periodic), x @ adjacency(shape, periodic))
    colours, odd = colouring(shape, periodic), periodic and any(n > 2 and n % 2 for n in shape)
    assert not ((colours[neighbours] == colours.unsqueeze(1)) & (exists > 0)).any()
    assert int(colours.max()) + 1 <= (3 if odd else 2)


@pytest.mark.parametrize("periodic", [True, False], ids=["periodic", "open"])
@pytest.mark.parametrize("shape", POTTS_SHAPES, ids=str)
def test_a_potts_lattice_is_the_dense_model_of_its_edges(shape, periodic):
    model = potts(shape, periodic)
    pairs = model.coupling * adjacency(shape, periodic).kron(torch.eye(3).double())
    close(model(states(model)), lw.DensePotts(pairs, 3, model.bias)(states(model)))


def test_the_convention_counts_each_edge_twice():
    """Two spins: a s'Js + b's is 2a + 2b where both are up, -2a where they differ."""
    model = lw.Lattice((2,), coupling=0.3, bias=0.1)
    values = model(torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]]))
    torch.testing.assert_close(values, torch.tensor([0.8, -0.6, 0.4]))


@pytest.mark.parametrize("values", [2, 3, 6])
def test_critical_lattices_are_self_dual(values):
    """(exp(K) - 1)^2 = q; with two values it is the critical Ising model, sinh(2 K / 2) = 1."""
    coupling = lw.critical_potts((3, 3), values).coupling
    assert math.isclose(math.expm1(coupling) ** 2, values, rel_tol=1e-9)
    assert math.isclose(lw.critical_potts((3, 3), values, 0.5).coupling, coupling / 2)
    if values == 2:
        ising = lw.critical_lattice((3, 3), relative=2.0, bias=0.3)
        assert math.isclose(coupling / 2, ising.coupling)
        assert math.isclose(math.sinh(2 * ising.coupling), 1, rel_tol=1e-9)
        torch.testing.assert_close(ising.bias, torch.full((9,), 0.3))


def test_block_conditionals_of_an_rbm():
    """p(h given x) and p(x given h) from the joint law exp(x'Wh + b'x + c'h), enumerated."""
    model = rbm(4, 3)
    weight, b, c = model.weight, model.visible_bias, model.hidden_bias
    x, h = lw.Binary(4).enumerate().double(), lw.Binary(3).enumerate().double()
    joint = (x @ weight @ h.T + (x @ b).unsqueeze(1) + h @ c).exp()
    close(joint.sum(1).log(), model(x))
    close((joint @ h) / joint.sum(1, keepdim=True), model.hidden_inputs(x).sigmoid())
    close((joint.T @ x) / joint.T.sum(1, keepdim=True), model.visible_inputs(h).sigmoid())


def test_an_rbm_starts_from_the_data_mean_away_from_its_ends():
    """At the log-odds of the mean clamped to [0.01, 0.99], as the released scripts have it."""
    model = lw.RBM(5, 2)
    model.start_from_data(torch.tensor([0.0, 0.005, 0.3, 0.995, 1.0]))
    expected = torch.tensor([0.01, 0.01, 0.3, 0.99, 0.99])
    torch.testing.assert_close(model.visible_bias.sigmoid(), expected)


def test_the_spin_glass_by_its_definition():
    """Every pair counts once, and g_ij has variance 1 / dim."""
    dim, beta = 60, 1.5
    model = lw.sherrington_kirkpatrick(dim, beta, seed=4)
    g = 2 * model.matrix() / beta
    pairs = g[torch.triu_indices(dim, dim, 1).unbind()]
    error = (2 / len(pairs)) ** 0.5  # of the variance, relative
    assert abs(float(pairs.var()) * dim - 1) < 4.5 * error
    x = model.domain.uniform(3, Generator().manual_seed(0))
    spins = 2 * x - 1
    by_pairs = sum(beta * g[i, j] * spins[:, i] * spins[:, j] for i in range(dim) for j in range(i))
    torch.testing.assert_close(model(x), by_pairs)


def test_a_lattice_of_a_million_sites():
    """Building and evaluating it takes memory linear in the sites; a dense J would not fit."""
    small, large = lw.Lattice((100, 100), 0.1, 0.2), lw.Lattice((1000, 1000), 0.1, 0.2)
    few, many = (sum(t.numel() for t in model.buffers()) for model in (small, large))
    assert many < 101 * few
    x = large.domain.uniform(1, Generator().manual_seed(0))
    log_prob, grad = large.log_prob_and_grad(x)
    # Far less than a Metropolis ratio would notice, in float32.
    exact = copy.deepcopy(large).double()(x.double()).float()
    torch.testing.assert_close(log_prob, exact, rtol=1e-6, atol=0.01)
    sites = torch.tensor([0, 999, 500_500, 999_999])
    torch.testing.assert_close(large.log_odds(x, (), sites), grad[:, sites])
    single = [large.log_odds(x, (), site.view(1)) for site in sites]
    torch.testing.assert_close(torch.cat(single, -1), grad[:, sites])


# The factorial hidden Markov model.


def test_an_fhmm_is_the_posterior_of_its_definition():
    """log p(x, y) time by time, up to the normal densities' constant."""
    model = lw.synthetic_fhmm(4, 3, sigma=0.6, first=0.2, keep=0.85, seed=1)
    expected = []
    x = model.domain.uniform(20, Generator().manual_seed(0))
    for hidden in x.view(20, 4, 3):
        total = Bernoulli(model.first).log_prob(hidden[0]).sum()
        for before, after in itertools.pairwise(hidden):
            law = Bernoulli(torch.where(before == 1, model.keep, 1 - model.keep))
            total += law.log_prob(after).sum()
        for y, now in zip(model.observed, hidden, strict=True):
            total += Normal(model.offset + model.weight @ now, model.sigma).log_prob(y)
        expected.append(total + 4 * math.log(model.sigma * math.sqrt(2 * math.pi)))
    torch.testing.assert_close(model(x), torch.stack(expected))


def test_the_observations_of_an_fhmm_are_drawn_from_it():
    """Chains start at 1 with probability `first`, switch at rate 1 - keep; noise is `sigma`."""
    length, factors = 4000, 2
    model = lw.synthetic_fhmm(length, factors, sigma=0.01, first=0.3, keep=0.9, seed=0)
    hidden, noise = decoded(model, factors)
    switched = (hidden[1:] != hidden[:-1]).float().mean()
    assert abs(float(switched) - 0.1) < 4.5 * math.sqrt(0.1 * 0.9 / (length * factors))
    assert abs(float(noise.std()) / 0.01 - 1) < 4.5 / math.sqrt(2 * length)
    many = [
        lw.synthetic_fhmm(1, 4, sigma=1e-6, first=0.3, keep=0.9, seed=seed) for seed in range(150)
    ]
    began = torch.stack([decoded(each, 4)[0] for each in many]).mean()
    assert abs(float(began) - 0.3) < 4.5 * math.sqrt(0.3 * 0.7 / 600)


def decoded(model, factors):
    """The hidden states `[length, factors]` and the noise `[length]`, which is small."""
    every = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * factors)
    means = model.offset + every @ model.weight
    nearest = (model.observed.unsqueeze(-1) - means).abs().argmin(-1)
    return every[nearest], model.observed - means[nearest]
