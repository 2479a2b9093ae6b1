"""Random walk Metropolis: uniform sites move to uniform other values, without any gradient.

Where the number of ones is fixed, uniform ones move to uniform empty sites.

These proposals are symmetric, so a step accepts with probability min(1, pi(y) / pi(x)). On `Moves`
it makes R moves of the user's, x = z_0, z_1, .., z_R = y, and accepts with probability
min(1, pi(y) / pi(x) prod_i q(z_(i-1) given z_i) / q(z_i given z_(i-1))), the ratio of the two
directions of this path.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.distributions import random_integers, uniform, uniform_like
from latticework.models.domains import (
    Binary,
    Categorical,
    Domain,
    Mixed,
    Moves,
    Ordinal,
    Subset,
)
from latticework.samplers.base import Info, Sampler, metropolis, require_count, require_domain
from latticework.samplers.paths import moves_in_use, repeat_first_move


class WalkState(NamedTuple):
    x: Tensor  # [chains, *domain.shape]
    log_prob: Tensor  # [chains]


@dataclass(frozen=True)
class RandomWalk(Sampler):
    """Change R distinct uniform sites, R uniform on 1 .. 2 `length` - 1; on finite domains.

    On `Moves`, make R of the user's moves.
    """

    scale = "length"
    swaps = True
    makes_moves = True
    target_acceptance = "random_walk"
    length: int = 1  # the mean of R

    def __post_init__(self) -> None:
        require_count(length=self.length)

    def at(self, x: Tensor, model: EnergyModel) -> WalkState:
        require_domain(self, model, Binary, Categorical, Ordinal, Subset, Moves)
        return WalkState(x, model.log_prob(x))

    def step(self, state: WalkState, model: EnergyModel, rng: Generator) -> tuple[WalkState, Info]:
        x, domain = state.x, model.domain
        if isinstance(domain, Moves):
            y, log_ratio = self._walk(x, domain, rng)
            proposed = self.at(y, model)
            log_ratio = log_ratio + proposed.log_prob - state.log_prob
            return metropolis(state, proposed, log_ratio, rng)
        keys = uniform_like(x.view(len(x), domain.dim, -1)[..., 0], rng)
        most = min(2 * self.length - 1, domain.movers)
        if isinstance(domain, Subset):
            most = min(most, domain.moves)
        sites = keys[:, : domain.movers].topk(most, largest=False).indices
        index = _elsewhere(x, sites, domain, rng)
        y = domain.move_one(x, repeat_first_move(index, moves_in_use(index, rng)))
        proposed = self.at(y, model)
        return metropolis(state, proposed, proposed.log_prob - state.log_prob, rng)

    def _walk(self, x: Tensor, domain: Moves, rng: Generator) -> tuple[Tensor, Tensor]:
        """The states after R moves of the user's, and the log ratio of the path's directions."""
        most = 2 * self.length - 1
        if most == 1:
            y = domain.propose(x, rng)
            return y, domain.log_ratio(x, y)
        moves_made = random_integers(1, most + 1, (len(x),), rng)
        log_ratio = x.new_zeros(len(x))
        for number in range(most):
            y, moves = domain.propose(x, rng), number < moves_made
            log_ratio = log_ratio + torch.where(moves, domain.log_ratio(x, y), 0)
            x = torch.where(moves.view(-1, *[1] * (x.ndim - 1)), y, x)
        return x, log_ratio


def _elsewhere(x: Tensor, sites: Tensor, domain: Domain, rng: Generator) -> Tensor:
    """Flat indices of moves of `sites` `[chains, n]` to uniform other values."""
    if isinstance(domain, Subset):  # distinct empty sites
        keys = uniform((len(x), domain.moves), rng, x.device)
        return sites * domain.moves + keys.topk(sites.shape[1]).indices
    if not isinstance(domain, Categorical | Ordinal):
        return sites
    values = domain.moves
    here = domain.moves_between(x, x).gather(1, sites)
    if isinstance(domain, Mixed):
        size = domain.size_of(sites)
        ahead = (uniform(sites.shape, rng, x.device) * (size - 1)).long() + 1
        return sites * values + (here + ahead) % size
    ahead = random_integers(1, values, sites.shape, rng)
    return sites * values + (here + ahead) % values
