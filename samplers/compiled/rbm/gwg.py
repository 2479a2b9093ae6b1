"""GWG-X on restricted Boltzmann machines.

The gradient costs one product a step. The hidden inputs follow the flips (`compiled.rbm.chunks`).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latticework.samplers.compiled.arithmetic import exp32, largest32
from latticework.samplers.compiled.draws import pick_index, sum_of
from latticework.samplers.compiled.jit import kernel, reordered
from latticework.samplers.compiled.philox import fill_step, unit
from latticework.samplers.compiled.rbm.chunks import Flips, Proposal, RBMProposalTwin, sum_logits

BLOCK_WEIGHTS = 32  # weights of a block: a draw finds the block first


@dataclass(frozen=True)
class RBMGWGTwin(RBMProposalTwin):
    def propose(self, first: int, key: np.int64, proposal: Proposal, flips: Flips) -> Flips:
        x, gradient, price, forward, uniform = proposal
        chains, draws = len(x), self.sampler.flips
        drawn = Flips(np.empty((chains, draws), np.int32), np.full(chains, draws))
        draw_sites(first, key, x, gradient, drawn.sites, uniform)
        sum_logits(x, gradient, price, *drawn, forward)
        flip_drawn(x, drawn.sites, *flips)
        return drawn

    def balances(self, proposal: Proposal, bias: NDArray, total: NDArray, out: NDArray) -> None:
        write_balances(*proposal[:2], bias, total, self.sampler.flips, out)


@kernel
def draw_sites(first, key, x, gradient, sites, uniform):
    """Draw sites of each chain with replacement, by weights exp(gain / 2).

    `uniform` becomes a number for the correction.
    """
    visible, draws = x.shape[1], sites.shape[1]
    words = np.empty(draws // 4 * 4 + 4, np.uint32)  # at least one more than the draws
    weights = np.empty(visible, np.float32)
    for c in range(x.shape[0]):
        fill_step(words, key, first + c, 0)
        uniform[c] = unit(words[draws])
        weigh_flips(x[c], gradient[c], weights)
        draw_by_inversion(weights, words[:draws], sites[c])


@kernel
def weigh_flips(x, gradient, weights):
    """Weights exp(gain / 2) of the flips from x, the largest 1; returns log of their true sum."""
    for i in range(x.shape[0]):
        weights[i] = (np.float32(0.5) - x[i]) * gradient[i]
    return exponentiate_logits(weights, largest32(weights))


@reordered
def exponentiate_logits(logits, top):
    """Replace logits by weights, that of `top` 1; returns the log of their true sum."""
    total = 0.0
    for i in range(logits.shape[0]):
        logits[i] = exp32(logits[i] - top)
        total += np.float64(logits[i])
    return np.log(total) + np.float64(top)


@kernel
def draw_by_inversion(weights, words, sites):
    """Sites drawn by inversion: a block of sites, then one of its sites."""
    size = weights.shape[0]
    sums = np.empty((size + BLOCK_WEIGHTS - 1) // BLOCK_WEIGHTS)
    for block in range(sums.shape[0]):
        sums[block] = sum_of(weights[block * BLOCK_WEIGHTS : (block + 1) * BLOCK_WEIGHTS])
    total = sum_of(sums)
    for draw in range(sites.shape[0]):
        block, level = pick_index(sums, 0, sums.shape[0], unit(words[draw]) * total)
        start = block * BLOCK_WEIGHTS
        sites[draw], _ = pick_index(weights, start, min(start + BLOCK_WEIGHTS, size), level)


@kernel
def flip_drawn(x, drawn, sites, count):
    """Flip each distinct site that was drawn, and list these sites."""
    for c in range(x.shape[0]):
        count[c] = 0
        for k in range(drawn.shape[1]):
            i, seen = drawn[c, k], False
            for m in range(k):
                seen |= drawn[c, m] == i
            if not seen:
                x[c, i] = np.float32(1) - x[c, i]
                sites[c, count[c]] = i
                count[c] += 1


@kernel
def write_balances(x, gradient, bias, total, draws, balance):
    """The `draws`-fold log normaliser, subtracted from log pi(x), which is `total` + bias'x."""
    weights = np.empty(x.shape[1], np.float32)
    for c in range(x.shape[0]):
        log_z = weigh_flips(x[c], gradient[c], weights)
        balance[c] = total[c] + dot(x[c], bias) - draws * log_z


@reordered
def dot(a, b):
    total = 0.0
    for i in range(a.shape[0]):
        total += np.float64(a[i] * b[i])
    return total
