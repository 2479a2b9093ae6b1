"""Gibbs sweeps, class by class of sites that are independent given the others.

On a lattice two classes (a chequerboard), or three where an odd side is periodic. Resampling a
class at once has the law of resampling its sites one after another, so a step is a whole sweep of
single-site Gibbs sampling, in the order of the classes.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Generator, Tensor

from models.base import EnergyModel
from models.domain import uniform_like
from samplers.base import Info, Sampler, UnsupportedModelError, require_unit_binary


class SweepState(NamedTuple):
    x: Tensor  # [chains, dim]
    classes: tuple[Tensor, ...]  # the sites of each
    ones: Tensor  # [chains], the acceptance probability of every step


@dataclass(frozen=True)
class GibbsSweep(Sampler):
    """Resample every site once a step. Binary models that know classes of independent sites."""

    def at(self, x: Tensor, model: EnergyModel) -> SweepState:
        require_unit_binary(self, model)
        colours = model.colours()
        if colours is None:
            raise UnsupportedModelError(self, model, "a model with classes of independent sites")
        classes = tuple((colours == c).nonzero().squeeze(1) for c in range(int(colours.max()) + 1))
        return SweepState(x.clone(), classes, x.new_ones(len(x)))

    def step(
        self, state: SweepState, model: EnergyModel, rng: Generator
    ) -> tuple[SweepState, Info]:
        x, cache = state.x, model.cache(state.x)
        for sites in state.classes:
            probability = model.log_odds(x, cache, sites).sigmoid_()
            new = probability.sub_(uniform_like(probability, rng)).ceil_()
            cache = model.moved(cache, x, sites, new)
            x.index_copy_(1, sites, new)
        return state, Info(state.ones)
