"""The blocks that block samplers visit, for several steps at once (`samplers.scans`).

All chains visit the same block. Random numbers come from the stream that chains share.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from latticework.samplers.compiled.jit import kernel
from latticework.samplers.compiled.philox import SHARED, philox, unit
from latticework.samplers.scans import Memory, Scan


def start_scan(scan: Scan, sites: int, dim: int) -> Memory:
    """The memory of a scan: the next position, and the order of the sites if they are shuffled."""
    if sites > dim:
        raise ValueError(f"a block of {sites} sites does not fit a model of {dim}")
    if scan == "scopes":
        raise ValueError("scan=scopes needs a model of tables, such as Factors; use scan=random")
    position = torch.zeros(1, dtype=torch.long)
    return (position, torch.arange(dim)) if scan == "shuffled" else (position,)


def next_blocks(
    scan: Scan, memory: Memory, sites: int, dim: int, keys: NDArray[np.int64]
) -> NDArray[np.int32]:
    """The blocks of the steps with these keys, `[steps, sites]`. Updates the memory in place."""
    blocks = np.empty((len(keys), sites), np.int32)
    position = memory[0].numpy()
    if scan == "systematic":
        systematic(blocks, position, dim)
    elif scan == "random":
        random(blocks, keys, np.arange(dim))
    else:
        shuffled(blocks, keys, position, memory[1].numpy())
    return blocks


@kernel
def systematic(blocks, position, dim):
    """Consecutive sites, cyclically."""
    at = position[0]
    for t in range(blocks.shape[0]):
        for k in range(blocks.shape[1]):
            blocks[t, k] = at
            at = at + 1 if at + 1 < dim else 0
    position[0] = at


@kernel
def random(blocks, keys, order):
    """Distinct sites by the first swaps of a Fisher-Yates shuffle of `order`, which are undone."""
    dim, sites = order.shape[0], blocks.shape[1]
    swapped = np.empty(sites, np.int64)
    for t in range(blocks.shape[0]):
        for k in range(sites):
            word, _, _, _ = philox(np.uint32(k), SHARED, np.uint32(0), np.uint64(keys[t]))
            place = k + np.int64(unit(word) * (dim - k))
            order[k], order[place] = order[place], order[k]
            blocks[t, k], swapped[k] = order[k], place
        for k in range(sites - 1, -1, -1):
            place = swapped[k]
            order[k], order[place] = order[place], order[k]


@kernel
def shuffled(blocks, keys, position, order):
    """Passes through all sites in random orders; a pass ends when too few sites are left."""
    dim, at = order.shape[0], position[0]
    for t in range(blocks.shape[0]):
        if at + blocks.shape[1] > dim:
            at = 0
        for k in range(blocks.shape[1]):
            word, _, _, _ = philox(np.uint32(k), SHARED, np.uint32(0), np.uint64(keys[t]))
            place = at + np.int64(unit(word) * (dim - at))
            order[at], order[place] = order[place], order[at]
            blocks[t, k] = order[at]
            at += 1
    position[0] = at
