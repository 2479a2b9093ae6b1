"""Gibbs sweeps over classes of sites that are conditionally independent given all other sites.

A lattice has two such classes (a chequerboard), or three if a periodic side is odd. Resampling a
class at once is equivalent to resampling its sites one by one, so a step is one sweep of
single-site Gibbs sampling, class after class.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import Cache, EnergyModel
from latticework.models.chance import bernoulli, draw_categorical, softmax_weights
from latticework.models.domain import Categorical, one_hot
from latticework.samplers.base import Info, Sampler, UnsupportedModelError, require_unit_binary
from latticework.samplers.conditional import without_unknown


class SweepState(NamedTuple):
    x: Tensor  # [chains, dim]
    classes: tuple[Tensor, ...]  # the sites of each
    ones: Tensor  # [chains], the acceptance probability of every step


@dataclass(frozen=True)
class GibbsSweep(Sampler):
    """Resample every site once a step. Binary and categorical models with `colours()` only."""

    def at(self, x: Tensor, model: EnergyModel) -> SweepState:
        if not isinstance(model.domain, Categorical):
            require_unit_binary(self, model)
        colours = model.colours()
        if colours is None:
            raise UnsupportedModelError(self, model, "a model with classes of independent sites")
        classes = tuple((colours == c).nonzero().squeeze(1) for c in range(int(colours.max()) + 1))
        return SweepState(x.clone(), classes, x.new_ones(len(x)))

    def refresh(self, state: SweepState, model: EnergyModel) -> SweepState:
        return state

    def moved_to(self, x: Tensor, state: SweepState, model: EnergyModel) -> SweepState:
        return state._replace(x=x.clone())

    def step(
        self, state: SweepState, model: EnergyModel, rng: Generator
    ) -> tuple[SweepState, Info]:
        x, cache = state.x, model.cache(state.x)
        for sites in state.classes:
            new = drawn(x, cache, sites, model, rng)
            cache = model.moved(cache, x, sites, new)
            x.index_copy_(1, sites, new)
        return state, Info(state.ones)


def drawn(x: Tensor, cache: Cache, sites: Tensor, model: EnergyModel, rng: Generator) -> Tensor:
    """The new states of independent sites, `[chains, n, ...]`."""
    domain = model.domain
    if not isinstance(domain, Categorical):
        return bernoulli(model.log_odds(x, cache, sites), rng)
    log_probs = without_unknown(model.differences(x, cache, sites))
    if (allowed := domain.allowed(sites)) is not None:
        log_probs = log_probs.masked_fill(~allowed, -torch.inf)
    choice = draw_categorical(softmax_weights(log_probs), rng).squeeze(-1)
    return one_hot(choice, domain.num_values).to(x.dtype)
