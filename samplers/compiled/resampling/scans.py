"""The blocks that block samplers visit, for several steps at once (`samplers.scans`).

All chains visit the same block. Random numbers come from the stream that chains share: that of
number k serves the k-th site of a block.
"""

from math import gcd

import numpy as np
import torch
from numpy.typing import NDArray

from latticework.samplers.compiled.jit import inlined, kernel
from latticework.samplers.compiled.philox import SHARED_CHAIN, unit
from latticework.samplers.compiled.run_words import BLOCK_STEPS, RunSteps, fill_words, new_run
from latticework.samplers.scans import Memory, Scan


def start_scan(scan: Scan, sites: int, dim: int) -> Memory:
    """The memory of a scan: the run (`run_words`), and the order of the sites if it changes."""
    if sites > dim:
        raise ValueError(f"a block of {sites} sites does not fit a model of {dim}")
    if scan == "scopes":
        raise ValueError("scan=scopes needs a model of tables, such as Factors; use scan=random")
    return (new_run(), torch.arange(dim)) if scan == "shuffled" else (new_run(),)


def next_blocks(
    scan: Scan, memory: Memory, sites: int, dim: int, run: RunSteps
) -> NDArray[np.int32]:
    """The blocks of the steps of `run`, `[steps, sites]`. Updates the order of sites in place.

    Where blocks come again in the same order, those of one round are enough.
    """
    round_steps = dim // gcd(dim, sites) if scan == "systematic" else run.steps
    blocks = np.empty((min(run.steps, round_steps), sites), np.int32)
    if scan == "systematic":
        write_systematic(blocks, run, dim)
    elif scan == "shuffled":
        write_shuffled(blocks, run, memory[1].numpy())
    elif sites == 1:
        write_random_sites(blocks, run, dim)
    else:
        write_random(blocks, run, np.arange(dim))
    return blocks


@inlined
def next_row(t, rounds):
    """The row of `rounds` that comes after row `t`: the first one after the last."""
    return t + 1 if t + 1 < rounds.shape[0] else 0


@kernel
def write_systematic(blocks, run, dim):
    """Consecutive sites, cyclically."""
    at = (run.first % dim) * blocks.shape[1] % dim
    for t in range(blocks.shape[0]):
        for k in range(blocks.shape[1]):
            blocks[t, k] = at
            at = at + 1 if at + 1 < dim else 0


@kernel
def write_random_sites(blocks, run, dim):
    """A site for each step."""
    words, room = np.empty((BLOCK_STEPS, 1), np.uint32), np.empty(BLOCK_STEPS, np.uint32)
    for t in range(blocks.shape[0]):
        step = run.first + t
        if t == 0 or step % BLOCK_STEPS == 0:
            fill_words(words, room, run.key, step, run.first + run.steps, SHARED_CHAIN, 0)
        blocks[t, 0] = np.int32(unit(words[step % BLOCK_STEPS, 0]) * dim)


@kernel
def write_random(blocks, run, order):
    """Distinct sites by the first swaps of a Fisher-Yates shuffle of `order`, which are undone."""
    dim, sites = order.shape[0], blocks.shape[1]
    words, room = np.empty((sites, BLOCK_STEPS, 1), np.uint32), np.empty(BLOCK_STEPS, np.uint32)
    swapped = np.empty(sites, np.int64)
    for t in range(blocks.shape[0]):
        step = run.first + t
        if t == 0 or step % BLOCK_STEPS == 0:
            for k in range(sites):
                fill_words(words[k], room, run.key, step, run.first + run.steps, SHARED_CHAIN, k)
        for k in range(sites):
            place = k + np.int64(unit(words[k, step % BLOCK_STEPS, 0]) * (dim - k))
            order[k], order[place] = order[place], order[k]
            blocks[t, k], swapped[k] = order[k], place
        for k in range(sites - 1, -1, -1):
            place = swapped[k]
            order[k], order[place] = order[place], order[k]


@kernel
def write_shuffled(blocks, run, order):
    """Passes through all sites in random orders; a pass ends when too few sites are left."""
    dim, sites = order.shape[0], blocks.shape[1]
    words, room = np.empty((sites, BLOCK_STEPS, 1), np.uint32), np.empty(BLOCK_STEPS, np.uint32)
    for t in range(blocks.shape[0]):
        step = run.first + t
        if t == 0 or step % BLOCK_STEPS == 0:
            for k in range(sites):
                fill_words(words[k], room, run.key, step, run.first + run.steps, SHARED_CHAIN, k)
        at = step % (dim // sites) * sites
        for k in range(sites):
            place = at + np.int64(unit(words[k, step % BLOCK_STEPS, 0]) * (dim - at))
            order[at], order[place] = order[place], order[at]
            blocks[t, k] = order[at]
            at += 1
