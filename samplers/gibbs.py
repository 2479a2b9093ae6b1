"""Gibbs sampling, block by block, from the exact conditional.

A step resamples a block of X sites, shared by all chains, from p(block given the rest). It uses
what the model knows of its local structure: on a lattice the neighbours of one site, on an RBM one
row of the weights. Named Gibbs-X in Grathwohl et al. (2021) and Zhang et al. (2022).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from models.base import Cache, EnergyModel
from models.domain import Binary, Categorical, Ordinal, draw_categorical, one_hot
from samplers.base import Info, Sampler, known_weights, require_count, require_domain
from samplers.blocks import Memory, Scan, next_block, require_scan, start_scan


class GibbsState(NamedTuple):
    x: Tensor  # [chains, *domain.shape]
    cache: Cache  # the model's, for its local methods
    scan: Memory
    ones: Tensor  # [chains], the acceptance probability of every step


@dataclass(frozen=True)
class Gibbs(Sampler):
    """Resample `sites` sites a step, in the order of `scan` (see samplers.blocks).

    The cost grows as values^sites: every joint value of the block is priced.
    """

    sites: int = 1
    scan: Scan = "systematic"

    def __post_init__(self) -> None:
        require_count(sites=self.sites)
        require_scan(self.scan)

    def at(self, x: Tensor, model: EnergyModel) -> GibbsState:
        require_domain(self, model, Binary, Categorical, Ordinal)
        scan = start_scan(self.scan, self.sites, model.domain.dim, x.device)
        return GibbsState(x.clone(), model.cache(x), scan, x.new_ones(len(x)))

    def refresh(self, state: GibbsState, model: EnergyModel) -> GibbsState:
        return state._replace(cache=model.cache(state.x))

    def moved_to(self, x: Tensor, state: GibbsState, model: EnergyModel) -> GibbsState:
        return state._replace(x=x.clone(), cache=model.cache(x))

    def step(
        self, state: GibbsState, model: EnergyModel, rng: Generator
    ) -> tuple[GibbsState, Info]:
        x, cache, domain = state.x, state.cache, model.domain
        block, scan = next_block(self.scan, state.scan, self.sites, domain.dim, rng)
        if self.sites == 1 and isinstance(domain, Binary):
            log_odds, cache = model.conditional(x, cache, block)
            new, stay = _bits(log_odds.sigmoid_(), rng)
            unknown = stay
            if not domain.is_unit:
                new = domain.low + (domain.high - domain.low) * new
        else:
            if self.sites == 1 and isinstance(domain, Categorical):
                # Without the list of all values, which is the square of a vocabulary.
                log_probs = model.site_log_probs(x, cache, block)
                weights, unknown = known_weights(log_probs)
                new = one_hot(draw_categorical(weights, rng), domain.num_values).to(x.dtype)
            else:
                patterns = domain.patterns(self.sites, x.device)
                log_probs = model.block_log_probs(x, cache, block, patterns.unsqueeze(0))
                weights, unknown = known_weights(log_probs)
                new = patterns[draw_categorical(weights, rng).squeeze(-1)]
            stay = weights.flatten(1)[:, 0].isnan()
        info = Info(state.ones)
        if stay is not None and unknown is not None:
            info = Info(state.ones, torch.where(stay | unknown, torch.nan, 0.0))
            rows = stay.view(-1, *[1] * (new.ndim - 1))
            new = torch.where(rows, x.index_select(1, block), new)
        cache = model.moved(cache, x, block, new)
        x.index_copy_(1, block, new)
        return GibbsState(x, cache, scan, state.ones), info


def _bits(probability: Tensor, rng: Generator) -> tuple[Tensor, Tensor | None]:
    """0 or 1 with the given probabilities, `[chains, 1]`, and which chains' are NaN, or None.

    A CPU refuses NaN, so that looking for it costs nothing where there is none; a GPU would abort.
    """
    if not probability.is_cuda:
        try:
            return torch.bernoulli(probability, generator=rng), None
        except RuntimeError:
            pass
    return torch.bernoulli(probability.nan_to_num(), generator=rng), probability[:, 0].isnan()
