"""How binary sites that all decide at once are drawn: by DULA, DMALA, ACS, DLMC and DLMCf.

A site moves with odds m : s. The state keeps the smaller of m / s and s / m for each site, so a
proposal compares u (1 + e) with e, and no site needs a division. On a quadratic target log pi(y) -
log pi(x) is half the sum over the flips of the gain at x minus that at y, so with l = log(m / s)

    log ratio = sum of log(1 + exp(l)) at x minus at y
                + sum over the flips of l - gain / 2 at y minus at x

where the second sum is 0 for DMALA, Eq. (2) of Zhang et al. (2022).
"""

import math

import numpy as np

from latticework.samplers.compiled.arithmetic import exp32
from latticework.samplers.compiled.jit import inlined, kernel, lean, reordered
from latticework.samplers.compiled.philox import SCALE

MAX_FACTORS = 512  # factors from 1 to 2 that are multiplied before a logarithm is taken
MIN_WEIGHT = np.float32(2e-38)


@lean
def draw_sites(y, marks, ratio, words, x, low, high):
    """Flip each site with its probability, never if that is NaN, and mark the sites that flip."""
    for i in range(np.uint64(ratio.shape[0])):
        level = np.float32(words[i]) * np.float32(SCALE) + np.float32(SCALE / 2)
        rare = abs(ratio[i])
        flips = (level + level * rare < rare) != (ratio[i] < 0)
        marks[i] = np.uint8(flips)
        y[i] = high if (x[i] == high) != flips else low


@kernel
def weigh(ratio, x, fields, rule, k, both):
    """Write the ratios at `x` in step `k` of the rule's cycle; returns the sum of log(1 + exp(l)).

    `both` is the sum of a site's two values.
    """
    total, balance = 0.0, rule.balance[k]
    for a in range(0, x.shape[0], MAX_FACTORS):
        b = min(a + MAX_FACTORS, x.shape[0])
        if rule.jumps:
            part = ratio[a:b], x[a:b], fields[a:b]
            total += weigh_jumps(*part, rule.time, rule.root, rule.euler, both)
        else:
            price = rule.price[k, a:b]
            total += weigh_steps(ratio[a:b], x[a:b], fields[a:b], price, balance, both)
    return total


@reordered
def weigh_steps(ratio, x, fields, price, balance, both):
    """log(1 + exp(l)) is log(1 + exp(-|l|)) + max(l, 0)."""
    product, positive = 1.0, 0.0
    for i in range(x.shape[0]):
        z = balance * np.float32(fields[i]) * (both - x[i] - x[i]) - price[i]
        rare = exp32(-abs(z))
        ratio[i] = -rare if z > 0 else rare
        product *= 1.0 + np.float64(rare)
        positive += np.float64(max(z, np.float32(0)))
    return math.log(product) + positive


@reordered
def weigh_jumps(ratio, x, fields, time, root, euler, both):
    """`weigh_steps` for jumps, where m : s = nu h : 1 - nu h.

    nu is the first-order probability of the other value, and h the share of it that moves. Where
    m > s, log(1 + exp(l)) is log(1 + s / m) - log(s / m), and the latter comes from exponents and
    mantissas.
    """
    unity, product, passed, exponents = np.float32(1), 1.0, 1.0, np.int64(0)
    for i in range(x.shape[0]):
        gain = np.float32(fields[i]) * (both - x[i] - x[i])
        half = exp32(np.float32(-0.5) * abs(gain))
        small = max(half * half, MIN_WEIGHT)
        flow = time * (unity / half + half) if root else time
        staying = unity - min(flow, unity) if euler else exp32(-flow)
        moved = unity - staying
        if flow < np.float32(0.05):  # the difference from 1 is coarse
            series = flow - flow * flow * (np.float32(0.5) - flow * np.float32(1 / 6))
            moved = flow if euler else series
        goes = moved if gain > 0 else small * moved
        stays = small + staying if gain > 0 else unity + small * staying
        likely = goes > stays
        rare = stays / goes if likely else goes / stays
        ratio[i] = -rare if likely else rare
        product *= 1.0 + np.float64(rare)
        bits = np.float32(rare if likely else unity).view(np.int32)
        exponents += np.int64((bits >> np.int32(23)) - np.int32(127))
        part = np.int32((bits & np.int32(0x7FFFFF)) | np.int32(0x3F800000)).view(np.float32)
        passed *= np.float64(part)
    return math.log(product) - math.log(passed) - exponents * math.log(2.0)


@inlined
def log_odds_of(ratio):
    return math.copysign(1.0, ratio) * math.log(abs(ratio))
