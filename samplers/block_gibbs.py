"""Block Gibbs sampling of a restricted Boltzmann machine.

The visible units are independent given the hidden units, and the hidden units given the visible
ones. A step therefore draws all units from their exact conditionals: h ~ p(h given x), then
x ~ p(x given h).
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.rbm import RBM
from latticework.samplers.base import Info, Sampler, UnsupportedModelError, require_count


class BlockGibbsState(NamedTuple):
    x: Tensor  # [chains, visible]


@dataclass(frozen=True)
class BlockGibbs(Sampler):
    """Alternate h ~ p(h given x) and x ~ p(x given h), `steps` times a step. RBMs only."""

    draws_all_sites = True
    steps: int = 1

    def __post_init__(self) -> None:
        require_count(steps=self.steps)

    def at(self, x: Tensor, model: EnergyModel) -> BlockGibbsState:
        if not isinstance(model, RBM):
            raise UnsupportedModelError(self, model, "a restricted Boltzmann machine")
        return BlockGibbsState(x)

    def step(
        self, state: BlockGibbsState, model: EnergyModel, rng: Generator
    ) -> tuple[BlockGibbsState, Info]:
        assert isinstance(model, RBM)
        x = state.x
        for _ in range(self.steps):
            x = model.sample_visible(model.sample_hidden(x, rng), rng)
        return BlockGibbsState(x), Info(x.new_ones(len(x)))
