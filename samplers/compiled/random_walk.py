"""Random walk Metropolis on binary sites: the twin of `samplers.random_walk`.

The change in log-probability of a whole path comes from x and the memory before it, so a rejected
path leaves nothing to undo.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from latticework.models.forms import GraphForm, LatticeForm, PairForm, RBMForm
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Keys, Sums
from latticework.samplers.compiled.draws import accepts
from latticework.samplers.compiled.jit import SHORT, kernel, over_chains, primitive
from latticework.samplers.compiled.philox import AHEAD, fill, fill_steps, unit
from latticework.samplers.compiled.running_sums import finish, fresh, leave, record_chain
from latticework.samplers.compiled.sites import (
    BINARY,
    BinaryForm,
    change,
    exponentials,
    flip,
    memory_of,
    other,
    renew,
    renewals,
    shift,
    softplus_change,
)


class SiteWalkState(NamedTuple):
    x: Tensor  # [chains, sites]
    memory: Tensor  # [chains, ...], of the form (`compiled.sites`)


@dataclass(frozen=True)
class RandomWalkTwin(CompiledSampler):
    def start(self, x: Tensor, form: BinaryForm) -> SiteWalkState:
        return SiteWalkState(x, memory_of(form, x))

    def run(self, state: SiteWalkState, form: BinaryForm, keys: Keys, sums: Sums) -> SiteWalkState:
        chains, sites = state.x.shape
        longest = min(2 * self.sampler.length - 1, sites)
        hidden = len(form.hidden_bias) if isinstance(form, RBMForm) else 0
        work = chains * len(keys) * (30.0 + longest * (10.0 + hidden))
        args = priced(form), longest, hidden, state.x.numpy(), state.memory.numpy(), keys, sums
        over_chains(walk, chains, work, *args, fewest=SHORT)
        return state


def priced(form: BinaryForm) -> BinaryForm:
    """The form, in which every flip changes log pi by NaN if a parameter is NaN or infinite.

    No state then has a finite log-probability, and every path must be rejected. The change of a
    path cannot show it, because it reads the parameters of the path's sites only.
    """
    if all(np.isfinite(part).all() for part in form):
        return form
    if isinstance(form, LatticeForm):
        return form._replace(odds=np.full_like(form.odds, np.nan))
    if isinstance(form, PairForm):
        return form._replace(diagonal=np.full_like(form.diagonal, np.nan))
    if isinstance(form, GraphForm):
        return form._replace(offset=np.full_like(form.offset, np.nan))
    return form._replace(visible_bias=np.full_like(form.visible_bias, np.nan))


@kernel
def walk(first, last, form, longest, hidden, x, memory, keys, sums):
    steps, sites, total, changed = keys.shape[0], x.shape[1], sums.total, sums.changed
    accept, invalid, trace = sums.accept, sums.invalid, sums.trace
    words, more = np.empty((4, AHEAD), np.uint32), np.empty((longest + 1) // 4 * 4, np.uint32)
    order, swapped = np.arange(sites), np.empty(longest, np.int64)
    room = np.empty((2, hidden), np.float32)
    since, mask = fresh(sums, first, last, sites), renewals(sites)
    for c in range(first, last):
        for t in range(steps):
            now = t % AHEAD
            if keys[t] & mask == 0:
                renew(form, x, memory, c)
            if now == 0:
                fill_steps(words, keys[t : t + AHEAD], c, 0)
            number = 1 + np.int64(unit(words[0, now]) * longest)
            if number > 2:
                fill(more[: (number + 1) // 4 * 4], keys[t], c, 1)
            for k in range(number):  # the first swaps of a shuffle, which are undone
                word = words[2 + k, now] if k < 2 else more[k - 2]
                swapped[k] = k + np.int64(unit(word) * (sites - k))
                order[k], order[swapped[k]] = order[swapped[k]], order[k]
            gain = path_change(form, x, memory, c, order, number, room)
            if accepts(c, gain, unit(words[1, now]), accept, invalid):
                changed[c] += number
                for k in range(number):
                    leave(total, since, first, c, order[k], x[c, order[k]], t)
                path_flip(form, x, memory, c, order, number, room)
            for k in range(number - 1, -1, -1):
                order[k], order[swapped[k]] = order[swapped[k]], order[k]
            record_chain(trace, x, c, t - steps)
    finish(sums, since, first, x, steps)


# What the kernel asks of a form, besides what `compiled.sites` has.


def path_change(form, x, memory, c, order, number, room):
    """The change in log-probability when the first `number` sites of `order` flip, float64.

    `room` `[2, hidden]` is for RBMs: the change of the inputs, and its exponentials.
    """
    raise NotImplementedError


def path_flip(form, x, memory, c, order, number, room):
    """Flip the first `number` sites of `order` and update `memory`, right after `path_change`."""
    raise NotImplementedError


def path_change_by_sites(form, x, memory, c, order, number, room):
    """Flip all sites but the last, one after another, and flip them back. Without memory only."""
    gain, last = 0.0, number - 1
    for k in range(last):
        gain += change(form, x, memory, c, order[k])
        flip(form, x, memory, c, order[k])
    gain += change(form, x, memory, c, order[last])
    for k in range(last):
        flip(form, x, memory, c, order[k])
    return gain


def pair_path_change(form, x, memory, c, order, number, room):
    """The changes of the single flips, and the couplings between them."""
    gain = 0.0
    for k in range(number):
        i = order[k]
        step = other(x[c, i], form.low, form.high) - x[c, i]
        slope = memory[c, i] + form.diagonal[i] * step
        for m in range(k):
            j = order[m]
            slope += form.matrix[i, j] * (other(x[c, j], form.low, form.high) - x[c, j])
        gain += np.float64(slope * step)
    return gain


def rbm_path_change(form, x, memory, c, order, number, room):
    """The rows of all sites are added first, so there is one exponential for each hidden unit."""
    inputs, odds, gain = room[0], room[1], 0.0
    inputs[:] = 0
    for k in range(number):
        i = order[k]
        sign, row = np.float32(1) - np.float32(2) * x[c, i], form.weight[i]
        gain += np.float64(sign * form.visible_bias[i])
        for j in range(inputs.shape[0]):
            inputs[j] += sign * row[j]
    exponentials(inputs, np.float32(1), odds)
    return gain + softplus_change(memory[c], odds, inputs, np.float32(1))


def rbm_path_flip(form, x, memory, c, order, number, room):
    for k in range(number):
        x[c, order[k]] = np.float32(1) - x[c, order[k]]
    shift(memory[c], room[0], np.float32(1))


def path_flip_by_sites(form, x, memory, c, order, number, room):
    for k in range(number):
        flip(form, x, memory, c, order[k])


CHANGE = {PairForm: pair_path_change, RBMForm: rbm_path_change}
primitive(path_change, dict.fromkeys(BINARY, path_change_by_sites) | CHANGE)
primitive(path_flip, dict.fromkeys(BINARY, path_flip_by_sites) | {RBMForm: rbm_path_flip})
