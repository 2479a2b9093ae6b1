"""The common part of the kernels of DULA and DMALA: the price of a move, and its acceptance."""

import numpy as np
from numpy.typing import NDArray

from latticework.samplers.compiled.draws import accepts
from latticework.samplers.compiled.jit import kernel
from latticework.samplers.langevin import DMALA, DULA


def scales(sampler: DULA | DMALA, sites: int) -> NDArray[np.float64]:
    """The factor of the step size by the preconditioner, `[sites]`."""
    if sampler.preconditioner is None:
        return np.ones(sites)
    scale = np.array(sampler.preconditioner) ** sampler.preconditioner_power
    if len(scale) != sites:
        raise ValueError(f"preconditioner must have {sites} entries, got {len(scale)}")
    return scale


def prices(sampler: DULA | DMALA, sites: int, distance: float = 1.0) -> NDArray[np.float32]:
    """The term that Eq. (2) of Zhang et al. (2022) subtracts for a squared distance, `[sites]`."""
    return (0.5 / sampler.step_size * distance / scales(sampler, sites)).astype(np.float32)


@kernel
def settle_proposal(c, adjusted, changes, level, after, normaliser, sums, beyond=0.0):
    """Whether chain `c` moves to its proposal, where the log normaliser is `after`.

    On a quadratic target, Eq. (3) is a ratio of normalisers. Other rules have terms `beyond` it.
    """
    accepted = True
    if adjusted:
        accepted = accepts(c, normaliser[c] - after + beyond, level, sums.accept, sums.invalid)
    else:
        sums.accept[c] += 1
        sums.invalid[c] += np.isnan(after)
    if accepted:
        normaliser[c] = after
        sums.changed[c] += changes
    return accepted
