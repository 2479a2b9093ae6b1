"""Spin glasses, on sparse graphs and with a coupling between each two sites."""

import torch
from torch import Tensor

from latticework.models.dense_ising import DenseIsing
from latticework.models.graph import Graph
from latticework.models.references.definition import (
    Arrays,
    Definition,
    spin_product,
    sum_of_sites,
)


def build_graph(arrays: Arrays) -> Graph:
    return Graph(arrays["edges"], torch.from_numpy(arrays["weights"]))


def build_grid(arrays: Arrays) -> Graph:
    weights, bias = torch.from_numpy(arrays["weights"]), torch.from_numpy(arrays["bias"])
    return Graph(arrays["edges"], weights, bias, offset=float(arrays["offset"]))


def build_dense(arrays: Arrays) -> DenseIsing:
    """Log pi = sum of g_ij s_i s_j over i < j. `DenseIsing` counts each pair twice."""
    half = torch.from_numpy(arrays["upper"]) / 2
    return DenseIsing(half + half.T)


def squared_sum(x: Tensor, _: Arrays) -> Tensor:
    return (2 * x - 1).sum(-1).square()


GRAPHS = {
    "pmj_cubic_60": Definition(build_graph, {"E s0 s7": spin_product(0, 7)}),
    "sk_20": Definition(build_dense, {"E s1 s4": spin_product(1, 4), "E (sum s)^2": squared_sum}),
    "sk_200": Definition(build_dense),
    "grids_11": Definition(build_grid, {"E sum x": sum_of_sites}),
}
