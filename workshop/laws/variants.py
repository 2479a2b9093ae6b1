"""Exact laws of variants of kernels that are no samplers of the package, on binary targets.

They show what exact differences in place of gradients, and Barker's balancing function in place of
the square root, would change.
"""

import numpy as np

import latticework as lw
from latticework.sampling.checking.law import (
    Law,
    Matrix,
    metropolis_law,
    normalise_rows,
    one_site_weights,
)
from latticework.sampling.checking.targets import Target


def dmala_exact_differences(sampler: lw.DMALA, target: Target) -> Law:
    """DMALA, Eq. (2) of Zhang et al., with log pi(x with site i flipped) - log pi(x) of site i.

    On pairwise models the gradient gives the same differences.
    """
    flipped = _flipped_states(target)
    gains = target.log_prob[flipped] - target.log_prob[:, None]
    changed = target.z[:, None] != target.z
    logits = (changed * (gains / 2 - 1 / (2 * sampler.step_size))[:, None]).sum(-1)
    proposal = normalise_rows(np.exp(logits - logits.max(-1, keepdims=True)))
    return metropolis_law(proposal, target)


def locally_balanced_barker(sampler: lw.LocallyBalanced, target: Target) -> Law:
    """Zanella's proposal of one flip with g(t) = t / (1 + t) in place of sqrt(t)."""
    differences = target.log_prob - target.log_prob[:, None]
    neighbours = one_site_weights(np.zeros_like(differences), target) > 0
    return metropolis_law(normalise_rows(neighbours / (1 + np.exp(-differences))), target)


def _flipped_states(target: Target) -> Matrix:
    """The index of each state with one site flipped, `[states, sites]`."""
    count, sites = target.z.shape
    flipped = np.zeros((count, sites), dtype=np.int64)
    for site in range(sites):
        other = target.z.copy()
        other[:, site] = 1 - other[:, site]
        flipped[:, site] = (other[:, None] == target.z).all(-1).argmax(-1)
    return flipped
