"""Random walk Metropolis on binary sites: the twin of `samplers.random_walk`.

The change in log-probability of a whole path comes from x and the fields before it, so a rejected
path leaves nothing to undo.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from latticework.models.forms import GraphForm, LatticeForm, PairForm, RBMForm
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Keys, Sums
from latticework.samplers.compiled.draws import accepts
from latticework.samplers.compiled.forms.field_rows import dense_fields_of
from latticework.samplers.compiled.forms.fields import (
    change,
    renew_fields,
    renewal_mask,
    set_site,
    target,
)
from latticework.samplers.compiled.forms.hidden_units import (
    shift_inputs,
    softplus_change,
    write_exponentials,
)
from latticework.samplers.compiled.forms.pairwise import list_neighbours
from latticework.samplers.compiled.jit import MIN_THREAD_CHAINS, kernel, over_chains, primitive
from latticework.samplers.compiled.philox import STEPS_AHEAD, fill_step, fill_steps, unit
from latticework.samplers.compiled.resampling.gibbs_sites import room_of
from latticework.samplers.compiled.running_sums import (
    add_held_value,
    add_last_values,
    record_chain,
    start_since,
)

BinaryForm = GraphForm | LatticeForm | PairForm | RBMForm
# Parameters of which each flip adds one to the change of log pi.
ADDED_PARAMETERS = {
    GraphForm: "offset",
    LatticeForm: "odds",
    PairForm: "diagonal",
    RBMForm: "visible_bias",
}


class SiteWalkState(NamedTuple):
    x: Tensor  # [chains, sites]
    fields: Tensor  # [chains, ...], of dense forms (`compiled.forms.fields`)


@dataclass(frozen=True)
class RandomWalkTwin(CompiledSampler):
    def start(self, x: Tensor, form: BinaryForm) -> SiteWalkState:
        return SiteWalkState(x, dense_fields_of(form, x))

    def run(self, state: SiteWalkState, form: BinaryForm, keys: Keys, sums: Sums) -> SiteWalkState:
        chains, sites = state.x.shape
        longest = min(2 * self.sampler.length - 1, sites)
        work = chains * len(keys) * (30.0 + longest * (10.0 + state.fields.shape[1] / 3))
        form = list_neighbours(spread_unknown(form))
        args = form, longest, state.x.numpy(), state.fields.numpy(), keys, sums
        over_chains(walk_paths, chains, work, *args, fewest=MIN_THREAD_CHAINS)
        return state


def spread_unknown(form: BinaryForm) -> BinaryForm:
    """The form, in which every flip changes log pi by NaN if a parameter is NaN or infinite.

    No state then has a finite log-probability, and every path must be rejected. The change of a
    path cannot show it, because it reads the parameters of the path's sites only.
    """
    if all(np.isfinite(part).all() for part in form):
        return form
    added = ADDED_PARAMETERS[type(form)]
    return form._replace(**{added: np.full_like(getattr(form, added), np.nan)})


@kernel
def walk_paths(first, last, form, longest, x, fields, keys, sums):
    steps, sites, total, changed = keys.shape[0], x.shape[1], sums.total, sums.changed
    accept, invalid, trace = sums.accept, sums.invalid, sums.trace
    words, more = np.empty((4, STEPS_AHEAD), np.uint32), np.empty((longest + 1) // 4 * 4, np.uint32)
    order, swapped = np.arange(sites), np.empty(longest, np.int64)
    room, since, mask = room_of(form), start_since(sums, first, last, sites), renewal_mask(sites)
    for c in range(first, last):
        now, field_row = x[c], fields[c]
        for t in range(steps):
            ahead = t % STEPS_AHEAD
            if keys[t] & mask == 0:
                renew_fields(form, now, field_row)
            if ahead == 0:
                fill_steps(words, keys[t : t + STEPS_AHEAD], c, 0)
            number = 1 + np.int64(unit(words[0, ahead]) * longest)
            if number > 2:
                fill_step(more[: (number + 1) // 4 * 4], keys[t], c, 1)
            for k in range(number):  # the first swaps of a shuffle, which are undone
                word = words[2 + k, ahead] if k < 2 else more[k - 2]
                swapped[k] = k + np.int64(unit(word) * (sites - k))
                order[k], order[swapped[k]] = order[swapped[k]], order[k]
            gain = path_change(form, now, field_row, order, number, room)
            if accepts(c, gain, unit(words[1, ahead]), accept, invalid):
                changed[c] += number
                for k in range(number):
                    add_held_value(total, since, first, c, order[k], now[order[k]], t)
                path_flip(form, now, field_row, order, number, room)
            for k in range(number - 1, -1, -1):
                order[k], order[swapped[k]] = order[swapped[k]], order[k]
            record_chain(trace, x, c, t - steps)
    add_last_values(sums, since, first, x, steps)


# Primitives of paths. Those of single sites are in `compiled.forms.fields`.


def path_change(form, now, fields, order, number, room):
    """The change in log-probability when the first `number` sites of `order` flip, float64.

    `room` `[2, hidden]` is that of RBMs: the change of the inputs, and its exponentials. Without
    fields, all sites but the last flip, one after another, and flip back.
    """
    gain, last = 0.0, number - 1
    for k in range(last):
        gain += change(form, now, fields, order[k])
        now[order[k]] = np.float32(1) - now[order[k]]
    gain += change(form, now, fields, order[last])
    for k in range(last):
        now[order[k]] = np.float32(1) - now[order[k]]
    return gain


def path_flip(form, now, fields, order, number, room):
    """Flip the first `number` sites of `order` and update `fields`, right after `path_change`."""
    for k in range(number):
        i, new = target(form, now, order[k])
        set_site(form, now, now, fields, i, new)


def pair_path_change(form, now, fields, order, number, room):
    """The changes of the single flips, and the couplings between them."""
    gain = 0.0
    for k in range(number):
        i, new = target(form, now, order[k])
        step = new - now[i]
        slope = fields[i] + form.diagonal[i] * step
        for m in range(k):
            j, new = target(form, now, order[m])
            slope += form.matrix[i, j] * (new - now[j])
        gain += np.float64(slope * step)
    return gain


def rbm_path_change(form, now, fields, order, number, room):
    """The rows of all sites are added first, so there is one exponential for each hidden unit."""
    inputs, odds, gain = room[0], room[1], 0.0
    inputs[:] = 0
    for k in range(number):
        i = order[k]
        sign, row = np.float32(1) - np.float32(2) * now[i], form.weight[i]
        gain += np.float64(sign * form.visible_bias[i])
        for j in range(inputs.shape[0]):
            inputs[j] += sign * row[j]
    write_exponentials(inputs, np.float32(1), odds)
    return gain + softplus_change(fields, odds, inputs, np.float32(1))


def rbm_path_flip(form, now, fields, order, number, room):
    for k in range(number):
        now[order[k]] = np.float32(1) - now[order[k]]
    shift_inputs(fields, room[0], np.float32(1))


primitive(path_change, {PairForm: pair_path_change, RBMForm: rbm_path_change})
primitive(path_flip, {RBMForm: rbm_path_flip})
