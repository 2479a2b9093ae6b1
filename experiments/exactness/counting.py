"""Where chains go in a step, counted, and exact tests of such counts."""

import numpy as np
from scipy.stats import binom, chi2, norm
from torch import Generator

from latticework.experiments.exactness.targets import Target
from latticework.samplers.base import Info, Sampler


def counts(
    sampler: Sampler, target: Target, steps: int, replicas: int, shared: bool = False
) -> tuple[list[np.ndarray], Info]:
    """Where `replicas` chains from each inner state are after 1, 2, ... steps; the first Info.

    Each array is `[inner states, states]`. If the chains of a call share random numbers (`shared`),
    the replicas are separate calls.
    """
    rng, size = Generator().manual_seed(0), len(target.inner)
    calls, repeats = (replicas, 1) if shared else (1, replicas)
    x = target.states[target.inner].repeat_interleave(repeats, 0)
    found = np.zeros((steps, size * len(target.z)), dtype=int)
    source = np.arange(size).repeat(repeats) * len(target.z)
    infos = []
    for _ in range(calls):
        state = sampler.init(x, target.model)
        for step in range(steps):
            state, info = sampler.step(state, target.model, rng)
            infos.append(info)
            found[step] += np.bincount(source + target.index(state.x), minlength=found.shape[1])
    return list(found.reshape(steps, size, -1)), infos[0]


def tails(count: np.ndarray, trials: int | np.ndarray, probability: np.ndarray) -> np.ndarray:
    """The smaller of the two exact tail probabilities of each binomial count."""
    probability = probability.clip(0, 1)
    below, above = (binom.cdf(count, trials, probability), binom.sf(count - 1, trials, probability))
    return np.minimum(below, above)


def largest_z(count: np.ndarray, trials: int, probability: np.ndarray) -> float:
    """The largest deviation of binomial counts, as the z-score of its exact tail probability."""
    return float(norm.isf(tails(count, trials, probability).min()))


def p_value(count: np.ndarray, law: np.ndarray) -> float:
    """Chi-square test; states expected fewer than 5 times are pooled."""
    expected = law * count.sum()
    few = expected < 5
    if few.any():
        count = np.append(count[~few], count[few].sum())
        expected = np.append(expected[~few], max(expected[few].sum(), 1e-9))
    return float(chi2.sf(((count - expected) ** 2 / expected).sum(), len(count) - 1))
