"""Block Gibbs on restricted Boltzmann machines: the twin of `samplers.block_gibbs`.

The hidden inputs follow the visible units that change (`compiled.rbm`), so a step costs one product
and some rows. Eager steps turn a state into NaN where an input is NaN; here the unit stays.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.models.forms import Form, RBMForm
from latticework.samplers.block_gibbs import BlockGibbs
from latticework.samplers.compiled.arithmetic import sigmoid32
from latticework.samplers.compiled.jit import kernel, over_chunks
from latticework.samplers.compiled.philox import below, fill
from latticework.samplers.compiled.rbm import (
    FRESH,
    chunk_size,
    collect,
    follow,
    layers,
    most_rows,
    nanoseconds,
    no_flips,
    record,
)
from latticework.samplers.compiled.twin import Sums, Twin


class BlockGibbsTwinState(NamedTuple):
    x: Tensor  # [chains, visible]
    inputs: Tensor  # [chains, hidden], W'x + c
    age: Tensor  # [chains], updates since inputs were computed; 0 or FRESH: they are due


@dataclass(frozen=True)
class BlockGibbsTwin(Twin):
    def start(self, x: Tensor, form: RBMForm) -> BlockGibbsTwinState:
        inputs = x.new_empty(len(x), len(form.hidden_bias))
        return BlockGibbsTwinState(x, inputs, torch.zeros(len(x), dtype=torch.long))

    def refresh(self, state: BlockGibbsTwinState, model: EnergyModel) -> BlockGibbsTwinState:
        return state._replace(age=torch.zeros_like(state.age))

    def run(
        self, state: BlockGibbsTwinState, form: RBMForm, keys: NDArray[np.int64], sums: Sums
    ) -> BlockGibbsTwinState:
        chains, updates = len(state.x), len(keys) * self.sampler.steps
        work = nanoseconds(form, chains, updates)
        over_chunks(self.advance_chunk, chains, chunk_size(form), work, state, form, keys, sums)
        return state

    def advance_chunk(
        self,
        first: int,
        last: int,
        state: BlockGibbsTwinState,
        form: RBMForm,
        keys: NDArray[np.int64],
        sums: Sums,
    ) -> None:
        net, age, steps = layers(form), int(state.age[first]), self.sampler.steps
        x, inputs = state.x[first:last], state.inputs[first:last]
        h, visible_inputs = torch.empty_like(inputs), torch.empty_like(x)
        flips, invalid = no_flips(*x.shape), np.zeros(len(x), np.bool_)
        hidden = inputs.numpy(), h.numpy()
        visible = visible_inputs.numpy(), x.numpy(), most_rows(x.shape[1]), *flips, invalid
        sums.accept[first:last] += len(keys)
        for t, key in enumerate(keys):
            before = x.numpy().copy() if steps > 1 else None
            for update in range(steps):
                if age % FRESH == 0:
                    net.hidden_inputs(x, inputs)
                draw_hidden(first, key, 2 * update, *hidden)
                net.visible_inputs(h, visible_inputs)
                draw_visible(first, key, 2 * update + 1, *visible)
                age = age + 1 if follow(net, x, flips, inputs) else 0
            changed = flips.number if before is None else (x.numpy() != before).sum(1)
            sums.changed[first:last] += changed
            sums.invalid[first:last] += invalid
            invalid[:] = False
            record(sums, first, last, state.x.numpy(), t, len(keys))
        state.age[first:last] = age


@kernel
def draw_hidden(first, key, stream, inputs, h):
    """Draw h given x for a chunk of chains; a unit with an input of NaN is NaN."""
    hidden = h.shape[1]
    words = np.empty(hidden // 4 * 4 + 4, np.uint32)
    for c in range(h.shape[0]):
        fill(words, key, first + c, stream)
        for j in range(hidden):
            z = inputs[c, j]
            rare = sigmoid32(-abs(z))  # the smaller of both probabilities
            h[c, j] = np.float32(below(words[j], rare) != (z > 0)) + np.float32(0) * rare


@kernel
def draw_visible(first, key, stream, inputs, x, most, sites, count, invalid):
    """Draw x given h. A site with an input of NaN stays.

    The sites that change are counted, and listed if there are at most `most`.
    """
    visible = x.shape[1]
    words = np.empty(visible // 4 * 4 + 4, np.uint32)
    flip = np.zeros(visible // 8 * 8 + 8, np.uint8)
    for c in range(x.shape[0]):
        fill(words, key, first + c, stream)
        unknown, flips = np.uint32(0), np.uint32(0)
        for i in range(visible):
            z, old = inputs[c, i], x[c, i]
            one = below(words[i], sigmoid32(-abs(z))) != (z > 0)
            new = np.float32(one) if z == z else old
            flip[i] = new != old
            flips += np.uint32(new != old)
            unknown |= np.uint32(z != z)
            x[c, i] = new
        count[c] = flips
        invalid[c] |= unknown > 0
        if flips <= most:
            collect(flip, sites, c)


def twin(sampler: BlockGibbs, form: Form) -> Twin | str:
    if not isinstance(form, RBMForm):
        return f"on models with a {type(form).__name__}"
    return BlockGibbsTwin(sampler)
