"""The least work of a step, for `workshop.bench`: the limit that contenders are compared with.

On a lattice: the random bits of a step, and a read and a write of the sites that it may change. No
neighbour is counted and no probability computed. A step that decides about all sites has a bit for
each, and compares twelve random bits of each with those of one probability, by the generators and
vectors of our kernels. In a step at one site, sites are bytes, and a decision takes 8 random bits.
These come from SplitMix64 (G. Steele, D. Lea and C. Flood, 2014), a hash of a counter, which the
compiler turns into vector instructions.

On an RBM, a network, a regression, and for DULA and DMALA on a graph: the products or convolutions
of a step alone, by PyTorch in float32 (or bfloat16), without activations, random numbers or sums. A
single-site step of an RBM has no product: there it is the update of the hidden inputs and the sum
of their softplus.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import conv2d, softplus
from torch.nn.grad import conv2d_input

from latticework.models.graph import Graph
from latticework.models.matmul import affine
from latticework.samplers.compiled.bits.decisions import (
    FIRST_PLANES,
    draw_vector,
    select_bits,
    start_pass,
)
from latticework.samplers.compiled.bits.vectors import (
    BYTES,
    EIGHT,
    copy_aligned,
    load_vector,
    repeat_word,
    store_vector,
)

Burst = Callable[[int], None]  # does the work of a number of steps
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]

WORDS = 256  # random words that are made at once
CACHE_VECTORS = 16  # of sites that are advanced together
FLIP = 13  # in 256: about the share of sites that a step flips
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@njit(cache=True, nogil=True)
def fill(words: NDArray[np.uint64], counter: np.uint64) -> np.uint64:
    """SplitMix64 of the counters from `counter` on. Returns the next counter."""
    for i in range(len(words)):
        z = (counter + np.uint64(i)) * GOLDEN
        z = (z ^ (z >> np.uint64(30))) * FIRST
        z = (z ^ (z >> np.uint64(27))) * SECOND
        words[i] = z ^ (z >> np.uint64(31))
    return counter + np.uint64(len(words))


@njit(nogil=True)
def flip_all(x: Words, planes: Words, seeds: Words, steps: int) -> None:
    """Each step decides about every bit of every row of `x` `[rows, words]`, by 12 bits of p.

    One row after another. `planes` have the bits of p, `seeds` the generators' seed.
    """
    state, size = start_pass(EIGHT, seeds, 0, 0), 8 * x.shape[1]
    for row in range(x.shape[0]):
        for _ in range(steps):
            for at in range(row * size, row * size + size, BYTES):
                less = repeat_word(np.uint64(0))
                for k in range(FIRST_PLANES):
                    u, state = draw_vector(state)
                    p = load_vector(planes, k * BYTES)
                    less = select_bits(p ^ u, p, less)
                store_vector(x, at, load_vector(x, at) ^ less)  # type: ignore[call-arg]


@njit(cache=True, nogil=True)
def flip_in_turn(x: Bytes, steps: int, seed: int) -> None:
    """Each step decides about one row of `x` `[sites, chains]`, in turn."""
    words = np.empty(max(WORDS, (x.shape[1] + 7) // 8), np.uint64)
    bits, counter = words.view(np.uint8), np.uint64(seed) << np.uint64(40)
    used, site, chains = len(bits), 0, x.shape[1]
    for _ in range(steps):
        if used + chains > len(bits):
            counter, used = fill(words, counter), 0
        row, now = x[site], bits[used : used + chains]
        for i in range(chains):
            row[i] ^= np.uint8(now[i] < FLIP)
        used += chains
        site = site + 1 if site + 1 < len(x) else 0


@njit(cache=True, nogil=True)
def flip_anywhere(x: Bytes, steps: int, seed: int) -> None:
    """Each step decides about one random site of every row of `x` `[chains, sites]`.

    The site and the decision take 32 random bits each.
    """
    words, sites = np.empty(WORDS, np.uint64), np.uint64(x.shape[1])
    counter, used = np.uint64(seed) << np.uint64(40), WORDS
    for row in x:
        for _ in range(steps):
            if used == WORDS:
                counter, used = fill(words, counter), 0
            word = words[used]
            used += 1
            site = ((word >> np.uint64(32)) * sites) >> np.uint64(32)
            row[site] ^= np.uint8((word & np.uint64(0xFF)) < FLIP)


def planes_of_flips() -> Words:
    """The bits of the probability of a flip, the lowest first, as vectors."""
    threshold = FLIP << FIRST_PLANES - 8
    return -(threshold >> np.arange(FIRST_PLANES) & 1).repeat(8).astype(np.uint64)


def lattice(sampler: str, chains: int, sites: int, threads: int) -> Burst:
    """Random bits and memory traffic of a step of `sampler`, on as many threads."""
    if sampler not in ("gibbs-1", "gwg-1"):
        return all_sites(chains * sites, threads)
    kernel = {"gibbs-1": flip_in_turn, "gwg-1": flip_anywhere}[sampler]
    if sampler == "gibbs-1":
        parts = [np.zeros((sites, n), np.uint8) for n in split(chains, threads)]
    else:
        parts = [np.zeros((n, sites), np.uint8) for n in split(chains, threads)]
    return run_on_threads([partial(kernel, part, seed=i) for i, part in enumerate(parts)])


def all_sites(sites: int, threads: int) -> Burst:
    """Decisions about so many sites, in rows that stay in the cache."""
    parts, rng = [], np.random.default_rng(0)
    planes = copy_aligned(planes_of_flips())
    for vectors in split(-(-sites // (8 * BYTES)), threads):
        rows = -(-vectors // CACHE_VECTORS)
        x = copy_aligned(np.zeros((rows, -(-vectors // rows) * BYTES // 8), np.uint64))
        seeds = rng.integers(2**63, size=32, dtype=np.uint64)
        parts.append(partial(flip_all, x, planes, seeds))
    return run_on_threads(parts)


def run_on_threads(parts: Sequence[Burst]) -> Burst:
    """Bursts of all parts, each on a thread of its own."""
    if len(parts) == 1:
        return parts[0]
    pool = ThreadPoolExecutor(len(parts))

    def burst(steps: int) -> None:
        list(pool.map(lambda part: part(steps), parts))

    return burst


def split(count: int, parts: int) -> list[int]:
    """`count` as a sum of at most `parts` positive numbers, as equal as possible."""
    sizes = [count // parts + (part < count % parts) for part in range(parts)]
    return [size for size in sizes if size]


# Products. Each function returns the work of a number of steps.


def rbm(sampler: str, chains: int, weight: Tensor) -> Burst:
    """Two products a step, or for gibbs-1 an update of the hidden inputs and their softplus sum."""
    visible, hidden = weight.shape
    x, z = torch.rand(chains, visible), torch.rand(chains, hidden)
    if sampler == "gibbs-1":
        signs, memory = torch.ones(chains, 1), torch.empty_like(z)

        def single() -> None:
            torch.addcmul(z, signs, weight[0], out=memory)
            softplus(memory).sum(-1)

        return repeated(single)
    up, down = torch.empty_like(z), torch.empty_like(x)
    zero_up, zero_down = torch.zeros(hidden), torch.zeros(visible)

    def both() -> None:
        affine(zero_up, x, weight, up)
        affine(zero_down, z, weight.T, down)

    return repeated(both)


def graph(model: Graph, chains: int) -> Burst:
    """The product of the sparse couplings with all states, of which a chain is a column."""
    sites = model.domain.dim
    values = model.weights[model.edge]
    shape = sites, sites
    rows = torch.sparse_csr_tensor(model.starts, model.ends, values, shape, check_invariants=False)
    x, out = torch.rand(sites, chains), torch.empty(sites, chains)
    return repeated(lambda: torch.mm(rows, x, out=out))


def network(side: int, maps: int, blocks: int, chains: int, low: bool) -> Burst:
    """The convolutions of a value and its gradient: forward, and back to the input.

    The first layer and both branches of the first block are one convolution of quarter images, as
    in `models.resnet`. `low` chooses bfloat16.
    """
    half, quarter = side // 2, side // 4
    first = [(20, 2 * maps, 3, half, 1), (maps, maps, 3, half, 1)]  # in, out, kernel, side, stride
    second = [(maps, maps, 3, half, 2), (maps, maps, 3, quarter, 1), (maps, maps, 1, quarter, 1)]
    layers = [*first, *second, *[(maps, maps, 3, quarter, 1)] * 2 * (blocks - 2)]
    made = [_layer(chains, *layer, torch.bfloat16 if low else torch.float32) for layer in layers]

    def all_layers() -> None:
        for convolve in made:
            convolve()

    return repeated(all_layers)


def _layer(
    chains: int, inner: int, outer: int, kernel: int, side: int, stride: int, dtype: torch.dtype
) -> Callable[[], None]:
    def made(*shape: int) -> Tensor:
        return torch.rand(shape, dtype=dtype).contiguous(memory_format=torch.channels_last)

    x, weight = made(chains, inner, side, side), made(outer, inner, kernel, kernel)
    back = made(chains, outer, side // stride, side // stride)

    def convolve() -> None:
        conv2d(x, weight, stride=stride, padding=kernel // 2)
        conv2d_input(x.shape, weight, back, stride=stride, padding=kernel // 2)

    return convolve


def regression(chains: int, rows: int, features: int, hidden: int) -> Burst:
    """The products of a value and its gradient: of both layers, forward and to the weights."""
    inputs, first = torch.rand(rows, features + 1), torch.rand(features + 1, hidden)
    units, last, errors = torch.rand(rows, hidden), torch.rand(hidden), torch.rand(rows)
    up, down = torch.empty(rows, hidden), torch.empty(features + 1, hidden)

    def all_chains() -> None:
        for _ in range(chains):
            torch.mm(inputs, first, out=up)
            units @ last
            torch.mm(inputs.T, units, out=down)
            errors @ units

    return repeated(all_chains)


def repeated(step: Callable[[], object]) -> Burst:
    def burst(steps: int) -> None:
        with torch.no_grad():
            for _ in range(steps):
                step()

    return burst
