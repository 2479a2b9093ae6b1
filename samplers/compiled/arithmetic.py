"""Elementary functions in float32 whose loops use vector registers.

numba calls the C library for `exp`, one number at a time. These are polynomials with a relative
error below 2e-7. NaN gives NaN. Arguments beyond +-87 give the value at +-87.
"""

import numpy as np

from latticework.samplers.compiled.jit import inlined, kernel

F = np.float32
LOG2_E = F(1.4426950408889634)
INFINITY_BITS = np.int32(0x7F800000)
LN2_HIGH, LN2_LOW = F(0.693359375), F(-2.12194440e-4)  # ln 2 in two parts, to reduce the argument


@inlined
def exp32(x):
    """exp(x) by x = n ln 2 + r and a polynomial of degree 7 in r (Cephes expf)."""
    x = min(max(x, F(-87.0)), F(87.0))
    n = np.floor(x * LOG2_E + F(0.5))
    r = x - n * LN2_HIGH - n * LN2_LOW
    p = F(1.9875691500e-4)
    p = p * r + F(1.3981999507e-3)
    p = p * r + F(8.3334519073e-3)
    p = p * r + F(4.1665795894e-2)
    p = p * r + F(1.6666665459e-1)
    p = p * r + F(5.0000001201e-1)
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    return (p * r * r + r + F(1.0)) * power


@inlined
def wide_exp(x):
    """exp(x) as a float64 with the relative error of `exp32`, for arguments up to +-700."""
    x = min(max(x, F(-700.0)), F(700.0))
    n = np.floor(x * LOG2_E + F(0.5))
    power = np.int64((np.int64(n) + np.int64(1023)) << np.int64(52)).view(np.float64)
    return np.float64(exp32(x - n * LN2_HIGH - n * LN2_LOW)) * power


@inlined
def sigmoid32(x):
    """1 / (1 + exp(-x))."""
    return F(1.0) / (F(1.0) + exp32(-x))


@kernel
def largest32(x):
    """The largest of some numbers, at least -inf; NaN if one is NaN with a sign bit of 0."""
    top = np.int32(-(2**31))
    for i in range(x.shape[0]):
        bits = np.float32(x[i]).view(np.int32)
        order = bits ^ np.int32((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))  # as x is ordered
        top = max(top, order)
    return np.int32(top ^ ((top >> np.int32(31)) & np.int32(0x7FFFFFFF))).view(np.float32)


@kernel
def largest_number32(x):
    """The largest of the numbers that are not NaN."""
    top = np.int32(-(2**31))
    for i in range(x.shape[0]):
        bits = np.float32(x[i]).view(np.int32)
        order = bits ^ np.int32((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))
        top = max(top, order if order <= INFINITY_BITS else np.int32(-(2**31)))
    return np.int32(top ^ ((top >> np.int32(31)) & np.int32(0x7FFFFFFF))).view(np.float32)
