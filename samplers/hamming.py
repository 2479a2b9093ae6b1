"""The Hamming ball sampler: a large block in which few sites change at a time.

M. K. Titsias and C. Yau, "The Hamming ball sampler", JASA 2017. HB-X-Y in Zhang et al. (2022).

Given a block B of X binary sites, shared by all chains, a step draws

    u    uniformly from the Hamming ball of radius Y around x_B
    x_B  from pi(x_B given the rest), restricted to the ball of radius Y around u

All balls have the same size, so p(x, u) is proportional to pi(x) on all pairs within radius Y, and
both draws are Gibbs updates of this joint distribution. A step evaluates all patterns in a ball,
sum_{r <= Y} C(X, r) of them. With Y = X these are all 2^X patterns, and the step is Gibbs-X.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import Cache, EnergyModel
from latticework.models.distributions import random_integers
from latticework.models.domains import Binary
from latticework.samplers.base import Info, Sampler, require_count, require_domain
from latticework.samplers.conditional import draw_value, settle
from latticework.samplers.scans import Memory, Scan, next_block, require_scan, start_scan


def hamming_ball(sites: int, radius: int) -> Tensor:
    """All 0/1 rows with at most `radius` ones among `sites` entries, `[patterns, sites]`."""
    rows = []
    for size in range(radius + 1):
        for ones in combinations(range(sites), size):
            row = torch.zeros(sites)
            row[list(ones)] = 1
            rows.append(row)
    return torch.stack(rows)


class HammingState(NamedTuple):
    x: Tensor  # [chains, dim]
    cache: Cache  # the model's, for its local methods
    scan: Memory
    ball: Tensor  # [patterns, sites], on the device of the chains


@dataclass(frozen=True)
class HammingBall(Sampler):
    """Resample a block of X = `sites` sites within a ball of radius Y = `radius`. Binary only.

    `scan` is the order of the blocks (see samplers.scans).
    """

    memory = ("scan",)
    sites: int = 10
    radius: int = 1
    scan: Scan = "random"

    def __post_init__(self) -> None:
        require_count(sites=self.sites, radius=self.radius)
        if self.radius > self.sites:
            raise ValueError(f"radius must be at most sites = {self.sites}, got {self.radius}")
        require_scan(self.scan)

    def at(self, x: Tensor, model: EnergyModel) -> HammingState:
        require_domain(self, model, Binary)
        scan = start_scan(self, model, x.device)
        ball = hamming_ball(self.sites, self.radius).to(x)
        return HammingState(x.clone(), model.cache(x), scan, ball)

    def refresh(self, state: HammingState, model: EnergyModel) -> HammingState:
        return state._replace(cache=model.cache(state.x))

    def relocate(self, x: Tensor, state: HammingState, model: EnergyModel) -> HammingState:
        return state._replace(x=x.clone(), cache=model.cache(x))

    def step(
        self, state: HammingState, model: EnergyModel, rng: Generator
    ) -> tuple[HammingState, Info]:
        x, domain, ball = state.x, model.domain, state.ball
        assert isinstance(domain, Binary)
        block, scan = next_block(self.scan, state.scan, self.sites, domain.dim, rng)
        current = x.index_select(1, block)
        offset = random_integers(0, len(ball), (len(x),), rng)
        centre = _toggle(current, ball.index_select(0, offset), domain)  # u
        patterns = _toggle(centre.unsqueeze(1), ball, domain)  # [chains, patterns, sites]

        log_probs = model.block_log_probs(x, state.cache, block, patterns)
        choice, invalid = draw_value(log_probs, rng)
        new = _toggle(centre, ball.index_select(0, choice), domain)
        new, log_ratio = settle(new, current, invalid)
        cache = model.update_cache(state.cache, x, block, new)
        x.index_copy_(1, block, new)
        return HammingState(x, cache, scan, ball), Info(x.new_ones(len(x)), log_ratio)


def _toggle(x: Tensor, flips: Tensor, domain: Binary) -> Tensor:
    """`x` with the sites flipped where `flips` is 1."""
    return torch.where(flips > 0, domain.flip(x), x)
