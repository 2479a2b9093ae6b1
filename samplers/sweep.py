"""Sweeps over classes of sites that are conditionally independent given all other sites.

A lattice has two such classes (a chequerboard), or three if a periodic side is odd. Resampling a
class at once is equivalent to resampling its sites one by one, so a step is one sweep of a
single-site sampler, class after class.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import Cache, EnergyModel
from latticework.models.distributions import bernoulli, bernoulli_mask
from latticework.models.domains import Binary, Categorical, one_hot
from latticework.samplers.base import (
    Info,
    Sampler,
    UnsupportedModelError,
    acceptance,
    require_domain,
    require_unit_binary,
)
from latticework.samplers.conditional import draw_value

TIE_NATS = 0.01  # nats: a proposal whose acceptance ratio is nearer to 1 is a tie
TIE_SHARE = 0.875  # share of the ties that a sweep accepts; the others it leaves out


class SweepState(NamedTuple):
    x: Tensor  # [chains, *domain.shape]
    classes: tuple[Tensor, ...]  # the sites of each
    ones: Tensor  # [chains], the acceptance probability of every step


@dataclass(frozen=True)
class GibbsSweep(Sampler):
    """Resample every site once a step. Binary and categorical models with `colours()` only."""

    draws_all_sites = True

    def at(self, x: Tensor, model: EnergyModel) -> SweepState:
        require_domain(self, model, Binary, Categorical)
        if isinstance(model.domain, Binary):
            require_unit_binary(self, model)
        colours = model.colours()
        if colours is None:
            raise UnsupportedModelError(self, model, "a model with classes of independent sites")
        classes = tuple((colours == c).nonzero().squeeze(1) for c in range(int(colours.max()) + 1))
        return SweepState(x.clone(), classes, x.new_ones(len(x)))

    def refresh(self, state: SweepState, model: EnergyModel) -> SweepState:
        return state

    def relocate(self, x: Tensor, state: SweepState, model: EnergyModel) -> SweepState:
        return state._replace(x=x.clone())

    def step(
        self, state: SweepState, model: EnergyModel, rng: Generator
    ) -> tuple[SweepState, Info]:
        x, cache = state.x, model.cache(state.x)
        for sites in state.classes:
            new = self.draw_sites(x, cache, sites, model, rng)
            cache = model.update_cache(cache, x, sites, new)
            x.index_copy_(1, sites, new)
        return state, Info(state.ones)

    def draw_sites(
        self, x: Tensor, cache: Cache, sites: Tensor, model: EnergyModel, rng: Generator
    ) -> Tensor:
        """New values of `sites`, which are independent given the rest."""
        if isinstance(model.domain, Binary):
            return bernoulli(model.log_odds(x, cache, sites), rng)
        log_probs = _site_log_probs(x, cache, sites, model)
        choice, _ = draw_value(log_probs.flatten(0, 1), rng)
        return one_hot(choice.view(log_probs.shape[:2]), log_probs.shape[2]).to(x.dtype)


@dataclass(frozen=True)
class MetropolisSweep(GibbsSweep):
    """Try to change every site once a step. Binary and categorical models with `colours()` only.

    A site of value v proposes another value w in proportion to p(w), its law given the rest, and
    accepts it with probability min(1, (1 - p(v)) / (1 - p(w))). With two values this is
    Metropolis' rule. A site leaves its value at least as often as in a Gibbs sweep. As a sweep is
    not rejected as a whole, its acceptance is reported as 1. J. S. Liu, "Peskun's theorem and a
    modified discrete-state Gibbs sampler", Biometrika 1996.

    By that rule alone, a site whose two values are equally likely changes in every sweep, so free
    sites keep for ever which of them are equal. Where the ratio is 1, to within one per cent, 1/8
    of the proposals is therefore left out. This keeps detailed balance: the ratio of the move back
    is the inverse, so as many of its proposals are left out.
    """

    def draw_sites(
        self, x: Tensor, cache: Cache, sites: Tensor, model: EnergyModel, rng: Generator
    ) -> Tensor:
        old = x.index_select(1, sites)
        if isinstance(model.domain, Binary):
            gain = model.differences(x, cache, sites)
            flips = bernoulli_mask(_proposal_probability(gain), rng)
            return torch.where(flips, 1 - old, old)
        log_probs = _site_log_probs(x, cache, sites, model)
        without_old = log_probs.masked_fill(old > 0, -torch.inf)
        choice, invalid = draw_value(without_old.flatten(0, 1), rng)
        new = one_hot(choice.view(log_probs.shape[:2]), log_probs.shape[2])
        without_new = log_probs.masked_fill(new, -torch.inf)
        log_ratio = without_old.logsumexp(-1) - without_new.logsumexp(-1)
        stays = ~bernoulli_mask(_proposal_probability(log_ratio), rng) | invalid.stay.view(
            log_ratio.shape
        )
        return torch.where(stays.unsqueeze(-1), old, new.to(x.dtype))


def _proposal_probability(log_ratio: Tensor) -> Tensor:
    """The probability that a proposal is accepted and, if it is a tie, not left out."""
    accepted = acceptance(log_ratio)
    return torch.where(log_ratio.abs() <= TIE_NATS, TIE_SHARE * accepted, accepted)


def _site_log_probs(x: Tensor, cache: Cache, sites: Tensor, model: EnergyModel) -> Tensor:
    """Log-probabilities of the values given the rest, `[chains, n, values]`, up to constants."""
    log_probs = model.differences(x, cache, sites)
    allowed = model.domain.allowed_values(sites)
    return log_probs if allowed is None else log_probs.masked_fill(~allowed, -torch.inf)
