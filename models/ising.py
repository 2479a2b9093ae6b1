"""Ising models on a lattice of any size.

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
from torch import Tensor

from latticework.models.base import Cache, EnergyModel
from latticework.models.domains import Binary
from latticework.models.forms import LatticeForm, array, neighbour_lists
from latticework.models.lattice import (
    colouring,
    joins,
    list_lattice_edges,
    neighbour_sum,
    neighbour_table,
    require_sides,
)
from latticework.models.spins import pattern_log_probs, spins_of
from latticework.models.transfer_matrix import log_z_and_mean
from latticework.moved import offer_moved_names

if TYPE_CHECKING:
    from latticework.models.evidence import Evidence

DENSE_BELOW = 128  # sites; smaller lattices are faster as one matrix product than as shifts


def _adjacency(neighbours: Tensor, exists: Tensor) -> Tensor:
    dense = exists.new_zeros(len(exists), len(exists))
    return dense.scatter_add_(1, neighbours, exists)


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
    closed_differences = True
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
        # The form of a coupling and a bias.
        self._formed: tuple[float, Tensor, LatticeForm] | None = None

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

    def list_edges(self) -> Tensor:
        return list_lattice_edges(self.neighbours, self.exists)

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
            coupling=self.coupling,
            bias=array(self.bias),
        )
        self._formed = self.coupling, self.bias.clone(), form
        return form

    def forward(self, x: Tensor) -> Tensor:
        spins = 2 * x - 1
        pairs = neighbour_sum(spins, self.shape, self.periodic) * self.coupling
        return (spins * (pairs + self.bias)).sum(-1)

    def restrict(self, evidence: "Evidence") -> EnergyModel:
        """The model of the free sites, as a graph."""
        near, exists = self.neighbours[:, 1::2], self.exists[:, 1::2]  # one direction of each axis
        sites = torch.arange(len(near), device=near.device).unsqueeze(1).expand_as(near)
        edges = torch.stack((sites, near), -1)[exists > 0]
        from latticework.models.graph import Graph  # which imports SciPy, unlike most runs

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


def critical_lattice(
    shape: Sequence[int], relative: float = 1.0, bias: float = 0.0, periodic: bool = True
) -> Lattice:
    """A lattice whose coupling is `relative` times the critical one of the infinite square lattice.

    The critical coupling is ln(1 + sqrt(2)) / 2 an edge (L. Onsager, 1944), and half of it in s'Js.
    """
    return Lattice(shape, relative * math.log(1 + math.sqrt(2)) / 4, bias, periodic)


if not TYPE_CHECKING:  # else type checkers would accept any name
    __getattr__ = offer_moved_names(__name__)
