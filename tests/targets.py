"""Small targets that can be listed: asymmetric, not quadratic, on every domain; real models too.

On such a target no sampler is exact by accident, and everything a test needs of it is known in
float64 from `forward` alone: log-probabilities, their autograd gradient, the law.
"""

from math import inf
from typing import TypeVar

import torch
from torch import Generator, Tensor

import latticework as lw
from latticework.sampling.checking.targets import SMALL_TARGETS, Asymmetric, Target

Model = TypeVar("Model", bound=lw.EnergyModel)


def scattered(model: Model, seed: int = 0, std: float = 1.0) -> Model:
    """The model itself, with normal parameters."""
    rng = Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.normal_(std=std, generator=rng)
    return model


def _local(model: lw.Lattice) -> lw.Lattice:
    """The lattice with the code path of large ones: it sums over neighbours, without a matrix."""
    model.dense = None
    return model


def _symmetric(size: int, scale: float, block: int = 1) -> Tensor:
    """A random symmetric matrix with zero diagonal blocks."""
    mask = torch.ones(size // block, size // block).triu(1).kron(torch.ones(block, block))
    upper = torch.randn(size, size, generator=Generator().manual_seed(5)) * mask * scale
    return upper + upper.T


def _quadratic() -> lw.LogQuadratic:
    """Spins with dense couplings, and a diagonal that changes the gradient only."""
    weight = _symmetric(3, 0.4) + torch.diag(torch.tensor([0.3, -0.2, 0.5]))
    return lw.LogQuadratic(weight, [0.3, -0.1, 0.2], domain=lw.Binary(3, -1, 1))


def _network(values: tuple[int, ...], scopes: list[tuple[int, ...]]) -> lw.Factors:
    rng = Generator().manual_seed(7)
    return lw.Factors(
        [(scope, torch.randn([values[i] for i in scope], generator=rng)) for scope in scopes],
        len(values),
    )


def _either() -> lw.Factors:
    """The last variable is 1 if one of the others is: one site alone can hardly move."""
    table = torch.full((2, 2, 2), -torch.inf)
    table[0, 0, 0] = table[0, 1, 1] = table[1, 0, 1] = table[1, 1, 1] = 0
    single = [((0,), torch.tensor([0.3, -0.2])), ((1,), torch.tensor([0.0, 0.4]))]
    return lw.Factors([((0, 1, 2), table), *single])


TARGETS = {
    **{name: make() for name, make in SMALL_TARGETS.items()},
    # Fewer values than those of `check`: some laws are sums over all paths of several moves.
    "categorical": Target(Asymmetric(lw.Categorical(2, 3))),
    "ordinal": Target(Asymmetric(lw.Ordinal(2, 4), scale=0.6, width=0.3)),
    "mixed": Target(Asymmetric(lw.Mixed([2, 4]), scale=0.8)),
    "subset": Target(Asymmetric(lw.Subset(5, 2))),
    "with_ones": Target(lw.Graph([[0, 1], [1, 3], [0, 3]], [0.4, -0.5, 0.3], 0.2).with_ones(2)),
    "lattice": Target(lw.Lattice((3, 2), 0.2, [0.3, -0.2, 0.1, 0.0, 0.4, -0.1])),
    "ring": Target(_local(lw.Lattice((5,), -0.15, [0.2, -0.3, 0.0, 0.4, -0.1]))),
    "sheet": Target(_local(lw.Lattice((2, 3), 0.25, [0.3, 0.1, -0.2, 0.0, 0.1, -0.4], False))),
    "dense_ising": Target(lw.DenseIsing(_symmetric(3, 0.5), torch.tensor([0.2, -0.3, 0.1]))),
    "graph": Target(lw.Graph([[0, 1], [1, 3], [0, 3]], [0.4, -0.5, 0.3], [0.2, -0.3, 0.1, 0.4])),
    "ferromagnet": Target(lw.Graph([[0, 1], [1, 3], [1, 4]], [0.6, 0.2, 0.4], 0.2, sites=5)),
    "given": Target(Asymmetric(lw.Binary(5)).condition_on({1: 1.0, 3: 0.0})),
    "network": Target(_network((2, 2, 2, 2), [(0, 1, 3), (2,), (3, 1), (2, 0, 1)])),
    "tables": Target(_network((3, 3), [(1, 0), (0,)])),
    "ragged": Target(_network((3, 2, 4), [(1, 0), (0,), (2, 0), (1,)])),
    "either": Target(_either()),
    "quadratic": Target(_quadratic()),
    "regression": Target(lw.synthetic_regression(5, 3)),
    "bayes_net": Target(lw.synthetic_bayes_net(1, 2, rows=5, scale=8.0)),
    "lattice_potts": Target(lw.LatticePotts((3,), 3, 0.7, [0.2, -0.4, 0.1])),
    "graph_potts": Target(
        lw.GraphPotts([[0, 1], [1, 3], [0, 3]], [0.8, -1.0, 0.6], 3, [0.2, -0.4, 0.1])
    ),
    # Forbidden states: equal ends of some edges, and a value of a site.
    "colouring": Target(
        lw.GraphPotts(
            [[0, 1], [1, 2]], [-inf, 0.6], 3, [[0.2, -0.4, 0.1], [0.0, 0.3, 0.1], [0.4, -inf, 0]]
        )
    ),
    "lattice_colouring": Target(lw.LatticePotts((3,), 3, -inf, [0.2, -0.4, 0.1], False)),
    # Ties: values of a site that are equally likely, whatever the others are or for some of them.
    "free": Target(lw.Graph([], [], sites=3)),
    "isolated": Target(lw.Graph([[0, 2]], 0.5, sites=3)),
    "zero_ring": Target(lw.Lattice((4,), 0.3)),
    "zero_sheet": Target(_local(lw.Lattice((2, 2), 0.3, periodic=False))),
    "zero_spins": Target(lw.LogQuadratic(torch.zeros(3, 3), domain=lw.Binary(3, -1, 1))),
    "zero_rbm": Target(lw.RBM(3, 1)),
    "two_values": Target(lw.GraphPotts([[0, 2]], 0.8, 2, sites=3)),
    "free_potts": Target(lw.LatticePotts((3,), 2, 0.0)),
    "zero_tables": Target(
        lw.Factors([((0, 1), torch.tensor([[0.5, 0.0], [0.0, 0.5]])), ((2,), torch.zeros(2))])
    ),
    "dense_potts": Target(
        lw.DensePotts(_symmetric(6, 0.8, block=3), 3, torch.tensor([0.5, 0, -0.2]))
    ),
}
TIES = (
    *("free", "isolated", "zero_ring", "zero_sheet", "zero_spins", "zero_rbm"),
    *("two_values", "free_potts", "zero_tables"),
)
ISING = ("lattice", "ring", "sheet", "dense_ising", "graph")
BINARY = ("binary", "spins", "rbm", "quadratic", *ISING)
CATEGORICAL = ("categorical", "lattice_potts", "dense_potts")
FORBIDDING = ("colouring", "lattice_colouring")
INTEGER = ("integers", "naturals")
FINITE = (*BINARY, *CATEGORICAL, "ordinal")
EVERY = (*FINITE, *INTEGER)
