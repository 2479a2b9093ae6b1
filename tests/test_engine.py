"""The choice between eager and compiled kernels, and what it leaves in a record."""

import math
import os

import numpy as np
import pytest
import torch
from torch import Generator

import latticework as lw
from latticework.experiments.records.identity import digest
from latticework.experiments.runs.run import Run
from latticework.samplers.compiled import jit
from latticework.samplers.compiled.philox import fill_step, fill_steps, fill_units, step_keys
from latticework.samplers.compiled.run_words import BLOCK_STEPS, fill_words
from latticework.sampling.chain import deep_copy
from latticework.sampling.engine import NotCompiledError, select_kernel

LATTICE = lw.Lattice((4, 3), 0.2, 0.1)
COLOURING = lw.LatticePotts((2, 2), 3, -math.inf)


class Halved(lw.Lattice):
    """Half of its parent's log-probability, without a form of its own."""

    def forward(self, x):
        return super().forward(x) / 2


class Lazy(lw.DMALA):
    """A sampler derived from another, which may have another law."""


# The choice.


@pytest.mark.parametrize(
    ("sampler", "model", "metrics", "why"),
    [
        (lw.RMALA(0.3, 0.5), LATTICE, [], "RMALA has no compiled kernel"),
        (lw.GibbsSweep(), lw.LatticePotts((2, 2), 257, 0.1), [], "257 values, as it holds at most"),
        (lw.GWG(2), lw.Lattice((3, 3), 0.1, 2000.0), [], "moves that change log pi by 4,002"),
        (lw.PAFS(), lw.Lattice((3, 3), 0.1, 2000.0), [], "holds at most 1,200"),
        (Lazy(0.3), LATTICE, [], "Lazy has no compiled kernel"),
        (lw.Gibbs(2), COLOURING, [], "blocks of a model with forbidden values"),
        (lw.LocallyBalanced(), COLOURING, [], "a model with forbidden values"),
        (lw.Tempered(lw.GibbsSweep()), COLOURING, [], "a finite price below b = 1"),
        (lw.DMALA(0.3), Halved((4, 3), 0.2), [], "Halved changes the target of Lattice"),
        (lw.DMALA(0.3), LATTICE, [lw.Proposed()], "Proposed has to see every step"),
        (lw.DMALA(0.3), lw.Lattice((4, 3), 0.2).double(), [], "float32"),
        (lw.Gibbs(), lw.LogQuadratic([[0.1]], domain=lw.Ordinal(1, 3)), [], "has no form"),
    ],
)
def test_auto_falls_back_and_compiled_refuses(sampler, model, metrics, why, tmp_path):
    kernel, reason = select_kernel(sampler, model, "auto", metrics)
    assert kernel is sampler
    assert why in reason
    with pytest.raises(NotCompiledError, match="engine=auto"):
        select_kernel(sampler, model, "compiled", metrics)
    run = Run(tmp_path, engine="auto")
    assert run.select_kernel(sampler, model, metrics) is sampler
    assert run.notes["engine"] == "eager"
    assert why in run.notes["engine_reason"]


def test_an_unknown_engine_is_refused():
    with pytest.raises(ValueError, match="engine must be one of auto, eager, compiled"):
        select_kernel(lw.Gibbs(), LATTICE, "fast")


def test_the_engine_belongs_to_the_identity_unless_it_is_eager():
    config = {"task": {"_target_": "t"}, "model": {"_target_": "m"}, "seed": 0}
    assert digest(config) == digest(config | {"engine": "eager"})
    assert digest(config) != digest(config | {"engine": "auto"})
    assert digest(config | {"engine": "compiled"}) != digest(config | {"engine": "auto"})


# Random numbers.


def reference_philox(counter, key):
    """Philox4x32-10 in plain Python (Salmon et al. 2011)."""
    c, k = list(counter), [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        p0, p2 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        low = 0xFFFFFFFF
        c = [(p2 >> 32) ^ c[1] ^ k[0], p2 & low, (p0 >> 32) ^ c[3] ^ k[1], p0 & low]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
    return c


def test_philox_is_the_published_generator():
    zeros = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert reference_philox((0, 0, 0, 0), 0) == zeros
    assert reference_philox((2**32 - 1,) * 4, 2**64 - 1) == ones
    keys = step_keys(3, Generator().manual_seed(4))
    key = int(np.uint64(keys[1]))
    words = np.empty(24, np.uint32)
    fill_step(words, keys[1], 9, 2)
    expected = np.array([reference_philox((i, 9, 2, 0), key) for i in range(6)])
    np.testing.assert_array_equal(words, expected.T.ravel())
    ahead = np.empty((4, 3), np.uint32)
    fill_steps(ahead, keys, 9, 2)
    assert ahead[:, 1].tolist() == reference_philox((0, 9, 2, 0), key)
    units = np.empty(12)
    fill_units(units, keys)
    a, b, c, d = reference_philox((1, 0, 0, 0), key)
    pair = [(a >> 5) * 2**26 + (b >> 6), (c >> 5) * 2**26 + (d >> 6)]
    assert (units[4:8].reshape(2, 2)[:, 1] * 2**53).tolist() == pair
    far = 2**35 + 5  # steps, whose number of a call has an upper half
    for chains in (3, 9):  # fewer, and more, than are drawn together
        rows, room = np.empty((BLOCK_STEPS, chains), np.uint32), np.empty(BLOCK_STEPS, np.uint32)
        fill_words(rows, room, keys[1], far, far + 100, 7, 2)
        words = reference_philox(((far // BLOCK_STEPS * 8 + 13 % 8) % 2**32, 8, 2, 2), key)
        assert rows[13, 1] == words[13 // 8]
        part = np.zeros_like(rows)
        fill_words(part, room, keys[1], far, far + 3, 7, 2)  # three steps in the middle of a block
        np.testing.assert_array_equal(part[5:8], rows[5:8])


def test_a_run_takes_one_key():
    """At its first step. Later steps ask no generator, and a checkpoint holds what they need."""
    twin, _ = select_kernel(lw.Gibbs(1, "random"), LATTICE, "compiled")
    rng = Generator().manual_seed(1)
    state = twin.init(LATTICE.domain.uniform(4, Generator().manual_seed(2)), LATTICE)
    state, _ = twin.advance(state, LATTICE, rng, 5)
    key, made = state.scan[0].tolist()
    assert (key, made) == (step_keys(1, Generator().manual_seed(1))[0], 5)
    begun, later = rng.get_state(), Generator().manual_seed(3)
    once = deep_copy(state)
    assert torch.equal(
        twin.advance(state, LATTICE, rng, 9)[0].x, twin.advance(once, LATTICE, later, 9)[0].x
    )
    assert torch.equal(begun, rng.get_state())


# Threads and the cache of compiled code.


def test_an_error_in_a_thread_is_raised(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)

    def fails(first, last):
        if first:
            raise RuntimeError("in a thread")

    with pytest.raises(RuntimeError, match="in a thread"):
        jit.over_chains(fails, 4, 1e9)


def test_a_forked_process_makes_threads_of_its_own(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    jit.over_chains(lambda first, last: None, 4, 1e9)
    child = os.fork()
    if child == 0:
        try:
            jit.over_chains(lambda first, last: None, 4, 1e9)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
