"""GWG-1 and locally balanced on lattices with one coupling, at a cost that does not grow with size.

On a quadratic target both draw a site with probability w_i / Z(x), w_i = exp(gain / 2), and accept
with probability min(1, Z(x) / Z(y)) (`samplers.one_site`). The class of a site is its kind
(`LatticeForm.kind`), its value and the number of its neighbours at 1; sites of one class have one
weight. Each class has a list of its members, so a class is drawn first and then one of its sites,
as in the n-fold way of A. Bortz, M. Kalos and J. Lebowitz (1975). A flip moves the site and its
neighbours to other lists. A site keeps its kind, so a list has room for the sites of one kind.
Z comes from the number of members of each class, so nothing drifts.

Z(y) is Z(x) plus the changes of a few weights. Where Z(y) is far below Z(x), these cancel and leave
a number of either sign, but then the probability is 1 whatever Z(y) is. Gains may be beyond what
exp can hold: where Z leaves the range from `MIN_SUM` to `MAX_SUM`, weights become relative to the
largest one among the sites of the chain.

Places in arrays are unsigned: numba tests each signed one, which may count from the end. A step is
mostly such places, and takes a quarter less time.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import LatticeForm
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Keys, Sums, arrays_of
from latticework.samplers.compiled.forms.fields import count_ones
from latticework.samplers.compiled.forms.pairwise import list_neighbours
from latticework.samplers.compiled.jit import MIN_THREAD_CHAINS, copy, inlined, kernel, over_chains
from latticework.samplers.compiled.moves.move_weights import MAX_SUM, MIN_SUM
from latticework.samplers.compiled.philox import STEPS_AHEAD, fill_steps, unit
from latticework.samplers.compiled.running_sums import (
    add_held_value,
    add_last_values,
    record_chain,
    start_since,
)

MAX_CLASSES = 64  # classes of sites; a step looks at all of them
ONE = np.uint64(1)
MAX_LOG_WEIGHT = 700.0  # a state with a weight of this logarithm is accepted below exp(-239)


class MembersState(NamedTuple):
    x: Tensor  # [chains, sites]
    members: Tensor  # [chains, sites * classes of a kind], the list of class k from `starts[k]` on
    place: Tensor  # [chains, sites], where each site is in its list
    classes: Tensor  # [chains, sites], the class of each site
    sizes: Tensor  # [chains, classes], the numbers of members


@dataclass(frozen=True)
class LatticeFlipTwin(CompiledSampler):
    def refuses(self, form: LatticeForm) -> str:
        if 2 * form.odds.size <= MAX_CLASSES:
            return ""
        return f"more than {MAX_CLASSES} classes of sites (biases that differ)"

    def start(self, x: Tensor, form: LatticeForm) -> MembersState:
        chains, sites = x.shape
        # Zeros, so that equal runs have equal states: most places of a list are free.
        members = torch.zeros(chains, 2 * form.odds.shape[1] * sites, dtype=torch.int32)
        place = torch.empty(chains, sites, dtype=torch.int32)
        classes = torch.empty(chains, sites, dtype=torch.int8)
        sizes = torch.zeros(chains, 2 * form.odds.size, dtype=torch.int32)
        state = MembersState(x, members, place, classes, sizes)
        args = list_neighbours(form), starts_of(form), arrays_of(state)
        over_chains(list_members, chains, 20.0 * x.numel(), *args)
        return state

    def run(self, state: MembersState, form: LatticeForm, keys: Keys, sums: Sums) -> MembersState:
        logs, chains = np.stack((form.odds, -form.odds), 1).ravel() / 2, len(state.x)
        weights = np.exp(np.minimum(logs, MAX_LOG_WEIGHT))
        args = form, starts_of(form), logs, weights, arrays_of(state), keys, sums
        over_chains(flip_sites, chains, 50.0 * chains * len(keys), *args, fewest=MIN_THREAD_CHAINS)
        return state


def starts_of(form: LatticeForm) -> NDArray[np.int64]:
    """The first place of the list of each class, `[classes]`."""
    room = np.bincount(form.kind, minlength=len(form.odds)).repeat(2 * form.odds.shape[1])
    return np.cumsum(room) - room


@kernel
def list_members(first, last, form, starts, state):
    """List the sites of each class of each chain."""
    (x, members, place, classes, sizes), counts = state, form.odds.shape[1]
    for c in range(first, last):
        for i in range(x.shape[1]):
            value = np.int64(form.kind[i]) * 2 + np.int64(x[c, i])
            k = value * counts + np.int64(count_ones(form, x[c], i))
            classes[c, i], place[c, i] = k, sizes[c, k]
            members[c, starts[k] + sizes[c, k]] = i
            sizes[c, k] += 1


@kernel
def flip_sites(first, last, form, starts, logs, base, state, keys, sums):
    """`logs` are half the gains of the classes, `base` the weights until Z leaves the range."""
    x, all_members, places, all_classes, all_sizes = state
    neighbours, degree, counts = form.neighbours, form.degree, np.uint64(form.odds.shape[1])
    steps, last_class = keys.shape[0], np.uint64(logs.shape[0] - 1)
    words, weights = np.empty((4, STEPS_AHEAD), np.uint32), np.empty(logs.shape[0])
    accept, changed, invalid = sums.accept, sums.changed, sums.invalid
    total, trace = sums.total, sums.trace
    since = start_since(sums, first, last, x.shape[1])
    for c in range(first, last):
        row, members, place = x[c], all_members[c], places[c]
        classes, sizes = all_classes[c], all_sizes[c]
        copy(weights, base)
        here = sum_weights(weights, sizes)
        for t in range(steps):
            now = np.uint64(t % STEPS_AHEAD)
            if now == 0:
                fill_steps(words, keys[t : t + STEPS_AHEAD], c, 0)
            if not MIN_SUM < here < MAX_SUM:
                rescale_weights(weights, logs, sizes)
                here = sum_weights(weights, sizes)
            # A class in proportion to its size times its weight, then one of its sites.
            level, k = unit(words[0, now]) * here, np.uint64(0)
            while k < last_class:
                level -= weights[k] * sizes[k]
                if level < 0:
                    break
                k += ONE
            while sizes[k] == 0:  # rounding led to an empty class
                k -= ONE
            member = np.uint64(np.int64(unit(words[1, now]) * sizes[k]))
            i = np.uint64(members[np.uint64(starts[k]) + member])
            up = row[i] == 0
            step = ONE if up else ~np.uint64(0)  # plus or minus 1
            turned = k + counts if up else k - counts
            there = here + weights[turned] - weights[k]
            for n in range(np.uint64(degree[i])):
                old = np.uint64(classes[np.uint64(neighbours[i, n])])
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
                add_held_value(total, since, first, c, i, row[i], t)
                row[i] = np.float32(up)
                move_to_class(members, starts, place, classes, sizes, i, turned)
                for n in range(np.uint64(degree[i])):
                    j = np.uint64(neighbours[i, n])
                    new = np.uint64(classes[j]) + step
                    move_to_class(members, starts, place, classes, sizes, j, new)
                here = sum_weights(weights, sizes)
            record_chain(trace, x, c, t - steps)
    add_last_values(sums, since, first, x, steps)


@inlined
def sum_weights(weights, sizes):
    """Z of a chain, from the sizes of its classes."""
    total = 0.0
    for k in range(weights.shape[0]):
        total += weights[k] * sizes[k]
    return total


@kernel
def rescale_weights(weights, logs, sizes):
    """Make the weights of a chain relative to the largest one among its sites."""
    top = -np.inf
    for k in range(logs.shape[0]):
        if sizes[k]:
            top = max(top, logs[k])
    for k in range(logs.shape[0]):
        weights[k] = math.exp(min(logs[k] - top, MAX_LOG_WEIGHT))


@inlined
def move_to_class(members, starts, place, classes, sizes, i, new):
    """Move site `i` to the list of class `new`. The last site of its old list fills the gap."""
    old = np.uint64(classes[i])
    begin, left, gap = np.uint64(starts[old]), np.uint64(sizes[old]) - ONE, place[i]
    moved = members[begin + left]
    members[begin + np.uint64(gap)], place[np.uint64(moved)] = moved, gap
    sizes[old] = left
    size = np.uint64(sizes[new])
    members[np.uint64(starts[new]) + size] = i
    place[i], classes[i] = size, new
    sizes[new] = size + ONE
