"""Small models of every class in double precision, and states of them."""

import math

import pytest
import torch
from targets import scattered
from torch import Generator

import latticework as lw

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


def pair_of(coupling):
    """The couplings of two sites of three values, between values that differ."""
    matrix = torch.zeros(6, 6)
    matrix[0, 4] = matrix[4, 0] = coupling
    return matrix
