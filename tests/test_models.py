"""Models: closed forms and local methods against plain evaluation of `forward`; definitions."""

import copy
import itertools
import math
import pickle

import pytest
import torch
from plain import agree
from targets import scattered
from torch import Generator
from torch.distributions import Bernoulli, Normal

import latticework as lw
from latticework.models.lattice import colouring, neighbour_sum, neighbour_table

SHAPES = [(1,), (2,), (5,), (2, 2), (2, 5), (3, 4), (2, 3, 3), (1, 3, 1)]
POTTS_SHAPES = [(4,), (2, 3), (3, 3), (1, 5), (2, 3, 3)]


def lattice(shape=(3, 4), periodic=True, *, by_neighbours=False):
    bias = [0.3 * math.sin(2.0 * i + 0.5) for i in range(math.prod(shape))]  # no symmetry
    model = lw.Lattice(shape, 0.23, bias, periodic)
    if by_neighbours:  # as a lattice too large for one matrix computes
        model.dense = None
    return model.double()


def potts(shape=(3, 3), periodic=True, values=3, coupling=0.7):
    sites = math.prod(shape)
    bias = torch.sin(torch.arange(sites * values) * 1.7 + 0.3).view(sites, values)
    return lw.LatticePotts(shape, values, coupling, bias.tolist(), periodic).double()


def dense(dim=7):
    rng = Generator().manual_seed(3)
    upper = torch.randn(dim, dim, generator=rng, dtype=torch.float64).triu(1)
    return lw.DenseIsing(upper + upper.T, torch.randn(dim, generator=rng, dtype=torch.float64))


def graph(dim=9, degree=3):
    """Fields, weights of both signs, and a site without edges."""
    regular, rng = lw.regular_graph(dim - 1, degree, 0.4), Generator().manual_seed(3)
    return lw.Graph(regular.edges, regular.weights, torch.randn(dim, generator=rng), offset=0.3)


def potts_graph(values=3):
    source, rng = graph(), Generator().manual_seed(1)
    bias = torch.randn(9, values, generator=rng)
    return lw.GraphPotts(source.edges, source.weights, values, bias, 9).double()


def rbm(visible=6, hidden=4):
    return scattered(lw.RBM(visible, hidden).double(), 2)


def net(chunk=None):
    """Chunks of 20 and 45 divide neither rows nor chains."""
    whole = lw.synthetic_bayes_net(2, 3, rows=9).double()
    return lw.BayesNet(whole.inputs[:, :-1], whole.targets, 3, 30.0, chunk)


def network():
    torch.manual_seed(0)
    model = lw.ResNet((4, 2), 3, 3).double()
    for parameter in model.parameters():
        parameter.normal_(0, 0.35)
    return model


LATTICES = {
    f"{shape}-{periodic}-{way}": lattice(shape, periodic, by_neighbours=way == "neighbours")
    for shape in SHAPES
    for periodic in (True, False)
    for way in ("matrix", "neighbours")
}
MODELS = {
    **LATTICES,
    **{f"potts{s}-{p}": potts(s, p) for s in POTTS_SHAPES for p in (True, False)},
    "dense potts": lw.random_potts(5, 4, 2.0).double(),
    "dense": dense(),
    "random graph": lw.erdos_renyi(9, 3, 0.4).double(),
    "graph": graph().double(),
    "graph of few neighbours": graph(41).double(),
    "graph without edges": lw.Graph([], [], [0.3, -0.2, 0.1]).double(),
    "potts on edges": potts_graph(),
    "potts without edges": lw.GraphPotts([], [], 4, [0.3, -0.2, 0.1, 0.0], sites=3).double(),
    "star": lw.Graph([[0, i] for i in range(1, 9)], 0.3, 0.1).double(),
    "rbm": rbm(),
    "fhmm": lw.synthetic_fhmm(4, 3, 0.5, 0.1, 0.9).double(),
    "fhmm of one time": lw.synthetic_fhmm(1, 3, 0.5, 0.1, 0.9).double(),
    "network": network(),
    **{f"net-{chunk}": net(chunk) for chunk in (None, 1, 20, 45, 10_000)},
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


def states(model, chains=6, seed=0):
    return model.domain.uniform(chains, Generator().manual_seed(seed)).double()


def close(ours, theirs):
    """Up to float32, since a lattice rounds its coefficients at construction."""
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


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


# Definitions.


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


def pair_of(coupling):
    """The couplings of two sites of three values, between values that differ."""
    matrix = torch.zeros(6, 6)
    matrix[0, 4] = matrix[4, 0] = coupling
    return matrix


# Couplings and biases of -inf.

NOT = -math.inf
FORBIDDING = {  # edges, couplings, biases and the number of sites; then how the model is made
    "colouring of a cycle": ([(0, 1), (1, 2), (2, 3), (3, 0)], [NOT] * 4, [[0.0] * 3] * 4),
    "colouring by lists": (
        [(0, 1), (1, 2), (0, 2)],
        [NOT] * 3,
        [[0.3, NOT, 0.1], [0.2, -0.5, NOT], [NOT, NOT, 0.4], [NOT, 1.0, 2.0]],
    ),
    "some edges": (
        [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)],
        [NOT, 0.7, -1.2, NOT, 900.0],
        [[0.2, -0.4, 0.1], [0.5, 0.0, NOT], [0.0, 0.3, 0.0], [-0.2, 0.0, 0.0]],
    ),
    "a star": ([(0, i) for i in range(1, 6)], [NOT, 0.3, NOT, 0.5, NOT], [[0.1, 0.2, 0.0]] * 6),
    "an edge given twice": ([(0, 1), (1, 0)], [NOT, 5.0], [[0.1, 0.2, 0.0]] * 2),
    "two values": ([(0, 1), (1, 2)], [NOT, NOT], [[0.1, 0.2]] * 3),
    "biases alone": ([(0, 1)], [0.5], [[NOT, 0.2, 0.0], [0.1, NOT, NOT]]),
}
LATTICES_FORBIDDING = {
    "a lattice": lambda: lw.LatticePotts((2, 3), 3, NOT, [0.2, -0.4, 0.1], False),
    "a ring": lambda: lw.LatticePotts((5,), 3, NOT),
    "a lattice by lists": lambda: lw.LatticePotts(
        (2, 2), 3, NOT, [[NOT, 0.1, 0.2], [0.0, NOT, 0.3], [0.1, 0.0, 0.0], [0.0, 0.0, NOT]]
    ),
    "a lattice with biases of -inf": lambda: lw.LatticePotts((3,), 3, 0.6, [0.2, NOT, 0.1]),
}


def described(name):
    """The model, and its edges, couplings and biases as plain lists."""
    if name in FORBIDDING:
        edges, couplings, bias = FORBIDDING[name]
        model = lw.GraphPotts(edges, couplings, len(bias[0]), bias, len(bias))
        return model, edges, couplings, bias
    model = LATTICES_FORBIDDING[name]()
    edges = lw.Lattice(model.shape, 1.0, periodic=model.periodic).adjacency().triu().nonzero()
    coupling = 0.6 if name == "a lattice with biases of -inf" else NOT
    bias = torch.where(model.bias < -1e20, NOT, model.bias.double()).tolist()
    return model, edges.tolist(), [coupling] * len(edges), bias


forbidding = pytest.mark.parametrize("name", [*FORBIDDING, *LATTICES_FORBIDDING])


@forbidding
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_forbidden_states_are_those_of_a_plain_loop(name, dtype):
    model, edges, couplings, bias = described(name)
    values, expected = len(bias[0]), []
    states = list(itertools.product(range(values), repeat=len(bias)))
    for state in states:
        total = sum(bias[i][v] for i, v in enumerate(state))
        for (i, j), coupling in zip(edges, couplings, strict=True):
            total += coupling if state[i] == state[j] else 0.0
        expected.append(total)
    x = torch.nn.functional.one_hot(torch.tensor(states), values).to(dtype)
    truth = torch.tensor(expected, dtype=dtype)
    torch.testing.assert_close(model.to(dtype).log_prob(x), truth, rtol=1e-6, atol=1e-6)
    exact = lw.exact(model).log_z.double()
    torch.testing.assert_close(exact, truth.double().logsumexp(0), rtol=1e-5, atol=1e-5)


@forbidding
def test_local_methods_of_forbidding_models_are_those_of_the_function(name):
    model = described(name)[0].double()
    plain, every = lw.Function(model.forward, model.domain), model.domain.enumerate().double()
    x = every[model(every) > NOT][:50]
    sites = torch.randperm(model.domain.dim, generator=Generator().manual_seed(0))
    for block in (sites[:1], sites[:2], sites):
        differences = model.differences(x, (), block)
        close(differences, plain.differences(x, (), block))
        patterns, _ = model.domain.block(x, block)
        law = model.block_log_probs(x, (), block, patterns).softmax(-1)
        close(law, plain.block_log_probs(x, (), block, patterns).softmax(-1))
    site = sites[:1]
    close(
        model.site_log_probs(x, (), site).softmax(-1), plain.site_log_probs(x, (), site).softmax(-1)
    )


@forbidding
def test_tables_tell_which_states_are_possible(name):
    model = described(name)[0]
    x = model.domain.enumerate()
    codes = x.argmax(-1).numpy()
    allowed = torch.ones(len(x), dtype=torch.bool)
    for scope, table in model.support_tables():
        allowed &= torch.from_numpy(table[tuple(codes[:, scope].T)])
    assert torch.equal(allowed, model(x) > NOT)
    assert lw.GraphPotts([[0, 1]], 0.5, 3).support_tables() is None


@forbidding
def test_forbidding_models_have_no_gradient_and_keep_their_states_when_they_are_copied(name):
    model = described(name)[0]
    x = model.domain.enumerate()
    with pytest.raises(lw.models.base.NotDifferentiableError, match="-inf have no gradient"):
        model.log_prob_and_grad(x)
    kind = type(model)
    if kind is lw.GraphPotts:
        other = lw.GraphPotts(model.graph.edges, 0.5, model.domain.num_values, 0.1, len(x[0]))
        other.load_state_dict(model.state_dict())
        assert torch.equal(other(x), model(x))
        with pytest.raises(lw.models.base.NotDifferentiableError):
            other.log_prob_and_grad(x)
        plain = lw.GraphPotts(model.graph.edges, 0.5, model.domain.num_values, 0.1, len(x[0]))
        model.load_state_dict(plain.state_dict())
        assert model.log_prob_and_grad(x)[0].isfinite().all()
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(again(x), model(x))


def test_a_large_graph_of_strong_couplings_forbids_the_same():
    """The sum of its other couplings is far more than any price that a zero could have."""
    edges = [[i, i + 1] for i in range(100_000)]
    model = lw.GraphPotts(edges, [NOT, *[50.0] * (len(edges) - 1)], 3)
    x = torch.zeros(2, len(edges) + 1, 3)
    x[..., 0] = 1
    x[1, 0] = torch.tensor([0.0, 1.0, 0.0])
    assert model(x).tolist() == [NOT, 50.0 * (len(edges) - 1)]


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
