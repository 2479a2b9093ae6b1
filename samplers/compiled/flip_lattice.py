"""GWG-1 and locally balanced on lattices with one coupling, at a cost that does not grow with size.

On a quadratic target both draw a site with probability w_i / Z(x), w_i = exp(gain / 2), and accept
with probability min(1, Z(x) / Z(y)) (`samplers.one_site`). The class of a site is its kind
(`LatticeForm.kind`), its value and the number of its neighbours at 1; sites of one class have one
weight. The sites are kept sorted by class, so a class is drawn first and then one of its sites, as
in the n-fold way of A. Bortz, M. Kalos and J. Lebowitz (1975). A flip moves the site and its
neighbours to other classes, by swaps at the boundaries between classes. Z comes from the number of
sites in each class, so nothing drifts.

Z(y) is Z(x) plus the changes of a few weights. Where Z(y) is far below Z(x), these cancel and leave
a number of either sign, but then the probability is 1 whatever Z(y) is. Gains may be beyond what
exp can hold: where Z leaves the range from `LEAST` to `MOST`, weights become relative to the
largest one among the sites of the chain.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from latticework.models.forms import LatticeForm
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Keys, Sums, arrays_of
from latticework.samplers.compiled.jit import SHORT, copy, inlined, kernel, over_chains
from latticework.samplers.compiled.philox import AHEAD, fill_steps, unit
from latticework.samplers.compiled.running_sums import finish, fresh, leave, record_chain
from latticework.samplers.compiled.sites import ones_around

MOST_CLASSES = 64  # classes of sites; a step looks at all of them
LEAST, MOST = 1e-200, 1e200
LARGEST = 700.0  # logarithm of a weight. A state with such a weight is accepted below exp(-239)


class SortedState(NamedTuple):
    x: Tensor  # [chains, sites]
    order: Tensor  # [chains, sites], the sites sorted by class
    place: Tensor  # [chains, sites], where each site is in `order`
    kind: Tensor  # [chains, sites], the class of each site
    starts: Tensor  # [chains, classes + 1], where each class begins in `order`


@dataclass(frozen=True)
class LatticeFlipTwin(CompiledSampler):
    def refuses(self, form: LatticeForm) -> str:
        if 2 * form.odds.size <= MOST_CLASSES:
            return ""
        return f"more than {MOST_CLASSES} classes of sites (biases that differ)"

    def start(self, x: Tensor, form: LatticeForm) -> SortedState:
        chains, sites = x.shape
        order, place = (torch.empty(chains, sites, dtype=torch.int32) for _ in range(2))
        kind = torch.empty(chains, sites, dtype=torch.int8)
        starts = torch.empty(chains, 2 * form.odds.size + 1, dtype=torch.int32)
        state = SortedState(x, order, place, kind, starts)
        over_chains(sort, chains, 20.0 * x.numel(), form, arrays_of(state))
        return state

    def run(self, state: SortedState, form: LatticeForm, keys: Keys, sums: Sums) -> SortedState:
        logs, chains = np.stack((form.odds, -form.odds), 1).ravel() / 2, len(state.x)
        args = form, logs, np.exp(np.minimum(logs, LARGEST)), arrays_of(state), keys, sums
        over_chains(flip, chains, 50.0 * chains * len(keys), *args, fewest=SHORT)
        return state


@kernel
def sort(first, last, form, state):
    """Sort the sites of each chain by class."""
    (x, order, place, kind, starts), counts = state, form.odds.shape[1]
    sites = x.shape[1]
    for c in range(first, last):
        for i in range(sites):
            value = np.int64(form.kind[i]) * 2 + np.int64(x[c, i])
            kind[c, i] = value * counts + ones_around(form, x, c, i)
        starts[c, :] = 0
        for i in range(sites):
            starts[c, kind[c, i] + 1] += 1
        for k in range(1, starts.shape[1]):
            starts[c, k] += starts[c, k - 1]
        free = starts[c].copy()
        for i in range(sites):
            place[c, i] = free[kind[c, i]]
            order[c, place[c, i]] = i
            free[kind[c, i]] += 1


@kernel
def flip(first, last, form, logs, base, state, keys, sums):
    """`logs` are half the gains of the classes, `base` the weights until Z leaves the range."""
    (x, order, place, kind, starts), counts = state, form.odds.shape[1]
    neighbours, degree = form.neighbours, form.degree
    steps, classes = keys.shape[0], logs.shape[0]
    words, weights = np.empty((4, AHEAD), np.uint32), np.empty(classes)
    accept, changed, invalid = sums.accept, sums.changed, sums.invalid
    total, trace = sums.total, sums.trace
    since = fresh(sums, first, last, x.shape[1])
    for c in range(first, last):
        copy(weights, base)
        here = normaliser(weights, starts, c)
        for t in range(steps):
            now = t % AHEAD
            if now == 0:
                fill_steps(words, keys[t : t + AHEAD], c, 0)
            if not LEAST < here < MOST:
                rescale(weights, logs, starts, c)
                here = normaliser(weights, starts, c)
            # A class in proportion to its size times its weight, then one of its sites.
            level, k = unit(words[0, now]) * here, np.int64(0)
            while k < classes - 1:
                level -= weights[k] * (starts[c, k + 1] - starts[c, k])
                if level < 0:
                    break
                k += 1
            while starts[c, k + 1] == starts[c, k]:  # rounding led to an empty class
                k -= 1
            size = starts[c, k + 1] - starts[c, k]
            i = order[c, starts[c, k] + np.int64(unit(words[1, now]) * size)]
            up = x[c, i] == 0
            turned = k + counts if up else k - counts
            there = here + weights[turned] - weights[k]
            step = 1 if up else -1
            for n in range(degree[i]):
                old = kind[c, neighbours[i, n]]
                there += weights[old + step] - weights[old]
            probability = 0.0
            if there > here:
                probability = here / there
            elif there <= here:
                probability = 1.0
            else:
                invalid[c] += 1
            accept[c] += probability
            if unit(words[2, now]) < probability:
                changed[c] += 1
                leave(total, since, first, c, i, x[c, i], t)
                x[c, i] = np.float32(1) if up else np.float32(0)
                while k != turned:
                    k = shift(order, place, starts, c, i, k, step)
                kind[c, i] = turned
                for n in range(degree[i]):
                    j = neighbours[i, n]
                    kind[c, j] = shift(order, place, starts, c, j, kind[c, j], step)
                here = normaliser(weights, starts, c)
            record_chain(trace, x, c, t - steps)
    finish(sums, since, first, x, steps)


@inlined
def normaliser(weights, starts, c):
    """Z of chain `c`, from the sizes of the classes."""
    total = 0.0
    for k in range(weights.shape[0]):
        total += weights[k] * (starts[c, k + 1] - starts[c, k])
    return total


@kernel
def rescale(weights, logs, starts, c):
    """Make the weights of chain `c` relative to the largest one among its sites."""
    top = -np.inf
    for k in range(logs.shape[0]):
        if starts[c, k + 1] > starts[c, k]:
            top = max(top, logs[k])
    for k in range(logs.shape[0]):
        weights[k] = math.exp(min(logs[k] - top, LARGEST))


@inlined
def shift(order, place, starts, c, i, k, step):
    """Move site `i` from class `k` to the next (step 1) or the previous one (-1): one swap."""
    boundary = starts[c, k + 1] - 1 if step > 0 else starts[c, k]
    at, other = place[c, i], order[c, boundary]
    order[c, at], order[c, boundary] = other, i
    place[c, other], place[c, i] = at, boundary
    if step > 0:
        starts[c, k + 1] -= 1
    else:
        starts[c, k] += 1
    return k + step
