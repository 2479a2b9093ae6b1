"""Scans: the order in which a block sampler visits the sites. All chains visit the same block.

Each scan is valid for any kernel that leaves the target invariant for every fixed block:

    systematic   blocks of consecutive sites, cyclically
    random       a block of distinct sites, drawn anew at each step
    shuffled     passes through all sites, each pass in a new random order
    scopes       the variables of a table of the model and its neighbours, drawn anew at each step

A scan's memory is a tuple of tensors, so a step reads nothing on the host. The shuffled scan makes
one swap of a Fisher-Yates shuffle for each site visited, so the cost of a step does not depend on
the number of sites.
"""

from typing import Any, Literal, get_args

import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.distributions import random_integers, uniform
from latticework.samplers.base import UnsupportedModelError

Scan = Literal["systematic", "random", "shuffled", "scopes"]
Memory = tuple[Tensor, ...]


def require_scan(scan: str) -> None:
    if scan not in get_args(Scan):
        raise ValueError(f"scan must be one of {', '.join(get_args(Scan))}, got {scan!r}")


def start_scan(sampler: Any, model: EnergyModel, device: torch.device) -> Memory:
    """The memory of the scan of a sampler before its first block."""
    scan, sites, dim = sampler.scan, sampler.sites, model.domain.dim
    if sites > dim:
        raise ValueError(f"a block of {sites} sites does not fit a model of {dim}")
    if scan == "systematic":
        every = torch.arange(dim, device=device)
        return every[:sites] + (dim - sites), (every + sites).remainder_(dim)
    if scan == "shuffled":
        return torch.arange(dim, device=device), torch.zeros(1, dtype=torch.long, device=device)
    if scan == "scopes":
        if (blocks := model.scopes(sites)) is None:
            raise UnsupportedModelError(sampler, model, "a model of tables for scan=scopes")
        return (blocks,)
    return ()


def next_block(
    scan: Scan, memory: Memory, sites: int, dim: int, rng: Generator
) -> tuple[Tensor, Memory]:
    """The next block, `[sites]` distinct indices, and the updated memory (modified in place)."""
    if scan == "systematic":
        block, successor = memory
        block = successor.index_select(0, block)
        return block, (block, successor)
    if scan == "random":
        if sites == 1:
            return random_integers(0, dim, (1,), rng), ()
        return uniform((dim,), rng).topk(sites).indices, ()
    if scan == "scopes":
        (blocks,) = memory
        return blocks.index_select(0, random_integers(0, len(blocks), (1,), rng)).squeeze(0), memory
    order, position = memory
    position.masked_fill_(position + sites > dim, 0)  # too few sites left: a new pass
    first = position.clone()
    for _ in range(sites):
        partner = position + (uniform((1,), rng) * (dim - position)).long()
        here, there = order.index_select(0, position), order.index_select(0, partner)
        order.index_copy_(0, partner, here).index_copy_(0, position, there)
        position += 1
    return order.index_select(0, first + torch.arange(sites, device=order.device)), memory
