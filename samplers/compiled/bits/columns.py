"""Columns of bits: states of graphs whose couplings are equal up to their signs, a bit a chain.

A site has a word with a bit for each of 64 chains. Words are in the order of classes of independent
sites, and eight of a class are a vector, whose neighbours are gathered. A neighbour by a negative
coupling is inverted, so the log-odds of a site depend on a number again
(`compiled.bits.decisions`). Each chain has a bit of its own in the planes of probabilities, so
chains at different temperatures cost no more than others.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.samplers.compiled.bits.decisions import STORED_PLANES, Chances, bit_planes
from latticework.samplers.compiled.bits.vectors import WORDS, copy_aligned

BLOCK_CHAINS = 64  # in a block
Words = NDArray[np.uint64]


class SignedSites(NamedTuple):
    """Sites whose log-odds depend on a number: of neighbours at 1, or at 0 by a negative coupling.

    They are `odds[kind[i], number]`, an array for each group of chains.
    """

    near: NDArray[np.int32]  # [sites, degree], -1 where there is no further neighbour
    negative: NDArray[np.bool_]  # [sites, degree]
    colours: NDArray[np.int32]  # [sites], classes of independent sites
    kind: NDArray[np.int64]  # [sites]
    odds: list[NDArray[np.float64]]  # for each group, [kinds, numbers]


class GraphColumns(NamedTuple):
    """The numbers that a sweep reads."""

    place: NDArray[np.int32]  # [sites], of each site's word
    near: NDArray[np.int32]  # [vectors * degree * 8], places; that of no neighbour is always 0
    signs: Words  # [vectors * degree * 8], all 1s where a neighbour is inverted; or empty
    real: Words  # [vectors * 8], all 1s where there is a site whose log-odds are known
    planes: Words  # [blocks or 1, kinds or vectors, planes, values * terms, 8], by `bit_planes`
    planes_at: NDArray[np.int64]  # [vectors], where its planes begin, in bytes
    degree: int
    terms: int


def pack_graph(sites: SignedSites, chances: list[Chances], chains: int) -> GraphColumns:
    """The arrays for groups of `chains` chains each, one group after another."""
    kinds = len(sites.odds[0])
    order, by_kind = order_sites(sites.colours, sites.kind, kinds)
    real = order >= 0
    at = np.where(real, order, 0)
    place = np.empty(len(sites.kind), np.int32)
    place[order[real]] = np.flatnonzero(real)
    exists = (sites.near[at] >= 0) & real[:, None]
    near = np.where(exists, place[sites.near[at]], len(order)).astype(np.int32)
    negative = exists & sites.negative[at]
    known = ~np.asarray(np.isnan(sites.odds[0]).any(axis=1))[sites.kind]
    kind = sites.kind[at].reshape(-1, WORDS)  # a vector's words in a row
    planes = pack_planes(chances, chains, kind[:, :1] if by_kind else kind, by_kind)
    first = kind[:, 0] if by_kind else np.arange(len(kind))
    return GraphColumns(
        place=place,
        near=split_vectors(near),
        signs=repeat_bits(split_vectors(negative) if negative.any() else np.zeros(0, bool)),
        real=repeat_bits(real & known[at]),
        planes=planes,
        planes_at=first * planes.strides[1],
        degree=near.shape[1],
        terms=chances[0].probability.shape[2],
    )


def order_sites(
    colours: NDArray[np.int32], kind: NDArray[np.int64], kinds: int
) -> tuple[NDArray[np.int64], bool]:
    """The site of each word, -1 for none, and whether vectors have sites of one kind only.

    Classes begin new vectors. Kinds do so if they are few: then vectors of one kind share planes.
    """
    by_kind = kinds * WORDS * 2 <= len(kind)
    part = colours.astype(np.int64) * kinds + kind if by_kind else colours.astype(np.int64)
    pieces = []
    for number in np.unique(part):
        piece = np.flatnonzero(part == number)
        pieces.append(np.pad(piece, (0, -len(piece) % WORDS), constant_values=-1))
    return np.concatenate(pieces), by_kind


def split_vectors(table: NDArray) -> NDArray:
    """A table `[words, degree]` as `[vectors, degree, 8]`, flat."""
    return np.ascontiguousarray(
        table.reshape(len(table) // WORDS, WORDS, table.shape[1]).swapaxes(1, 2)
    ).ravel()


def repeat_bits(flags: NDArray[np.bool_]) -> Words:
    """Words whose bits are all 1 or all 0."""
    return copy_aligned(-flags.astype(np.int64)).view(np.uint64)


def pack_planes(
    chances: list[Chances], chains: int, kind: NDArray[np.int64], by_kind: bool
) -> Words:
    """The planes of all kinds, or of each vector's words, whose kinds are `kind` `[vectors, 8]`."""
    groups, kinds = len(chances), len(chances[0].probability)
    lanes = -(-groups * chains // BLOCK_CHAINS) * BLOCK_CHAINS if groups > 1 else BLOCK_CHAINS
    group = np.minimum(np.arange(lanes) // chains, groups - 1)
    values, terms = chances[0].probability.shape[1:]
    rows = kinds if by_kind else len(kind)
    shape = lanes // BLOCK_CHAINS, rows, STORED_PLANES, values * terms, WORDS
    planes = np.empty(shape, np.uint64)
    for plane, bits in enumerate(zip(*map(bit_planes, chances), strict=True)):
        lane_bits = np.stack(bits)[group]  # [lanes, kinds, values * terms]
        packed = np.packbits(lane_bits, axis=0, bitorder="little")
        eights = np.moveaxis(packed.reshape(-1, 8, kinds, values * terms), 1, -1)
        words = np.ascontiguousarray(eights).view(np.uint64)[..., 0]  # [blocks, kinds, terms]
        if by_kind:
            planes[:, :, plane] = words[..., None]
        else:
            planes[:, :, plane] = np.moveaxis(words[:, kind], 2, -1)
    return copy_aligned(planes)
