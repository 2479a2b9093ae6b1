"""Steps on lattices by a plain NumPy loop, with the random numbers of kernels in bits.

The loop compares all 40 bits of a number at once, and knows of no planes, words, classes and tiles.
"""

import numpy as np
from numpy.typing import NDArray

import latticework as lw
from latticework.models.lattice import neighbour_table
from latticework.samplers.compiled.bits.decisions import PAST_SEEDS, SEEDS
from latticework.samplers.compiled.philox import fill_step

GOLDEN, LANES = np.uint64(0x9E3779B97F4A7C15), 512
LANE_STEP = np.uint64(0xDA942042E4DD58B5)


# Random numbers.


def rotate(x: NDArray, bits: int) -> NDArray:
    return x << np.uint64(bits) | x >> np.uint64(64 - bits)


def mix(x: NDArray) -> NDArray:
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def bits_of(words: NDArray) -> NDArray:
    return np.unpackbits(words.view(np.uint8), bitorder="little").astype(np.int64)


def start_pass(key: int, block: int, turn: int, time: int = 0) -> list[NDArray]:
    """The state of eight generators; at -time for perfect draws."""
    words = np.empty(64 * (time + 1) if time else 4, np.uint32)
    fill_step(words, key, block, PAST_SEEDS if time else SEEDS)
    if time:
        seed = words.reshape(4, -1)[:, 16 * time :].T.copy().view(np.uint64).reshape(4, 8)
    else:
        seed = np.arange(32, dtype=np.uint64).reshape(4, 8) * LANE_STEP
        seed += words.view(np.uint64).repeat(2)[:, None]
    return list(mix(seed + np.array([GOLDEN]) * np.uint64(turn)))


def draw_words(state: list[NDArray]) -> NDArray:
    """A word of each generator, whose `state` moves on."""
    a, b, c, d = state
    drawn, e = rotate(a + d, 23) + a, b << np.uint64(17)
    c, d = c ^ a, d ^ b
    state[:] = a ^ d, b ^ c, c ^ e, rotate(d, 45)
    return drawn


def uniforms(key: int, block: int, turn: int, vectors: int, time: int = 0) -> NDArray:
    """A whole number of 40 bits for each lane, `[vectors * 512]`; at -time for perfect draws."""
    state, lanes = start_pass(key, block, turn, time), []
    for _ in range(vectors):
        drawn = np.zeros(LANES, np.int64)
        for plane in range(12):
            drawn += bits_of(draw_words(state)) << plane
        v = state[1] + rotate(state[2], 32)
        for _ in range(28):
            v = v + GOLDEN
            drawn = drawn << 1 | bits_of(mix(v))
        lanes.append(drawn)
    return np.concatenate(lanes)


# Laws.


class Loop:
    """`sampler` on `model`, one chain and one step after the other."""

    def __init__(self, sampler, model: lw.Lattice) -> None:
        self.sampler, self.coupling = sampler, model.coupling
        self.bias = model.bias.double().numpy()
        table, exists = neighbour_table(model.shape, model.periodic)
        self.neighbours, self.exists = table.numpy(), exists.double().numpy()
        self.colours = model.colours().numpy()
        self.scale = np.ones(len(self.bias))
        if getattr(sampler, "preconditioner", None) is not None:
            self.scale = np.array(sampler.preconditioner) ** sampler.preconditioner_power

    def gains(self, x: NDArray) -> NDArray:
        """The change of the log-probability by each site's flip."""
        spins = 2.0 * x - 1
        field = self.bias + 2 * self.coupling * (spins[self.neighbours] * self.exists).sum(1)
        return -2 * spins * field

    def log_prob(self, x: NDArray) -> float:
        spins = 2.0 * x - 1
        field = self.bias + self.coupling * (spins[self.neighbours] * self.exists).sum(1)
        return spins @ field
