"""DULA and DMALA on Potts models.

The log-probability is quadratic in the one-hot states, so Eq. (3) of Zhang et al. (2022) is a ratio
of the normalisers of Eq. (2). The state keeps the cumulative probabilities of each site's values at
x. As in `langevin_pair`, a kernel computes the fields of lattices and small models one chain after
the other, and large dense models take one matrix product a step.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numba.extending import overload
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import PottsLatticeForm, PottsPairForm
from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.jit import kernel, over_chains
from latticework.samplers.compiled.langevin_pair import settle
from latticework.samplers.compiled.philox import SCALE, fill, unit
from latticework.samplers.compiled.potts import values_of
from latticework.samplers.compiled.tally import record_chain
from latticework.samplers.compiled.twin import Sums, Twin
from latticework.samplers.langevin import DMALA

SMALL = 256  # sites times values up to which sums of rows are faster than a matrix product
GROUP = 64  # sites whose normalisers, from 1 to q, are multiplied before a logarithm is taken


class LangevinPottsState(NamedTuple):
    x: Tensor  # [chains, sites, q]
    values: Tensor  # [chains, sites]
    ladder: Tensor  # [chains, sites * q], cumulative probabilities of each site's values
    normaliser: Tensor  # [chains], sum of the sites' log normalisers, float64


@dataclass(frozen=True)
class LangevinPottsTwin(Twin):
    def start(self, x: Tensor, form: PottsLatticeForm | PottsPairForm) -> LangevinPottsState:
        chains, sites, q = x.shape
        values, ladder = values_of(x), x.new_empty(chains, sites * q)
        state = LangevinPottsState(x, values, ladder, ladder.new_empty(chains, dtype=torch.float64))
        price, arrays = self.prices(form), (values.numpy(), ladder.numpy(), state[3].numpy())
        over_chains(weigh_all, chains, 5.0 * x.numel(), form, price, *arrays)
        return state

    def prices(self, form: PottsLatticeForm | PottsPairForm) -> NDArray[np.float32]:
        """What Eq. (2) subtracts for a change of value, at a squared distance of 2, `[sites]`."""
        sampler, sites = self.sampler, len(form.bias)
        scale = np.ones(sites)
        if sampler.preconditioner is not None:
            scale = np.array(sampler.preconditioner) ** sampler.preconditioner_power
            if len(scale) != sites:
                raise ValueError(f"preconditioner must have {sites} entries, got {len(scale)}")
        return (1.0 / sampler.step_size / scale).astype(np.float32)

    def run(
        self,
        state: LangevinPottsState,
        form: PottsLatticeForm | PottsPairForm,
        keys: NDArray[np.int64],
        sums: Sums,
    ) -> LangevinPottsState:
        adjusted, price = isinstance(self.sampler, DMALA), self.prices(form)
        chains, sites, q = state.x.shape
        x = state.x.view(chains, -1)
        arrays = x.numpy(), *(field.numpy() for field in state[1:])
        if isinstance(form, PottsLatticeForm) or sites * q <= SMALL:
            work = 6.0 * state.x.numel() * len(keys)
            over_chains(small, chains, work, adjusted, form, price, *arrays, keys, sums)
            return state
        coupling, bias = torch.from_numpy(form.coupling), torch.from_numpy(form.bias).flatten()
        y, fields = torch.empty_like(x), torch.empty_like(x)
        proposal = y.numpy(), torch.empty_like(state.values).numpy(), fields.numpy()
        drawn = np.empty((chains, sites * q), np.float32), np.empty(chains, np.int64)
        level, work = np.empty(chains), 6.0 * state.x.numel()
        for t in range(-1, len(keys)):
            if t >= 0:
                torch.addmm(bias, y, coupling, out=fields)
            step = adjusted, t, keys, price
            over_chains(large, chains, work, *step, *arrays, *proposal, *drawn, level, *sums[:5])
        return state


@kernel
def weigh_all(first, last, form, price, values, ladder, normaliser):
    fields = np.empty(ladder.shape[1], np.float32)
    for c in range(first, last):
        field_of_all(form, values[c], fields)
        normaliser[c] = weigh(ladder[c], fields, values[c], price)


@kernel
def small(first, last, adjusted, form, price, x, values, ladder, normaliser, keys, sums):
    """All steps of one chain after the other."""
    sites, steps, size = values.shape[1], keys.shape[0], x.shape[1]
    words = np.empty(max(64, sites // 4 * 4 + 4), np.uint32)  # at least one more than the sites
    y = np.empty(sites, np.int32)
    fields, there = np.empty(size, np.float32), np.empty(size, np.float32)
    for c in range(first, last):
        now, here = values[c], ladder[c]
        for t in range(steps):
            fill(words, keys[t], c, 0)
            changes = propose(y, now, here, words)
            field_of_all(form, y, fields)
            after, level = weigh(there, fields, y, price), unit(words[sites])
            args = normaliser, sums.accept, sums.changed, sums.invalid
            if settle(c, adjusted, changes, level, after, *args):
                now[:], here[:] = y, there
            keep(x, now, c, t - steps, sums.total, sums.trace)
        one_hot(x[c], now)


@kernel
def large(
    first, last, adjusted, t, keys, price, x, values, ladder, normaliser,
    y, new, fields, there, changes, level, total, trace, accept, changed, invalid,
):  # fmt: skip
    """Accept or reject the proposals `y` of step t, and draw those of step t + 1."""
    sites, steps = values.shape[1], keys.shape[0]
    words = np.empty(max(64, sites // 4 * 4 + 4), np.uint32)
    for c in range(first, last):
        now, here = values[c], ladder[c]
        if t >= 0:
            after = weigh(there[c], fields[c], new[c], price)
            args = normaliser, accept, changed, invalid
            if settle(c, adjusted, changes[c], level[c], after, *args):
                now[:], here[:] = new[c], there[c]
            keep(x, now, c, t - steps, total, trace)
        if t + 1 < steps:
            fill(words, keys[t + 1], c, 0)
            changes[c] = propose(new[c], now, here, words)
            level[c] = unit(words[sites])
            one_hot(y[c], new[c])
        else:
            one_hot(x[c], now)


@kernel
def propose(y, x, ladder, words):
    """Draw each site's value (its own if the probabilities are NaN); returns how many changed."""
    q, changes = ladder.shape[0] // x.shape[0], 0
    for i in range(x.shape[0]):
        uniform = np.float32(words[i]) * np.float32(SCALE) + np.float32(SCALE / 2)
        new = np.int32(0)
        for v in range(q - 1):
            new += np.int32(uniform >= ladder[i * q + v])
        if np.isnan(ladder[i * q]):
            new = x[i]
        y[i] = new
        changes += np.int64(new != x[i])
    return changes


@kernel
def weigh(ladder, fields, x, price):
    """Eq. (2): the cumulative probabilities of each site's values at `x`, and the log normaliser.

    The logits are relative to that of staying.
    """
    q, result, product = ladder.shape[0] // x.shape[0], 0.0, 1.0
    for i in range(x.shape[0]):
        a, stays = i * q, fields[i * q + x[i]]
        top = np.float32(0)
        for v in range(a, a + q):
            ladder[v] = np.float32(0.5) * (fields[v] - stays) - price[i]
            top = max(top, ladder[v])
        ladder[a + x[i]] = fields[a + x[i]] - stays  # 0 or NaN
        for v in range(a, a + q):
            ladder[v] -= top
        result += np.float64(top)
    for v in range(ladder.shape[0]):
        ladder[v] = exp32(ladder[v])
    for i in range(x.shape[0]):
        total = np.float32(0)
        for v in range(i * q, i * q + q):
            total += ladder[v]
            ladder[v] = total
        scale = np.float32(1) / total
        for v in range(i * q, i * q + q):
            ladder[v] *= scale
        product *= np.float64(total)
        if i % GROUP == GROUP - 1:
            result += math.log(product)
            product = 1.0
    return result + math.log(product)


def field_of_all(form, values, out):
    """Write the field of all sites at `values` `[sites]` to `out` `[sites * q]`."""
    raise NotImplementedError


@kernel
def lattice_fields(form, values, out):
    bias, degree, neighbours = form.bias, form.degree, form.neighbours
    q, coupling = bias.shape[1], np.float32(form.coupling)
    for i in range(values.shape[0]):
        for v in range(q):
            out[i * q + v] = bias[i, v]
        for k in range(degree[i]):
            out[i * q + values[neighbours[i, k]]] += coupling


@kernel
def pair_fields(form, values, out):
    bias, coupling, q = form.bias, form.coupling, form.bias.shape[1]
    for i in range(values.shape[0]):
        for v in range(q):
            out[i * q + v] = bias[i, v]
    for i in range(values.shape[0]):
        row = np.uint32(i * q + values[i])
        for j in range(out.shape[0]):
            out[j] += coupling[row, j]


@overload(field_of_all, inline="always")
def _field_of_all(form, values, out):
    lattice = form.instance_class is PottsLatticeForm
    implementation = lattice_fields if lattice else pair_fields
    return lambda form, values, out: implementation(form, values, out)


@kernel
def one_hot(x, values):
    x[:] = 0
    for i in range(values.shape[0]):
        x[i * (x.shape[0] // values.shape[0]) + values[i]] = 1


@kernel
def keep(x, values, c, t, total, trace):
    """Add a chain's state to the sums; `t` counts the steps from the end, the last being -1.

    `x` is free to be overwritten.
    """
    q = x.shape[1] // values.shape[0]
    if total.shape[0]:
        for i in range(values.shape[0]):
            total[c, i * q + values[i]] += np.float32(1)
    if c < trace.shape[1] and t + trace.shape[0] >= 0:
        one_hot(x[c], values)
        record_chain(trace, x, c, t)
