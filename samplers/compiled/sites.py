"""Parts of kernels that change a few sites of a form: what a flip gains, and a flip.

`memory` is a chain's row of a table that some forms keep up to date: the gradient of a PairForm,
the fields of a PottsPairForm; hidden inputs, sigmoid(inputs) and sigmoid(-inputs) of an RBMForm.
`change` reads it, `flip` updates it. Each flip rounds the memory, so `renew` computes it from
scratch in the steps that `renewals` names. numba chooses the implementation by the form's type.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import (
    Form,
    GraphForm,
    LatticeForm,
    PairForm,
    PottsGraphForm,
    PottsLatticeForm,
    PottsPairForm,
    RBMForm,
)
from latticework.models.matmul import affine
from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.jit import copy, inlined, kernel, primitive, reordered


class LatticeTable(NamedTuple):
    """A lattice with its probabilities of 1 as thresholds of random words."""

    neighbours: NDArray[np.int32]  # as in LatticeForm
    degree: NDArray[np.int32]
    kind: NDArray[np.int32]
    threshold: NDArray[np.uint32]  # [kinds, most neighbours + 1]


BinaryForm = GraphForm | LatticeForm | PairForm | RBMForm
APART = 64  # steps a site, at least, between two renewals of the memory on average
LARGEST = np.float32(20)  # weight of an RBM: four exponentials of it fit float32


def memory_of(form: Form, x: Tensor) -> Tensor:
    """The memory of all chains at `x` `[chains, *domain.shape]`, from scratch."""
    if isinstance(form, PairForm):
        return affine(torch.from_numpy(form.offset), x, torch.from_numpy(form.matrix))
    if isinstance(form, RBMForm):
        weight, bias = torch.from_numpy(form.weight), torch.from_numpy(form.hidden_bias)
        inputs = affine(bias, x, weight)
        return torch.cat((inputs, inputs.sigmoid(), (-inputs).sigmoid()), 1)
    if isinstance(form, PottsPairForm):
        bias, coupling = torch.from_numpy(form.bias), torch.from_numpy(form.coupling)
        return affine(bias.flatten(), x.flatten(1), coupling)
    return x.new_empty(len(x), 0)


def change(form, x, memory, c, i):
    """The change in log-probability when site `i` flips, float64."""
    raise NotImplementedError


def flip(form, x, memory, c, i):
    """Flip site `i` of `x` and update `memory`."""
    raise NotImplementedError


def renew(form, values, memory, c):
    """Compute the memory of chain `c` from scratch."""
    raise NotImplementedError


def bounds(form):
    """The two values of a site, float32."""
    raise NotImplementedError


@inlined
def renewals(sites):
    """A mask: the memory is computed from scratch in steps with `key & mask == 0`.

    Keys are random, so this takes no counter, and does not depend on how steps are divided into
    calls. A renewal costs as much as one flip of each site, and comes once in 64 to 128 steps a
    site.
    """
    mask = 1
    while mask < APART * sites:
        mask *= 2
    return np.int64(mask - 1)


# Lattices.


@inlined
def ones_around(form, x, c, i):
    """How many neighbours of a lattice site are at 1."""
    count = np.float32(0)
    for k in range(form.degree[i]):
        count += x[c, form.neighbours[i, k]]
    return np.int64(count)


@inlined
def lattice_odds(form, x, c, i):
    return form.odds[form.kind[i], ones_around(form, x, c, i)]


def lattice_change(form, x, memory, c, i):
    odds = lattice_odds(form, x, c, i)
    return -odds if x[c, i] == 1 else odds


def flip_alone(form, x, memory, c, i):
    x[c, i] = np.float32(1) - x[c, i]


def renew_nothing(form, values, memory, c):
    pass


# Any graph.


@inlined
def graph_odds(form, x, c, i):
    total = np.float64(form.offset[i])
    for k in range(form.starts[i], form.starts[i + 1]):
        total += np.float64(form.slope[k]) * x[c, form.neighbours[k]]
    return total


def graph_change(form, x, memory, c, i):
    odds = graph_odds(form, x, c, i)
    return -odds if x[c, i] == 1 else odds


# Dense pairs.


@kernel
def other(value, low, high):
    """The other value of a site. low + high - value could be off by a rounding error."""
    return np.float32(low) if value == np.float32(high) else np.float32(high)


def pair_change(form, x, memory, c, i):
    step = other(x[c, i], form.low, form.high) - x[c, i]
    return np.float64(memory[c, i] * step + form.diagonal[i] * step * step)


def pair_flip(form, x, memory, c, i):
    new = other(x[c, i], form.low, form.high)
    step = new - x[c, i]
    x[c, i] = new
    row = form.matrix[i]
    own = memory[c]
    for j in range(own.shape[0]):
        own[j] += step * row[j]


def pair_renew(form, values, memory, c):
    total = form.offset.astype(np.float64)
    for i in range(values.shape[1]):
        value, row = values[c, i], form.matrix[i]
        for j in range(total.shape[0]):
            total[j] += value * row[j]
    copy(memory[c], total)


# Dense Potts models.


def potts_pair_renew(form, values, memory, c):
    q = form.bias.shape[1]
    total = np.empty(values.shape[1] * q)
    for i in range(values.shape[1]):
        for v in range(q):
            total[i * q + v] = form.bias[i, v]
    for i in range(values.shape[1]):
        row = form.coupling[i * q + values[c, i]]
        for j in range(total.shape[0]):
            total[j] += row[j]
    for j in range(total.shape[0]):
        memory[c, j] = total[j]


# RBMs.


# Loops run over whole slices: of an index into a longer array, numba would check the sign.


def rbm_change(form, x, memory, c, i):
    sign, odds = np.float32(1) - np.float32(2) * x[c, i], np.empty_like(form.hidden_bias)
    exponentials(form.weight[i], sign, odds)
    change = softplus_change(memory[c], odds, form.weight[i], sign)
    return np.float64(sign * form.visible_bias[i]) + change


def rbm_flip(form, x, memory, c, i):
    sign = np.float32(1) - np.float32(2) * x[c, i]
    x[c, i] += sign
    shift(memory[c], form.weight[i], sign)


def rbm_renew(form, values, memory, c):
    find_inputs(form, values[c], memory[c, : form.hidden_bias.shape[0]])
    shift(memory[c], form.hidden_bias, np.float32(0))


@kernel
def find_inputs(form, x, inputs):
    """The hidden inputs of a chain at `x` from scratch, summed in double precision."""
    total = form.hidden_bias.astype(np.float64)
    for i in range(x.shape[0]):
        if x[i] == 1:
            row = form.weight[i]
            for j in range(total.shape[0]):
                total[j] += row[j]
    copy(inputs, total)


@kernel
def exponentials(row, sign, odds):
    """exp(sign * row), or NaN for a weight that `factors` cannot serve."""
    for j in range(row.shape[0]):
        odds[j] = exp32(sign * row[j]) if abs(row[j]) < LARGEST else np.float32(np.nan)


@kernel
def softplus_change(own, odds, row, sign):
    """The change of sum_j softplus(input_j) when sign * row is added to the inputs of a chain.

    `own` is the chain's memory, and `odds` are `exponentials(row, sign)`.
    """
    hidden = row.shape[0]
    product = factors(own[hidden : 2 * hidden], own[2 * hidden :], odds)
    if 1e-300 < product < 1e300:
        return math.log(product)
    return exact_change(own, row, sign)  # beyond double precision, or NaN


@kernel
def exact_change(inputs, row, sign):
    """`softplus_change` from the inputs, which `inputs` begins with."""
    total = 0.0
    for j in range(row.shape[0]):
        before = np.float64(inputs[j])
        after = before + np.float64(sign * row[j])
        total += max(after, 0.0) + math.log1p(math.exp(-abs(after)))
        total -= max(before, 0.0) + math.log1p(math.exp(-abs(before)))
    return total


@reordered
def factors(on, off, odds):
    """The product of (1 + odds_j exp(input_j)) / (1 + exp(input_j)).

    Four factors at a time are multiplied in single precision.
    """
    n = on.shape[0] // 4
    on0, on1, on2, on3 = on[:n], on[n : 2 * n], on[2 * n : 3 * n], on[3 * n : 4 * n]
    off0, off1, off2, off3 = off[:n], off[n : 2 * n], off[2 * n : 3 * n], off[3 * n : 4 * n]
    w0, w1, w2, w3 = odds[:n], odds[n : 2 * n], odds[2 * n : 3 * n], odds[3 * n : 4 * n]
    product = 1.0
    for j in range(n):
        two = (off0[j] + on0[j] * w0[j]) * (off1[j] + on1[j] * w1[j])
        more = (off2[j] + on2[j] * w2[j]) * (off3[j] + on3[j] * w3[j])
        product *= np.float64(two * more)
    for j in range(4 * n, on.shape[0]):
        product *= np.float64(off[j] + on[j] * odds[j])
    return product


@kernel
def shift(own, row, step):
    """Add a multiple of a row of weights to a chain's hidden inputs, and update its memory."""
    hidden = row.shape[0]
    inputs, on, off = own[:hidden], own[hidden : 2 * hidden], own[2 * hidden :]
    for j in range(inputs.shape[0]):
        z = inputs[j] + step * row[j]
        small = exp32(-abs(z))
        share = np.float32(1) / (np.float32(1) + small)
        inputs[j] = z
        on[j] = share if z >= 0 else small * share
        off[j] = small * share if z >= 0 else share


# The choice by type.


def zero_and_one(form):
    return np.float32(0), np.float32(1)


def low_and_high(form):
    return np.float32(form.low), np.float32(form.high)


REMEMBERED = (LatticeForm, LatticeTable, GraphForm, PottsLatticeForm, PottsGraphForm)
BINARY = (LatticeForm, GraphForm, PairForm, RBMForm)
CHANGE = dict(zip(BINARY, (lattice_change, graph_change, pair_change, rbm_change), strict=True))
FLIP = dict(zip(BINARY, (flip_alone, flip_alone, pair_flip, rbm_flip), strict=True))
RENEW = {PairForm: pair_renew, RBMForm: rbm_renew, PottsPairForm: potts_pair_renew}
primitive(change, CHANGE, makes_arrays=True)
primitive(flip, FLIP)
primitive(renew, dict.fromkeys(REMEMBERED, renew_nothing) | RENEW, makes_arrays=True)
primitive(bounds, dict.fromkeys(BINARY, zero_and_one) | {PairForm: low_and_high})
