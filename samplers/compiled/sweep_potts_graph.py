"""Gibbs sweeps of Potts models on graphs: the twin of `samplers.sweep.GibbsSweep`.

One chain after the other visits the sites, class after class, and draws each from its field.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from latticework.models.forms import PottsGraphForm
from latticework.samplers.compiled.draws import draw
from latticework.samplers.compiled.jit import kernel, over_chains
from latticework.samplers.compiled.philox import fill, unit
from latticework.samplers.compiled.potts import field, set_value, values_of
from latticework.samplers.compiled.tally import finish, fresh, record_chain
from latticework.samplers.compiled.twin import Keys, Sums, Twin


class PottsGraphSweepState(NamedTuple):
    x: Tensor  # [chains, sites, q]
    values: Tensor  # [chains, sites]


@dataclass(frozen=True)
class PottsGraphSweepTwin(Twin):
    def start(self, x: Tensor, form: PottsGraphForm) -> PottsGraphSweepState:
        return PottsGraphSweepState(x, values_of(x))

    def run(
        self, state: PottsGraphSweepState, form: PottsGraphForm, keys: Keys, sums: Sums
    ) -> PottsGraphSweepState:
        chains, sites, q = state.x.shape
        arrays = state.x.view(chains, -1).numpy(), state.values.numpy()
        work = len(keys) * chains * (5.0 * sites * q + len(form.neighbours))
        over_chains(sweep, chains, work, form, *arrays, keys, sums)
        sums.accept[:] += len(keys)
        return state


@kernel
def sweep(first, last, form, x, values, keys, sums):
    (sites, q), steps, order = form.bias.shape, keys.shape[0], form.order
    words, memory = np.empty((sites + 3) // 4 * 4, np.uint32), np.empty((0, 0), np.float32)
    log_probs, weights = np.empty(q, np.float32), np.empty(q, np.float32)
    since, total, changed = fresh(sums, first, last, x.shape[1]), sums.total, sums.changed
    for c in range(first, last):
        for t in range(steps):
            fill(words, keys[t], c, 0)
            invalid = False
            for m in range(sites):
                i = order[m]
                field(form, values, memory, c, i, log_probs)
                new, unknown = draw(log_probs, weights, unit(words[m]))
                invalid |= unknown or new < 0
                if new >= 0 and new != values[c, i]:
                    set_value(x, values, total, changed, since, first, c, i, new, q, t)
            sums.invalid[c] += invalid
            record_chain(sums.trace, x, c, t - steps)
    finish(sums, since, first, x, steps)
