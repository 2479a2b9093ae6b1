"""Ising models on any graph: sparse couplings, with memory and time linear in the edges.

    log pi(x) = sum_(i,j) w_ij s_i s_j + sum_i b_i s_i + offset,     s = 2 x - 1 in {-1, 1}^n

Every edge counts once: `Graph` is a `DenseIsing` whose J has w_ij / 2 at (i, j) and at (j, i). The
energy of a dimod BQM at inverse temperature beta is log pi = -beta E, so w = -beta J, b = -beta h.

The rows of the adjacency are stored one after another (compressed sparse rows). Methods for a few
sites read as many neighbours of each as the largest degree, because a step may not ask the host
how many there are. Where that is more than all edges, they use the product for all sites.
"""

import warnings
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import csr_array, issparse, triu
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from latticework.models.base import Cache, EnergyModel
from latticework.models.domains import Binary
from latticework.models.forms import GraphForm, array
from latticework.models.spins import pattern_log_probs, spins_of

if TYPE_CHECKING:
    from latticework.models.evidence import Evidence

_compressed = partial(torch.sparse_csr_tensor, check_invariants=False)
with warnings.catch_warnings(action="ignore"):  # PyTorch says once that such tensors are in beta
    _compressed(torch.tensor([0, 0]), torch.empty(0, dtype=torch.long), torch.empty(0), (1, 1))


class Graph(EnergyModel):
    """Ising model on the edges of any graph, with a weight an edge and a field a site.

    `edges` `[m, 2]` are pairs of sites from 0, `weights` `[m]` or one number, `bias` `[n]` or one
    number. `sites` is n, needed where neither `bias` nor the edges tell it, as with isolated last
    sites. The weights of an edge that is given several times are added. `names` are those of the
    sites. States are `[chains, n]` in {0, 1}.

    Raises ValueError for an edge from a site to itself (s_i^2 = 1 is a constant), a site that does
    not exist, numbers that are not finite, and lengths that differ.
    """

    closed_differences = True
    quadratic = True
    edges: Tensor
    starts: Tensor
    ends: Tensor
    edge: Tensor

    def __init__(
        self,
        edges: Tensor | np.ndarray | Sequence[Sequence[int]],
        weights: Tensor | np.ndarray | Sequence[float] | float,
        bias: Tensor | np.ndarray | Sequence[float] | float = 0.0,
        sites: int | None = None,
        offset: float = 0.0,
        names: Iterable[Hashable] | None = None,
    ) -> None:
        super().__init__()
        pairs = torch.as_tensor(edges)
        pairs = pairs.reshape(0, 2).long() if pairs.numel() == 0 else pairs
        field = torch.as_tensor(bias, dtype=torch.float64)
        sites = _count_sites(pairs, field, sites)
        pairs = pairs.long()  # products of two sites are computed below
        weight = torch.as_tensor(weights, dtype=torch.float64)
        if weight.ndim > 1 or weight.ndim == 1 and len(weight) != len(pairs):
            raise ValueError(
                f"weights must be one number or one for each of the {len(pairs)} edges, got "
                f"{list(weight.shape)}"
            )
        for name, numbers in (("weights", weight), ("bias", field), ("offset", offset)):
            if not torch.as_tensor(numbers).isfinite().all():
                raise ValueError(f"{name} must be finite; a weight of 100 ties two sites firmly")
        self.domain, self.offset = Binary(sites), float(offset)
        self.names = None if names is None else tuple(names)
        if self.names is not None and len(set(self.names)) != sites:
            raise ValueError(f"names must be {sites} different ones, got {len(set(self.names))}")

        ordered = pairs.sort(1).values
        keys, place = (ordered[:, 0] * sites + ordered[:, 1]).unique(return_inverse=True)
        total = torch.zeros(len(keys), dtype=torch.float64)
        total.scatter_add_(0, place, weight.expand(len(pairs)))
        tails, heads, number = keys // sites, keys % sites, torch.arange(len(keys))
        rows, columns = torch.cat((tails, heads)), torch.cat((heads, tails))
        order = (rows * sites + columns).argsort()
        degree = rows.bincount(minlength=sites)
        self.degree = int(degree.max())  # the largest
        structure = {
            "edges": torch.stack((tails, heads), 1),
            "starts": torch.cat((degree.new_zeros(1), degree.cumsum(0))),
            "ends": columns[order],
            "edge": torch.cat((number, number))[order],
        }
        for name, value in structure.items():
            self.register_buffer(name, value, persistent=False)
        self.bias = torch.nn.Parameter(field.expand(sites).float().clone(), requires_grad=False)
        self.weights = torch.nn.Parameter(total.float(), requires_grad=False)
        self._colours: Tensor | None = None
        self._formed: tuple[Tensor, Tensor, GraphForm] | None = None

    # From and to what others have.

    @classmethod
    def from_scipy(cls, matrix: Any, bias: Any = 0.0) -> "Graph":
        """The graph of a symmetric sparse or dense matrix whose entry (i, j) is the weight w_ij.

        Raises ValueError if it is not symmetric, or has entries on the diagonal.
        """
        if not issparse(matrix):
            matrix = csr_array(np.asarray(matrix))
        if (
            matrix.shape[0] != matrix.shape[1]
            or abs(matrix - matrix.T).sum()
            or any(matrix.diagonal())
        ):
            raise ValueError(
                "the matrix must be square and symmetric, with zeros on the diagonal; each edge "
                "counts once, at (i, j) and (j, i)"
            )
        upper = triu(matrix).tocoo()
        return cls(np.stack((upper.row, upper.col), 1), upper.data, bias, matrix.shape[0])

    @classmethod
    def from_networkx(
        cls, graph: Any, weight: str = "weight", bias: str = "bias", default: float = 1.0
    ) -> "Graph":
        """The nodes and edges of a networkx graph, with these attributes as weights and fields.

        Edges without the attribute weigh `default`, nodes without it have no field. The edges of a
        directed graph are taken without their directions. The nodes become `names`. Raises
        ValueError for an attribute that is not a number, such as text that a file does not declare.
        """
        index = {node: i for i, node in enumerate(graph.nodes)}
        edges = [(index[a], index[b]) for a, b in graph.edges()]
        weights = [
            _as_number(each, f"the {weight!r} of the edge {a!r} - {b!r}")
            for a, b, each in graph.edges(data=weight, default=default)
        ]
        fields = [
            _as_number(each, f"the {bias!r} of the node {node!r}")
            for node, each in graph.nodes(data=bias, default=0.0)
        ]
        return cls(edges, weights, fields, len(index), names=index)

    @classmethod
    def from_bqm(cls, bqm: Any, beta: float = 1.0) -> "Graph":
        """The model log pi = -beta E of a `dimod.BinaryQuadraticModel`, of spins or of {0, 1}.

        The variables become `names`. Raises ValueError for a model of another kind.
        """
        if not hasattr(bqm, "change_vartype") or not hasattr(bqm, "to_numpy_vectors"):
            raise ValueError(
                "the model must be a dimod.BinaryQuadraticModel, got "
                f"{type(bqm).__name__}; {_TO_BQM.get(type(bqm).__name__, 'make one of it')}"
            )
        bqm = bqm.change_vartype("SPIN", inplace=False)
        vectors = bqm.to_numpy_vectors(return_labels=True)
        fields, (rows, columns, weights), offset, labels = vectors
        edges = np.stack((rows, columns), 1)
        offset = -beta * float(offset)
        return cls(edges, -beta * weights, -beta * fields, len(labels), offset, labels)

    def to_bqm(self, beta: float = 1.0) -> Any:
        """The `dimod.BinaryQuadraticModel` of spins with log pi = -beta E; needs dimod."""
        from dimod import SPIN, BinaryQuadraticModel  # noqa: PLC0415 - an extra

        names = range(self.domain.dim) if self.names is None else self.names
        weights, bias = array(self.weights.double()) / -beta, array(self.bias.double()) / -beta
        rows, columns = self.edges.cpu().numpy().T
        return BinaryQuadraticModel.from_numpy_vectors(
            bias, (rows, columns, weights), self.offset / -beta, SPIN, variable_order=list(names)
        )

    # Structure.

    def colours(self) -> Tensor:
        """Greedy, in the order of a breadth-first search: two colours where two suffice."""
        if self._colours is None:
            shape = (self.domain.dim, self.domain.dim)
            starts, ends = self.starts.cpu(), self.ends.cpu()
            rows = csr_array((np.ones(len(ends), np.int8), ends.numpy(), starts.numpy()), shape)
            order = reverse_cuthill_mckee(rows, symmetric_mode=True)[::-1]
            first, near, colour = starts.tolist(), ends.tolist(), [-1] * len(order)
            for i in order.tolist():
                taken, free = {colour[j] for j in near[first[i] : first[i + 1]]}, 0
                while free in taken:
                    free += 1
                colour[i] = free
            self._colours = torch.tensor(colour)
        return self._colours.to(self.bias.device)

    def list_edges(self) -> Tensor:
        return self.edges

    def form(self) -> GraphForm:
        """Built once, and again where weights or biases have changed."""
        if self._formed is not None:
            weights, bias, form = self._formed
            if torch.equal(weights, self.weights) and torch.equal(bias, self.bias):
                return form
        colours = self.colours()
        form = GraphForm(
            starts=array(self.starts),
            neighbours=array(self.ends.int()),
            slope=array(self._values() * 4),
            offset=array(self._offset()),
            order=array(colours.argsort(stable=True).int()),
            classes=array(torch.cat((colours.new_zeros(1), colours.bincount().cumsum(0)))),
            edges=array(self.edges.int()),
            price=array(self.weights.double() * 2),
            bias=array(self.bias),
        )
        self._formed = self.weights.clone(), self.bias.clone(), form
        return form

    def _offset(self) -> Tensor:
        """Each site's log-odds given that its neighbours are 0, `[sites]`, in float64.

        A hub has the sum of all its weights here, which neighbours at 1 cancel.
        """
        field = self.bias.double()
        for side in self.edges.unbind(1):
            field = field.index_add(0, side, self.weights.double(), alpha=-1)
        return field.mul_(2)

    def _values(self) -> Tensor:
        """The weight at each place of the rows, `[2 m]`."""
        return self.weights.index_select(0, self.edge)

    def rows(self) -> Tensor:
        """The weights as a sparse matrix, `[n, n]`."""
        shape = len(self.bias), len(self.bias)
        return _compressed(self.starts, self.ends, self._values(), shape)

    def neighbours_of(self, sites: Tensor) -> tuple[Tensor, Tensor]:
        """Neighbours and weights of `sites` `[n]`, both `[n, degree]`.

        A place beyond the last neighbour repeats the site itself with weight 0.
        """
        slot = self.starts.index_select(0, sites).unsqueeze(1) + torch.arange(
            self.degree, device=sites.device
        )
        exists = slot < self.starts.index_select(0, sites + 1).unsqueeze(1)
        flat = torch.where(exists, slot, 0).view(-1)
        near = torch.where(exists, self.ends.index_select(0, flat).view_as(slot), sites[:, None])
        weight = self.weights.index_select(0, self.edge.index_select(0, flat)).view_as(slot)
        return near, weight * exists

    def many(self, sites: int) -> bool:
        """Whether the neighbours of so many sites are more than those of all."""
        return sites * self.degree > len(self.ends)

    @property
    def flip_bound(self) -> float:  # type: ignore[override]
        """An upper bound on how much one flip changes the log-probability. Reads the host."""
        reach = self.bias.double().abs()
        for side in self.edges.unbind(1):
            reach = reach.index_add(0, side, self.weights.double().abs())
        return float(2 * reach.max())

    def restrict(self, evidence: "Evidence") -> "Graph":
        """Edges to known sites become fields, and what known sites have of log pi the offset."""
        place = torch.full_like(evidence.state[0], -1, dtype=torch.long)
        place[evidence.free] = torch.arange(len(evidence.free), device=place.device)
        spins = spins_of(evidence.state[0].double()).masked_fill(place >= 0, 0)
        field, weights = self.bias.double(), self.weights.double()
        offset = self.offset + float((field * spins).sum())
        tails, heads = self.edges.unbind(1)
        for here, there in ((tails, heads), (heads, tails)):
            field = field.index_add(0, here, weights * spins[there])
        offset += float((weights * spins[tails] * spins[heads]).sum())
        free_edges = (place[tails] >= 0) & (place[heads] >= 0)
        pairs, field = (
            torch.stack((place[tails[free_edges]], place[heads[free_edges]]), 1),
            field[evidence.free],
        )
        smaller = Graph(pairs.cpu(), weights[free_edges].cpu(), field.cpu(), offset=offset)
        smaller.to(self.bias)  # then again the parameters, which were in single precision
        smaller.weights.data, smaller.bias.data = self.weights[free_edges], field.to(self.bias)
        return smaller

    # Evaluation.

    def forward(self, x: Tensor) -> Tensor:
        spins = 2 * x - 1
        tails, heads = (spins.index_select(1, side) for side in self.edges.unbind(1))
        return (tails * heads) @ self.weights + spins @ self.bias + self.offset

    def gradient(self, x: Tensor) -> Tensor:
        """2 b + 2 A s, which is also each site's log-odds given the rest, `[chains, n]`."""
        spins = x.T.mul(2).sub_(1).contiguous()
        bias = self.bias.unsqueeze(1)
        return torch.addmm(bias, self.rows(), spins, beta=2, alpha=2).T.contiguous()

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        grad = self.gradient(x)
        # As Lattice: summed over spins, so that it is accurate to rounding at 10^6 sites.
        terms = torch.add(grad, self.bias, alpha=2).mul_(spins_of(x))
        return terms.sum(-1).mul_(0.25).add_(self.offset), grad

    def log_odds(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        if self.many(len(sites)):
            return self.gradient(x).index_select(1, sites)
        near, weight = self.neighbours_of(sites)
        around = x.index_select(1, near.view(-1)).mul_(2).sub_(1).view(len(x), *near.shape)
        return torch.linalg.vecdot(around, weight).add_(self.bias.index_select(0, sites)).mul_(2)

    def differences(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        return self.log_odds(x, cache, sites) * (1 - 2 * x.index_select(1, sites))

    def differences_after(self, x: Tensor, index: Tensor) -> tuple[Tensor | None, Tensor]:
        if self.many(self.degree + 1):
            odds = self.gradient(x)
            return None, torch.addcmul(odds, odds, x, value=-2)
        sites = torch.cat((index, self.neighbours_of(index.view(-1))[0]), 1)
        near, weight = self.neighbours_of(sites.view(-1))
        around = x.gather(1, near.view(len(x), -1)).mul_(2).sub_(1).view(*sites.shape, -1)
        bias = self.bias.index_select(0, sites.view(-1)).view_as(sites)
        odds = torch.linalg.vecdot(around, weight.view_as(around)).add_(bias).mul_(2)
        return sites, odds.addcmul_(odds, x.gather(1, sites), value=-2)

    def block_log_probs(self, x: Tensor, cache: Cache, sites: Tensor, patterns: Tensor) -> Tensor:
        near, weight = self.neighbours_of(sites)
        inside = ((near.unsqueeze(-1) == sites) * weight.unsqueeze(-1)).sum(1) / 2
        field, spins = self.log_odds(x, cache, sites) / 2, spins_of(x.index_select(1, sites))
        return pattern_log_probs(field, inside, spins, spins_of(patterns.to(x)))


_TO_BQM = {  # what turns other models of dimod into a binary quadratic one
    "dict": "dimod.BinaryQuadraticModel.from_qubo(Q) or .from_ising(h, J) makes one",
    "tuple": "dimod.BinaryQuadraticModel.from_ising(h, J) makes one",
    "ConstrainedQuadraticModel": "dimod.cqm_to_bqm makes one, with penalties for constraints",
    "DiscreteQuadraticModel": "Factors takes tables of variables with several values",
    "QuadraticModel": "variables other than of two values are not served",
}


def _as_number(value: Any, what: str) -> float:
    if isinstance(value, str | bytes):
        raise ValueError(f"{what} must be a number, got the text {value!r}; convert it with float")
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} must be a number, got {value!r}") from error


def _count_sites(pairs: Tensor, bias: Tensor, sites: int | None) -> int:
    """The number of sites. Raises ValueError unless the edges are among them."""
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.is_floating_point():
        raise ValueError(
            f"edges must be pairs of whole numbers, [m, 2], got {list(pairs.shape)} {pairs.dtype}"
        )
    largest = int(pairs.max()) if len(pairs) else -1
    if sites is None:
        sites = len(bias) if bias.ndim else largest + 1
    if bias.ndim > 1 or bias.ndim == 1 and len(bias) != sites:
        raise ValueError(f"bias must be one number or {sites}, got {list(bias.shape)}")
    if largest >= sites or len(pairs) and int(pairs.min()) < 0:
        raise ValueError(
            f"the sites of edges must be from 0 to {sites - 1}, got {int(pairs.min())} to "
            f"{largest}; sites= or a longer bias adds sites, and numbering from 1 needs edges - 1"
        )
    loops = (pairs[:, 0] == pairs[:, 1]).nonzero().view(-1)
    if len(loops):
        raise ValueError(
            f"edge {int(loops[0])} joins site {int(pairs[loops[0], 0])} to itself; s_i^2 = 1, so "
            "it would add a constant: leave it out, and put the diagonal of a QUBO into the bias"
        )
    return sites
