"""Coupling from the past on binary sites whose log-odds never fall when a neighbour rises.

J. Propp and D. Wilson, "Exact sampling with coupled Markov chains and applications to statistical
mechanics", Random Structures & Algorithms 1996. Sweeps of Gibbs start from all sites at 0 and from
all at 1, at time -T, with the same random numbers. If both are equal at time 0, all states would
be, and that state has exactly the law of the target. Otherwise T doubles, and the numbers of the
old times are used again.

The number u of draw d at time -t and site i is a function of (d, t, i), the counter of Philox. A
site becomes 1 if log(u / (1 - u)) is below its log-odds. Both chains compare with the same left
side, and their log-odds are sums in one order, so that rounding keeps them ordered too.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.models.forms import GraphForm, RBMForm
from latticework.samplers.compiled.jit import kernel
from latticework.samplers.compiled.philox import philox, unit_of


class MonotoneSites(NamedTuple):
    """Sites whose log-odds are offset[i] + the sum of slope[k] x[neighbours[k]].

    The k run from starts[i] to starts[i + 1]. No slope is negative.
    """

    starts: NDArray[np.int64]  # [sites + 1]
    neighbours: NDArray[np.int32]
    slope: NDArray[np.float64]
    offset: NDArray[np.float64]  # [sites]
    order: NDArray[np.int32]  # [sites], in which a sweep visits them


def sites_of_graph(form: GraphForm) -> MonotoneSites:
    slope = form.slope.astype(np.float64)
    return MonotoneSites(form.starts, form.neighbours, slope, form.offset, form.order)


def sites_of_rbm(form: RBMForm) -> MonotoneSites:
    """Visible units, then hidden ones, each joined to all of the other layer; hidden ones first."""
    visible, hidden = form.weight.shape
    weight = form.weight.astype(np.float64)
    ends = np.arange(visible + hidden, dtype=np.int32)
    degree = np.repeat([hidden, visible], [visible, hidden])
    return MonotoneSites(
        starts=np.concatenate(([0], np.cumsum(degree))),
        neighbours=np.concatenate(
            (np.tile(ends[visible:], visible), np.tile(ends[:visible], hidden))
        ),
        slope=np.concatenate((weight.ravel(), weight.T.ravel())),
        offset=np.concatenate((form.visible_bias, form.hidden_bias)).astype(np.float64),
        order=np.roll(ends, hidden),
    )


@kernel
def sweep_both(starts, neighbours, slope, offset, order, thresholds, low, high):
    """Update all sites of two states by the same `thresholds` `[sites]`."""
    for i in order:
        below, above = offset[i], offset[i]
        for k in range(starts[i], starts[i + 1]):
            below += slope[k] * low[neighbours[k]]
            above += slope[k] * high[neighbours[k]]
        low[i] = thresholds[i] < below
        high[i] = thresholds[i] < above


@kernel
def couple(
    first, last, starts, neighbours, slope, offset, order, key, shortest, longest, states, sweeps
):
    """Write the states at time 0 `[draws, 2, sites]`, and how many `sweeps` they took.

    The first attempt has `shortest` sweeps, each further one twice as many, up to `longest`.

    A draw that has not met in `longest` sweeps keeps two states that differ, and has -1 sweeps.
    """
    sites = offset.shape[0]
    thresholds = np.empty(sites + sites % 2)
    for d in range(first, last):
        low, high = states[d, 0], states[d, 1]
        sweeps[d], attempt = -1, shortest
        while attempt <= longest and sweeps[d] < 0:
            low[:], high[:] = 0, 1
            for t in range(attempt, 0, -1):
                for pair in range((sites + 1) // 2):
                    a, b, c, e = philox(np.uint32(pair), np.uint32(d), np.uint32(t), np.uint64(key))
                    u, v = unit_of(a, b), unit_of(c, e)
                    thresholds[2 * pair] = np.log(u / (1 - u))
                    thresholds[2 * pair + 1] = np.log(v / (1 - v))
                sweep_both(starts, neighbours, slope, offset, order, thresholds, low, high)
            met = True
            for i in range(sites):
                met &= low[i] == high[i]
            if met:
                sweeps[d] = attempt
            attempt *= 2
