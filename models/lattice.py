"""Regular lattices: neighbour sums by shifts and neighbour tables, in memory linear in the sites.

Two sites are neighbours when they differ by one along one axis; `periodic` joins the two ends of an
axis longer than two. The adjacency is binary: a periodic axis of length two has one edge, not two.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def require_sides(shape: Sequence[int]) -> None:
    """Raise ValueError unless `shape` is one positive side length or more."""
    if not shape or min(shape) < 1:
        raise ValueError(f"shape must be positive side lengths, got {list(shape)}")


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


def colouring(shape: tuple[int, ...], periodic: bool) -> Tensor:
    """A class for each site, `[sites]`, that neighbours do not share; two or three classes.

    The sum over the axes of 0, 1, 0, 1, ... (2 at the end of an odd ring), modulo the classes.
    """
    odd = [periodic and size > 2 and size % 2 == 1 for size in shape]
    total = torch.zeros(shape, dtype=torch.long)
    for axis, size in enumerate(shape):
        along = torch.arange(size) % 2
        if odd[axis]:
            along[-1] = 2
        total += along.view(-1, *[1] * (len(shape) - axis - 1))
    return total.flatten() % (3 if any(odd) else 2)


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


def joins(shape: tuple[int, ...], periodic: bool) -> tuple[Tensor, Tensor]:
    """The lattice as shifts of the row-major array of sites, of each axis longer than one.

    `shifts` `[axes, 2]` are the distances to the next site along an axis and from its first site to
    its last one. `bits` `[axes, sites]`, bytes, say where site i has neighbours: bit 0 at
    i - next, bit 1 at i + next, bit 2 at i + last, bit 3 at i - last.
    """
    shifts, bits = [], []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        stride = torch.Size(shape[axis + 1 :]).numel()
        along = torch.full((size,), 0b0011, dtype=torch.uint8)
        around = periodic and size > 2
        along[0], along[-1] = (0b0110, 0b1001) if around else (0b0010, 0b0001)
        shifts.append([stride, (size - 1) * stride])
        bits.append(along.view(-1, *[1] * (len(shape) - axis - 1)).expand(shape).flatten())
    if not shifts:
        return torch.empty(0, 2, dtype=torch.long), torch.empty(0, math.prod(shape)).byte()
    return torch.tensor(shifts), torch.stack(bits)


def list_lattice_edges(neighbours: Tensor, exists: Tensor) -> Tensor:
    """The edges `[m, 2]` of a lattice with these tables (`neighbour_table`), each once."""
    site, axis = exists[:, 1::2].nonzero().unbind(1)  # one direction of each axis
    return torch.stack((site, neighbours[site, 2 * axis + 1]), 1)
