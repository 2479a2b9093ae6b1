"""Where chains go in a step, counted, and the exact tails of such counts."""

import numpy as np
from scipy.stats import binom
from torch import Generator

from latticework.samplers.base import Info, Sampler
from latticework.sampling.checking.targets import Target


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


def deviation(target: Target, index: np.ndarray, level: float, unit: str = "chains") -> str:
    """How independent draws differ from the law of the target; "" if no count tells them apart.

    `index` are the states of the draws, -1 for one that is not listed. A count is too improbable
    if its two-sided tail is below `level`.
    """
    law = np.append(target.law / target.law.sum(), 0.0)  # the last entry: not listed
    count = np.bincount(index % len(law), minlength=len(law))
    p = 2 * tails(count, len(index), law)
    worst = int(p.argmin())
    if p[worst] >= level:
        return ""
    state = "outside the listed states"
    if worst < len(target.states):
        state = f"at {target.states[worst].tolist()}"
    return (
        f"{count[worst]} of {len(index)} {unit} are {state}, expected "
        f"{len(index) * law[worst]:.1f}; total variation distance from the target "
        f"{np.abs(count / len(index) - law).sum() / 2:.2g}"
    )


def visible(draws: int, law: np.ndarray, level: float) -> float:
    """The smallest relative error of a state's probability that is found in half of all trials.

    A larger probability is found if the count that it leads us to expect has a two-sided tail below
    `level` under the law.
    """
    law = law[law > 0]
    smallest = binom.isf(level / 2, draws, law) + 1
    return float((smallest / (draws * law) - 1).min())


def tails(count: np.ndarray, trials: int | np.ndarray, probability: np.ndarray) -> np.ndarray:
    """The smaller of the two exact tail probabilities of each binomial count."""
    probability = probability.clip(0, 1)
    below, above = (binom.cdf(count, trials, probability), binom.sf(count - 1, trials, probability))
    return np.minimum(below, above)
