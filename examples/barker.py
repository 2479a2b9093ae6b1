"""A sampler: propose to flip a uniformly random site, and accept it by Barker's rule.

A. A. Barker, Monte Carlo calculations of the radial distribution functions for a proton-electron
plasma, Australian Journal of Physics 18, 1965.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from latticework import Binary, EnergyModel, Info, Sampler, require_domain


class BarkerState(NamedTuple):
    x: Tensor  # [chains, dim]
    log_prob: Tensor  # [chains]


@dataclass(frozen=True)
class Barker(Sampler):
    """Accept y with probability pi(y) / (pi(x) + pi(y)); binary models."""

    def at(self, x: Tensor, model: EnergyModel) -> BarkerState:
        require_domain(self, model, Binary)
        return BarkerState(x, model.log_prob(x))

    def step(
        self, state: BarkerState, model: EnergyModel, rng: Generator
    ) -> tuple[BarkerState, Info]:
        x = state.x
        site = torch.randint(model.domain.dim, (len(x), 1), generator=rng, device=x.device)
        proposed = self.at(model.domain.move_one(x, site), model)
        probability = torch.sigmoid(proposed.log_prob - state.log_prob).nan_to_num(0.0)
        accepted = torch.empty_like(probability).uniform_(generator=rng) < probability
        new = BarkerState(
            torch.where(accepted[:, None], proposed.x, x),
            torch.where(accepted, proposed.log_prob, state.log_prob),
        )
        return new, Info(probability)
