"""Hidden units of an RBM while single visible sites flip.

The fields of a chain are the hidden inputs, sigmoid(inputs) and sigmoid(-inputs), `[3 * hidden]`.
The change of log pi by a flip is the logarithm of a product over the hidden units.
"""

import math

import numpy as np

from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.jit import copy, inlined, kernel, reordered

MAX_WEIGHT = np.float32(20)  # weight of an RBM: four exponentials of it fit float32


@inlined
def split_units(fields, hidden):
    """Inputs, sigmoids, and those of the opposites: numba checks the sign of longer indices."""
    return fields[:hidden], fields[hidden : 2 * hidden], fields[2 * hidden :]


def rbm_renew(form, values, fields):
    find_inputs(form, values, fields[: form.hidden_bias.shape[0]])
    shift_inputs(fields, form.hidden_bias, np.float32(0))


def rbm_add_change(form, fields, i, old, new):
    shift_inputs(fields, form.weight[i], new - old)


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
def write_exponentials(row, sign, odds):
    """exp(sign * row), or NaN for a weight that `multiply_factors` cannot serve."""
    for j in range(row.shape[0]):
        odds[j] = exp32(sign * row[j]) if abs(row[j]) < MAX_WEIGHT else np.float32(np.nan)


@kernel
def softplus_change(fields, odds, row, sign):
    """The change of sum_j softplus(input_j) when sign * row is added to the inputs of a chain.

    `odds` are `exponentials(row, sign)`.
    """
    _, on, off = split_units(fields, row.shape[0])
    product = multiply_factors(on, off, odds)
    if 1e-300 < product < 1e300:
        return math.log(product)
    return exact_change(fields, row, sign)  # beyond double precision, or NaN


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
def multiply_factors(on, off, odds):
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
def shift_inputs(fields, row, step):
    """Add a multiple of a row of weights to a chain's hidden inputs, and update their sigmoids."""
    inputs, on, off = split_units(fields, row.shape[0])
    for j in range(inputs.shape[0]):
        z = inputs[j] + step * row[j]
        small = exp32(-abs(z))
        share = np.float32(1) / (np.float32(1) + small)
        inputs[j] = z
        on[j] = share if z >= 0 else small * share
        off[j] = small * share if z >= 0 else share
