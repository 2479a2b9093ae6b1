"""Random numbers of steps that take a word a chain: one key for a run, and the step in the counter.

The key comes from the run's generator at the first step, and is kept with the state, beside the
number of steps made. So a step asks the generator for nothing, and four steps of a chain share a
call of Philox. Steps come in blocks of 32. In a block, the words of the steps q, q + 8, q + 16 and
q + 24 are those of one call, so that the calls of a chain fill a vector register.

    counter    (8 * block + q, chain, stream, upper half of the first number)
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from latticework.samplers.compiled.jit import kernel, lean
from latticework.samplers.compiled.philox import philox

BLOCK_STEPS = 32  # steps whose words are made together
BLOCK_CALLS = BLOCK_STEPS // 4  # calls of Philox for the steps of a block and a chain


class RunSteps(NamedTuple):
    """The next steps of a run: its key, the steps made before them, and how many they are."""

    key: int
    first: int
    steps: int


def new_run() -> Tensor:
    """The memory of a run before its first step, int64 `[2]`: its key, and the steps made."""
    return torch.zeros(2, dtype=torch.int64)


def next_steps(run: Tensor, steps: int, rng: Generator) -> RunSteps:
    """The next `steps` steps, which are then made. Updates `run` in place."""
    memory = run.numpy()
    first = int(memory[1])
    if first == 0 and steps > 0:
        run[:1].random_(-(2**63), None, generator=rng)
    memory[1] = first + steps
    return RunSteps(int(memory[0]), first, steps)


@kernel
def fill_words(words, room, key, step, last, chain, stream):
    """Words `[BLOCK, chains]` of chains from `chain` on, row r for the step r of a block.

    The block is that of `step`. Its rows are filled from `step` to before `last`; others may hold
    anything. `room` `[BLOCK]` is overwritten.
    """
    chains, begin = words.shape[1], step % BLOCK_STEPS
    call = np.uint64((step - begin) // 4)
    key, chain, stream = np.uint64(key), np.uint32(chain), np.uint32(stream)
    if chains < BLOCK_CALLS:
        for c in range(chains):
            fill_chain(room, call, chain + np.uint32(c), stream, key)
            for r in range(BLOCK_STEPS):
                words[r, c] = room[r]
    else:
        flat = words.reshape(BLOCK_STEPS * chains)
        for r in range(begin, min(begin + last - step, begin + BLOCK_CALLS, BLOCK_STEPS)):
            q = np.uint64(r % BLOCK_CALLS)
            fill_row(flat, np.uint64(chains), q, call + q, chain, stream, key)


@lean
def fill_chain(room, call, chain, stream, key):
    for q in range(np.uint64(BLOCK_CALLS)):
        a, b, c, d = philox(call + q, chain, stream, key)
        room[q], room[q + np.uint64(BLOCK_CALLS)] = a, b
        room[q + np.uint64(2 * BLOCK_CALLS)], room[q + np.uint64(3 * BLOCK_CALLS)] = c, d


@lean
def fill_row(flat, chains, q, call, chain, stream, key):
    apart = np.uint64(BLOCK_CALLS) * chains
    at = q * chains
    for c in range(chains):
        a, b, d, e = philox(call, np.uint64(chain) + c, stream, key)
        flat[at + c], flat[at + apart + c] = a, b
        flat[at + np.uint64(2) * apart + c], flat[at + np.uint64(3) * apart + c] = d, e
