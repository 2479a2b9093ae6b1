"""A sampler on a target, the chains that are counted, the exact tails of counts, and outcomes."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from scipy.stats import binom
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.samplers.base import Info, Sampler, require_count
from latticework.sampling.checking.law import Law
from latticework.sampling.checking.targets import Target

SECOND_TEST_STEPS = 8  # steps after which invariance is tested a second time
SETTLING = 100  # steps that forget the start: before the tests, or until a bias is measured
# Chains that interact may cost chains^2, so fewer are counted.
MAX_INTERACTING_CHAINS = 1000
SETTLING_CHAIN_DIVISOR = 10  # times fewer chains are counted where each must forget its start first


@dataclass(frozen=True)
class Flow:
    """Chains that move from one state to another in a step: the expected and the observed share."""

    x: list
    y: list
    expected: float
    observed: float
    z: float


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of a check, with its details and the flow that shows a wrong step."""

    status: Literal["ok", "fails", "no", "-"]  # "no": need not hold; "-": not examined
    detail: str = ""
    flow: Flow | None = None
    bias: float | None = None  # total variation distance from the target, if not exact
    visible: float | None = None  # the smallest relative error that is found (`visible`)
    check: str = ""  # a key of `suite.CHECKS`


@dataclass(frozen=True)
class CheckCase:
    """A sampler on a target, and how much is counted.

    `level` is the probability at which one count of a right sampler is called wrong.
    """

    sampler: Sampler
    target: Target
    level: float
    law: Callable[[Sampler, Target], Law | np.ndarray] | None = None
    chains: int = 200_000
    seed: int = 0

    def __post_init__(self) -> None:
        require_count(chains=self.chains)

    @property
    def chain_count(self) -> int:
        """The number of chains that are counted."""
        if self.sampler.interacting:
            return min(self.chains, MAX_INTERACTING_CHAINS)
        return (
            self.chains
            if self.sampler.stationary_start
            else max(1, self.chains // SETTLING_CHAIN_DIVISOR)
        )

    @property
    def second_step(self) -> int:
        """The steps before the second count: a bias needs many to show its size."""
        return SECOND_TEST_STEPS if self.sampler.exact else SETTLING

    def rng(self, purpose: int = 0) -> Generator:
        return Generator(self.target.device).manual_seed(self.seed * 1000 + purpose)

    def start(self, chains: int = 64) -> Tensor:
        """Exact draws from the target, `[chains, *shape]`."""
        return self.target.draw(self.target.law, chains, self.rng(1))

    def fresh(self) -> Sampler:
        """A copy of the sampler as it was given."""
        return copy.deepcopy(self.sampler)

    def run_steps(self, x: Tensor, steps: int, sampler: Sampler | None = None) -> Any:
        """The state after `steps` steps from `x`."""
        sampler, rng = sampler or self.fresh(), self.rng(2)
        state = sampler.init(x, self.target.model)
        for _ in range(steps):
            state, _ = sampler.step(state, self.target.model, rng)
        return state

    def settle(self, state: Any, model: EnergyModel, rng: Generator) -> Any:
        """The state after SETTLING steps, if chains need them to forget their start."""
        sampler = self.fresh()
        for _ in range(0 if sampler.stationary_start else SETTLING):
            state, _ = sampler.step(state, model, rng)
        return state

    @cached_property
    def moves(self) -> list[np.ndarray]:
        """The states of all chains at the start, after 1 and `later` steps; -1 is not listed."""
        with torch.no_grad():
            sampler, rng = self.fresh(), self.rng(3)
            x = self.target.draw(self.target.law, self.chain_count, rng)
            state = self.settle(sampler.init(x.clone(), self.target.model), self.target.model, rng)
            indices = [self.target.index(state.x)]
            for step in range(1, self.second_step + 1):
                state, _ = sampler.step(state, self.target.model, rng)
                if step in (1, self.second_step):
                    indices.append(self.target.locate(state.x))
        return indices

    @cached_property
    def balance(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pairs x < y between which chains moved, `[pairs, 2]`; moves x to y and y to x, `[pairs]`.

        The pairs are ordered by the number of sites in which their states differ.
        """
        size, (before, after, _) = len(self.target.z), self.moves
        listed = after >= 0
        moved = np.bincount(before[listed] * size + after[listed], minlength=size * size)
        moved = moved.reshape(size, size)
        pairs = np.argwhere(np.triu(moved + moved.T, 1))
        distance = [len(self.target.sites_changed(x, y)) for x, y in pairs]
        pairs = pairs[np.argsort(distance, kind="stable")]
        x, y = pairs.T
        return pairs, moved[x, y], moved[y, x]

    def flow(self, x: int, y: int, expected: float, observed: float, z: float) -> Flow:
        states = self.target.states
        return Flow(states[x].tolist(), states[y].tolist(), expected, observed, z)


def counts(
    sampler: Sampler, target: Target, steps: int, replicas: int, shared: bool = False
) -> tuple[list[np.ndarray], Info]:
    """The states of `replicas` chains from each inner state after 1, 2, ... steps; the first Info.

    Each array is `[inner states, states]`. With `shared` random numbers, replicas are separate
    calls.
    """
    rng, size = Generator(target.device).manual_seed(0), len(target.inner)
    calls, repeats = (replicas, 1) if shared else (1, replicas)
    x = target.states[target.inner].repeat_interleave(repeats, 0)
    visits = np.zeros((steps, size * len(target.z)), dtype=int)
    source = np.arange(size).repeat(repeats) * len(target.z)
    infos = []
    for _ in range(calls):
        state = sampler.init(x, target.model)
        for step in range(steps):
            state, info = sampler.step(state, target.model, rng)
            infos.append(info)
            visits[step] += np.bincount(source + target.index(state.x), minlength=visits.shape[1])
    return list(visits.reshape(steps, size, -1)), infos[0]


def histogram(target: Target, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many of `index` are each state, and the law; the last entry is of states not listed."""
    law = np.append(target.law / target.law.sum(), 0.0)
    return np.bincount(index % len(law), minlength=len(law)), law


def describe_deviation(target: Target, index: np.ndarray, level: float) -> str:
    """How draws with state indices `index` differ from the law of the target; "" if not.

    A count is too improbable if its two-sided tail is below `level`.
    """
    count, law = histogram(target, index)
    p = 2 * tails(count, len(index), law)
    worst = int(p.argmin())
    if p[worst] >= level:
        return ""
    state = "outside the listed states"
    if worst < len(target.states):
        state = f"at {target.states[worst].tolist()}"
    return (
        f"{count[worst]} of {len(index)} chains are {state}, expected "
        f"{len(index) * law[worst]:.1f}; total variation distance from the target "
        f"{np.abs(count / len(index) - law).sum() / 2:.2g}"
    )


def smallest_visible_error(draws: int, law: np.ndarray, level: float) -> float:
    """The smallest relative error of a state's probability that is found in half of all trials."""
    law = law[law > 0]
    smallest = binom.isf(level / 2, draws, law) + 1
    return float((smallest / (draws * law) - 1).min())


def tails(count: np.ndarray, trials: int | np.ndarray, probability: np.ndarray) -> np.ndarray:
    """The smaller of the two exact tail probabilities of each binomial count."""
    probability = probability.clip(0, 1)
    below, above = (binom.cdf(count, trials, probability), binom.sf(count - 1, trials, probability))
    return np.minimum(below, above)
