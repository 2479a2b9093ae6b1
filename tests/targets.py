"""Small targets that can be listed: asymmetric, not quadratic, on every domain; real models too.

On such a target no sampler is exact by accident, and everything a test needs of it is known in
float64 from `forward` alone: log-probabilities, their autograd gradient, the law.
"""

import copy
import itertools

import numpy as np
import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.bayes_net import synthetic_bayes_net
from latticework.models.domain import Binary, Categorical, Domain, Integer, Ordinal
from latticework.models.ising import DenseIsing, Lattice
from latticework.models.potts import DensePotts, LatticePotts
from latticework.models.quadratic import LogQuadratic
from latticework.models.rbm import RBM
from latticework.models.regression import synthetic_regression


class Asymmetric(EnergyModel):
    """log pi(x) = b'z + z'Jz + 0.6 cos(2 c'z) - width |z|^2, with z = x flattened."""

    def __init__(self, domain: Domain, scale: float = 1.0, width: float = 0.0, seed: int = 7):
        super().__init__()
        self.domain, self.width = domain, width
        size, rng = int(np.prod(domain.shape)), Generator().manual_seed(seed)
        self.register_buffer("linear", torch.randn(size, generator=rng) * scale)
        self.register_buffer("pair", torch.randn(size, size, generator=rng) * 0.6 * scale**2)
        self.register_buffer("wave", torch.randn(size, generator=rng) * scale)

    def forward(self, x: Tensor) -> Tensor:
        z = x.flatten(1)
        smooth = z @ self.linear + ((z @ self.pair - self.width * z) * z).sum(-1)
        return smooth + 0.6 * torch.cos(2 * z @ self.wave)


class Target:
    """A model with its states, `[n, *shape]`, and its values there as NumPy arrays in float64.

    `inner` lists the states from which one step cannot leave the list. That is all of them but on
    an infinite domain, of which only a `box` of values is listed, whose edge has next to no mass.
    """

    def __init__(self, model: EnergyModel, box: range | None = None) -> None:
        self.model, self.domain = model, model.domain
        dim = self.domain.dim
        values = self.domain.values() if box is None else torch.tensor(box).float()
        index = torch.tensor(list(itertools.product(range(len(values)), repeat=dim)))
        self.states = values[index]
        self.inner = np.arange(len(self.states))
        if box is not None:
            reach = 2 * self.domain.window  # LB-1 looks a window beyond the state it proposes
            low, high = self.states.amin(-1) - reach, self.states.amax(-1) + reach
            bounded = self.domain.low is not None
            self.inner = np.flatnonzero(((low >= box[0]) | bounded) & (high <= box[-1]))

        x = self.states.double().requires_grad_()
        log_prob = copy.deepcopy(model).double()(x)
        (grad,) = torch.autograd.grad(log_prob.sum(), x)
        self.log_prob, self.grad = log_prob.detach().numpy(), grad.flatten(1).numpy()
        self.law = log_prob.detach().softmax(0).numpy()
        self.z = x.detach().flatten(1).numpy()  # flat states, as the formulas read them

        self._radix = int(self.z.max() - self.z.min()) + 1
        self._table = np.full(self._radix ** self.z.shape[1], -1)
        self._table[self._key(self.z)] = np.arange(len(self.z))

    def _key(self, z: np.ndarray) -> np.ndarray:
        digits = (z - self.z.min()).round().astype(int)
        assert (digits + self.z.min() == z).all(), "not a state of the domain"
        assert ((digits >= 0) & (digits < self._radix)).all(), "not a listed state"
        return digits @ self._radix ** np.arange(z.shape[1])

    def index(self, x: Tensor) -> np.ndarray:
        """The index of each row of `x` among the states. AssertionError if it is not a state."""
        index = self._table[self._key(x.flatten(1).double().numpy())]
        assert (index >= 0).all(), "not a state of the domain"
        return index

    def draw(self, law: np.ndarray, count: int, rng: Generator) -> Tensor:
        """Independent draws from a law over the states, `[count, *shape]`."""
        drawn = torch.multinomial(torch.from_numpy(law), count, replacement=True, generator=rng)
        return self.states[drawn]

    def sites_changed(self, x: int, y: int) -> list[int]:
        """The sites at which two states differ."""
        different = (self.z[x] != self.z[y]).reshape(self.domain.dim, -1)
        return list(np.flatnonzero(different.any(-1)))


def _rbm() -> RBM:
    model, rng = RBM(4, 3), Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.normal_(generator=rng)
    return model


def _local(model: Lattice) -> Lattice:
    """The lattice with the code path of large ones: it sums over neighbours, without a matrix."""
    model.dense = None
    return model


def _symmetric(size: int, scale: float, block: int = 1) -> Tensor:
    """A random symmetric matrix with zero diagonal blocks."""
    mask = torch.ones(size // block, size // block).triu(1).kron(torch.ones(block, block))
    upper = torch.randn(size, size, generator=Generator().manual_seed(5)) * mask * scale
    return upper + upper.T


def _quadratic() -> LogQuadratic:
    """Spins with dense couplings, and a diagonal that changes the gradient only."""
    weight = _symmetric(3, 0.4) + torch.diag(torch.tensor([0.3, -0.2, 0.5]))
    return LogQuadratic(weight, [0.3, -0.1, 0.2], domain=Binary(3, -1, 1))


def _by_neighbours(lattice: Lattice) -> Lattice:
    """Use the code path of large lattices, without a dense coupling."""
    lattice.dense = None
    return lattice


TARGETS = {
    "binary": Target(Asymmetric(Binary(3))),
    "spins": Target(Asymmetric(Binary(3, -1, 1), scale=0.7)),
    "categorical": Target(Asymmetric(Categorical(2, 3))),
    "ordinal": Target(Asymmetric(Ordinal(2, 4), scale=0.6, width=0.3)),
    "integers": Target(Asymmetric(Integer(1, window=2), scale=0.8, width=0.6), range(-11, 12)),
    "naturals": Target(Asymmetric(Integer(2, low=0), scale=0.6, width=0.6), range(9)),
    "lattice": Target(Lattice((3, 2), 0.2, [0.3, -0.2, 0.1, 0.0, 0.4, -0.1])),
    "ring": Target(_local(Lattice((5,), -0.15, [0.2, -0.3, 0.0, 0.4, -0.1]))),
    "sheet": Target(_local(Lattice((2, 3), 0.25, [0.3, 0.1, -0.2, 0.0, 0.1, -0.4], False))),
    "grid": Target(_by_neighbours(Lattice((2, 3), 0.25, [0.3, -0.2, 0.1, 0, 0.4, -0.1], False))),
    "dense_ising": Target(DenseIsing(_symmetric(3, 0.5), torch.tensor([0.2, -0.3, 0.1]))),
    "quadratic": Target(_quadratic()),
    "rbm": Target(_rbm()),
    "regression": Target(synthetic_regression(5, 3)),
    "bayes_net": Target(synthetic_bayes_net(1, 2, rows=5, scale=8.0)),
    "lattice_potts": Target(LatticePotts((3,), 3, 0.7, [0.2, -0.4, 0.1])),
    "dense_potts": Target(DensePotts(_symmetric(6, 0.8, block=3), 3, torch.tensor([0.5, 0, -0.2]))),
}
ISING = ("lattice", "ring", "sheet", "dense_ising")
BINARY = ("binary", "spins", "rbm", "quadratic", *ISING)
CATEGORICAL = ("categorical", "lattice_potts", "dense_potts")
INTEGER = ("integers", "naturals")
FINITE = (*BINARY, *CATEGORICAL, "ordinal")
EVERY = (*FINITE, *INTEGER)
