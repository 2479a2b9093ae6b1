"""Potts models: closed forms against plain evaluation, the lattice against dense J and Ising."""

import math

import pytest
import torch

from latticework.models.base import EnergyModel, Function
from latticework.models.ising import Lattice, critical_lattice
from latticework.models.potts import DensePotts, LatticePotts, critical_potts, random_potts

SHAPES = [(4,), (2, 3), (3, 3), (1, 5), (2, 3, 3)]


def lattice(shape=(3, 3), periodic=True, values=3, coupling=0.7):
    sites = torch.Size(shape).numel()
    bias = torch.sin(torch.arange(sites * values) * 1.7 + 0.3).view(sites, values)
    return LatticePotts(shape, values, coupling, bias.tolist(), periodic)


def dense_twin(model):
    """The dense model of a lattice, from its definition: agreeing ends of an edge, site by site."""
    sites, values = model.domain.shape
    where = [
        torch.tensor(c) for c in torch.cartesian_prod(*map(torch.arange, model.shape)).tolist()
    ]
    where = [c.reshape(-1) for c in where]
    coupling = torch.zeros(sites, values, sites, values)
    for i in range(sites):
        for j in range(sites):
            gap = (where[i] - where[j]).abs()
            if model.periodic:
                gap = torch.minimum(gap, torch.tensor(model.shape) - gap)
            if gap.sum() == 1:
                coupling[i, :, j, :] = model.coupling * torch.eye(values)
    return DensePotts(coupling.view(sites * values, -1), values, model.bias)


MODELS = {
    **{f"lattice{s}-{p}": lattice(s, p) for s in SHAPES for p in (True, False)},
    "dense": random_potts(5, 4, 2.0),
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


def states(model, chains=6, seed=0):
    return model.domain.uniform(chains, torch.Generator().manual_seed(seed))


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-5)


@every_model
def test_gradient_is_autograds_at_soft_states_too(model):
    for x in (states(model), torch.randn(6, *model.domain.shape)):
        log_prob, grad = model.log_prob_and_grad(x)
        reference = EnergyModel.log_prob_and_grad(model, x)
        close(log_prob, reference[0])
        close(grad, reference[1])


@every_model
def test_local_methods_are_plain_evaluation(model):
    x, plain = states(model), Function(model.forward, model.domain)
    rng = torch.Generator().manual_seed(1)
    for count in (1, 2, min(4, model.domain.dim), model.domain.dim):
        sites = torch.randperm(model.domain.dim, generator=rng)[:count]
        differences = model.differences(x, model.cache(x), sites)
        close(differences, plain.differences(x, (), sites))
        if count > 4:
            continue
        shared = model.domain.patterns(count).unsqueeze(0)
        each = shared[0, torch.randint(shared.shape[1], (len(x), 7), generator=rng)]
        for patterns in (shared, each):
            ours = model.block_log_probs(x, model.cache(x), sites, patterns)
            theirs = plain.block_log_probs(x, (), sites, patterns)
            close(ours - ours[:, :1], theirs - theirs[:, :1])


@every_model
def test_caches_follow_the_state(model):
    x, y = states(model), states(model, seed=2)
    sites = torch.tensor([2, 0])
    after = x.clone()
    after[:, sites] = y[:, sites]
    moved = model.moved(model.cache(x), x, sites, y[:, sites])
    close(list(moved), list(model.cache(after)))

    index = torch.arange(len(x)).unsqueeze(1) * 2  # a move for each chain, some of them to stay
    flipped = model.domain.move_one(x, index)
    for ours, theirs in zip(
        model.evaluate_flipped(model.cache(x), x, flipped, index),
        model.evaluate_with_cache(flipped),
        strict=True,
    ):
        close(list(ours), list(theirs)) if isinstance(ours, tuple) else close(ours, theirs)


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lattice_is_the_dense_model_of_its_edges(shape, periodic):
    model = lattice(shape, periodic)
    x = states(model, chains=20)
    close(model(x), dense_twin(model)(x))


def test_periodic_and_open_lattices_differ():
    """Control: the comparison above distinguishes the models."""
    x = states(lattice(), chains=20)
    assert (lattice(periodic=True)(x) - dense_twin(lattice(periodic=False))(x)).abs().max() > 0.5


def test_two_values_are_an_ising_model():
    potts, ising = LatticePotts((3, 4), 2, 0.8, [-0.3, 0.3]), Lattice((3, 4), 0.2, 0.3)
    x = states(ising, chains=20)
    gap = potts(torch.stack((1 - x, x), -1)) - ising(x)
    close(gap, gap[:1].expand(20))
    assert ising(x).std() > 0.5  # not a comparison of constants


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LatticePotts([], 3, 1.0), "side lengths"),
        (lambda: LatticePotts([2, 2], 1, 1.0), "num_values >= 2"),
        (lambda: LatticePotts([2, 2], 3, 1.0, [0.0, 1.0]), "bias must be"),
        (lambda: DensePotts(torch.ones(6, 6).triu(), 3), "symmetric"),
        (lambda: DensePotts(torch.zeros(5, 5), 3), "symmetric"),
        (lambda: DensePotts(torch.ones(6, 6), 3), "values of one site"),
        (lambda: random_potts(1, 3, 1.0), "dim must be"),
    ],
)
def test_bad_arguments_say_so(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("values", [2, 3, 6])
def test_the_critical_lattice_is_self_dual(values):
    """(exp(K) - 1)^2 = q; with two values it is the critical Ising model, K / 4."""
    coupling = critical_potts((3, 3), values).coupling
    assert math.isclose(math.expm1(coupling) ** 2, values, rel_tol=1e-9)
    assert math.isclose(critical_potts((3, 3), values, 0.5).coupling, coupling / 2)
    if values == 2:
        assert math.isclose(coupling / 4, critical_lattice((3, 3)).coupling)
