"""Potts models on one-hot states, on a lattice of any size and with any dense coupling.

    log pi(x) = 1/2 sum_ij x_i' J_ij x_j + sum_i b_i' x_i  up to a constant,
    x_i in {e_1 .. e_q}, a row of the state `[chains, sites, q]`

J_ij are q x q blocks, J_ji = J_ij' and J_ii = 0, so each pair counts once. On a lattice (R. B.
Potts, 1952) J_ij is the coupling times the identity for each edge, and the pairs sum to the
coupling times the number of edges with equal ends. The field b_i + sum_j J_ij x_j is both the
gradient, at any real x, and the logits of a site given the rest.

With two values, coupling K gives the Ising model of models/ising.py with coupling K / 4.

A coupling of -inf forbids equal ends, so a Potts model counts the proper colourings of a graph.
"""

import copy
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor
from torch.linalg import vecdot

from latticework.models.base import (
    ZERO_PRICE,
    Cache,
    EnergyModel,
    NotDifferentiableError,
    SupportTable,
)
from latticework.models.domains import Categorical
from latticework.models.forms import (
    FORBIDDEN,
    IMPOSSIBLE,
    PottsLatticeForm,
    PottsPairForm,
    array,
    neighbour_lists,
)
from latticework.models.lattice import (
    colouring,
    list_lattice_edges,
    neighbour_sum,
    neighbour_table,
    require_sides,
)


def moves(field: Tensor, x: Tensor) -> Tensor:
    """Each site's field - the field at its current value, `[chains, n, q]`."""
    return field - vecdot(field, x).unsqueeze(-1)


def block_log_probs(field: Tensor, inside: Tensor, current: Tensor, patterns: Tensor) -> Tensor:
    """p'(field without the block) + 1/2 p' J_BB p for each pattern p of a block B, `[chains, K]`.

    `field` and `current` are `[chains, n, q]` on the block, `inside` `[n q, n q]` is J there and
    `patterns` are `[1 or chains, K, n, q]`.
    """
    current, flat = current.flatten(1), patterns.flatten(2)
    outside = field.flatten(1) - current @ inside
    return (flat * (outside.unsqueeze(1) + flat @ inside / 2)).sum(-1)


def expand_bias(
    bias: Tensor | float | Sequence[float] | Sequence[Sequence[float]], dim: int, q: int
) -> Tensor:
    given = mark_forbidden(bias, "bias").float()
    if given.shape not in ((), (q,), (dim, q)):
        raise ValueError(f"bias must be one number, [{q}] or [{dim}, {q}], got {list(given.shape)}")
    return given.expand(dim, q).clone()


def mark_forbidden(numbers: Any, name: str) -> Tensor:
    """Couplings or biases in float64, with `FORBIDDEN` for -inf.

    Raises ValueError for NaN and +inf.
    """
    given = torch.as_tensor(numbers, dtype=torch.float64)
    if not (given < math.inf).all():
        raise ValueError(f"{name} must be finite, or -inf to forbid states, got NaN or +inf")
    return given.clamp(min=FORBIDDEN)


def zeros_as_infinity(values: Tensor) -> Tensor:
    """-inf for sums that hold a `FORBIDDEN`."""
    return values.masked_fill(values < IMPOSSIBLE, -math.inf)


def look_for_zeros(model: "SparsePotts", _: Any) -> None:
    model.look_for_zeros()  # a hook, which must be a function to be pickled


class SparsePotts(EnergyModel):
    """Potts model on the edges of a lattice or graph, some of whose states may be forbidden.

    A coupling or bias of -inf is held as `FORBIDDEN`, which times 0 is 0, and log-probabilities
    that hold it are -inf. Such a model has no gradient.
    """

    closed_differences = True
    domain: Categorical
    bias: Tensor
    forbids: bool  # whether some states have probability 0

    def look_for_zeros(self) -> None:
        """Set `forbids` from the numbers. Reads the host, and so is called when they are given."""
        coupling = torch.as_tensor(self.edges_and_couplings()[1])
        below = (coupling < IMPOSSIBLE).any() | (self.bias < IMPOSSIBLE).any()
        self.forbids = bool(below)
        self.quadratic = not self.forbids

    @abstractmethod
    def edges_and_couplings(self) -> tuple[Tensor, Tensor]:
        """Pairs of sites `[m, 2]`, and the coupling of each `[m]` or of all of them (scalar)."""

    def list_edges(self) -> Tensor:
        return self.edges_and_couplings()[0]

    @abstractmethod
    def neighbours_of(self, sites: Tensor) -> tuple[Tensor, Tensor]:
        """Neighbours of `sites` `[n]` and their couplings, both `[n, degree]`."""

    @abstractmethod
    def field(self, x: Tensor, sites: Tensor) -> Tensor:
        """b_i + sum_j J_ij x_j at `sites`, `[chains, n, values]`."""

    @abstractmethod
    def set_price(self, forbidden: float) -> None:
        """Replace each `FORBIDDEN`."""

    def soften(self) -> "SparsePotts | None":
        if not self.forbids or _changes_target(self):
            return None
        model = copy.deepcopy(self).double()
        model.set_price(-ZERO_PRICE)
        model.look_for_zeros()
        return model

    def support_tables(self) -> list[SupportTable] | None:
        if not self.forbids or _changes_target(self):
            return None
        possible = array((self.bias >= IMPOSSIBLE).cpu())
        alone = [((i,), possible[i]) for i in np.flatnonzero(~possible.all(1)).tolist()]
        edges, coupling = self.edges_and_couplings()
        hard = edges[(coupling < IMPOSSIBLE).expand(len(edges))].tolist()
        differ = ~np.eye(self.domain.num_values, dtype=bool)
        return [*alone, *(((a, b), differ) for a, b in hard)]

    def require_gradient(self) -> None:
        """Raise NotDifferentiableError if some states are forbidden."""
        if self.forbids:
            raise NotDifferentiableError(
                "couplings or biases of -inf have no gradient; use gibbs_sweep, metropolis_sweep, "
                "gibbs or random_walk, or finite couplings, such as -20"
            )

    def log_prob_of(self, values: Tensor) -> Tensor:
        """Sums of couplings and biases `[chains]` as log-probabilities."""
        return zeros_as_infinity(values) if self.forbids else values

    def differences(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        field, here = self.field(x, sites), x.index_select(1, sites)
        if not self.forbids:
            return moves(field, here)
        field = zeros_as_infinity(field)
        return field - field.masked_fill(here == 0, 0).sum(-1, keepdim=True)

    def block_log_probs(self, x: Tensor, cache: Cache, sites: Tensor, patterns: Tensor) -> Tensor:
        near, weight = self.neighbours_of(sites)
        within = near.unsqueeze(-1) == sites  # [n, degree, n]
        edges = (within * weight.unsqueeze(-1)).sum(1)
        inside = torch.kron(edges, torch.eye(self.domain.moves, device=x.device, dtype=x.dtype))
        current, patterns = x.index_select(1, sites), patterns.to(x)
        if not self.forbids:
            return block_log_probs(self.field(x, sites), inside, current, patterns)
        # Where the block itself adds a FORBIDDEN to a field, subtracting that would leave nothing.
        outside = self._field_of(x, sites, near, weight.masked_fill(within.any(-1), 0))
        none = torch.zeros_like(current)
        return zeros_as_infinity(block_log_probs(outside, inside, none, patterns))

    def _field_of(self, x: Tensor, sites: Tensor, near: Tensor, weight: Tensor) -> Tensor:
        """The field at `sites` of the neighbours `near` with couplings `weight` `[n, degree]`."""
        around = x.index_select(1, near.flatten()).unflatten(1, near.shape)
        return (around * weight.unsqueeze(-1)).sum(2) + self.bias.index_select(0, sites)


def _changes_target(model: SparsePotts) -> bool:
    """Whether it is of a subclass that defines a log-probability of its own."""
    owner = next(kind for kind in type(model).__mro__ if "edges_and_couplings" in kind.__dict__)
    return type(model).forward is not owner.__dict__["forward"]


class LatticePotts(SparsePotts):
    """Potts model on a d-dimensional lattice, cost and memory linear in sites times values.

    `shape` are the side lengths. A positive `coupling` favours equal neighbours, and -inf forbids
    them. `bias` b is `[values]`, or `[sites, values]` with sites in row-major order; -inf forbids a
    value. Raises ValueError for an empty shape, fewer than two values, a bias of another shape, and
    numbers that are NaN or +inf.
    """

    neighbours: Tensor
    exists: Tensor
    quadratic = True

    def __init__(
        self,
        shape: Sequence[int],
        num_values: int,
        coupling: float,
        bias: float | Sequence[float] | Sequence[Sequence[float]] = 0.0,
        periodic: bool = True,
    ) -> None:
        super().__init__()
        require_sides(shape)
        self.coupling = float(mark_forbidden(coupling, "coupling"))
        self.shape, self.periodic = tuple(shape), periodic
        self.domain = Categorical(math.prod(shape), num_values)
        self.register_buffer("bias", expand_bias(bias, self.domain.dim, num_values))
        neighbours, exists = neighbour_table(self.shape, periodic)
        self.register_buffer("neighbours", neighbours, persistent=False)
        self.register_buffer("exists", exists, persistent=False)
        self._lists: tuple[NDArray, NDArray, NDArray] | None = None  # arrays of a form
        self.look_for_zeros()
        self.register_load_state_dict_post_hook(look_for_zeros)

    def edges_and_couplings(self) -> tuple[Tensor, Tensor]:
        edges = list_lattice_edges(self.neighbours, self.exists)
        return edges, self.bias.new_tensor(self.coupling)

    def neighbours_of(self, sites: Tensor) -> tuple[Tensor, Tensor]:
        exists = self.exists.index_select(0, sites)
        return self.neighbours.index_select(0, sites), exists * self.coupling

    def set_price(self, forbidden: float) -> None:
        self.coupling = self.coupling if self.coupling > IMPOSSIBLE else forbidden
        self.bias.data.masked_fill_(self.bias < IMPOSSIBLE, forbidden)

    def form(self) -> PottsLatticeForm:
        """Its lists are built once."""
        if self._lists is None:
            lists, degree = neighbour_lists(self.neighbours, self.exists)
            self._lists = lists, degree, array(self.colours())
        lists, degree, colours = self._lists
        return PottsLatticeForm(lists, degree, self.coupling, array(self.bias), colours)

    def colours(self) -> Tensor:
        return colouring(self.shape, self.periodic).to(self.bias.device)

    def _pairs(self, x: Tensor) -> Tensor:
        return neighbour_sum(x, self.shape, self.periodic) * self.coupling

    def forward(self, x: Tensor) -> Tensor:
        return self.log_prob_of((x * (self._pairs(x) / 2 + self.bias)).sum((-2, -1)))

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.require_gradient()
        pairs = self._pairs(x)
        field = pairs + self.bias
        return vecdot(x, pairs.div_(2).add_(self.bias)).sum(-1), field

    def field(self, x: Tensor, sites: Tensor) -> Tensor:
        near, exists = self.neighbours.index_select(0, sites), self.exists.index_select(0, sites)
        if near.numel() > self.domain.dim:
            return (self._pairs(x) + self.bias).index_select(1, sites)
        around = x.index_select(1, near.flatten()).unflatten(1, near.shape)
        total = (around * exists.unsqueeze(-1)).sum(2)
        return torch.add(self.bias.index_select(0, sites), total, alpha=self.coupling)


class DensePotts(EnergyModel):
    """Potts model with a dense coupling J, `[sites * values, sites * values]`, site-major.

    `bias` b is one number, `[values]` or `[sites, values]`. Raises ValueError unless J is square
    and symmetric, its size is a multiple of the number of values, and its blocks J_ii are zero
    (they would only repeat the bias).
    """

    closed_differences = True
    quadratic = True

    def __init__(self, coupling: Tensor, num_values: int, bias: Tensor | float = 0.0) -> None:
        super().__init__()
        if (
            coupling.ndim != 2
            or not torch.equal(coupling, coupling.T)
            or len(coupling) % num_values
        ):
            raise ValueError(
                f"coupling must be symmetric, [sites * {num_values}, sites * {num_values}], "
                f"got {list(coupling.shape)}"
            )
        dim = len(coupling) // num_values
        if coupling.view(dim, num_values, dim, num_values).diagonal(dim1=0, dim2=2).any():
            raise ValueError("coupling must be zero between the values of one site")
        numbers = coupling, torch.as_tensor(bias)
        if not all(each.isfinite().all() for each in numbers):
            raise ValueError(
                "coupling and bias must be finite; GraphPotts takes couplings of -inf, and Factors "
                "tables with zeros"
            )
        self.domain = Categorical(dim, num_values)
        self.coupling = torch.nn.Parameter(coupling.clone(), requires_grad=False)
        self.bias = torch.nn.Parameter(expand_bias(bias, dim, num_values), requires_grad=False)

    @torch.no_grad()
    def project(self) -> None:
        """Make J exactly symmetric with zero blocks J_ii, after an update."""
        sites, values = self.bias.shape
        self.coupling.copy_((self.coupling + self.coupling.T) / 2)
        self.coupling.view(sites, values, sites, values).diagonal(dim1=0, dim2=2).zero_()

    def form(self) -> PottsPairForm:
        return PottsPairForm(array(self.coupling), array(self.bias))

    def _pairs(self, x: Tensor) -> Tensor:
        return (x.flatten(1) @ self.coupling).view_as(x)

    def forward(self, x: Tensor) -> Tensor:
        return (x * (self._pairs(x) / 2 + self.bias)).sum((-2, -1))

    def _log_prob(self, x: Tensor, field: Tensor) -> Tensor:
        return vecdot(x, field + self.bias).sum(-1) / 2

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        field = self._pairs(x) + self.bias
        return self._log_prob(x, field), field

    def evaluate_with_cache(self, x: Tensor) -> tuple[Tensor, Tensor, Cache]:
        log_prob, field = self.log_prob_and_grad(x)
        return log_prob, field, (field.double(),)

    def evaluate_flipped(
        self, cache: Cache, x: Tensor, y: Tensor, index: Tensor
    ) -> tuple[Tensor, Tensor, Cache]:
        """`index` `[chains, 1]` is a flat move, site * values + value."""
        site = index.div(self.domain.moves, rounding_mode="floor")
        change = (y - x).gather(1, site.unsqueeze(-1).expand(-1, -1, self.domain.moves))
        rows = self._rows()[site.squeeze(1)]  # [chains, q, sites * q]
        updated = cache[0] + (change @ rows).view_as(x)
        field = updated.to(y.dtype)
        return self._log_prob(y, field), field, (updated,)

    def _rows(self) -> Tensor:
        """J with its rows by site, `[sites, q, sites * q]`."""
        return self.coupling.unflatten(0, self.domain.shape)

    def cache(self, x: Tensor) -> Cache:
        """The field, `[chains, sites, q]`, in double precision: changes add up without drift."""
        return ((self._pairs(x) + self.bias).double(),)

    def update_cache(self, cache: Cache, x: Tensor, sites: Tensor, new: Tensor) -> Cache:
        change = (new - x.index_select(1, sites)).flatten(1)
        rows = self._rows().index_select(0, sites).flatten(0, 1)
        cache[0].flatten(1).addmm_(change.double(), rows.double())
        return cache

    def differences(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        return moves(cache[0].index_select(1, sites).to(x.dtype), x.index_select(1, sites))

    def block_log_probs(self, x: Tensor, cache: Cache, sites: Tensor, patterns: Tensor) -> Tensor:
        rows = self._rows().index_select(0, sites).flatten(0, 1)
        inside = rows.unflatten(1, self.domain.shape).index_select(1, sites).flatten(1)
        field, current = cache[0].index_select(1, sites).to(x.dtype), x.index_select(1, sites)
        return block_log_probs(field, inside, current, patterns.to(x))


def random_potts(dim: int, num_values: int, scale: float, seed: int = 0) -> DensePotts:
    """A Potts glass: all pairs of sites and values are coupled by N(0, scale^2 / dim) numbers.

    The biases are N(0, scale^2 / dim) too.
    """
    if dim < 2 or not scale > 0:
        raise ValueError(f"dim must be at least 2 and scale positive, got {dim} and {scale}")
    if num_values < 2:
        raise ValueError(f"num_values must be at least 2, got {num_values}")
    rng = Generator().manual_seed(seed)
    blocks = torch.randn(dim, dim, num_values, num_values, generator=rng)
    upper = blocks * (torch.ones(dim, dim).triu(1) * scale / math.sqrt(dim)).view(dim, dim, 1, 1)
    flat = upper.transpose(1, 2).reshape(dim * num_values, -1)
    bias = torch.randn(dim, num_values, generator=rng) * scale / math.sqrt(dim)
    return DensePotts(flat + flat.T, num_values, bias)


def critical_potts(
    shape: Sequence[int], num_values: int, relative: float = 1.0, periodic: bool = True
) -> LatticePotts:
    """A lattice whose coupling is `relative` times the critical one of the infinite square lattice.

    The critical coupling is ln(1 + sqrt(num_values)) (R. B. Potts, 1952). The transition is
    continuous for up to 4 values, and of first order for more.
    """
    coupling = relative * math.log(1 + math.sqrt(num_values))
    return LatticePotts(shape, num_values, coupling, periodic=periodic)
