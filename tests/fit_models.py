"""Models that `latticework.fit` learns in tests, and rows to learn from."""

import torch

import latticework as lw
from latticework.data.base import Dataset

GIBBS = lw.BlockGibbs()


def rbm(visible=8, hidden=4):
    torch.manual_seed(0)
    return lw.RBM(visible, hidden)


def resnet():
    torch.manual_seed(0)
    return lw.ResNet((2, 4), 3, 2)


def rated_rbm():
    torch.manual_seed(0)
    return lw.RatedRBM(8, 4)


def learned_ising():
    torch.manual_seed(0)
    return lw.LearnedIsing((2, 4), 0.01)


def stripes(rows=300):
    """Two kinds of rows of 8 sites, with noise, which no independent sites explain."""
    rng = torch.Generator().manual_seed(0)
    kind = torch.randint(2, (rows, 1), generator=rng)
    flips = torch.rand(rows, 8, generator=rng) < 0.1
    return ((torch.arange(8) < 4) ^ kind.bool() ^ flips).byte()


STRIPES = stripes()
DATA = Dataset(STRIPES[:200], STRIPES[200:250], STRIPES[250:], (8,), "stripes")
EDGES = [[i, j] for i in range(8) for j in range(i)]
# A model of each class with parameters, where learning begins, of states like `STRIPES`.
STARTS = {
    "rbm": rbm,
    "rated rbm": rated_rbm,
    "graph": lambda: lw.Graph(EDGES, 0.0, sites=8),
    "dense ising": lambda: lw.DenseIsing(torch.zeros(8, 8)),
    "learned ising": learned_ising,
    "network": resnet,
}


def rows_of(model, count=400):
    every = model.domain.enumerate()
    law = model(every).double().softmax(0)
    drawn = torch.multinomial(law, count, True, generator=torch.Generator().manual_seed(0))
    return every[drawn]
