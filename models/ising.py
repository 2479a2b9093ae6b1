"""Ising models, on a lattice of any size and with any dense coupling.

    log pi(x) = s' J s + b' s  up to a constant,     s = 2 x - 1 in {-1, 1}^d,  x in {0, 1}^d

J is symmetric, so each edge counts twice: the convention of Zhang et al. (2022), App. I.2, whose
a x'Jx + b'x with a binary adjacency J is `Lattice(coupling=a, bias=b)`. With the field
b + 2 J s, the gradient in x is 2 (b + 2 J s) and the log-odds of a site given the rest are twice
its field.
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
from latticework.models.forms import LatticeForm, PairForm, array, neighbour_lists
from latticework.models.lattice import (
    colouring,
    joins,
    neighbour_sum,
    neighbour_table,
    require_sides,
)
from latticework.models.matmul import affine
from latticework.models.transfer_matrix import log_z_and_mean

if TYPE_CHECKING:
    from latticework.models.conditioned import Evidence

DENSE_BELOW = 128  # sites; smaller lattices are faster as one matrix product than as shifts


def spins_of(x: Tensor) -> Tensor:
    return x.mul(2).sub_(1)


def _adjacency(neighbours: Tensor, exists: Tensor) -> Tensor:
    dense = exists.new_zeros(len(exists), len(exists))
    return dense.scatter_add_(1, neighbours, exists)


def pattern_log_probs(field: Tensor, inside: Tensor, spins: Tensor, patterns: Tensor) -> Tensor:
    """s_B'(field without the block) + s_B' J_BB s_B for each pattern of a block B.

    On the block, `field` `[chains, n]` is b + 2 J s, `inside` `[n, n]` is J, `spins` `[chains, n]`
    are the current spins and `patterns` `[1 or chains, patterns, n]` the spins to evaluate.
    """
    outside = field - 2 * spins @ inside
    linear = (patterns * outside.unsqueeze(1)).sum(-1)
    return linear + (patterns @ inside * patterns).sum(-1)


class Lattice(EnergyModel):
    """Ising model on a d-dimensional lattice, cost and memory linear in the number of sites.

    `shape` are the side lengths, `coupling` is a, `bias` is b (one number, or one a site in
    row-major order). States are `[chains, sites]` in {0, 1}. Raises ValueError for an empty shape
    or a bias of another length.
    """

    bias: Tensor
    neighbours: Tensor
    exists: Tensor
    degree: Tensor
    dense: Tensor | None
    quadratic = True

    def __init__(
        self,
        shape: Sequence[int],
        coupling: float,
        bias: float | Sequence[float] = 0.0,
        periodic: bool = True,
    ) -> None:
        super().__init__()
        require_sides(shape)
        self.shape, self.coupling, self.periodic = tuple(shape), float(coupling), periodic
        sites = math.prod(shape)
        self.domain = Binary(sites)
        field = torch.as_tensor(bias, dtype=torch.float32)
        if field.ndim and len(field) != sites:
            raise ValueError(f"bias must be one number or {sites}, got {len(field)}")
        self.register_buffer("bias", field.expand(sites).clone())
        neighbours, exists = neighbour_table(self.shape, periodic)
        # Buffers besides the bias follow from the shape alone. What depends on bias and coupling is
        # computed where it is used, so that a bias that is loaded or changed in place counts.
        of_shape = {
            "neighbours": neighbours,
            "exists": exists,
            "degree": exists.sum(-1),
            "dense": _adjacency(neighbours, exists) if sites < DENSE_BELOW else None,
        }
        for name, value in of_shape.items():
            self.register_buffer(name, value, persistent=False)
        self._formed: tuple[float, Tensor, LatticeForm] | None = None  # of a coupling and a bias

    @property
    def flip_bound(self) -> float:  # type: ignore[override]
        """An upper bound on how much one flip changes the log-probability. Reads the host."""
        return float((2 * self.bias.abs() + 4 * abs(self.coupling) * self.degree).max())

    def _half_offset(self) -> Tensor:
        """Half the log-odds of each site, given that its neighbours are 0, `[sites]`.

        Each neighbour at 1 adds 8 `coupling` to the log-odds.
        """
        return torch.sub(self.bias, self.degree, alpha=2 * self.coupling)

    def adjacency(self) -> Tensor:
        """The binary adjacency `[sites, sites]` (small lattices only)."""
        return _adjacency(self.neighbours, self.exists)

    def matrix(self) -> Tensor:
        """J, `[sites, sites]` (small lattices only)."""
        return self.coupling * self.adjacency()

    def colours(self) -> Tensor:
        return colouring(self.shape, self.periodic).to(self.bias.device)

    def form(self) -> LatticeForm:
        """Built once, and again where the coupling or the bias has changed."""
        if self._formed is not None:
            coupling, bias, form = self._formed
            if coupling == self.coupling and torch.equal(bias, self.bias):
                return form
        lists, degree = neighbour_lists(self.neighbours, self.exists)
        shifts, bits = joins(self.shape, self.periodic)
        bias, degrees = self.bias.double(), self.degree.double()
        offset = array(2 * torch.sub(bias, degrees, alpha=2 * self.coupling))
        kinds, kind = np.unique(offset, return_inverse=True)
        odds = kinds[:, None] + 8 * self.coupling * np.arange(lists.shape[1] + 1)
        with np.errstate(over="ignore"):  # exp(-odds) = inf gives the right limit, 0
            high = 1 / (1 + np.exp(-odds))
        form = LatticeForm(
            shifts=array(shifts),
            joins=array(bits),
            neighbours=lists,
            degree=degree,
            colours=array(self.colours().int()),
            kind=kind.astype(np.int32),
            odds=odds,
            high=high,
        )
        self._formed = self.coupling, self.bias.clone(), form
        return form

    def forward(self, x: Tensor) -> Tensor:
        spins = 2 * x - 1
        pairs = neighbour_sum(spins, self.shape, self.periodic) * self.coupling
        return (spins * (pairs + self.bias)).sum(-1)

    def restrict(self, evidence: "Evidence") -> EnergyModel:
        """The free sites are no lattice, but a graph."""
        from latticework.models.graph import Graph  # noqa: PLC0415 - which imports this module

        near, exists = self.neighbours[:, 1::2], self.exists[:, 1::2]  # one direction of each axis
        sites = torch.arange(len(near), device=near.device).unsqueeze(1).expand_as(near)
        edges = torch.stack((sites, near), -1)[exists > 0]
        graph = Graph(edges.cpu(), 2 * self.coupling, self.bias.cpu()).to(self.bias)
        graph.weights.data.fill_(2 * self.coupling)
        graph.bias.data = self.bias
        return graph.restrict(evidence)

    def log_z_and_mean(self) -> tuple[Tensor, Tensor]:
        """Computed by transfer matrices. Raises ValueError if the lattice is too wide for them."""
        return log_z_and_mean(self.shape, self.coupling, self.bias.cpu(), self.periodic)

    def gradient(self, x: Tensor) -> Tensor:
        """The gradient, which is also each site's log-odds given the rest, `[chains, sites]`."""
        if self.dense is not None:
            return torch.addmm(self._half_offset(), x, self.dense, beta=2, alpha=8 * self.coupling)
        total = neighbour_sum(x, self.shape, self.periodic)
        offset = self._half_offset().mul_(2)
        return torch.add(offset, total, alpha=8 * self.coupling, out=total)

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        grad = self.gradient(x)
        # s'Js + b's = s'(gradient + 2 b) / 4, summed over spins: accurate to rounding at 10^6
        # sites. log pi(x) - log pi(0) as a dot product would be off by hundreds there.
        terms = torch.add(grad, self.bias, alpha=2).mul_(spins_of(x))
        return terms.sum(-1).mul_(0.25), grad

    def log_odds(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        if len(sites) > 1:
            return self.gradient(x).index_select(1, sites)
        slope = 8 * self.coupling
        if self.dense is not None:
            half = self._half_offset().index_select(0, sites)
            return torch.addmm(half, x, self.dense.index_select(1, sites), beta=2, alpha=slope)
        around = x.index_select(1, self.neighbours.index_select(0, sites).view(-1)).sub_(0.5)
        bias, exists = self.bias.index_select(0, sites), self.exists.index_select(0, sites)
        return torch.addmm(bias, around, exists.view(-1, 1), beta=2, alpha=slope)

    def differences(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        return self.log_odds(x, cache, sites) * (1 - 2 * x.index_select(1, sites))

    def differences_after(self, x: Tensor, index: Tensor) -> tuple[Tensor | None, Tensor]:
        if self.dense is not None:
            odds = self.gradient(x)
            return None, torch.addcmul(odds, odds, x, value=-2)
        sites = torch.cat((index, self.neighbours.index_select(0, index.view(-1))), 1)
        flat = sites.view(-1)
        near = self.neighbours.index_select(0, flat).view(len(x), -1)
        around = x.gather(1, near).view(*sites.shape, -1).sub_(0.5)
        exists = self.exists.index_select(0, flat).view_as(around)
        odds = torch.linalg.vecdot(exists, around).mul_(8 * self.coupling)
        odds.add_(self.bias.index_select(0, flat).view_as(sites), alpha=2)
        return sites, odds.addcmul_(odds, x.gather(1, sites), value=-2)

    def block_log_probs(self, x: Tensor, cache: Cache, sites: Tensor, patterns: Tensor) -> Tensor:
        near, weight = self.neighbours[sites], self.exists[sites]
        around = x.index_select(1, near.flatten()).mul_(2).sub_(1).view(len(x), *near.shape)
        field = (around * weight).sum(-1).mul_(2 * self.coupling).add_(self.bias[sites])
        inside = ((near.unsqueeze(-1) == sites) * weight.unsqueeze(-1)).sum(1) * self.coupling
        spins = spins_of(x.index_select(1, sites))
        return pattern_log_probs(field, inside, spins, spins_of(patterns.to(x)))


class DenseIsing(EnergyModel):
    """Ising model with a dense symmetric coupling J `[d, d]`: random graphs, learned structure.

    Raises ValueError unless J is square, finite and symmetric with a zero diagonal (s_i^2 = 1, so
    a diagonal is a constant that only misleads the gradient).
    """

    quadratic = True
    offset = 0.0  # of log pi: what the known sites of `condition_on` have of it

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
        own = spins @ (among @ spins + self.bias.index_select(0, known).double())
        smaller.offset = self.offset + float(own)
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
        super().__init__(_symmetric(noise))
        self.untrained = True
        bias = self.bias.data
        del self.bias
        self.register_buffer("bias", bias)

    @torch.no_grad()
    def project(self) -> None:
        """Make J exactly symmetric with a zero diagonal, after an update."""
        self.coupling.copy_(_symmetric(self.coupling))

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


def _symmetric(matrix: Tensor) -> Tensor:
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


def critical_lattice(
    shape: Sequence[int], relative: float = 1.0, bias: float = 0.0, periodic: bool = True
) -> Lattice:
    """A lattice whose coupling is `relative` times the critical one of the infinite square lattice.

    That is ln(1 + sqrt(2)) / 2 an edge (L. Onsager, 1944), and half of it in s'Js.
    """
    return Lattice(shape, relative * math.log(1 + math.sqrt(2)) / 4, bias, periodic)


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
