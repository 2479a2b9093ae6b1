"""Sums over steps inside a kernel: states, changed sites and traces.

A kernel that sets few sites a step adds a site's value to the total only when it sets it: `since`
`[chains, sites]` holds the first step that the present value has not been added for.
"""

import numpy as np

from latticework.samplers.compiled.jit import inlined, kernel


@kernel
def start_since(sums, first, last, sites):
    """`since` before the first step; empty if the total is not wanted."""
    return np.zeros((last - first if sums.total.shape[0] else 0, sites), np.int64)


@inlined
def add_held_value(total, since, first, c, i, value, t):
    """Before step `t` sets site `i` of chain `c`, which has this `value`, perhaps to another."""
    if since.shape[0]:
        total[c, i] += np.float32(t - since[c - first, i]) * value
        since[c - first, i] = t


@kernel
def add_last_values(sums, since, first, x, steps):
    """After the last of `steps` steps, which ended at `x`."""
    for c in range(since.shape[0]):
        for i in range(since.shape[1]):
            sums.total[first + c, i] += np.float32(steps - since[c, i]) * x[first + c, i]


@inlined
def record_chains(sums, first, last, x, t, steps):
    """Store the states after step `t` of the chains that are traced."""
    if t >= steps - sums.trace.shape[0] and first < sums.trace.shape[1]:
        copy_states(sums.trace[t - (steps - sums.trace.shape[0])], first, last, x)


@inlined
def record_chain(trace, x, c, t):
    """Store the state of chain `c`, if it is traced, after step `t` from the end (-1: the last)."""
    if c < trace.shape[1] and t + trace.shape[0] >= 0:
        for i in range(x.shape[1]):
            trace[t + trace.shape[0], c, i] = np.int8(x[c, i])


@inlined
def add_chain(sums, x, c, t):
    """Add the state of chain `c` after step `t` from the end to the total, and store it."""
    if sums.total.shape[0]:
        for i in range(x.shape[1]):
            sums.total[c, i] += x[c, i]
    record_chain(sums.trace, x, c, t)


@kernel
def copy_states(out, first, last, x):
    for c in range(first, min(last, out.shape[0])):
        for i in range(x.shape[1]):
            out[c, i] = np.int8(x[c, i])


@kernel
def add_states(sums, first, last, x):
    """Add all states after a step to the total."""
    if sums.total.shape[0]:
        for c in range(first, last):
            for i in range(x.shape[1]):
                sums.total[c, i] += x[c, i]
