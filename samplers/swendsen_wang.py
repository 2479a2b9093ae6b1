"""Swendsen-Wang: whole clusters of equal sites change their value together.

R. H. Swendsen and J.-S. Wang, "Nonuniversal critical dynamics in Monte Carlo simulations", PRL
1987, in the form of R. G. Edwards and A. D. Sokal, PRD 1988.

On a graph where an edge with equal ends has weight exp(K) and each site a field b_i(value):

1. Every edge with equal ends becomes a bond with probability 1 - exp(-K).
2. Every cluster, a connected component of bonds, draws one value for all its sites, with
   probability proportional to exp(sum of its sites' b_i(value)).

Both draws are Gibbs updates of the joint law of values and bonds, so nothing is rejected. The
second sums over the bonds to a ghost spin, the usual treatment of a field.

Clusters are found by labels. Each site has a label, at first itself. In a round, the two labels of
a bond's ends are joined under the smaller one and every label is replaced by its own label. This
is algorithm "P" of S. C. Liu and R. E. Tarjan, "Simple concurrent labeling algorithms for connected
components", 2019; on lattices the number of rounds grows with the logarithm of the sites.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.annealed import GeometricPath, SoftenedPath
from latticework.models.base import EnergyModel
from latticework.models.distributions import bernoulli, draw_categorical, softmax_weights
from latticework.models.domains import Binary, one_hot
from latticework.models.graph import Graph
from latticework.models.ising import Lattice
from latticework.models.potts import LatticePotts
from latticework.samplers.base import (
    Info,
    Sampler,
    UnsupportedModelError,
    all_done_on_cpu,
)


class ClusterState(NamedTuple):
    x: Tensor  # [chains, *domain.shape]


@dataclass(frozen=True)
class SwendsenWang(Sampler):
    """Draw bonds between equal neighbours, then a value for each cluster. Ferromagnets only.

    An edge whose ends prefer to differ would have a bond with a negative probability.

    Labelling takes at most `most_rounds` rounds. A chain whose clusters are not found by then stays
    where it is, which leaves the target invariant too, and is counted in `Info.unsettled`. On the
    CPU the loop ends with the last change.
    """

    draws_all_sites = True

    def at(self, x: Tensor, model: EnergyModel) -> ClusterState:
        self._require_ferromagnet(model.model if isinstance(model, GeometricPath) else model)
        return ClusterState(x)

    def _require_ferromagnet(self, model: EnergyModel) -> None:
        if isinstance(model, Graph) and (negative := int((model.weights < 0).sum())):
            raise UnsupportedModelError(
                self,
                model,
                "edges of weight 0 or more, whose ends prefer to be equal: clusters of equal sites",
                f"a graph with {negative} negative weights; gibbs_sweep serves it",
            )
        lattice = isinstance(model, Lattice | LatticePotts) and model.coupling >= 0
        if not (lattice or isinstance(model, Graph)):
            raise UnsupportedModelError(
                self, model, "an Ising or Potts lattice or a graph with couplings of 0 or more"
            )

    def step(
        self, state: ClusterState, model: EnergyModel, rng: Generator
    ) -> tuple[ClusterState, Info]:
        x = state.x
        edges, price, fields = interactions(model)
        values = x if x.ndim == 2 else x.argmax(-1).to(x.dtype)
        tails, heads = values.index_select(1, edges[0]), values.index_select(1, edges[1])
        log_odds = torch.expm1(price).log_()  # log-odds of a bond, whose probability is 1 - exp(-K)
        bonds = (tails == heads) & (bernoulli(log_odds.expand_as(tails), rng) > 0)
        labels, settled = clusters(edges, bonds, values.shape[1])

        index = labels.unsqueeze(-1).expand(-1, -1, fields.shape[-1])
        # A GPU adds in any order. Sums in float64, rounded to float32, do not show it.
        total = torch.zeros_like(index, dtype=torch.float64 if x.is_cuda else x.dtype)
        total.scatter_add_(1, index, fields.to(total.dtype).expand_as(total))
        weights = softmax_weights(total.to(x.dtype))
        drawn = draw_categorical(weights, rng).squeeze(-1)  # used at the labels
        new = drawn.gather(1, labels)
        y = new.to(x.dtype) if x.ndim == 2 else one_hot(new, fields.shape[-1]).to(x.dtype)
        y = torch.where(settled.view(-1, *[1] * (x.ndim - 1)), y, x)
        return ClusterState(y), Info(x.new_ones(len(x)), unsettled=(~settled).to(x.dtype))


def interactions(model: EnergyModel) -> tuple[Tensor, Tensor, Tensor]:
    """Edges `[2, n]`; the price K of each with unequal ends, 0 for no edge `[n]`; fields b.

    Fields are `[sites, values]`. An Ising edge counts twice in log pi and its product of spins
    changes by 2, so K is 4 times the coupling. An edge of a graph counts once. On the path of
    tempering, K is b times that of the target and fields are the mean with those of the base, both
    with the rows of b in front.
    """
    if isinstance(model, GeometricPath):
        edges, price, fields = interactions(model.model)
        b, base = model.beta.view(-1, 1), model.field
        if isinstance(model, SoftenedPath):
            fields = model.with_prices(fields)
        if isinstance(model.domain, Binary):
            base = torch.stack((base * model.domain.low, base * model.domain.high), -1)
        return edges, b * price, torch.lerp(base, fields, b.unsqueeze(-1))
    assert isinstance(model, Lattice | LatticePotts | Graph)
    if isinstance(model, Graph):
        return model.edges.T, 2 * model.weights, torch.stack((-model.bias, model.bias), -1)
    near, exists = model.neighbours[:, 1::2], model.exists[:, 1::2]  # one direction of each axis
    sites = torch.arange(len(near), device=near.device).unsqueeze(1).expand_as(near)
    edges = torch.stack((sites.flatten(), near.flatten()))
    if isinstance(model.domain, Binary):
        price = 4 * model.coupling * exists.flatten()
        return edges, price, torch.stack((-model.bias, model.bias), -1)
    return edges, model.coupling * exists.flatten(), model.bias


def most_rounds(sites: int) -> int:
    """Bound on the rounds, above the largest number seen; a path in random order needs most."""
    return 2 * sites.bit_length() + 4


def clusters(edges: Tensor, bonds: Tensor, sites: int) -> tuple[Tensor, Tensor]:
    """The smallest site of each site's cluster `[chains, sites]`, and whether it is, `[chains]`.

    `edges` `[2, n]` are joined where `bonds` `[chains, n]`.
    """
    labels = torch.arange(sites, device=bonds.device).expand(len(bonds), -1)
    settled = bonds.new_zeros(len(bonds))
    for _ in range(most_rounds(sites)):
        before = labels
        tails, heads = labels.index_select(1, edges[0]), labels.index_select(1, edges[1])
        high = torch.maximum(tails, heads)
        low = torch.where(bonds, torch.minimum(tails, heads), high)  # no bond: joined to itself
        labels = labels.scatter_reduce(1, high, low, "amin")
        labels = labels.gather(1, labels)
        settled = (labels == before).all(1)
        if all_done_on_cpu(settled):
            break
    return labels, settled
