"""Ising models with a dense coupling: random graphs, spin glasses, learned structure.

    log pi(x) = s' J s + b' s  up to a constant,     s = 2 x - 1 in {-1, 1}^d,  x in {0, 1}^d

J is symmetric, so each edge counts twice, as in `models.ising`.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Generator, Tensor

from latticework.models.base import Cache, EnergyModel
from latticework.models.domains import Binary
from latticework.models.flip_updates import add_rows, flip_changes
from latticework.models.forms import PairForm, array
from latticework.models.lattice import require_sides
from latticework.models.matmul import affine
from latticework.models.spins import pattern_log_probs, spins_of

if TYPE_CHECKING:
    from latticework.models.evidence import Evidence


class DenseIsing(EnergyModel):
    """Ising model with a dense symmetric coupling J `[d, d]`: random graphs, learned structure.

    Raises ValueError unless J is square, finite and symmetric with a zero diagonal (s_i^2 = 1, so
    a diagonal is a constant that only misleads the gradient).
    """

    closed_differences = True
    quadratic = True
    offset = 0.0  # the share of known sites (`condition_on`) in log pi

    def __init__(self, coupling: Tensor, bias: Tensor | float = 0.0) -> None:
        super().__init__()
        if coupling.ndim != 2 or not torch.equal(coupling, coupling.T) or coupling.diag().any():
            raise ValueError("coupling must be a square symmetric matrix with a zero diagonal")
        if not coupling.isfinite().all():
            raise ValueError(
                "coupling must be finite, got infinite entries; a coupling of 100 ties two "
                "sites as firmly for all practical purposes"
            )
        self.domain = Binary(len(coupling))
        self.coupling = torch.nn.Parameter(coupling.clone(), requires_grad=False)
        bias = torch.as_tensor(bias, dtype=coupling.dtype).expand(len(coupling)).clone()
        self.bias = torch.nn.Parameter(bias, requires_grad=False)

    def matrix(self) -> Tensor:
        """J, `[d, d]`."""
        return self.coupling

    @torch.no_grad()
    def project(self) -> None:
        """Make J exactly symmetric with a zero diagonal, after an update."""
        self.coupling.copy_(_without_diagonal(self.coupling))

    def form(self) -> PairForm:
        """In x, the gradient 2 b + 4 J s is (2 b - 4 J 1) + 8 J x."""
        coupling, bias = self.coupling.detach(), self.bias.detach()
        return PairForm(
            matrix=array(8 * coupling),
            offset=array((2 * bias - 4 * coupling.sum(1, dtype=torch.float64)).float()),
            diagonal=np.zeros(len(bias), np.float32),
            low=0.0,
            high=1.0,
        )

    def restrict(self, evidence: "Evidence") -> "DenseIsing":
        """Couplings to known sites become fields, what known sites have of log pi the offset."""
        free, known = evidence.free, evidence.known
        rows, spins = self.coupling.index_select(0, free), spins_of(evidence.values.double())
        field = rows.index_select(1, known).double() @ spins
        bias = self.bias.index_select(0, free).double() + 2 * field
        smaller = DenseIsing(rows.index_select(1, free), bias.to(rows))
        among = self.coupling.index_select(0, known).index_select(1, known).double()
        offset = spins @ (among @ spins + self.bias.index_select(0, known).double())
        smaller.offset = self.offset + float(offset)
        return smaller

    def forward(self, x: Tensor) -> Tensor:
        spins = 2 * x - 1
        return (spins * (spins @ self.coupling + self.bias)).sum(-1) + self.offset

    def gradient(self, x: Tensor) -> Tensor:
        """2 b + 4 J s, which is also each site's log-odds given the rest, `[chains, d]`."""
        return self._gradient(x)

    def _gradient(self, x: Tensor) -> Tensor:
        return affine(self.bias * 2, x.mul(8).sub_(4), self.coupling)

    def _log_prob(self, x: Tensor, grad: Tensor) -> Tensor:
        spins = spins_of(x)
        log_prob = torch.linalg.vecdot(spins, grad).mul_(0.5).add_(spins @ self.bias).mul_(0.5)
        return log_prob.add_(self.offset) if self.offset else log_prob

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        grad = self.gradient(x)
        return self._log_prob(x, grad), grad

    def _with_cache(self, x: Tensor, exact: Tensor) -> tuple[Tensor, Tensor, Cache]:
        grad = exact.to(x.dtype, copy=True)
        return self._log_prob(x, grad), grad, (exact,)

    def evaluate_with_cache(self, x: Tensor) -> tuple[Tensor, Tensor, Cache]:
        return self._with_cache(x, *self.cache(x))

    def evaluate_flipped(
        self, cache: Cache, x: Tensor, y: Tensor, index: Tensor
    ) -> tuple[Tensor, Tensor, Cache]:
        change = flip_changes(x, y, index).mul_(8)
        return self._with_cache(y, add_rows(cache[0], change, self.coupling, index))

    def cache(self, x: Tensor) -> Cache:
        """The gradient, in double precision, so that its changes add up without drift.

        A gradient of 10^4 would be off by 0.02 after 27,000 flips in single precision.
        """
        return (self._gradient(x).double(),)

    def update_cache(self, cache: Cache, x: Tensor, sites: Tensor, new: Tensor) -> Cache:
        change, rows = new - x.index_select(1, sites), self.coupling.index_select(0, sites)
        if len(sites) == 1:  # converts its operands, which takes less time than two calls
            return (cache[0].addcmul_(change, rows, value=8),)
        return (cache[0].addmm_(change.double(), rows.double(), alpha=8),)

    def log_odds(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        return cache[0].index_select(1, sites).to(x.dtype)

    def conditional(self, x: Tensor, cache: Cache, sites: Tensor) -> tuple[Tensor, Cache]:
        return cache[0].index_select(1, sites), cache

    def differences(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        return self.log_odds(x, cache, sites) * (1 - 2 * x.index_select(1, sites))

    def block_log_probs(self, x: Tensor, cache: Cache, sites: Tensor, patterns: Tensor) -> Tensor:
        field = self.log_odds(x, cache, sites) / 2
        inside = self.coupling.index_select(0, sites).index_select(1, sites)
        spins = spins_of(x.index_select(1, sites))
        return pattern_log_probs(field, inside, spins, spins_of(patterns.to(x)))


class LearnedIsing(DenseIsing):
    """A DenseIsing without bias whose J is learned: Zhang et al. (2022), Section 7.3.1.

    `shape` only sets the number of sites. J starts as the symmetric part of a matrix with entries
    N(0, scale^2) and a zero diagonal, and stays symmetric. The paper's released script learns a
    matrix that is not. Only its symmetric part matters, and that part moves as J does here, apart
    from the L1 penalty, which here applies to J.
    """

    def __init__(self, shape: Sequence[int], scale: float = 0.01) -> None:
        require_sides(shape)
        dim = math.prod(shape)
        noise = scale * torch.randn(dim, dim)
        super().__init__(_without_diagonal(noise))
        self.untrained = True
        bias = self.bias.data
        del self.bias
        self.register_buffer("bias", bias)

    @torch.no_grad()
    def contrast(self, positive: Tensor, negative: Tensor) -> Tensor:
        """As `EnergyModel.contrast`: log pi is linear in J, its gradient one matrix product."""
        spins = spins_of(torch.cat((positive, negative)))
        weights = spins.new_full((len(spins), 1), 1 / len(negative))
        weights[: len(positive)] = -1 / len(positive)
        gradient = spins.T @ (weights * spins)
        value = torch.linalg.vecdot(gradient.flatten(), self.coupling.flatten())
        before = self.coupling.grad
        self.coupling.grad = gradient if before is None else before + gradient
        return value


def _without_diagonal(matrix: Tensor) -> Tensor:
    return ((matrix + matrix.T) / 2).fill_diagonal_(0)


def erdos_renyi(dim: int, mean_degree: float, coupling: float, seed: int = 0) -> DenseIsing:
    """Ising model on a random graph; an edge is there with probability mean_degree / (dim - 1)."""
    if dim < 2:
        raise ValueError(f"dim must be at least 2, got {dim}")
    if not 0 < mean_degree <= dim - 1:
        raise ValueError(f"mean_degree must be in (0, {dim - 1}], got {mean_degree}")
    rng = Generator().manual_seed(seed)
    edges = torch.rand(dim, dim, generator=rng).triu(1)
    upper = ((edges > 0) & (edges < mean_degree / (dim - 1))).float() * coupling
    return DenseIsing(upper + upper.T)


def sherrington_kirkpatrick(dim: int, beta: float, seed: int = 0) -> DenseIsing:
    """A spin glass: log pi = beta sum_(i<j) g_ij s_i s_j, g_ij from N(0, 1 / dim), without a field.

    D. Sherrington and S. Kirkpatrick, 1975. In the limit of many sites, the glass is below
    temperature 1, at `beta` above 1.
    """
    if dim < 2 or not beta > 0:
        raise ValueError(f"dim must be at least 2 and beta positive, got {dim} and {beta}")
    rng = Generator().manual_seed(seed)
    upper = torch.randn(dim, dim, generator=rng).triu(1) * (beta / math.sqrt(dim) / 2)
    return DenseIsing(upper + upper.T)
