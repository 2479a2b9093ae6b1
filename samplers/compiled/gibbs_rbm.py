"""Gibbs-1 on restricted Boltzmann machines.

All chains visit the same site, so the exponentials of its row of W are shared. The change of the
softplus sum is then the logarithm of a product (`compiled.sites`). Hidden inputs follow the flips;
each visit of site 0 computes them from scratch, so rounding errors do not add up.
"""

import numpy as np

from latticework.samplers.compiled.jit import kernel
from latticework.samplers.compiled.philox import unit
from latticework.samplers.compiled.run_words import BLOCK, fill_words
from latticework.samplers.compiled.running_sums import finish, fresh, leave, record
from latticework.samplers.compiled.sites import exponentials, renew, shift, softplus_change


@kernel
def gibbs_rbm(first, last, form, x, memory, run, sites, sums):
    """Resample `sites[t]` of each chain in step t."""
    weight, visible_bias = form.weight, form.visible_bias
    steps, hidden = run.steps, weight.shape[1]
    words = np.empty((BLOCK, last - first), np.uint32)
    total, changed, invalid = sums.total, sums.changed, sums.invalid
    since = fresh(sums, first, last, x.shape[1])
    odds = np.empty((2, hidden), np.float32)  # odds of a flip to 1 and of a flip to 0
    for t in range(steps):
        step = run.first + t
        i, now = sites[t], step % BLOCK
        if t == 0 or now == 0:
            fill_words(words, run.key, step, run.first + steps, first, 0)
        row = weight[i]
        exponentials(row, np.float32(1), odds[0])
        exponentials(row, np.float32(-1), odds[1])
        for c in range(first, last):
            if i == 0:
                renew(form, x, memory, c)
            old, own = x[c, i], memory[c]
            sign = np.float32(1) - np.float32(2) * old
            gain = softplus_change(own, odds[np.int64(old)], row, sign)
            log_odds = visible_bias[i] + sign * gain
            p = 1.0 / (1.0 + np.exp(-log_odds))
            if np.isnan(p):
                invalid[c] += 1
                continue
            new = np.float32(unit(words[now, c - first]) < p)
            if new != old:
                changed[c] += 1
                leave(total, since, first, c, i, old, t)
                x[c, i] = new
                shift(own, row, sign)
        record(sums, first, last, x, t, steps)
    finish(sums, since, first, x, steps)
