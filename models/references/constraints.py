"""Targets with impossible states: independent sets, colourings, choices of five, a knapsack."""

import math

import torch
from torch import Tensor, nn

from latticework.models.base import EnergyModel, Function
from latticework.models.domains import Categorical
from latticework.models.factors import Factors
from latticework.models.graph_potts import GraphPotts
from latticework.models.references.definition import (
    Arrays,
    Definition,
    product_of_sites,
    sum_of_sites,
)

CAPACITY = 24  # the largest weight of a knapsack


def build_independent_sets(arrays: Arrays) -> Factors:
    """No edge has two ones; each one adds log(activity) to log pi."""
    apart = torch.tensor([[0.0, 0.0], [0.0, -math.inf]])
    activity = torch.stack((torch.zeros(()), torch.from_numpy(arrays["log_activity"])))
    tables = [(edge, apart) for edge in arrays["edges"].tolist()]
    tables += [([site], activity) for site in range(36)]
    return Factors(tables, 36)


def build_colourings(arrays: Arrays) -> GraphPotts:
    return GraphPotts(arrays["edges"], -math.inf, 3)


def build_subset(arrays: Arrays) -> EnergyModel:
    """Log pi = b'x + w sum x_i x_(i+1) around the ring, given five ones."""
    bias, pair = torch.from_numpy(arrays["bias"]), torch.zeros(2, 2)
    pair[1, 1] = float(arrays["weight"])
    tables = [([i, (i + 1) % 30], pair) for i in range(30)]
    tables += [([i], torch.stack((torch.zeros(()), bias[i]))) for i in range(30)]
    return Factors(tables, 30).with_ones(5)


class Knapsack(nn.Module):
    """Log pi of one choice in each group: its value, or -inf above the capacity."""

    values: Tensor
    weights: Tensor

    def __init__(self, values: Tensor, weights: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", values)
        self.register_buffer("weights", weights)

    def forward(self, x: Tensor) -> Tensor:
        value, weight = (x * self.values).sum((-2, -1)), (x * self.weights).sum((-2, -1))
        return value.masked_fill(weight > CAPACITY + 0.5, -math.inf)


def build_knapsack(arrays: Arrays) -> Function:
    values, weights = torch.from_numpy(arrays["values"]), torch.from_numpy(arrays["weights"])
    return Function(Knapsack(values, weights.float()), Categorical(8, 4))


def is_full(x: Tensor, arrays: Arrays) -> Tensor:
    weights = torch.from_numpy(arrays["weights"]).to(x)
    return ((x * weights).sum((-2, -1)) == CAPACITY).to(x)


CONSTRAINTS = {
    "hardcore_6x6": Definition(build_independent_sets, {"E sum x": sum_of_sites}),
    "colourings_6x6": Definition(
        build_colourings,
        {"P(x0 = x7)": product_of_sites(0, 7), "P(x0 = x35)": product_of_sites(0, 35)},
    ),
    "subset_30_5": Definition(build_subset, {"E x0 x29": product_of_sites(0, 29)}),
    "knapsack_8x4": Definition(build_knapsack, {f"P(weight = {CAPACITY})": is_full}),
}
