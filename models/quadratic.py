"""The targets of Theorems 5.1 and 5.2: log-quadratic ones, and a counterexample.

    LogQuadratic    log pi(x) = x' W x + b' x                          Eq. (5)
    Sine            log pi(t) = a t^2 + b t + 2 epsilon sin(t pi / 2),  t in {-1, 1}   Section 5.2

R. Zhang, X. Liu and Q. Liu, "A Langevin-like Sampler for Discrete Distributions", ICML 2022. Unlike
in models/ising.py, x are the values of the domain: on `Binary(dim, -1, 1)` x are spins, and step
sizes are in squared units of spins. W is symmetric. Its diagonal matters even where x_i^2 is
constant, because it changes the gradient.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from latticework.models.abilities import NearQuadratic
from latticework.models.base import EnergyModel
from latticework.models.domains import Binary, Categorical, Domain
from latticework.models.forms import PairForm, array
from latticework.models.ising import Lattice
from latticework.models.matmul import affine


class LogQuadratic(EnergyModel, NearQuadratic):
    """log pi(x) = x' W x + b' x up to a constant.

    `weight` W is `[dim, dim]` and `bias` b one number or `[dim]`, on any domain with states
    `[chains, dim]`. Raises ValueError for one-hot states, for a W that is not symmetric or not of
    the domain's size, and for a bias of another length.
    """

    weight: Tensor
    bias: Tensor
    quadratic = True
    offset = 0.0  # the share of other values' spins in log pi (`quadratic_ising`)

    def __init__(
        self,
        weight: Tensor | Sequence[Sequence[float]],
        bias: Tensor | float | Sequence[float] = 0.0,
        *,
        domain: Domain,
    ) -> None:
        super().__init__()
        if isinstance(domain, Categorical):
            raise ValueError(f"domain must have one number a site, got {domain}; use a Potts model")
        dim = domain.dim
        matrix = weight if isinstance(weight, Tensor) else torch.tensor([list(r) for r in weight])
        if matrix.shape != (dim, dim) or not torch.equal(matrix, matrix.T):
            raise ValueError(f"weight must be symmetric, [{dim}, {dim}], got {matrix.tolist()}")
        field = torch.as_tensor(list(bias) if isinstance(bias, Sequence) else bias)
        if field.ndim and len(field) != dim:
            raise ValueError(f"bias must be one number or {dim}, got {len(field)}")
        self.domain = domain
        self.register_buffer("weight", matrix.float())
        self.register_buffer("bias", field.float().expand(dim).clone())

    def forward(self, x: Tensor) -> Tensor:
        return (x * (x @ self.weight + self.bias)).sum(-1) + self.offset

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient is 2 W x + b."""
        field = affine(self.bias, x, self.weight)
        log_prob = torch.linalg.vecdot(x, field)
        if self.offset:
            log_prob += self.offset
        return log_prob, field.mul_(2).sub_(self.bias)

    def gradient(self, x: Tensor) -> Tensor:
        return affine(self.bias, 2 * x, self.weight)

    def form(self) -> PairForm | None:
        if not isinstance(self.domain, Binary):
            return None
        return PairForm(
            matrix=array(2 * self.weight),
            offset=array(self.bias),
            diagonal=array(self.weight.diag()),
            low=self.domain.low,
            high=self.domain.high,
        )

    def log_quadratic(self) -> "LogQuadratic":
        """The log-quadratic pi' that Theorem 5.2 compares this target with: itself."""
        return self


def quadratic_ising(
    shape: Sequence[int],
    coupling: float,
    bias: float = 0.0,
    low: float = -1.0,
    high: float = 1.0,
    periodic: bool = True,
) -> LogQuadratic:
    """The target s' c A s + b' s of spins s on a lattice, in coordinates x in {low, high}.

    A is the lattice's binary adjacency. With s = k x + m, W is k^2 c A, the bias is k (b + 2 m c
    A 1) and the offset m^2 c 1'A 1 + m b'1.
    """
    matrix = coupling * Lattice(shape, coupling, bias, periodic).adjacency()
    domain = Binary(len(matrix), low, high)  # refuses high <= low
    k, m = 2 / (high - low), -(high + low) / (high - low)
    field = k * (bias + 2 * m * matrix.sum(-1))
    model = LogQuadratic(k**2 * matrix, field, domain=domain)
    model.offset = m**2 * float(matrix.double().sum()) + m * bias * len(matrix)
    return model


class Sine(EnergyModel, NearQuadratic):
    """log pi(t) = a t^2 + b t + 2 epsilon sin(t pi / 2) on the one spin t in {-1, 1}.

    Its gradient, 2 a t + b + epsilon pi cos(t pi / 2), does not depend on epsilon at t = -1 or 1,
    but the distribution does: the paper's counterexample to all gradient-based proposals.
    """

    def __init__(self, a: float, b: float, epsilon: float) -> None:
        super().__init__()
        self.a, self.b, self.epsilon = float(a), float(b), float(epsilon)
        self.domain = Binary(1, -1.0, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        t = x.squeeze(-1)
        return self.a * t * t + self.b * t + 2 * self.epsilon * torch.sin(t * (math.pi / 2))

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self(x), self.gradient(x)

    def gradient(self, x: Tensor) -> Tensor:
        wave = self.epsilon * math.pi * torch.cos(x * (math.pi / 2))
        return 2 * self.a * x + self.b + wave

    def log_quadratic(self) -> LogQuadratic:
        """The pi' of Theorem 5.2: a t^2 + b t."""
        return LogQuadratic([[self.a]], self.b, domain=self.domain)
