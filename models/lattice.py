"""Regular lattices: neighbour sums by shifts and neighbour tables, in memory linear in the sites.

Two sites are neighbours when they differ by one along one axis; `periodic` joins the two ends of an
axis longer than two. The adjacency is binary: a periodic axis of length two has one edge, not two.
"""

import torch
from torch import Tensor


def neighbour_sum(x: Tensor, shape: tuple[int, ...], periodic: bool) -> Tensor:
    """Sum of the neighbours' entries, `[chains, sites, ...] -> [chains, sites, ...]`."""
    grid = x.reshape(len(x), *shape, *x.shape[2:])
    total = torch.zeros_like(grid)
    for axis, size in enumerate(shape, start=1):
        if size == 1:
            continue
        inner = size - 1
        total.narrow(axis, 1, inner).add_(grid.narrow(axis, 0, inner))
        total.narrow(axis, 0, inner).add_(grid.narrow(axis, 1, inner))
        if periodic and size > 2:
            total.narrow(axis, 0, 1).add_(grid.narrow(axis, inner, 1))
            total.narrow(axis, inner, 1).add_(grid.narrow(axis, 0, 1))
    return total.view_as(x)


def neighbour_table(shape: tuple[int, ...], periodic: bool) -> tuple[Tensor, Tensor]:
    """Each site's neighbours and which of them exist, both `[sites, 2 * axes]`.

    A missing neighbour (the edge of an open lattice) repeats the site itself with weight 0.
    Indices are row-major: the last axis varies fastest.
    """
    sites = torch.arange(torch.Size(shape).numel()).view(shape)
    columns, weights = [], []
    for axis, size in enumerate(shape):
        coordinate = torch.arange(size).view(-1, *[1] * (len(shape) - axis - 1)).expand(shape)
        for step in (-1, 1):
            to = coordinate + step
            inside = (to >= 0) & (to < size)
            exists = torch.ones_like(inside) if periodic and size > 2 else inside
            columns.append(torch.where(exists, sites.roll(-step, axis), sites).flatten())
            weights.append(exists.flatten())
    return torch.stack(columns, -1), torch.stack(weights, -1).float()
