"""Rates-FPCD, rates-herding and sample penalization: the twins of `samplers.rates`.

Memory traffic limits them: each chain has fast weights F of the size of W. A chain makes all steps
of a call before the next chain begins, and W + F is kept in one array meanwhile. A step
reads it for the inputs of x, and the rows of the units that are on for the inputs of h. One pass
updates F and W + F.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.forms import Form, RBMForm, array
from latticework.samplers.compiled.arithmetic import sigmoid32
from latticework.samplers.compiled.draws import happens
from latticework.samplers.compiled.jit import kernel, over_chains, reordered
from latticework.samplers.compiled.philox import fill, step_keys
from latticework.samplers.compiled.rbm import record_states
from latticework.samplers.compiled.sites import add_rows_on
from latticework.samplers.compiled.twin import Keys, Twin
from latticework.samplers.rates import RatesState, SamplePenalization
from latticework.samplers.sums import NOTHING, Sums, Wanted, empty_sums


@dataclass(frozen=True)
class RatesTwin(Twin):
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
        self, state: RatesState, model: Any, rng: Generator, steps: int, wanted: Wanted = NOTHING
    ) -> tuple[RatesState, Sums]:
        sums, keys = empty_sums(state.x, steps, wanted, self.loops), step_keys(steps, rng)
        form, names = model.form(), ("weight_rates", "visible_rates", "hidden_rates")
        if isinstance(self.sampler, SamplePenalization):
            rates = RBMForm(*map(np.zeros_like, form))
        else:
            rates = RBMForm(*(array(getattr(model, name)) for name in names))
        fast = RBMForm(*(tensor.numpy() for tensor in state[2:]))
        rule = np.float32(self.sampler.fast_step_size), np.float32(self.sampler.decay)
        kernel, settings = self.kernel()
        positions = state.x.numpy(), state.position.numpy()
        args = form, rates, fast, rule, settings, *positions, keys, sums
        over_chains(kernel, len(state.x), 0.5 * state.weight.numel() * steps, *args)
        return state, sums

    def kernel(self) -> tuple[Callable, Any]:
        """The kernel and its settings."""
        sampler = self.sampler
        emit_mean, mean_statistics = sampler.emit == "mean", sampler.statistics == "mean"
        spins = isinstance(sampler, SamplePenalization) and sampler.coding == "spin"
        return rates_gibbs, (sampler.steps, mean_statistics, emit_mean, spins)


@dataclass(frozen=True)
class HerdingTwin(RatesTwin):
    loops = True

    def kernel(self) -> tuple[Callable, Any]:
        return rates_herding, self.sampler.sweeps


@kernel
def rates_gibbs(first, last, form, rates, fast, rule, settings, emitted, x, keys, sums):
    weight, visible_bias, hidden_bias = form
    fast_weight, fast_visible, fast_hidden = fast
    updates, mean_statistics, emit_mean, spins = settings
    (visible, hidden), steps = weight.shape, keys.shape[0]
    both, above = np.empty_like(weight), np.empty_like(visible_bias)
    inputs, h = np.empty_like(hidden_bias), np.empty_like(hidden_bias)
    words = np.empty(max(visible, hidden) // 4 * 4 + 4, np.uint32)
    for c in range(first, last):
        add(weight, fast_weight[c], x[c], hidden_bias, fast_hidden[c], both, inputs)
        for t in range(steps):
            unknown = False
            for update in range(updates):
                fill(words, keys[t], c, 2 * update)
                for j in range(hidden):
                    z = inputs[j]
                    h[j] = np.float32(happens(words[j], z)) if z == z else z
                multiply(both, h, above)
                fill(words, keys[t], c, 2 * update + 1)
                for i in range(visible):
                    z = above[i] + visible_bias[i] + fast_visible[c, i]
                    above[i] = sigmoid32(z)
                    if z == z:
                        x[c, i] = np.float32(happens(words[i], z))
                    else:
                        unknown = True
                sum_rows(both, x[c], hidden_bias, fast_hidden[c], inputs)
            if mean_statistics:
                for j in range(hidden):
                    h[j] = sigmoid32(inputs[j])
            sums.accept[c] += 1
            sums.invalid[c] += unknown
            emit(sums, c, emitted, above if emit_mean else x[c])
            record_states(c, c + 1, sums, emitted, t, steps)
            if spins:
                penalise_spins(c, fast, x[c], h, weight, rule, both)
            else:
                learn(c, fast, x[c], h, rates, weight, rule, both)
            sum_rows(both, x[c], hidden_bias, fast_hidden[c], inputs)


@kernel
def rates_herding(first, last, form, rates, fast, rule, sweeps, emitted, x, keys, sums):
    weight, visible_bias, hidden_bias = form
    fast_weight, fast_visible, fast_hidden = fast
    visible, steps = weight.shape[0], keys.shape[0]
    both, above = np.empty_like(weight), np.empty_like(visible_bias)
    inputs, h = np.empty_like(hidden_bias), np.empty_like(hidden_bias)
    for c in range(first, last):
        add(weight, fast_weight[c], x[c], hidden_bias, fast_hidden[c], both, inputs)
        for t in range(steps):
            moving, sweep = True, 0
            while moving and sweep < sweeps:
                moving, sweep = False, sweep + 1
                for j in range(h.shape[0]):
                    h[j] = np.float32(inputs[j] > 0)
                multiply(both, h, above)
                for i in range(visible):
                    new = np.float32(above[i] + visible_bias[i] + fast_visible[c, i] > 0)
                    moving |= new != x[c, i]
                    x[c, i] = new
                sum_rows(both, x[c], hidden_bias, fast_hidden[c], inputs)
            sums.accept[c] += 1
            sums.unsettled[c] += moving
            emit(sums, c, emitted, x[c])
            record_states(c, c + 1, sums, emitted, t, steps)
            learn(c, fast, x[c], h, rates, weight, rule, both)
            sum_rows(both, x[c], hidden_bias, fast_hidden[c], inputs)


@kernel
def add(weight, fast, x, hidden_bias, fast_hidden, both, inputs):
    """W + F, and the hidden inputs under it."""
    for i in range(weight.shape[0]):
        for j in range(weight.shape[1]):
            both[i, j] = weight[i, j] + fast[i, j]
    sum_rows(both, x, hidden_bias, fast_hidden, inputs)


@reordered
def multiply(weight, h, out):
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
    add_rows_on(weight, x, inputs)


@kernel
def learn(c, fast, x, h, rates, weight, rule, both):
    """F <- alpha F + epsilon_F (R - S), where S = x h' for the weights, and the new W + F."""
    learn_bias(fast.visible_bias[c], x, rates.visible_bias, rule)
    learn_bias(fast.hidden_bias[c], h, rates.hidden_bias, rule)
    own, target, (size, decay) = fast.weight[c], rates.weight, rule
    for i in range(own.shape[0]):
        if x[i] == 1:
            for j in range(own.shape[1]):
                own[i, j] = decay * own[i, j] + size * (target[i, j] - h[j])
                both[i, j] = weight[i, j] + own[i, j]
        else:
            for j in range(own.shape[1]):
                own[i, j] = decay * own[i, j] + size * target[i, j]
                both[i, j] = weight[i, j] + own[i, j]


@kernel
def learn_bias(fast, statistic, rates, rule):
    size, decay = rule
    for j in range(fast.shape[0]):
        fast[j] = decay * fast[j] + size * (rates[j] - statistic[j])


@kernel
def penalise_spins(c, fast, x, h, weight, rule, both):
    """F <- alpha F - epsilon_F S for spins, as in `samplers.rates`, and the new W + F."""
    own, own_visible, own_hidden = fast.weight[c], fast.visible_bias[c], fast.hidden_bias[c]
    one, two, (size, decay) = np.float32(1), np.float32(2), rule
    s_sum, t_sum = np.float32(0), np.float32(0)
    for i in range(x.shape[0]):
        s_sum += two * x[i] - one
    for j in range(h.shape[0]):
        t_sum += two * h[j] - one
    for i in range(x.shape[0]):
        step = two * size * (two * x[i] - one)
        own_visible[i] = decay * own_visible[i] + step * (t_sum - one)
        for j in range(h.shape[0]):
            own[i, j] = decay * own[i, j] - two * step * (two * h[j] - one)
            both[i, j] = weight[i, j] + own[i, j]
    for j in range(h.shape[0]):
        step = two * size * (two * h[j] - one)
        own_hidden[j] = decay * own_hidden[j] + step * (s_sum - one)


@kernel
def emit(sums, c, emitted, new):
    for i in range(new.shape[0]):
        sums.changed[c] += emitted[c, i] != new[i]
        emitted[c, i] = new[i]
