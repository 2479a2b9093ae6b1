"""A skeleton to copy: the parts of a sampler, around the simplest proposal.

Copy this file to `samplers/<name>.py`, rename the class, and replace the proposal in `step`.
docs/adding_a_sampler.md has the rules and what to add next. `latticework check` tests the result:

    latticework check samplers/skeleton.py:Skeleton
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.distributions import random_integers
from latticework.models.domains import Binary
from latticework.samplers.base import Info, Sampler, metropolis, require_count, require_domain


class SkeletonState(NamedTuple):
    """All that one step hands to the next, so that no position is evaluated twice."""

    x: Tensor  # [chains, dim]
    log_prob: Tensor  # [chains]


@dataclass(frozen=True)
class Skeleton(Sampler):
    """Propose to flip `sites` uniform sites, with replacement; accept by Metropolis' rule.

    Fields are the hyperparameters, and the keys of `conf/sampler/<name>.yaml`.
    """

    sites: int = 1

    def __post_init__(self) -> None:
        """Refuse values that make no sense, before anything runs."""
        require_count(sites=self.sites)

    def at(self, x: Tensor, model: EnergyModel) -> SkeletonState:
        """Refuse targets that the sampler does not support, and evaluate the others at x."""
        require_domain(self, model, Binary)
        return SkeletonState(x, model.log_prob(x))

    def step(
        self, state: SkeletonState, model: EnergyModel, rng: Generator
    ) -> tuple[SkeletonState, Info]:
        """Advance every chain once, by one evaluation of the target."""
        x = state.x
        index = random_integers(0, model.domain.dim, (len(x), self.sites), rng)
        proposed = self.at(model.domain.move_one(x, index), model)
        # The proposal is symmetric. Otherwise add log q(x | y) - log q(y | x).
        log_ratio = proposed.log_prob - state.log_prob
        return metropolis(state, proposed, log_ratio, rng)
