"""Block Gibbs on restricted Boltzmann machines: the twin of `samplers.block_gibbs`.

The hidden inputs follow the visible units that change (`compiled.rbm`), so a step costs one product
and some rows. Eager steps turn a state into NaN where an input is NaN; here the unit stays.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import RBMForm
from latticework.samplers.compiled.arithmetic import sigmoid32
from latticework.samplers.compiled.draws import draw_bit
from latticework.samplers.compiled.jit import kernel
from latticework.samplers.compiled.philox import fill, is_below
from latticework.samplers.compiled.rbm import Flips, RBMDrawTwin, collect, layers, most_rows


@dataclass(frozen=True)
class BlockGibbsTwin(RBMDrawTwin):
    @property
    def draws(self) -> int:  # type: ignore[override]
        return self.sampler.steps

    def drawing(
        self, x: Tensor, inputs: Tensor, form: RBMForm, flips: Flips, invalid: NDArray[np.bool_]
    ) -> Callable[[int, np.int64, int], None]:
        net, h, visible_inputs = layers(form), torch.empty_like(inputs), torch.empty_like(x)
        hidden = inputs.numpy(), h.numpy()
        visible = visible_inputs.numpy(), x.numpy(), most_rows(x.shape[1]), *flips, invalid

        def draw(first: int, key: np.int64, number: int) -> None:
            draw_hidden(first, key, 2 * number, *hidden)
            net.visible_inputs(h, visible_inputs)
            draw_visible(first, key, 2 * number + 1, *visible)

        return draw


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
            h[c, j] = np.float32(is_below(words[j], rare) != (z > 0)) + np.float32(0) * rare


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
            new = np.float32(draw_bit(words[i], z)) if z == z else old
            flip[i] = new != old
            flips += np.uint32(new != old)
            unknown |= np.uint32(z != z)
            x[c, i] = new
        count[c] = flips
        invalid[c] |= unknown > 0
        if flips <= most:
            collect(flip, sites, c)
