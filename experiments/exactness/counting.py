"""Where chains go in a step, counted, and the exact tails of such counts."""

import numpy as np
from scipy.stats import binom
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
