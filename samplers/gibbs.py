"""Gibbs sampling in blocks: Gibbs-X in Grathwohl et al. (2021) and Zhang et al. (2022).

A step draws a block of X sites, the same for all chains, from p(block given the rest). The model's
local structure makes this cheap: on a lattice it needs the neighbours of a site, on an RBM one row
of the weights.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import Cache, EnergyModel
from latticework.models.domains import Binary, Categorical, Ordinal, Subset, one_hot
from latticework.samplers.base import (
    Info,
    Sampler,
    UnsupportedModelError,
    require_count,
    require_domain,
)
from latticework.samplers.conditional import draw_bit, draw_value, settle
from latticework.samplers.scans import Memory, Scan, next_block, require_scan, start_scan


class GibbsState(NamedTuple):
    x: Tensor  # [chains, *domain.shape]
    cache: Cache  # the model's, for its local methods
    scan: Memory
    ones: Tensor  # [chains], the acceptance probability of every step


@dataclass(frozen=True)
class Gibbs(Sampler):
    """Resample `sites` sites a step, in the order of `scan` (see samplers.scans).

    The cost grows as values^sites, because every joint value of the block is evaluated.
    """

    memory = ("scan",)
    swaps = True
    sites: int = 1
    scan: Scan = "systematic"

    def __post_init__(self) -> None:
        require_count(sites=self.sites)
        require_scan(self.scan)

    def at(self, x: Tensor, model: EnergyModel) -> GibbsState:
        require_domain(self, model, Binary, Categorical, Ordinal, Subset)
        if isinstance(model.domain, Subset) and (self.sites < 2 or self.scan == "systematic"):
            needs = "sites=2 or more and scan=random or shuffled where the number of ones is fixed"
            raise UnsupportedModelError(self, model, needs, f"{self}")
        scan = start_scan(self, model, x.device)
        return GibbsState(x.clone(), model.cache(x), scan, x.new_ones(len(x)))

    def refresh(self, state: GibbsState, model: EnergyModel) -> GibbsState:
        return state._replace(cache=model.cache(state.x))

    def relocate(self, x: Tensor, state: GibbsState, model: EnergyModel) -> GibbsState:
        return state._replace(x=x.clone(), cache=model.cache(x))

    def step(
        self, state: GibbsState, model: EnergyModel, rng: Generator
    ) -> tuple[GibbsState, Info]:
        x, cache, domain = state.x, state.cache, model.domain
        block, scan = next_block(self.scan, state.scan, self.sites, domain.dim, rng)
        if self.sites == 1 and isinstance(domain, Binary):
            log_odds, cache = model.conditional(x, cache, block)
            bits, invalid = draw_bit(log_odds, x.dtype, rng)
            new = domain.from_bits(bits)
        elif self.sites == 1 and isinstance(domain, Categorical):
            # A list of all one-hot values would have vocabulary^2 entries.
            log_probs = model.site_log_probs(x, cache, block)
            if (allowed := domain.allowed_values(block)) is not None:
                log_probs = log_probs.masked_fill(~allowed, -torch.inf)
            choice, invalid = draw_value(log_probs, rng)
            new = one_hot(choice.unsqueeze(1), domain.num_values)
        else:
            patterns, repeated = domain.block(x, block)
            log_probs = model.block_log_probs(x, cache, block, patterns)
            if repeated is not None:
                log_probs = log_probs.masked_fill(repeated, -torch.inf)
            choice, invalid = draw_value(log_probs, rng)
            rows = torch.arange(len(patterns), device=x.device)  # one list, or one a chain
            new = patterns[rows, choice]
        log_ratio = None
        if invalid is not None:
            new, log_ratio = settle(new, x.index_select(1, block), invalid)
        new = new.to(x.dtype)  # a model may compute in another precision
        cache = model.update_cache(cache, x, block, new)
        x.index_copy_(1, block, new)
        return GibbsState(x, cache, scan, state.ones), Info(state.ones, log_ratio)
