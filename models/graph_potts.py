"""Potts models on any graph: sparse couplings, with memory and time linear in edges times values.

    log pi(x) = sum_(i,j) w_ij [x_i = x_j] + sum_i b_i' x_i,     x_i in {e_1 .. e_q}

Every edge counts once, and a positive weight favours equal ends. With two values, weight w is the
weight w / 2 of `models.graph.Graph`.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.linalg import vecdot

from latticework.models.domains import Categorical
from latticework.models.forms import IMPOSSIBLE, PottsGraphForm, array
from latticework.models.graph import Graph
from latticework.models.potts import SparsePotts, expand_bias, look_for_zeros, mark_forbidden


class GraphPotts(SparsePotts):
    """Potts model on the edges of any graph, with a weight an edge and a field a site and value.

    `edges`, `weights` and `sites` are as for `Graph`. `bias` is one number, `[values]` or
    `[sites, values]`. A weight of -inf forbids equal ends, and a bias of -inf a value of a site.
    States are one-hot, `[chains, sites, values]`. Raises ValueError as `Graph` does, for fewer than
    two values, and for a bias of another shape.
    """

    quadratic = True

    def __init__(
        self,
        edges: Tensor | np.ndarray | Sequence[Sequence[int]],
        weights: Tensor | np.ndarray | Sequence[float] | float,
        num_values: int,
        bias: Tensor | float | Sequence[float] | Sequence[Sequence[float]] = 0.0,
        sites: int | None = None,
    ) -> None:
        super().__init__()
        self.graph = Graph(edges, mark_forbidden(weights, "weights"), sites=sites)
        self.domain = Categorical(self.graph.domain.dim, num_values)
        bias = expand_bias(bias, self.domain.dim, num_values)
        self.bias = torch.nn.Parameter(bias, requires_grad=False)
        self.look_for_zeros()
        self.register_load_state_dict_post_hook(look_for_zeros)

    def edges_and_couplings(self) -> tuple[Tensor, Tensor]:
        return self.graph.edges, self.graph.weights

    def neighbours_of(self, sites: Tensor) -> tuple[Tensor, Tensor]:
        return self.graph.neighbours_of(sites)

    def set_price(self, forbidden: float) -> None:
        for numbers in (self.graph.weights, self.bias):
            numbers.data.masked_fill_(numbers < IMPOSSIBLE, forbidden)

    def colours(self) -> Tensor:
        return self.graph.colours()

    def form(self) -> PottsGraphForm:
        form = self.graph.form()
        return PottsGraphForm(
            starts=form.starts,
            neighbours=form.neighbours,
            coupling=array(self.graph.weights.index_select(0, self.graph.edge)),
            bias=array(self.bias),
            order=form.order,
            classes=form.classes,
        )

    def forward(self, x: Tensor) -> Tensor:
        tails, heads = (x.index_select(1, side) for side in self.graph.edges.unbind(1))
        pairs = vecdot(tails, heads) @ self.graph.weights
        return self.log_prob_of(pairs + (x * self.bias).sum((-2, -1)))

    def _pairs(self, x: Tensor) -> Tensor:
        """sum_j w_ij x_j of all sites, `[chains, sites, values]`."""
        columns = x.transpose(0, 1).flatten(1).contiguous()
        return (self.graph.rows() @ columns).view(-1, len(x), x.shape[2]).transpose(0, 1)

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.require_gradient()
        pairs = self._pairs(x)
        return vecdot(x, pairs / 2 + self.bias).sum(-1), pairs + self.bias

    def field(self, x: Tensor, sites: Tensor) -> Tensor:
        if self.graph.many(len(sites)):
            return (self._pairs(x) + self.bias).index_select(1, sites)
        return self._field_of(x, sites, *self.graph.neighbours_of(sites))
