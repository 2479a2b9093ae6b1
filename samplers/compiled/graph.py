"""The log-odds of all sites of a graph, kept from step to step: a flip changes its neighbours'.

They are kept in double precision: a hub's are the sum of many slopes that nearly cancel. Each flip
rounds them, so kernels compute them from scratch in the steps that `sites.renewals` names.
"""

import numpy as np

from latticework.samplers.compiled.jit import kernel, lean


@kernel
def renew(form, x, odds):
    """The log-odds of all sites of a chain from scratch."""
    for i in range(x.shape[0]):
        total = np.float64(form.offset[i])
        for k in range(form.starts[i], form.starts[i + 1]):
            total += np.float64(form.slope[k] * x[form.neighbours[k]])
        odds[i] = total


@lean
def add_to_neighbours(starts, near, slope, odds, i, step):
    """Add to the log-odds of the neighbours what a change of x_i by `step` does to them."""
    for k in range(np.uint64(starts[i]), np.uint64(starts[i + np.uint64(1)])):
        odds[near[k]] += step * slope[k]
