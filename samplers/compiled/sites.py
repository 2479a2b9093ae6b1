"""What kernels that change a few sites ask of a form: a site's probability, and a flip.

`memory` is a chain's row of a table that some forms keep up to date: the gradient of a PairForm;
hidden inputs, sigmoid(inputs) and sigmoid(-inputs) of an RBMForm. `change` and `probability` read
it, `flip` updates it. numba chooses the implementation by the form's type.
"""

import math

import numpy as np
import torch
from numba.extending import overload
from torch import Tensor

from latticework.models.forms import Form, LatticeForm, PairForm, RBMForm
from latticework.samplers.compiled.arithmetic import exp32, sigmoid32
from latticework.samplers.compiled.jit import inlined, kernel, reordered

BINARY = (LatticeForm, PairForm, RBMForm)
GROUP = 256  # factors that are multiplied before a logarithm is taken


def memory_of(form: Form, x: Tensor) -> Tensor:
    """The memory of all chains at `x` `[chains, sites]`, from scratch."""
    if isinstance(form, PairForm):
        return torch.addmm(torch.from_numpy(form.offset), x, torch.from_numpy(form.matrix))
    if isinstance(form, RBMForm):
        weight, bias = torch.from_numpy(form.weight), torch.from_numpy(form.hidden_bias)
        inputs = torch.addmm(bias, x, weight)
        return torch.cat((inputs, inputs.sigmoid(), (-inputs).sigmoid()), 1)
    return x.new_empty(len(x), 0)


def change(form, x, memory, c, i):
    """The change in log-probability when site `i` flips, float64."""
    raise NotImplementedError


def probability(form, x, memory, c, i):
    """The probability of the high value of site `i` given the rest, float64, or NaN."""
    raise NotImplementedError


def flip(form, x, memory, c, i):
    """Flip site `i` of `x` and update `memory`."""
    raise NotImplementedError


def bounds(form):
    """The two values of a site, float32."""
    raise NotImplementedError


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


@inlined
def lattice_change(form, x, memory, c, i):
    odds = lattice_odds(form, x, c, i)
    return -odds if x[c, i] == 1 else odds


@inlined
def lattice_flip(form, x, memory, c, i):
    x[c, i] = np.float32(1) - x[c, i]


# Dense pairs.


@kernel
def other(value, low, high):
    """The other value of a site. low + high - value could be off by a rounding error."""
    return np.float32(low) if value == np.float32(high) else np.float32(high)


@inlined
def pair_change(form, x, memory, c, i):
    step = other(x[c, i], form.low, form.high) - x[c, i]
    return np.float64(memory[c, i] * step + form.diagonal[i] * step * step)


@kernel
def pair_flip(form, x, memory, c, i):
    new = other(x[c, i], form.low, form.high)
    step = new - x[c, i]
    x[c, i] = new
    row = form.matrix[i]
    own = memory[c]
    for j in range(own.shape[0]):
        own[j] += step * row[j]


# RBMs.


@reordered
def rbm_factors(form, memory, c, i, sign, start, stop):
    """The product of (1 + exp(input + sign w)) / (1 + exp(input)) over some hidden units."""
    hidden = form.weight.shape[1]
    row = form.weight[i]
    on, off = memory[c, hidden : 2 * hidden], memory[c, 2 * hidden :]
    product = 1.0
    for j in range(start, stop):
        product *= np.float64(off[j] + on[j] * exp32(sign * row[j]))
    return product


@kernel
def rbm_change(form, x, memory, c, i):
    sign = np.float32(1) - np.float32(2) * x[c, i]
    hidden = form.weight.shape[1]
    total = np.float64(sign * form.visible_bias[i])
    for start in range(0, hidden, GROUP):
        stop = min(start + GROUP, hidden)
        product = rbm_factors(form, memory, c, i, sign, start, stop)
        if 1e-300 < product < 1e300:
            total += math.log(product)
        else:  # too large or too small for double precision, or NaN
            for j in range(start, stop):
                total += math.log(rbm_factors(form, memory, c, i, sign, j, j + 1))
    return total


@kernel
def rbm_flip(form, x, memory, c, i):
    hidden = form.weight.shape[1]
    step = np.float32(1) - np.float32(2) * x[c, i]
    x[c, i] += step
    row = form.weight[i]
    own = memory[c]
    inputs, on, off = own[:hidden], own[hidden : 2 * hidden], own[2 * hidden :]
    for j in range(hidden):
        inputs[j] += step * row[j]
        on[j] = sigmoid32(inputs[j])
        off[j] = sigmoid32(-inputs[j])


# The choice by type.

CHANGE = {LatticeForm: lattice_change, PairForm: pair_change, RBMForm: rbm_change}
FLIP = {LatticeForm: lattice_flip, PairForm: pair_flip, RBMForm: rbm_flip}


@overload(change, inline="always")
def _change(form, x, memory, c, i):
    implementation = CHANGE[form.instance_class]
    return lambda form, x, memory, c, i: implementation(form, x, memory, c, i)


@overload(flip, inline="always")
def _flip(form, x, memory, c, i):
    implementation = FLIP[form.instance_class]
    return lambda form, x, memory, c, i: implementation(form, x, memory, c, i)


@overload(probability, inline="always")
def _probability(form, x, memory, c, i):
    if form.instance_class is LatticeForm:
        return lambda form, x, memory, c, i: form.high[form.kind[i], ones_around(form, x, c, i)]

    def sigmoid(form, x, memory, c, i):
        gain = change(form, x, memory, c, i)
        _, high = bounds(form)
        return 1.0 / (1.0 + math.exp(gain if x[c, i] == high else -gain))

    return sigmoid


@overload(bounds, inline="always")
def _bounds(form):
    if form.instance_class is PairForm:
        return lambda form: (np.float32(form.low), np.float32(form.high))
    return lambda form: (np.float32(0), np.float32(1))
