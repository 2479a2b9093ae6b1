"""Models: closed forms and local methods against plain evaluation of `forward`; definitions."""

import copy
import math

import pytest
import torch
from plain import agree
from small_models import LATTICES, MODELS, close, every_model, pair_of, states
from torch import Generator

import latticework as lw


@every_model
def test_all_methods_are_those_of_the_function(model):
    """In double precision, with no number that was computed in single precision on the way."""
    agree(model, lw.Function(model.forward, model.domain), states(model), 1e-11)


@pytest.mark.gpu
@every_model
def test_all_methods_on_a_gpu(model):
    """They are those of the function on the GPU, and its values are those on the CPU."""
    there, x = copy.deepcopy(model).to("cuda"), states(model)
    close(there(x.to("cuda")).cpu(), model(x))
    close(there.gradient(x.to("cuda")).cpu(), model.gradient(x))
    agree(there, lw.Function(there.forward, model.domain), x.to("cuda"))


@every_model
def test_gradient_between_states_is_autograds(model):
    """Where relaxed samplers evaluate it."""
    soft = torch.rand(6, *model.domain.shape, generator=Generator().manual_seed(1)).double()
    log_prob, grad = model.log_prob_and_grad(soft)
    close(log_prob, model(soft))
    close(grad, lw.EnergyModel.log_prob_and_grad(model, soft)[1])
    close(grad, model.gradient(soft))
    assert not log_prob.requires_grad


@every_model
def test_a_model_says_whether_it_is_quadratic(model):
    """DMALA then leaves out log pi(y) - log pi(x) = (grad(x) + grad(y))'(y - x) / 2."""
    x, y = states(model), states(model, seed=2)
    along = ((model.gradient(x) + model.gradient(y)) * (y - x)).flatten(1).sum(-1) / 2
    holds = torch.allclose(along, model(y) - model(x), rtol=1e-6, atol=1e-6)
    assert holds == model.quadratic


PAIRWISE = {name: model for name, model in MODELS.items() if "graph" in name or name == "star"}
PAIRWISE = LATTICES | {name: model for name, model in PAIRWISE.items() if "random" not in name}


@pytest.mark.parametrize("model", PAIRWISE.values(), ids=PAIRWISE.keys())
def test_differences_after_a_flip(model):
    """The listed differences are exact, and the others have not changed."""
    x, rng = states(model), Generator().manual_seed(1)
    everywhere = torch.arange(model.domain.dim)
    known = model.differences(x, model.cache(x), everywhere)
    assert (known.abs() <= model.flip_bound * (1 + 1e-6)).all()
    index = torch.randint(model.domain.dim, (len(x), 1), generator=rng)
    y = model.domain.move_one(x, index)
    sites, changed = model.differences_after(y, index)
    known = changed if sites is None else known.scatter(1, sites, changed)
    close(known, model.differences(y, model.cache(y), everywhere))


@pytest.mark.parametrize("kind", [lw.DenseIsing, lw.DensePotts])
def test_caches_of_dense_couplings_do_not_drift(kind):
    """Penalties of 10^4. A float32 sum loses digits with each flip; the first rounding stays."""
    weight = 1e4 * torch.randn(24, 24, generator=Generator().manual_seed(0)).triu(1)
    if kind is lw.DensePotts:
        weight *= torch.ones(12, 12).triu(1).kron(torch.ones(2, 2))
    weight = weight + weight.T
    model = lw.DenseIsing(weight) if kind is lw.DenseIsing else lw.DensePotts(weight, 2)
    exact, rng = copy.deepcopy(model).double(), Generator().manual_seed(1)
    x = model.domain.uniform(4, rng)
    cache, truth = model.cache(x), exact.cache(x.double())[0]
    error = cache[0] - truth
    for _ in range(300):
        site = torch.randint(model.domain.dim, (1,), generator=rng)
        value = torch.randint(model.domain.moves, (4, 1), generator=rng)
        y = model.domain.move_one(x, site * model.domain.moves + value)
        cache = model.update_cache(cache, x, site, y.index_select(1, site))
        x, truth = y, exact.cache(y.double())[0]
    assert (cache[0] - truth - error).abs().max() < 1e-6


def drifting(kind):
    """Models of large numbers in single precision, to whose caches changes are added."""
    rng = Generator().manual_seed(0)
    if kind == "fhmm":
        weight, observed = 1e4 * torch.randn(3, generator=rng), 1e4 * torch.randn(4, generator=rng)
        return lw.FactorialHMM(weight, 0.3, observed, 1e4, 0.2, 0.8)
    return lw.BayesNet(torch.randn(9, 2, generator=rng), torch.rand(9, generator=rng), 40)


@pytest.mark.parametrize("kind", ["fhmm", "net"])
def test_caches_of_sums_do_not_drift(kind):
    """The change of a flip is rounded, but not the sum: there and back, it is what it was."""
    model, rng = drifting(kind), Generator().manual_seed(1)
    x = model.domain.uniform(4, rng)
    cache = model.cache(x)
    before = cache[0].clone()
    sites = torch.randint(model.domain.dim, (200, 1), generator=rng)
    for number, site in enumerate(torch.cat((sites, sites.flip(0)))):
        new = 1 - x.index_select(1, site)
        cache = model.update_cache(model.conditional(x, cache, site)[1], x, site, new)
        x = x.index_copy(1, site, new)
        assert number or not torch.equal(cache[0], before)
    assert (cache[0] - before).abs().max() < 1e-10 * before.abs().max()


CHANGES = {
    "loaded": lambda model, other: model.load_state_dict(other.state_dict()),
    "in place": lambda model, other: model.bias.copy_(other.bias),
    "behind autograd": lambda model, other: model.bias.data.copy_(other.bias),
    "replaced": lambda model, other: setattr(model, "bias", other.bias),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("by_neighbours", [False, True])
def test_a_lattice_follows_its_bias_and_coupling(change, by_neighbours):
    settings = ((0.1, 0.0), (0.1, 1.0), (0.2, 1.0))
    model, biased, other = (lw.Lattice((3, 3), *each) for each in settings)
    if by_neighbours:
        model.dense = biased.dense = other.dense = None
    x, sites = other.domain.uniform(5, Generator().manual_seed(0)), torch.arange(9)

    def parts(lattice):
        form = lattice.form()
        return {
            "value": lattice(x),
            "evaluated": lattice.log_prob_and_grad(x),
            "odds": lattice.log_odds(x, (), sites),
            "odds of one": lattice.log_odds(x, (), sites[3:4]),
            "differences": lattice.differences(x, (), sites),
            "after": lattice.differences_after(x, sites[:5].view(5, 1))[1],
            "bound": torch.tensor(lattice.flip_bound),
            "form": [torch.from_numpy(part) for part in (form.kind, form.odds, form.high)],
        }

    before, expected = parts(model), parts(other)
    assert model.form() is model.form()  # built once
    CHANGES[change](model, other)
    torch.testing.assert_close(parts(model), parts(biased))
    model.coupling = other.coupling
    torch.testing.assert_close(parts(model), expected)
    assert (before["odds"] - expected["odds"]).abs().min() > 0.3  # control


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lw.Lattice((3, 0), 0.1), "shape must be positive side lengths"),
        (lambda: lw.Lattice((3,), 0.1, [0.1, 0.2]), "bias must be one number or 3, got 2"),
        (lambda: lw.DenseIsing(torch.ones(2, 2)), "zero diagonal"),
        (lambda: lw.DenseIsing(torch.tensor([[0.0, 1.0], [0.0, 0.0]])), "symmetric"),
        (lambda: lw.DenseIsing(torch.tensor([[0.0, math.inf], [math.inf, 0.0]])), "must be finite"),
        (lambda: lw.Binary(2, 1, 0), "low < high"),
        (lambda: lw.LatticePotts([2, 2], 3, 1.0, [0.0, 1.0]), "bias must be"),
        (lambda: lw.DensePotts(torch.ones(6, 6).triu(), 3), "symmetric"),
        (lambda: lw.DensePotts(torch.ones(6, 6), 3), "values of one site"),
        (
            lambda: lw.DensePotts(pair_of(-math.inf), 3),
            "finite; GraphPotts takes couplings of -inf",
        ),
        (lambda: lw.DensePotts(pair_of(0.0), 3, -math.inf), "coupling and bias must be finite"),
        (lambda: lw.GraphPotts([[0, 1]], math.nan, 3), "weights must be finite, or -inf to forbid"),
        (lambda: lw.GraphPotts([[0, 1]], [math.inf], 3), "weights must be finite, or -inf"),
        (lambda: lw.GraphPotts([[0, 1]], 1.0, 3, math.nan), "bias must be finite, or -inf"),
        (lambda: lw.LatticePotts([2, 2], 3, math.inf), "coupling must be finite, or -inf"),
        (lambda: lw.LatticePotts([2, 2], 3, math.nan), "coupling must be finite, or -inf"),
        (lambda: lw.LatticePotts([2, 2], 3, 1.0, math.inf), "bias must be finite, or -inf"),
        (lambda: lw.BayesNet(torch.ones(3, 2), torch.ones(4)), r"got \[3, 2\] and \[4\]"),
        (lambda: lw.synthetic_fhmm(3, 2, 0.0, 0.1, 0.9), "sigma must be positive"),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
