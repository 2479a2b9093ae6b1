"""Rates-FPCD, rates-herding and sample penalization: the twins of `samplers.rates`.

Memory traffic limits them: each chain has fast weights F of the size of W. A chain makes all steps
of a call before the next chain begins, and W + F is kept in one array meanwhile. A step
reads it for the inputs of x, and the rows of the units that are on for the inputs of h. One pass
updates F and W + F.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.forms import Form, array
from latticework.samplers.compiled.arithmetic import sigmoid32
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Keys
from latticework.samplers.compiled.jit import kernel, over_chains, reordered
from latticework.samplers.compiled.philox import fill_step, is_below, step_keys
from latticework.samplers.compiled.rbm.chunks import record_states
from latticework.samplers.rates import RatesState, SamplePenalization
from latticework.samplers.sums import NOTHING, SumRequest, Sums, empty_sums


@dataclass(frozen=True)
class RatesTwin(CompiledSampler):
    """The state is that of the eager sampler."""

    def at(self, x: Tensor, model: EnergyModel) -> RatesState:
        state = self.sampler.at(x, model)  # checks the model
        return state._replace(x=x.clone(), position=x.clone())

    def start(self, x: Tensor, form: Form) -> Any:
        raise NotImplementedError("the fast weights need the model: call `at`")

    def run(self, state: Any, form: Form, keys: Keys, sums: Sums) -> Any:
        raise NotImplementedError("the update needs the model's rates: call `advance`")

    def refresh(self, state: RatesState, model: EnergyModel) -> RatesState:
        return state

    def advance(
        self,
        state: RatesState,
        model: Any,
        rng: Generator,
        steps: int,
        wanted: SumRequest = NOTHING,
    ) -> tuple[RatesState, Sums]:
        sums, keys = empty_sums(state.x, steps, wanted, self.loops), step_keys(steps, rng)
        names = ("weight_rates", "visible_rates", "hidden_rates")
        if isinstance(self.sampler, SamplePenalization):
            rates = tuple(map(np.zeros_like, model.form()))
        else:
            rates = tuple(array(getattr(model, name)) for name in names)
        fast = tuple(tensor.numpy() for tensor in state[2:])
        rule = np.float32(self.sampler.fast_step_size), np.float32(self.sampler.decay)
        positions = state.x.numpy(), state.position.numpy()
        work = 0.5 * state.weight.numel() * steps
        arrays = (*model.form(), *rates, *fast, *rule, *positions)
        over_chains(self.steps_of, len(state.x), work, arrays, keys, sums)
        return state, sums

    def steps_of(self, first: int, last: int, arrays: tuple, keys: Keys, sums: Sums) -> None:
        sampler = self.sampler
        emit_mean, mean_statistics = sampler.emit == "mean", sampler.statistics == "mean"
        spins = isinstance(sampler, SamplePenalization) and sampler.coding == "spin"
        settings = sampler.steps, mean_statistics, emit_mean, spins
        rates_gibbs(first, last, *arrays, *settings, keys, sums)


@dataclass(frozen=True)
class HerdingTwin(RatesTwin):
    loops = True

    def steps_of(self, first: int, last: int, arrays: tuple, keys: Keys, sums: Sums) -> None:
        rates_herding(first, last, *arrays, self.sampler.sweeps, keys, sums)


@kernel
def rates_gibbs(
    first, last, weight, visible_bias, hidden_bias, weight_rates, visible_rates, hidden_rates,
    fast, fast_visible, fast_hidden, size, decay, emitted, x, updates, mean_statistics, emit_mean,
    spins, keys, sums,
):  # noqa: ANN001, ANN201  # fmt: skip
    (visible, hidden), steps = weight.shape, keys.shape[0]
    both, above = np.empty_like(weight), np.empty_like(visible_bias)
    inputs, h = np.empty_like(hidden_bias), np.empty_like(hidden_bias)
    words = np.empty(max(visible, hidden) // 4 * 4 + 4, np.uint32)
    for c in range(first, last):
        add_fast_weights(weight, fast[c], x[c], hidden_bias, fast_hidden[c], both, inputs)
        for t in range(steps):
            unknown = False
            for update in range(updates):
                fill_step(words, keys[t], c, 2 * update)
                for j in range(hidden):
                    z = inputs[j]
                    rare = sigmoid32(-abs(z))  # the smaller of both probabilities
                    is_on = is_below(words[j], rare) != (z > 0)
                    h[j] = np.float32(is_on) + np.float32(0) * rare  # NaN stays NaN
                multiply_weights(both, h, above)
                fill_step(words, keys[t], c, 2 * update + 1)
                for i in range(visible):
                    z = above[i] + visible_bias[i] + fast_visible[c, i]
                    above[i] = sigmoid32(z)
                    if z == z:
                        x[c, i] = np.float32(is_below(words[i], sigmoid32(-abs(z))) != (z > 0))
                    else:
                        unknown = True
                sum_rows(both, x[c], hidden_bias, fast_hidden[c], inputs)
            if mean_statistics:
                for j in range(hidden):
                    h[j] = sigmoid32(inputs[j])
            sums.accept[c] += 1
            sums.invalid[c] += unknown
            emit_state(sums, c, emitted, above if emit_mean else x[c])
            record_states(c, c + 1, sums, emitted, t, steps)
            if spins:
                penalise_spins(
                    fast[c], fast_visible[c], fast_hidden[c], x[c], h, weight, size, decay, both
                )
            else:
                learn_biases(fast_visible[c], x[c], visible_rates, size, decay)
                learn_biases(fast_hidden[c], h, hidden_rates, size, decay)
                learn_weights(fast[c], x[c], h, weight_rates, weight, size, decay, both)
            sum_rows(both, x[c], hidden_bias, fast_hidden[c], inputs)


@kernel
def rates_herding(
    first, last, weight, visible_bias, hidden_bias, weight_rates, visible_rates, hidden_rates,
    fast, fast_visible, fast_hidden, size, decay, emitted, x, sweeps, keys, sums,
):  # noqa: ANN001, ANN201  # fmt: skip
    visible, steps = weight.shape[0], keys.shape[0]
    both, above = np.empty_like(weight), np.empty_like(visible_bias)
    inputs, h = np.empty_like(hidden_bias), np.empty_like(hidden_bias)
    for c in range(first, last):
        add_fast_weights(weight, fast[c], x[c], hidden_bias, fast_hidden[c], both, inputs)
        for t in range(steps):
            moving, sweep = True, 0
            while moving and sweep < sweeps:
                moving, sweep = False, sweep + 1
                for j in range(h.shape[0]):
                    h[j] = np.float32(inputs[j] > 0)
                multiply_weights(both, h, above)
                for i in range(visible):
                    new = np.float32(above[i] + visible_bias[i] + fast_visible[c, i] > 0)
                    moving |= new != x[c, i]
                    x[c, i] = new
                sum_rows(both, x[c], hidden_bias, fast_hidden[c], inputs)
            sums.accept[c] += 1
            sums.unsettled[c] += moving
            emit_state(sums, c, emitted, x[c])
            record_states(c, c + 1, sums, emitted, t, steps)
            learn_biases(fast_visible[c], x[c], visible_rates, size, decay)
            learn_biases(fast_hidden[c], h, hidden_rates, size, decay)
            learn_weights(fast[c], x[c], h, weight_rates, weight, size, decay, both)
            sum_rows(both, x[c], hidden_bias, fast_hidden[c], inputs)


@kernel
def add_fast_weights(weight, fast, x, hidden_bias, fast_hidden, both, inputs):
    """W + F, and the hidden inputs under it."""
    for i in range(weight.shape[0]):
        for j in range(weight.shape[1]):
            both[i, j] = weight[i, j] + fast[i, j]
    sum_rows(both, x, hidden_bias, fast_hidden, inputs)


@reordered
def multiply_weights(weight, h, out):
    """W h."""
    for i in range(weight.shape[0]):
        total = np.float32(0)
        for j in range(weight.shape[1]):
            total += weight[i, j] * h[j]
        out[i] = total


@kernel
def sum_rows(weight, x, hidden_bias, fast_hidden, inputs):
    """The hidden inputs: biases, and the rows of the units that are on."""
    for j in range(inputs.shape[0]):
        inputs[j] = hidden_bias[j] + fast_hidden[j]
    for i in range(weight.shape[0]):
        if x[i] == 1:
            for j in range(inputs.shape[0]):
                inputs[j] += weight[i, j]


@kernel
def learn_biases(fast, statistic, rates, size, decay):
    """F <- alpha F + epsilon_F (R - S), for biases."""
    for j in range(fast.shape[0]):
        fast[j] = decay * fast[j] + size * (rates[j] - statistic[j])


@kernel
def learn_weights(fast, x, h, rates, weight, size, decay, both):
    """`learn_biases` for the weights, where S = x h', and the new W + F."""
    for i in range(fast.shape[0]):
        if x[i] == 1:
            for j in range(fast.shape[1]):
                fast[i, j] = decay * fast[i, j] + size * (rates[i, j] - h[j])
                both[i, j] = weight[i, j] + fast[i, j]
        else:
            for j in range(fast.shape[1]):
                fast[i, j] = decay * fast[i, j] + size * rates[i, j]
                both[i, j] = weight[i, j] + fast[i, j]


@kernel
def penalise_spins(fast, fast_visible, fast_hidden, x, h, weight, size, decay, both):
    """F <- alpha F - epsilon_F S for spins, as in `samplers.rates`, and the new W + F."""
    unity, two = np.float32(1), np.float32(2)
    s_sum, t_sum = np.float32(0), np.float32(0)
    for i in range(x.shape[0]):
        s_sum += two * x[i] - unity
    for j in range(h.shape[0]):
        t_sum += two * h[j] - unity
    for i in range(x.shape[0]):
        step = two * size * (two * x[i] - unity)
        fast_visible[i] = decay * fast_visible[i] + step * (t_sum - unity)
        for j in range(h.shape[0]):
            fast[i, j] = decay * fast[i, j] - two * step * (two * h[j] - unity)
            both[i, j] = weight[i, j] + fast[i, j]
    for j in range(h.shape[0]):
        step = two * size * (two * h[j] - unity)
        fast_hidden[j] = decay * fast_hidden[j] + step * (s_sum - unity)


@kernel
def emit_state(sums, c, emitted, new):
    for i in range(new.shape[0]):
        sums.changed[c] += emitted[c, i] != new[i]
        emitted[c, i] = new[i]
