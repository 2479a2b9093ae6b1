"""Ising models and RBMs: closed forms and local methods against plain evaluation of `forward`."""

import copy
import itertools
import math

import pytest
import torch
from torch import Generator

from latticework.models.base import EnergyModel, Function
from latticework.models.domain import Binary
from latticework.models.fhmm import synthetic_fhmm
from latticework.models.ising import (
    DenseIsing,
    Lattice,
    critical_lattice,
    erdos_renyi,
    sherrington_kirkpatrick,
)
from latticework.models.lattice import neighbour_sum, neighbour_table
from latticework.models.potts import DensePotts
from latticework.models.rbm import RBM

SHAPES = [(1,), (2,), (5,), (2, 2), (2, 5), (3, 4), (2, 3, 3), (1, 3, 1)]


def lattice(shape=(3, 4), periodic=True, *, by_neighbours=False):
    bias = [0.3 * math.sin(2.0 * i + 0.5) for i in range(math.prod(shape))]  # no symmetry
    model = Lattice(shape, 0.23, bias, periodic)
    if by_neighbours:  # as a lattice too large for one matrix computes
        model.dense = None
    return model.double()


CHANGES = {
    "loaded": lambda model, other: model.load_state_dict(other.state_dict()),
    "in place": lambda model, other: model.bias.copy_(other.bias),
    "behind autograd": lambda model, other: model.bias.data.copy_(other.bias),
    "replaced": lambda model, other: setattr(model, "bias", other.bias),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("by_neighbours", [False, True])
def test_a_lattice_follows_its_bias_and_coupling(change, by_neighbours):
    model, biased, other = (Lattice((3, 3), *each) for each in ((0.1, 0.0), (0.1, 1.0), (0.2, 1.0)))
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


def test_infinite_couplings_are_refused():
    matrix = torch.zeros(3, 3)
    DenseIsing(matrix)
    matrix[0, 1] = matrix[1, 0] = torch.inf
    with pytest.raises(ValueError, match="coupling must be finite, got infinite entries"):
        DenseIsing(matrix)


@pytest.mark.parametrize("kind", [DenseIsing, DensePotts])
def test_caches_of_dense_couplings_do_not_drift(kind):
    """Penalties of 10^4. A float32 sum loses digits with each flip; the first rounding stays."""
    weight = 1e4 * torch.randn(24, 24, generator=Generator().manual_seed(0)).triu(1)
    if kind is DensePotts:
        weight *= torch.ones(12, 12).triu(1).kron(torch.ones(2, 2))
    weight = weight + weight.T
    model = DenseIsing(weight) if kind is DenseIsing else DensePotts(weight, 2)
    exact, rng = copy.deepcopy(model).double(), Generator().manual_seed(1)
    x = model.domain.uniform(4, rng)
    cache, truth = model.cache(x), exact.cache(x.double())[0]
    single, error = cache[0].float(), cache[0] - truth
    for _ in range(300):
        site = torch.randint(model.domain.dim, (1,), generator=rng)
        value = torch.randint(model.domain.moves, (4, 1), generator=rng)
        y = model.domain.move_one(x, site * model.domain.moves + value)
        cache = model.moved(cache, x, site, y.index_select(1, site))
        x, before, truth = y, truth, exact.cache(y.double())[0]
        single += (truth - before).float()
    assert (cache[0] - truth - error).abs().max() < 1e-6
    assert (single - truth - error).abs().max() > 0.01  # control


def dense(dim=7):
    rng = Generator().manual_seed(3)
    upper = torch.randn(dim, dim, generator=rng, dtype=torch.float64).triu(1)
    return DenseIsing(upper + upper.T, torch.randn(dim, generator=rng, dtype=torch.float64))


def rbm(visible=6, hidden=4):
    model, rng = RBM(visible, hidden).double(), Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.normal_(generator=rng)
    return model


LATTICES = {
    f"{'x'.join(map(str, shape))}-{'periodic' if periodic else 'open'}-{way}": lattice(
        shape, periodic, by_neighbours=way == "neighbours"
    )
    for shape in SHAPES
    for periodic in (True, False)
    for way in ("matrix", "neighbours")
}
MODELS = {
    **LATTICES,
    "dense": dense(),
    "random graph": erdos_renyi(9, 3, 0.4).double(),
    "rbm": rbm(),
    "fhmm": synthetic_fhmm(4, 3, 0.5, 0.1, 0.9).double(),
    "fhmm of one time": synthetic_fhmm(1, 3, 0.5, 0.1, 0.9).double(),
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


def states(model, chains=6, seed=0):
    return model.domain.uniform(chains, Generator().manual_seed(seed)).double()


def close(ours, theirs):
    """Up to float32, since a lattice rounds its coefficients at construction."""
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def some_sites(model, count, seed=1):
    return torch.randperm(model.domain.dim, generator=Generator().manual_seed(seed))[:count]


def counts(model, largest):
    return sorted({1, min(2, model.domain.dim), min(largest, model.domain.dim)})


@every_model
def test_gradient_is_autograds(model):
    """At states, and at soft states between them, where relaxed samplers evaluate it."""
    rng = Generator().manual_seed(1)
    for x in (states(model), torch.rand(6, model.domain.dim, generator=rng, dtype=torch.float64)):
        log_prob, grad = model.log_prob_and_grad(x)
        close(log_prob, model(x))
        close(grad, EnergyModel.log_prob_and_grad(model, x)[1])
        close(grad, model.gradient(x))
        assert not log_prob.requires_grad
        assert not grad.requires_grad


@every_model
def test_a_model_says_whether_it_is_quadratic(model):
    """DMALA then leaves out log pi(y) - log pi(x) = (grad(x) + grad(y))'(y - x) / 2."""
    x, y = states(model), states(model, seed=2)
    along = ((model.gradient(x) + model.gradient(y)) * (y - x)).sum(-1) / 2
    holds = torch.allclose(along, model(y) - model(x), rtol=1e-6, atol=1e-6)
    assert holds == model.quadratic


@every_model
def test_local_methods_are_plain_evaluation(model):
    x, plain = states(model), Function(model.forward, model.domain)
    for count in counts(model, model.domain.dim):
        sites, cache = some_sites(model, count), model.cache(x)
        close(model.differences(x, cache, sites), plain.differences(x, (), sites))
        close(model.log_odds(x, cache, sites), plain.log_odds(x, (), sites))


@every_model
def test_blocks_are_plain_evaluation(model):
    x, plain = states(model), Function(model.forward, model.domain)
    for count in counts(model, 4):
        sites, shared = some_sites(model, count), model.domain.patterns(count).unsqueeze(0)
        chosen = torch.randint(shared.shape[1], (len(x), 3), generator=Generator().manual_seed(1))
        for patterns in (shared, shared[0, chosen]):  # the same for all chains, one's own each
            ours = model.block_log_probs(x, model.cache(x), sites, patterns)
            theirs = plain.block_log_probs(x, (), sites, patterns)
            close(ours - ours[:, :1], theirs - theirs[:, :1])


@every_model
def test_caches_follow_the_state(model):
    x, y = states(model), states(model, seed=2)
    for count in counts(model, 3):
        sites = some_sites(model, count)
        after = x.clone()
        after[:, sites] = y[:, sites]
        moved = model.moved(model.cache(x), x, sites, y[:, sites])
        close(list(moved), list(model.cache(after)))


@every_model
@pytest.mark.parametrize("flips", [1, 3])
def test_evaluation_after_flips_is_plain_evaluation(model, flips):
    """Sites drawn more than once flip once, as Gibbs with gradients draws them."""
    x, rng = states(model), Generator().manual_seed(1)
    index = torch.randint(model.domain.dim, (len(x), flips), generator=rng)
    index[0] = index[0, 0]
    y = model.domain.move_one(x, index)
    log_prob, grad, cache = model.evaluate_flipped(model.cache(x), x, y, index)
    close(log_prob, model(y))
    close(grad, EnergyModel.log_prob_and_grad(model, y)[1])
    close(list(cache), list(model.cache(y)))


@pytest.mark.parametrize("model", LATTICES.values(), ids=LATTICES.keys())
def test_differences_after_a_flip(model):
    """The listed differences are exact, and the others have not changed."""
    x, rng = states(model), Generator().manual_seed(1)
    everywhere = torch.arange(model.domain.dim)
    known = model.differences(x, model.cache(x), everywhere)
    index = torch.randint(model.domain.dim, (len(x), 1), generator=rng)
    y = model.domain.move_one(x, index)
    sites, changed = model.differences_after(y, index)
    known = changed if sites is None else known.scatter(1, sites, changed)
    close(known, model.differences(y, model.cache(y), everywhere))
    assert (known.abs() <= model.flip_bound * (1 + 1e-6)).all()


@pytest.mark.parametrize(
    "model", [lattice((2, 3)), lattice((5,), False), dense(5), rbm(5, 3)], ids=repr
)
def test_conditionals_are_those_of_the_enumerated_law(model):
    """p(site high given the rest), and p(block given the rest), from a table of all states."""
    every = model.domain.enumerate().double()
    law = model(every).softmax(0)
    row = {tuple(x.tolist()): p for x, p in zip(every, law.tolist(), strict=True)}
    dim, x = model.domain.dim, states(model)
    sites = some_sites(model, 2)
    odds = model.log_odds(x, model.cache(x), sites)
    patterns = model.domain.patterns(2)
    block = model.block_log_probs(x, model.cache(x), sites, patterns.unsqueeze(0)).softmax(-1)
    for chain, site in itertools.product(range(len(x)), range(2)):
        rest = [x[chain].tolist() for _ in range(2)]
        for value in (0, 1):
            rest[value][sites[site]] = float(value)
        low, high = (row[tuple(r)] for r in rest)
        assert math.isclose(odds[chain, site].sigmoid(), high / (low + high), rel_tol=1e-6)
    for chain in range(len(x)):
        after = x[chain].expand(len(patterns), dim).clone()
        after[:, sites] = patterns.double()
        joint = torch.tensor([row[tuple(r)] for r in after.tolist()], dtype=torch.float64)
        close(block[chain], joint / joint.sum())


def test_block_conditionals_of_an_rbm():
    """p(h given x) and p(x given h) from the joint law exp(x'Wh + b'x + c'h), enumerated."""
    model = rbm(4, 3)
    weight, b, c = model.weight, model.visible_bias, model.hidden_bias
    x, h = Binary(4).enumerate().double(), Binary(3).enumerate().double()
    joint = (x @ weight @ h.T + (x @ b).unsqueeze(1) + h @ c).exp()
    close(joint.sum(1).log(), model(x))
    close((joint @ h) / joint.sum(1, keepdim=True), model.hidden_inputs(x).sigmoid())
    close((joint.T @ x) / joint.T.sum(1, keepdim=True), model.visible_inputs(h).sigmoid())


def test_an_rbm_starts_from_the_data_mean_away_from_its_ends():
    """At the log-odds of the mean clamped to [0.01, 0.99], as the released scripts have it."""
    model = RBM(5, 2)
    model.start_from_data(torch.tensor([0.0, 0.005, 0.3, 0.995, 1.0]))
    expected = torch.tensor([0.01, 0.01, 0.3, 0.99, 0.99])
    torch.testing.assert_close(model.visible_bias.sigmoid(), expected)


def test_the_critical_lattice_is_self_dual():
    """H. Kramers and G. Wannier, 1941: sinh(2 K) = 1, K the coupling of an edge."""
    assert math.isclose(math.sinh(2 * 2 * critical_lattice((3, 3)).coupling), 1, rel_tol=1e-9)
    twice = critical_lattice((3, 3), relative=2.0, bias=0.3)
    assert math.isclose(twice.coupling, 2 * critical_lattice((3, 3)).coupling)
    torch.testing.assert_close(twice.bias, torch.full((9,), 0.3))


def test_the_spin_glass_by_its_definition():
    """Every pair counts once, and g_ij has variance 1 / dim."""
    dim, beta = 60, 1.5
    model = sherrington_kirkpatrick(dim, beta, seed=4)
    g = 2 * model.matrix() / beta
    pairs = g[torch.triu_indices(dim, dim, 1).unbind()]
    error = (2 / len(pairs)) ** 0.5  # of the variance, relative
    assert abs(float(pairs.var()) * dim - 1) < 4.5 * error
    x = model.domain.uniform(3, Generator().manual_seed(0))
    spins = 2 * x - 1
    by_pairs = sum(beta * g[i, j] * spins[:, i] * spins[:, j] for i in range(dim) for j in range(i))
    torch.testing.assert_close(model(x), by_pairs)


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
    twin = DenseIsing(model.coupling * matrix, model.bias)
    x, every = states(model), torch.arange(model.domain.dim)
    close(model.adjacency(), matrix)
    close(model(x), twin(x))
    close(model.log_prob_and_grad(x)[1], twin.log_prob_and_grad(x)[1])
    close(model.log_odds(x, (), every), twin.log_odds(x, twin.cache(x), every))


@pytest.mark.parametrize("periodic", [True, False], ids=["periodic", "open"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_neighbour_table_is_the_neighbour_sum(shape, periodic):
    neighbours, exists = neighbour_table(shape, periodic)
    x = torch.randn(3, math.prod(shape), generator=Generator().manual_seed(0), dtype=torch.float64)
    around = (x[:, neighbours] * exists).sum(-1)
    close(neighbour_sum(x, shape, periodic), around)
    close(neighbour_sum(x, shape, periodic), x @ adjacency(shape, periodic))


def test_periodic_and_open_lattices_differ():
    """Control: the comparisons above distinguish the models."""
    x = states(lattice())
    assert (lattice(periodic=True)(x) - lattice(periodic=False)(x)).abs().max() > 0.1


def test_the_convention_counts_each_edge_twice():
    """Two spins: a s'Js + b's is 2a + 2b where both are up, -2a where they differ."""
    model = Lattice((2,), coupling=0.3, bias=0.1)
    values = model(torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]]))
    torch.testing.assert_close(values, torch.tensor([0.8, -0.6, 0.4]))


def tensor_numbers(model):
    return sum(t.numel() for t in (*model.parameters(), *model.buffers()))


def test_a_lattice_of_a_million_sites():
    """Building and evaluating it takes memory linear in the sites; a dense J would not fit."""
    small, large = Lattice((100, 100), 0.1, 0.2), Lattice((1000, 1000), 0.1, 0.2)
    assert tensor_numbers(large) < 101 * tensor_numbers(small)
    x = large.domain.uniform(1, Generator().manual_seed(0))
    log_prob, grad = large.log_prob_and_grad(x)
    # Far less than a Metropolis ratio would notice, in float32.
    exact = copy.deepcopy(large).double()(x.double()).float()
    torch.testing.assert_close(log_prob, exact, rtol=1e-6, atol=0.01)
    sites = torch.tensor([0, 999, 500_500, 999_999])
    torch.testing.assert_close(large.log_odds(x, (), sites), grad[:, sites])
    single = [large.log_odds(x, (), site.view(1)) for site in sites]
    torch.testing.assert_close(torch.cat(single, -1), grad[:, sites])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Lattice((), 0.1), "shape must be positive side lengths"),
        (lambda: Lattice((3, 0), 0.1), "shape must be positive side lengths"),
        (lambda: Lattice((3,), 0.1, [0.1, 0.2]), "bias must be one number or 3, got 2"),
        (lambda: DenseIsing(torch.ones(2, 2)), "zero diagonal"),
        (lambda: DenseIsing(torch.tensor([[0.0, 1.0], [0.0, 0.0]])), "symmetric"),
        (lambda: erdos_renyi(5, 9, 0.1), r"mean_degree must be in \(0, 4\], got 9"),
        (lambda: RBM(3, 0), "needs visible and hidden units"),
        (lambda: Binary(2, 1, 0), "low < high"),
        (lambda: sherrington_kirkpatrick(1, 1.0), "dim must be at least 2"),
        (lambda: sherrington_kirkpatrick(4, 0.0), "beta positive, got 4 and 0.0"),
    ],
)
def test_bad_arguments_say_so(make, message):
    with pytest.raises(ValueError, match=message):
        make()
