"""DULA and DMALA on Potts models.

The log-probability is quadratic in the one-hot states, so Eq. (3) of Zhang et al. (2022) is a ratio
of the normalisers of Eq. (2). The state keeps the cumulative probabilities of each site's values at
x. As in `langevin_pair`, a kernel computes the fields of lattices and small models one chain after
the other, and large dense models take one matrix product a step.

Arrays over sites and values have the values first inside a call, `[q * sites]`: sites have few
values, and loops over sites use vector registers.
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
from latticework.samplers.compiled.jit import kernel, over_chains, reordered
from latticework.samplers.compiled.langevin_pair import settle
from latticework.samplers.compiled.philox import SCALE, fill, unit
from latticework.samplers.compiled.potts import values_of
from latticework.samplers.compiled.tally import record_chain
from latticework.samplers.compiled.twin import Sums, Twin
from latticework.samplers.langevin import DMALA

SMALL = 256  # sites times values up to which sums of rows are faster than a matrix product
BELOW_ONE = np.float32(1 - 2.0**-24)  # the largest float32 below 1
GROUP = 64  # sites whose normalisers, from 1 to q, are multiplied before a logarithm is taken


class LangevinPottsState(NamedTuple):
    x: Tensor  # [chains, sites, q]
    values: Tensor  # [chains, sites]
    ladder: Tensor  # [chains, q * sites],: cumulative probabilities of a site's values
    normaliser: Tensor  # [chains], sum of the sites' log normalisers, float64


def by_value(form: PottsLatticeForm | PottsPairForm) -> PottsLatticeForm | PottsPairForm:
    """The form with values before sites: bias `[q, sites]`, and neighbours `[most, sites]`.

    A neighbour that does not exist is number `sites`, which has no value.
    """
    sites, q = form.bias.shape
    bias = np.ascontiguousarray(form.bias.T)
    if isinstance(form, PottsPairForm):
        blocks = torch.from_numpy(form.coupling).view(sites, q, sites, q).permute(1, 0, 3, 2)
        return PottsPairForm(blocks.reshape(q * sites, -1).numpy(), bias)
    exists = np.arange(form.neighbours.shape[1])[:, None] < form.degree
    neighbours = np.where(exists, form.neighbours.T, np.int32(sites))
    return form._replace(neighbours=np.ascontiguousarray(neighbours), bias=bias)


@dataclass(frozen=True)
class LangevinPottsTwin(Twin):
    def start(self, x: Tensor, form: PottsLatticeForm | PottsPairForm) -> LangevinPottsState:
        chains, sites, q = x.shape
        values, ladder = values_of(x), x.new_empty(chains, sites * q)
        state = LangevinPottsState(x, values, ladder, ladder.new_empty(chains, dtype=torch.float64))
        price, arrays = self.prices(form), (values.numpy(), ladder.numpy(), state[3].numpy())
        over_chains(weigh_all, chains, 5.0 * x.numel(), by_value(form), price, *arrays)
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
        adjusted, price, form = isinstance(self.sampler, DMALA), self.prices(form), by_value(form)
        chains, sites, q = state.x.shape
        x = state.x.view(chains, -1)
        arrays = x.numpy(), *(field.numpy() for field in state[1:])
        if isinstance(form, PottsLatticeForm) or sites * q <= SMALL:
            work = 2.0 * state.x.numel() * len(keys)
            over_chains(small, chains, work, adjusted, form, price, *arrays, keys, sums)
            return state
        coupling, bias = torch.from_numpy(form.coupling), torch.from_numpy(form.bias).flatten()
        y, fields = torch.empty_like(x), torch.empty_like(x)
        proposal = y.numpy(), torch.empty_like(state.values).numpy(), fields.numpy()
        drawn = np.empty((chains, sites * q), np.float32), np.empty(chains, np.int64)
        level, work = np.empty(chains), 2.0 * state.x.numel()
        for t in range(-1, len(keys)):
            if t >= 0:
                torch.addmm(bias, y, coupling, out=fields)
            step = adjusted, t, keys, price
            over_chains(large, chains, work, *step, *arrays, *proposal, *drawn, level, *sums[:5])
        return state


@kernel
def weigh_all(first, last, form, price, values, ladder, normaliser):
    sites = values.shape[1]
    fields, room = np.empty(ladder.shape[1], np.float32), np.empty((3, sites), np.float32)
    x = np.empty(sites + 1, np.int32)
    x[sites] = -1
    for c in range(first, last):
        x[:sites] = values[c]
        field_of_all(form, x, fields)
        normaliser[c] = weigh(ladder[c], fields, x[:sites], price, room)


@kernel
def small(first, last, adjusted, form, price, x, values, ladder, normaliser, keys, sums):
    """All steps of one chain after the other."""
    sites, steps, size = values.shape[1], keys.shape[0], x.shape[1]
    words = np.empty(max(64, sites // 4 * 4 + 4), np.uint32)  # at least one more than the sites
    new = np.empty(sites + 1, np.int32)
    new[sites] = -1  # the value of a neighbour that does not exist
    y, room = new[:sites], np.empty((3, sites), np.float32)
    fields, there = np.empty(size, np.float32), np.empty(size, np.float32)
    for c in range(first, last):
        now, here = values[c], ladder[c]
        for t in range(steps):
            fill(words, keys[t], c, 0)
            changes = propose(y, now, here, words, room[0])
            field_of_all(form, new, fields)
            after, level = weigh(there, fields, y, price, room), unit(words[sites])
            args = normaliser, sums.accept, sums.changed, sums.invalid
            if settle(c, adjusted, changes, level, after, *args):
                now[:], here[:] = y, there
            keep(x, now, c, t - steps, sums.total, sums.trace)
        write(x, now, c)


@kernel
def large(
    first, last, adjusted, t, keys, price, x, values, ladder, normaliser,
    y, new, fields, there, changes, level, total, trace, accept, changed, invalid,
):  # fmt: skip
    """Accept or reject the proposals `y` of step t, and draw those of step t + 1."""
    sites, steps = values.shape[1], keys.shape[0]
    words = np.empty(max(64, sites // 4 * 4 + 4), np.uint32)
    room = np.empty((3, sites), np.float32)
    for c in range(first, last):
        now, here = values[c], ladder[c]
        if t >= 0:
            after = weigh(there[c], fields[c], new[c], price, room)
            args = normaliser, accept, changed, invalid
            if settle(c, adjusted, changes[c], level[c], after, *args):
                now[:], here[:] = new[c], there[c]
            keep(x, now, c, t - steps, total, trace)
        if t + 1 < steps:
            fill(words, keys[t + 1], c, 0)
            changes[c] = propose(new[c], now, here, words, room[0])
            level[c] = unit(words[sites])
            for v in range(x.shape[1] // sites):
                one_hot(y[c, v * sites : (v + 1) * sites], new[c], v)
        else:
            write(x, now, c)


@kernel
def propose(y, x, ladder, words, uniform):
    """Draw each site's value (its own if the probabilities are NaN); returns how many changed."""
    sites, changes = x.shape[0], 0
    for i in range(sites):
        level = np.float32(words[i]) * np.float32(SCALE) + np.float32(SCALE / 2)
        uniform[i] = min(level, BELOW_ONE)  # at 1, a last value of probability 0 would be drawn
    y[:] = 0
    for v in range(ladder.shape[0] // sites - 1):
        climb(y, uniform, ladder[v * sites : (v + 1) * sites])
    for i in range(sites):
        y[i] = y[i] if ladder[i] == ladder[i] else x[i]
        changes += np.int64(y[i] != x[i])
    return changes


@kernel
def climb(y, uniform, rung):
    for i in range(y.shape[0]):
        y[i] += np.int32(uniform[i] >= rung[i])


@kernel
def weigh(ladder, fields, x, price, room):
    """Eq. (2): the cumulative probabilities of each site's values at `x`, and the log normaliser.

    Logits are relative to that of staying. `room` `[3, sites]` is overwritten.
    """
    sites, (stays, top, total) = x.shape[0], (room[0], room[1], room[2])
    q, result = ladder.shape[0] // sites, 0.0
    for i in range(sites):
        stays[i] = fields[np.uint32(x[i] * sites + i)]
    top[:], total[:] = 0, 0
    for v in range(q):
        a, b = v * sites, (v + 1) * sites
        logits(ladder[a:b], fields[a:b], stays, x, v, price, top)
    for v in range(q):
        cumulate(ladder[v * sites : (v + 1) * sites], top, total)
    for v in range(q):
        divide(ladder[v * sites : (v + 1) * sites], total)
    for a in range(0, sites, GROUP):
        b = min(a + GROUP, sites)
        product, tops = product_and_sum(total[a:b], top[a:b])
        result += math.log(product) + tops
    return result


@kernel
def logits(out, fields, stays, x, v, price, top):
    for i in range(out.shape[0]):
        gain = np.float32(0.5) * (fields[i] - stays[i])
        out[i] = gain if x[i] == np.int32(v) else gain - price[i]
        top[i] = max(top[i], out[i])


@kernel
def cumulate(ladder, top, total):
    for i in range(ladder.shape[0]):
        total[i] += exp32(ladder[i] - top[i])
        ladder[i] = total[i]


@kernel
def divide(ladder, total):
    for i in range(ladder.shape[0]):
        ladder[i] /= total[i]


@reordered
def product_and_sum(total, top):
    product, tops = 1.0, 0.0
    for i in range(total.shape[0]):
        product *= np.float64(total[i])
        tops += np.float64(top[i])
    return product, tops


def field_of_all(form, values, out):
    """Write the field of all sites at `values` `[sites + 1]` to `out` `[q * sites]`."""
    raise NotImplementedError


@kernel
def lattice_fields(form, values, out):
    (q, sites), most = form.bias.shape, form.neighbours.shape[0]
    around = np.empty((most, sites), np.int32)
    for k in range(most):
        gather(around[k], values, form.neighbours[k])
    for v in range(q):
        part = out[v * sites : (v + 1) * sites]
        part[:] = 0
        for k in range(most):
            count(part, around[k], v)
        affine(part, form.bias[v], np.float32(form.coupling))


@kernel
def gather(out, values, index):
    for i in range(out.shape[0]):
        out[i] = values[np.uint32(index[i])]


@kernel
def count(out, values, v):
    for i in range(out.shape[0]):
        out[i] += np.float32(values[i] == np.int32(v))


@kernel
def affine(out, bias, slope):
    for i in range(out.shape[0]):
        out[i] = bias[i] + slope * out[i]


@kernel
def pair_fields(form, values, out):
    (q, sites), coupling = form.bias.shape, form.coupling
    for v in range(q):
        out[v * sites : (v + 1) * sites] = form.bias[v]
    for i in range(sites):
        row = np.uint32(values[i] * sites + i)
        for j in range(out.shape[0]):
            out[j] += coupling[row, j]


@overload(field_of_all, inline="always")
def _field_of_all(form, values, out):
    lattice = form.instance_class is PottsLatticeForm
    implementation = lattice_fields if lattice else pair_fields
    return lambda form, values, out: implementation(form, values, out)


@kernel
def one_hot(out, values, v):
    for i in range(out.shape[0]):
        out[i] = np.float32(values[i] == np.int32(v))


@kernel
def write(x, values, c):
    """Write the values of chain `c` to its one-hot states."""
    q = x.shape[1] // values.shape[0]
    for i in range(values.shape[0]):
        for v in range(q):
            x[c, i * q + v] = np.float32(values[i] == v)


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
        write(x, values, c)
        record_chain(trace, x, c, t)
