"""Tori: Kaufman's formula for Ising, and sums over classes of rows for Ising and Potts.

Rows: log pi = K times the number of bonds with equal ends + h times the number of sites of value 0.
With the symmetric transfer operator T of a row, Z = trace T^M = sum over rows r of |T^(M/2) e_r|^2,
and rows that a shift, a mirror image or (without field) a relabelling carries into each other have
one summand. T is applied site by site. Taylor coefficients in the inverse temperature and in the
field go along, which gives means and variances.
"""

import math
from typing import NamedTuple

import mpmath
import numpy as np
from numba import njit
from numpy.typing import NDArray


class TorusMoments(NamedTuple):
    log_z: float
    energy: float  # the mean of log pi
    variance: float  # of log pi
    sites_at_zero: float  # their mean number; NaN without jets of the field


def kaufman(rows: int, columns: int, coupling: float, digits: int = 60) -> TorusMoments:
    """Ising on a torus without field: B. Kaufman, Physical Review 76, 1232 (1949)."""
    with mpmath.workdps(digits):
        step, centre = mpmath.mpf(10) ** -15, mpmath.mpf(coupling)
        below, here, above = (_log_z(rows, columns, centre * (1 + k * step)) for k in (-1, 0, 1))
        mean = (above - below) / (2 * step)
        variance = (above - 2 * here + below) / step**2
        return TorusMoments(float(here), float(mean), float(variance), math.nan)


def _log_z(rows: int, columns: int, k: mpmath.mpf) -> mpmath.mpf:
    odd_cosh = odd_sinh = even_cosh = even_sinh = mpmath.mpf(1)
    for r in range(2 * columns):
        if r == 0:
            gamma = 2 * k + mpmath.log(mpmath.tanh(k))
        else:
            angle = mpmath.cos(mpmath.pi * r / columns)
            gamma = mpmath.acosh(mpmath.cosh(2 * k) * mpmath.coth(2 * k) - angle)
        cosh, sinh = 2 * mpmath.cosh(rows * gamma / 2), 2 * mpmath.sinh(rows * gamma / 2)
        if r % 2:
            odd_cosh, odd_sinh = odd_cosh * cosh, odd_sinh * sinh
        else:
            even_cosh, even_sinh = even_cosh * cosh, even_sinh * sinh
    total = (odd_cosh + odd_sinh + even_cosh + even_sinh) / 2
    return mpmath.log(total) + mpmath.mpf(rows * columns) / 2 * mpmath.log(2 * mpmath.sinh(2 * k))


@njit(cache=True)
def row_classes(values: int, length: int, relabel: bool) -> NDArray[np.int64]:
    """How many rows have each row as the smallest of their class, `[values^length]`."""
    count = np.zeros(values**length, np.int64)
    digits = np.zeros(length, np.int64)
    names = np.zeros(values, np.int64)
    for row in range(values**length):
        left = row
        for i in range(length):
            digits[i] = left % values
            left //= values
        smallest = values**length
        for turn in range(2 * length):
            names[:] = -1
            used, number, power = 0, 0, 1
            for i in range(length):
                place = (i + turn) % length
                if turn >= length:
                    place = length - 1 - place
                value = digits[place]
                if relabel:
                    if names[value] < 0:
                        names[value] = used
                        used += 1
                    value = names[value]
                number += value * power
                power *= values
            smallest = min(smallest, number)
        count[smallest] += 1
    return count


@njit(cache=True)
def weigh_rows(
    values: int, length: int, coupling: float, field: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Half of log pi inside each row, and half of the number of its sites at 0."""
    half, zeros = np.zeros(values**length), np.zeros(values**length)
    for row in range(values**length):
        first = row % values
        left, last, equal, zero = row, first, 0, 0
        for i in range(length):
            value = left % values
            left //= values
            equal += i > 0 and value == last
            zero += value == 0
            last = value
        equal += last == first
        half[row] = (coupling * equal + field * zero) / 2
        zeros[row] = zero / 2
    return half, zeros


@njit(cache=True, fastmath=True)
def weigh(jets: NDArray[np.float64], half: NDArray[np.float64], zeros: NDArray[np.float64]) -> None:
    """Multiply the jets by exp(half) and its Taylor coefficients."""
    a, b, c, d = jets
    for s in range(len(half)):
        g = half[s]
        w = math.exp(g)
        c[s] = w * (c[s] + g * b[s] + g * g / 2 * a[s])
        b[s] = w * (b[s] + g * a[s])
        d[s] = w * (d[s] + zeros[s] * a[s])
        a[s] = w * a[s]


@njit(cache=True, fastmath=True)
def join_two(jets: NDArray[np.float64], stride: int, coupling: float) -> None:
    """Join a site of two values to the same site of the next row: exp(K) where they are equal."""
    a, b, c, d = jets
    w = math.exp(coupling)
    w1, w2 = w * coupling, w * coupling * coupling / 2
    for block in range(0, len(a), 2 * stride):
        for p in range(block, block + stride):
            q = p + stride
            a0, a1, b0, b1, c0, c1, d0, d1 = a[p], a[q], b[p], b[q], c[p], c[q], d[p], d[q]
            a[p], a[q] = w * a0 + a1, a0 + w * a1
            b[p], b[q] = w * b0 + b1 + w1 * a0, b0 + w * b1 + w1 * a1
            c[p] = w * c0 + c1 + w1 * b0 + w2 * a0
            c[q] = c0 + w * c1 + w1 * b1 + w2 * a1
            d[p], d[q] = w * d0 + d1, d0 + w * d1


@njit(cache=True, fastmath=True)
def join_several(jets: NDArray[np.float64], values: int, stride: int, coupling: float) -> None:
    """`join_two` for sites of several values."""
    a, b, c, d = jets
    w = math.exp(coupling)
    w1, w2 = w * coupling, w * coupling * coupling / 2
    for block in range(0, len(a), values * stride):
        for low in range(block, block + stride):
            a0 = b0 = c0 = d0 = 0.0
            for k in range(low, low + values * stride, stride):
                a0, b0, c0, d0 = a0 + a[k], b0 + b[k], c0 + c[k], d0 + d[k]
            for k in range(low, low + values * stride, stride):
                c[k] = c0 + (w - 1) * c[k] + w1 * b[k] + w2 * a[k]
                b[k] = b0 + (w - 1) * b[k] + w1 * a[k]
                d[k] = d0 + (w - 1) * d[k]
                a[k] = a0 + (w - 1) * a[k]


@njit(cache=True)
def raise_row(
    start: int,
    values: int,
    length: int,
    power: int,
    coupling: float,
    half: NDArray[np.float64],
    zeros: NDArray[np.float64],
    jets: NDArray[np.float64],
) -> float:
    """Write T^power e_start to jets[0]; the logarithm of what it was divided by is returned.

    jets[1] and jets[2] are Taylor coefficients in a factor of K and h, jets[3] the first one in h.
    """
    jets[:] = 0.0
    jets[0, start] = 1.0
    logs = 0.0
    for _ in range(power):
        weigh(jets, half, zeros)
        for site in range(length):
            if values == 2:
                join_two(jets, 2**site, coupling)
            else:
                join_several(jets, values, values**site, coupling)
        weigh(jets, half, zeros)
        top = jets[0].max()
        logs += math.log(top)
        jets /= top
    return logs


def sum_rows(values: int, side: int, coupling: float, field: float = 0.0) -> TorusMoments:
    """Moments of the square torus of an even side, in the convention of this module."""
    counts = row_classes(values, side, field == 0)
    half, zeros = weigh_rows(values, side, coupling, field)
    jets = np.empty((4, len(half)))
    logs, sums, sizes = [], [], []
    for row in np.flatnonzero(counts).tolist():
        scale = raise_row(row, values, side, side // 2, coupling, half, zeros, jets)
        value, slope, bend, zero = jets
        logs.append(2 * scale)
        sums.append(
            (
                value @ value,
                2 * value @ slope,
                2 * value @ bend + slope @ slope,
                2 * value @ zero,
            )
        )
        sizes.append(counts[row])
    top = max(logs)
    weight = np.exp(np.array(logs) - top) * np.array(sizes)
    z, first, second, zero = weight @ np.array(sums)
    mean = first / z
    return TorusMoments(
        top + math.log(z), mean, 2 * second / z - mean**2, zero / z if field else math.nan
    )


def as_ising(moments: TorusMoments, sites: int, coupling: float, field: float) -> TorusMoments:
    """Moments of K sum s s' + h sum s from those of rows with 2 K and 2 h, value 0 up."""
    shift = 2 * sites * coupling + sites * field
    return moments._replace(log_z=moments.log_z - shift, energy=moments.energy - shift)


def dense_trace(values: int, side: int, coupling: float) -> float:
    """Log Z of a torus of 2^k rows from powers of the dense matrix T."""
    weights = np.exp(coupling * np.eye(values))
    matrix = weights
    for _ in range(side - 1):
        matrix = np.kron(matrix, weights)
    half, _ = weigh_rows(values, side, coupling, 0.0)
    matrix *= np.exp(half)
    matrix *= np.exp(half)[:, None]
    log_scale, power = 0.0, 1
    while 2 * power < side:
        top = matrix.max()
        matrix /= top
        log_scale += math.log(top) * side / power
        matrix = matrix @ matrix
        power *= 2
    top = matrix.max()
    matrix /= top
    return math.log(np.vdot(matrix, matrix.T)) + log_scale + math.log(top) * side / power
