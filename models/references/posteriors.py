"""Posteriors and mixtures as functions: variables of a regression, blocks, two modes, counts."""

import torch
from torch import Tensor, nn

from latticework.models.base import Function
from latticework.models.domains import Binary, Categorical, Integer
from latticework.models.references.definition import (
    Arrays,
    Definition,
    product_of_sites,
    sum_of_sites,
)
from latticework.models.selection import VariableSelection


def build_selection(arrays: Arrays) -> VariableSelection:
    gram, response = torch.from_numpy(arrays["gram"]), torch.from_numpy(arrays["response"])
    rows, log_odds = int(arrays["rows"]), float(arrays["log_odds"])
    return VariableSelection.from_moments(gram, response, rows, log_odds)


def is_best(x: Tensor, arrays: Arrays) -> Tensor:
    return (x == torch.from_numpy(arrays["best"]).to(x)).all(-1).to(x)


class Blocks(nn.Module):
    """Log posterior of the groups of a graph's nodes, with the densities integrated out.

    Densities within and between groups are uniform, and so are the shares of the groups.
    """

    adjacency: Tensor

    def __init__(self, adjacency: Tensor) -> None:
        super().__init__()
        self.register_buffer("adjacency", adjacency)

    def forward(self, x: Tensor) -> Tensor:
        states = x.double()
        size = states.sum(1)  # [n, groups]
        ends = states.mT @ self.adjacency.double() @ states
        pairs = size.unsqueeze(-1) * size.unsqueeze(-2) - torch.diag_embed(size)
        twice = 1 + torch.eye(x.shape[-1], dtype=states.dtype, device=x.device)
        edges, pairs = ends / twice, pairs / twice
        density = (1 + edges).lgamma() + (1 + pairs - edges).lgamma() - (2 + pairs).lgamma()
        return ((1 + size).lgamma().sum(-1) + density.triu().sum((-2, -1))).to(x)


def build_blocks(arrays: Arrays) -> Function:
    adjacency = torch.from_numpy(arrays["adjacency"]).float()
    return Function(Blocks(adjacency), Categorical(len(adjacency), 3))


class TwoModes(nn.Module):
    """A mixture of two products: all sites probable with weight w, improbable with 1 - w."""

    parts: Tensor
    odds: Tensor

    def __init__(self, weight: float, high: float) -> None:
        super().__init__()
        self.register_buffer("parts", torch.tensor([weight, 1 - weight]).log())
        self.register_buffer("odds", torch.tensor([[high, 1 - high], [1 - high, high]]).log())

    def forward(self, x: Tensor) -> Tensor:
        count = x.sum(-1, keepdim=True)
        log_probs = self.parts + count * self.odds[:, 0] + (x.shape[-1] - count) * self.odds[:, 1]
        return log_probs.logsumexp(-1)


def build_two_modes(arrays: Arrays) -> Function:
    return Function(TwoModes(float(arrays["weight"]), float(arrays["high"])), Binary(20))


class PoissonRing(nn.Module):
    """Log pi = sum x_i log r_i - log x_i! - g (x_i - x_(i+1))^2 around a ring."""

    log_rates: Tensor

    def __init__(self, log_rates: Tensor, smoothness: float) -> None:
        super().__init__()
        self.register_buffer("log_rates", log_rates)
        self.smoothness = smoothness

    def forward(self, x: Tensor) -> Tensor:
        steps = (x - x.roll(-1, -1)).square().sum(-1)
        return x @ self.log_rates - (x + 1).lgamma().sum(-1) - self.smoothness * steps


def build_poisson_ring(arrays: Arrays) -> Function:
    log_rates = torch.from_numpy(arrays["log_rates"])
    ring = PoissonRing(log_rates, float(arrays["smoothness"]))
    return Function(ring, Integer(len(log_rates), low=0))


SELECTION = {"E sum x": sum_of_sites, "P(best model)": is_best, "E x4 x6": product_of_sites(4, 6)}
POSTERIORS = {
    "select_10": Definition(build_selection, SELECTION),
    "select_19": Definition(build_selection, SELECTION),
    "two_modes_20": Definition(build_two_modes, {"E x0 x1": product_of_sites(0, 1)}),
    "sbm_florentine": Definition(
        build_blocks,
        {
            "P(Pazzi = Salviati)": product_of_sites(9, 12),
            "P(Bischeri = Medici)": product_of_sites(3, 8),
        },
    ),
    "poisson_ring_10": Definition(build_poisson_ring),
}
