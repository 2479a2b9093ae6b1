"""Compiled steps whose proposals flip all sites of a lattice, against a plain NumPy loop."""

import math
from math import inf, log

import numpy as np
import pytest
import torch
from lattice_loop import LANES, Loop, start_pass, uniforms
from numpy.typing import NDArray
from torch import Generator

import latticework as lw
from latticework.samplers.compiled.all_sites.twin import AllSitesTwin
from latticework.samplers.compiled.bits.all_sites_lattice import MAX_KINDS, AllSitesLatticeTwin
from latticework.samplers.compiled.bits.lattice_rows import TILE_WORDS
from latticework.samplers.compiled.philox import step_keys
from latticework.samplers.compiled.registry import find_compiled_kernel
from latticework.samplers.sums import SumRequest

pytestmark = pytest.mark.slow  # many kernels are compiled

# Rows of a word and of more, exactly full or not, one site, three and four axes, odd sides.
SHAPES = [(5, 5), (13,), (1,), (2, 1, 3), (8, 8), (4, 3, 4), (2, 2, 2, 2), (3, 3, 3, 3), (70, 71)]
LANGEVIN = [lw.DULA(0.4), lw.DMALA(0.3), lw.DMALA(inf), lw.ACS(2.0, 0.2, 3)]
JUMPS = [lw.DLMC(0.2), lw.DLMC(0.3, "barker"), lw.DLMCf(0.2), lw.DLMCf(0.3, "barker")]
SAMPLERS = LANGEVIN + JUMPS


class Step(Loop):
    """A step of one chain, with the numbers of `compiled.bits.all_sites_rows`."""

    def logits(self, x: NDArray, t: int) -> NDArray:
        """The log-odds of each site's flip."""
        gains = self.gains(x)
        if isinstance(self.sampler, lw.ACS):
            cycle, k = self.sampler, t % self.sampler.period
            price = 0.5 / cycle.cycle_of_steps()[k]
            return cycle.cycle_of_balances()[k] * gains - price
        if isinstance(self.sampler, lw.DLMC | lw.DLMCf):
            return np.array([self.jump(gain) for gain in gains])
        return gains / 2 - 0.5 / self.sampler.step_size / self.scale

    def jump(self, gain: float) -> float:
        """The log-odds of a flip by a jump process, or by an Euler step of it."""
        odds, time = math.exp(gain), self.sampler.time
        share = odds / (1 + odds)
        rate = math.sqrt(odds) if self.sampler.balancing == "sqrt" else share
        if isinstance(self.sampler, lw.DLMC):
            flip = -share * math.expm1(-time * rate / share)
        else:
            flip = min(time * rate, share)
        return math.log(flip / (1 - flip))

    def log_q(self, x: NDArray, flips: NDArray, t: int) -> float:
        """The log-probability that just these sites flip."""
        logits = self.logits(x, t)
        return logits[flips].sum() - np.logaddexp(0, logits).sum()

    def step(self, x: NDArray, key: int, chain: int, t: int) -> NDArray:
        sites, row = len(x), -(-len(x) // 64)
        block, place = divmod(chain, max(1, TILE_WORDS // row))
        at = place * row * 64
        u = uniforms(key, block, 0, -(-(at + sites) // LANES))[at : at + sites]
        p = 1 / (1 + np.exp(-self.logits(x, t)))
        y = x ^ (u < np.minimum(np.rint(p * 2.0**40), 2**40 - 1))
        if isinstance(self.sampler, lw.DULA):
            return y
        words = start_pass(key, block, 1 + place // 8)[0]
        level = float(words[place % 8] >> np.uint64(11)) * 2.0**-53
        ratio = self.log_prob(y) - self.log_prob(x)
        ratio += self.log_q(y, x != y, t) - self.log_q(x, x != y, t)
        return y if level < math.exp(min(ratio, 0.0)) else x


def check(sampler, model: lw.Lattice, twin=None, chains: int = 5, steps: int = 3) -> None:
    x = model.domain.uniform(chains, Generator().manual_seed(1))
    twin = twin or find_compiled_kernel(sampler, model)
    assert isinstance(twin, AllSitesLatticeTwin)
    state, _ = twin.advance(twin.init(x, model), model, Generator().manual_seed(2), steps)
    loop, expected = Step(sampler, model), list(x.numpy().astype(bool))
    for t, key in enumerate(step_keys(steps, Generator().manual_seed(2))):
        expected = [loop.step(row, key, chain, t) for chain, row in enumerate(expected)]
    np.testing.assert_array_equal(state.x.numpy(), np.stack(expected))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_steps_are_those_of_a_plain_loop(sampler, shape, periodic):
    check(sampler, lw.Lattice(shape, 0.15, 0.1, periodic))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_a_negative_coupling_and_steep_weights(sampler):
    check(sampler, lw.Lattice((6, 7), -0.3, 0.2))
    check(sampler, lw.Lattice((4, 6), 4.0 if sampler in LANGEVIN else 1.0, 0.5))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_two_biases(sampler):
    check(sampler, lw.Lattice((6, 10), 0.1, [0.3 * (i % 2) for i in range(60)]))


def test_a_bias_for_each_site():
    """DULA takes any; steps that may be rejected are those of the kernel for graphs."""
    model = lw.Lattice((6, 10), 0.1, [0.3 * i / 60 for i in range(60)])
    check(lw.DULA(0.4), model)
    for sampler in SAMPLERS[1:]:
        assert isinstance(find_compiled_kernel(sampler, model), AllSitesTwin)


def test_a_model_whose_biases_come_to_differ_is_followed():
    """A kernel found for one bias, where learning makes more kinds of sites than it prefers."""
    model = lw.Lattice((3, 6), 0.1, 0.2)
    twin = find_compiled_kernel(lw.DMALA(0.4), model)
    with torch.no_grad():
        model.bias.copy_(torch.linspace(-1, 1, 18))
    assert len(model.form().odds) > MAX_KINDS
    check(lw.DMALA(0.4), model, twin)


@pytest.mark.parametrize("kind", [lw.DULA, lw.DMALA])
def test_preconditioners(kind):
    check(kind(0.4, [0.5 + (i % 7) / 7 for i in range(60)], 2), lw.Lattice((6, 10), 0.1))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_a_chain_has_its_numbers_whatever_others_there_are(sampler):
    model = lw.Lattice((10, 10), 0.2)
    x = model.domain.uniform(150, Generator().manual_seed(1))
    twin = find_compiled_kernel(sampler, model)
    states = [
        twin.advance(twin.init(x[:n], model), model, Generator().manual_seed(2), 5)[0].x
        for n in (1, 7, 150)
    ]
    assert states[0].equal(states[2][:1])
    assert states[1].equal(states[2][:7])


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_sums_are_those_of_the_states(sampler):
    """Over more steps than the planes of a sum count before they are added."""
    model, steps = lw.Lattice((7, 10), 0.1, 0.1), 40
    twin, wanted = (
        find_compiled_kernel(sampler, model),
        SumRequest(total=True, draws=steps, traced=4),
    )
    x = model.domain.uniform(4, Generator().manual_seed(1))
    _, sums = twin.advance(twin.init(x, model), model, Generator().manual_seed(2), steps, wanted)
    states = np.concatenate((x.numpy()[None], sums.trace))
    np.testing.assert_array_equal(sums.total, states[1:].sum(0))
    np.testing.assert_array_equal(sums.changed, (states[1:] != states[:-1]).sum((0, 2)))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_unknown_log_odds_are_counted(sampler):
    """Sites of unknown log-odds stay. Where steps may be rejected, all are."""
    model = lw.Lattice((4, 4), 0.1, [0.1, math.nan] * 8)
    twin = find_compiled_kernel(sampler, model)
    x = model.domain.uniform(20, Generator().manual_seed(0))
    state, sums = twin.advance(twin.at(x, model), model, Generator(), 30)
    moved = (state.x != x).any(0)
    assert not moved[1::2].any()
    assert moved[::2].all() == isinstance(sampler, lw.DULA)
    assert (sums.invalid == 30).all()


@pytest.mark.parametrize("probability", [1e-5, 1 / 4096, 0.3, 100.75 / 256])
def test_flips_have_the_probability_of_forty_bits(probability):
    """DULA without interaction and bias. Twelve bits would give multiples of 1/4096."""
    model, sampler = lw.Lattice((64, 64), 0.0), lw.DULA(0.5 / log(1 / probability - 1))
    twin, steps, chains = find_compiled_kernel(sampler, model), 500, 128
    state = twin.init(torch.zeros(chains, 4096), model)
    _, sums = twin.advance(state, model, Generator().manual_seed(0), steps)
    decisions = chains * 4096 * steps
    error = (probability * (1 - probability) / decisions) ** 0.5
    assert abs(sums.changed.sum() / decisions - probability) < 4.5 * error


def test_certain_and_impossible_flips():
    model = lw.Lattice((37,), 0.0, 1e4)
    twin = find_compiled_kernel(lw.DULA(inf), model)
    state, sums = twin.advance(
        twin.init(torch.zeros(200, 37), model), model, Generator().manual_seed(0), 300
    )
    assert (state.x == 1).all()
    assert (sums.changed == 37).all()  # by the first step
