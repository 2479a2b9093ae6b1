"""DULA and DMALA on Potts models.

The log-probability is quadratic in the one-hot states, so Eq. (3) of Zhang et al. (2022) is a ratio
of the normalisers of Eq. (2). The state keeps the cumulative probabilities of each site's values at
x as whole numbers of random words, so each value has its probability to within 2^-31. As in
`langevin_pair`, a kernel computes the fields of lattices and small models one chain after the
other, and large dense models take one matrix product a step.

Arrays over sites and values have the values first inside a call, `[q * sites]`: sites have few
values, and loops over sites use vector registers.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import PottsForm, PottsLatticeForm, PottsPairForm
from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Keys, Sums, arrays_of
from latticework.samplers.compiled.jit import copy, kernel, over_chains, primitive, reordered
from latticework.samplers.compiled.langevin import prices, settle
from latticework.samplers.compiled.philox import fill, unit
from latticework.samplers.compiled.potts import values_of
from latticework.samplers.compiled.running_sums import record_chain
from latticework.samplers.langevin import DMALA

SMALL = 256  # sites times values up to which sums of rows are faster than a matrix product
ALL = np.int32(2**31 - 1)  # words of a cumulative probability of 1
WORDS = np.float32(2**31 - 2**9)  # about as many, so that rounding does not reach 2^31
GROUP = 64  # sites whose normalisers, from 1 to q, are multiplied before a logarithm is taken


class LangevinPottsState(NamedTuple):
    x: Tensor  # [chains, sites, q]
    values: Tensor  # [chains, sites]
    ladder: Tensor  # [chains, q * sites], int32, see `weigh`
    normaliser: Tensor  # [chains], sum of the sites' log normalisers, float64


class PottsProposals(NamedTuple):
    """The proposals of all chains in a step, in arrays like those of the state."""

    x: NDArray[np.float32]  # [chains, q * sites], one-hot
    values: NDArray[np.int32]
    fields: NDArray[np.float32]  # at x
    ladder: NDArray[np.int32]  # at x
    changes: NDArray[np.int64]  # [chains], how many sites change
    level: NDArray[np.float64]  # [chains], uniform numbers for the acceptance


def by_value(form: PottsForm) -> PottsForm:
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
class LangevinPottsTwin(CompiledSampler):
    def start(self, x: Tensor, form: PottsForm) -> LangevinPottsState:
        chains, sites, q = x.shape
        ladder = x.new_empty(chains, sites * q, dtype=torch.int32)
        normaliser = x.new_empty(chains, dtype=torch.float64)
        state = LangevinPottsState(x, values_of(x), ladder, normaliser)
        args = by_value(form), self.prices(form), arrays_of(state)
        over_chains(weigh_all, chains, 5.0 * x.numel(), *args)
        return state

    def prices(self, form: PottsForm) -> NDArray[np.float32]:
        return prices(self.sampler, len(form.bias), distance=2.0)  # the distance of one-hot values

    def run(
        self, state: LangevinPottsState, form: PottsForm, keys: Keys, sums: Sums
    ) -> LangevinPottsState:
        form, price, arrays = by_value(form), self.prices(form), arrays_of(state)
        rule = isinstance(self.sampler, DMALA), form, price
        (chains, sites, q), work = state.x.shape, 2.0 * state.x.numel()
        if isinstance(form, PottsLatticeForm) or sites * q <= SMALL:
            over_chains(small, chains, work * len(keys), *rule, arrays, keys, sums)
            return state
        coupling, bias = torch.from_numpy(form.coupling), torch.from_numpy(form.bias).flatten()
        y, fields = (state.x.new_empty(chains, sites * q) for _ in range(2))
        values, ladder = np.empty_like(arrays.values), np.empty_like(arrays.ladder)
        drawn = np.empty(chains, np.int64), np.empty(chains)
        proposals = PottsProposals(y.numpy(), values, fields.numpy(), ladder, *drawn)
        for t in range(-1, len(keys)):
            if t >= 0:
                torch.addmm(bias, y, coupling, out=fields)
            over_chains(large, chains, work, *rule, t, keys, arrays, proposals, sums)
        return state


@kernel
def weigh_all(first, last, form, price, state):
    _, values, ladder, normaliser = state
    sites = values.shape[1]
    fields, room = np.empty(ladder.shape[1], np.float32), np.empty((3, sites), np.float32)
    counts = np.empty((2, sites), np.int32)
    x = np.empty(sites + 1, np.int32)
    x[sites] = -1
    for c in range(first, last):
        copy(x[:sites], values[c])
        field_of_all(form, x, fields)
        normaliser[c] = weigh(ladder[c], fields, x[:sites], price, room, counts)


@kernel
def small(first, last, adjusted, form, price, state, keys, sums):
    """All steps of one chain after the other."""
    x, values, ladder, normaliser = state
    sites, steps, size = values.shape[1], keys.shape[0], x.shape[1]
    words = np.empty(max(64, sites // 4 * 4 + 4), np.uint32)  # at least one more than the sites
    new = np.empty(sites + 1, np.int32)
    new[sites] = -1  # the value of a neighbour that does not exist
    y, room, counts = new[:sites], np.empty((3, sites), np.float32), np.empty((2, sites), np.int32)
    fields, there = np.empty(size, np.float32), np.empty(size, np.int32)
    for c in range(first, last):
        now, here = values[c], ladder[c]
        for t in range(steps):
            fill(words, keys[t], c, 0)
            changes = propose(y, now, here, words, counts[0])
            field_of_all(form, new, fields)
            after, level = weigh(there, fields, y, price, room, counts), unit(words[sites])
            if settle(c, adjusted, changes, level, after, normaliser, sums):
                copy(now, y)
                copy(here, there)
            keep(x, now, c, t - steps, sums)
        write(x, now, c)


@kernel
def large(first, last, adjusted, form, price, t, keys, state, proposals, sums):
    """Accept or reject the proposals of step t, and draw those of step t + 1."""
    x, values, ladder, normaliser = state
    y, new, fields, there, changes, level = proposals
    sites, steps = values.shape[1], keys.shape[0]
    words = np.empty(max(64, sites // 4 * 4 + 4), np.uint32)
    room, counts = np.empty((3, sites), np.float32), np.empty((2, sites), np.int32)
    for c in range(first, last):
        now, here = values[c], ladder[c]
        if t >= 0:
            after = weigh(there[c], fields[c], new[c], price, room, counts)
            if settle(c, adjusted, changes[c], level[c], after, normaliser, sums):
                copy(now, new[c])
                copy(here, there[c])
            keep(x, now, c, t - steps, sums)
        if t + 1 < steps:
            fill(words, keys[t + 1], c, 0)
            changes[c] = propose(new[c], now, here, words, counts[0])
            level[c] = unit(words[sites])
            for v in range(x.shape[1] // sites):
                one_hot(y[c, v * sites : (v + 1) * sites], new[c], v)
        else:
            write(x, now, c)


@kernel
def propose(y, x, ladder, words, level):
    """Draw each site's value (its own if the probabilities are NaN); returns how many changed."""
    sites, changes = x.shape[0], 0
    for i in range(sites):
        level[i] = min(np.int32(words[i] >> np.uint32(1)), ALL - np.int32(1))
    y[:] = 0
    last = ladder.shape[0] - sites
    for v in range(0, last, sites):
        climb(y, level, ladder[v : v + sites])
    valid = ladder[last:]
    for i in range(sites):
        y[i] = y[i] if valid[i] else x[i]
        changes += np.int64(y[i] != x[i])
    return changes


@kernel
def climb(y, level, rung):
    for i in range(y.shape[0]):
        y[i] += np.int32(level[i] >= rung[i])


@kernel
def weigh(ladder, fields, x, price, room, counts):
    """Eq. (2): the rungs of each site's values at `x`, and the log normaliser.

    A word of 31 bits below rung v, and not below rung v - 1, draws value v. So values have whole
    numbers of words, the nearest to their probabilities. The likeliest value has those that are
    left. The last value needs no rung; in its place is 1, or 0 where the probabilities are NaN.

    Logits are relative to that of staying. `fields` `[q * sites]`, `room` `[3, sites]` and `counts`
    `[2, sites]` are overwritten.
    """
    sites, size, result = x.shape[0], ladder.shape[0], 0.0
    (stays, top, total), (below, rest) = (room[0], room[1], room[2]), (counts[0], counts[1])
    for i in range(sites):
        stays[i] = fields[np.uint32(x[i] * sites + i)]
    top[:], total[:], below[:] = 0, 0, 0
    for a in range(0, size, sites):
        logits(fields[a : a + sites], stays, x, a // sites, price, top)
    for a in range(0, size, sites):
        weights(fields[a : a + sites], top, total)
    scales(stays, total)
    for a in range(0, size, sites):
        cumulate(ladder[a : a + sites], fields[a : a + sites], stays, below)
    for i in range(sites):
        rest[i] = ALL - below[i]
        below[i] = 0
    for a in range(0, size - sites, sites):
        lift(ladder[a : a + sites], fields[a : a + sites], rest, below)
    for i in range(sites):
        ladder[size - sites + i] = np.int32(total[i] == total[i])
    for a in range(0, sites, GROUP):
        b = min(a + GROUP, sites)
        product, tops = product_and_sum(total[a:b], top[a:b])
        result += math.log(product) + tops
    return result


@kernel
def logits(fields, stays, x, v, price, top):
    for i in range(fields.shape[0]):
        gain = np.float32(0.5) * (fields[i] - stays[i])
        fields[i] = gain if x[i] == np.int32(v) else gain - price[i]
        top[i] = max(top[i], fields[i])


@kernel
def weights(fields, top, total):
    for i in range(fields.shape[0]):
        weight = exp32(fields[i] - top[i])
        fields[i] = weight
        total[i] += weight


@kernel
def scales(out, total):
    for i in range(out.shape[0]):
        out[i] = WORDS / total[i]


@kernel
def cumulate(rung, weight, scale, below):
    for i in range(rung.shape[0]):
        below[i] += np.int32(weight[i] * scale[i] + np.float32(0.5))
        rung[i] = below[i]


@kernel
def lift(rung, weight, rest, passed):
    """Add the words that are left from the first of the likeliest values on."""
    for i in range(rung.shape[0]):
        passed[i] |= -np.int32(weight[i] == np.float32(1))
        rung[i] += rest[i] & passed[i]


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


def pair_fields(form, values, out):
    (q, sites), coupling = form.bias.shape, form.coupling
    for v in range(q):
        copy(out[v * sites : (v + 1) * sites], form.bias[v])
    for i in range(sites):
        row = np.uint32(values[i] * sites + i)
        for j in range(out.shape[0]):
            out[j] += coupling[row, j]


primitive(field_of_all, {PottsLatticeForm: lattice_fields, PottsPairForm: pair_fields}, True)


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
def keep(x, values, c, t, sums):
    """Add a chain's state to the sums; `t` counts the steps from the end, the last being -1.

    `x` is free to be overwritten.
    """
    q = x.shape[1] // values.shape[0]
    if sums.total.shape[0]:
        for i in range(values.shape[0]):
            sums.total[c, i * q + values[i]] += np.float32(1)
    if c < sums.trace.shape[1] and t + sums.trace.shape[0] >= 0:
        write(x, values, c)
        record_chain(sums.trace, x, c, t)
