"""Discrete Langevin Monte Carlo: DLMC and its Euler form, DLMCf.

H. Sun, H. Dai, B. Dai, H. Zhou and D. Schuurmans, "Discrete Langevin Samplers via Wasserstein
Gradient Flow", AISTATS 2023.

Each site follows a Markov jump process for a time tau. Its stationary law is the site's first-order
conditional nu_v ~ exp(d_v), where d_v is the gain of value v and 0 for the current value. It jumps
to v at rate w_v = g(exp(d_v)) for a balancing function g. The probability of the move to v is

    DLMC     nu_v (1 - exp(-tau w_v / nu_v))     exact for a site of two values
    DLMCf    min(tau w_v, nu_v)                  one Euler step, bounded

and the site stays otherwise. A Metropolis-Hastings step corrects all sites together.
"""

from abc import abstractmethod
from dataclasses import dataclass
from math import inf
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from latticework.models.domains import Domain
from latticework.samplers.all_sites import AllSites
from latticework.samplers.base import require_positive
from latticework.samplers.scale import by_chain, logarithm


@dataclass(frozen=True)
class _Jumps(AllSites):
    """Base of both forms. `balancing` is sqrt, g(t) = sqrt(t), or barker, g(t) = t / (1 + t)."""

    scale = "time"
    scale_by_chain = True
    time: float = 0.2  # tau
    balancing: Literal["sqrt", "barker"] = "sqrt"

    def __post_init__(self) -> None:
        require_positive(time=self.time)
        if self.balancing not in ("sqrt", "barker"):
            raise ValueError(f"balancing must be sqrt or barker, got {self.balancing!r}")

    @abstractmethod
    def shares(self, log_flow: Tensor) -> tuple[Tensor, Tensor]:
        """Logs of the parts of nu_v that move and stay, given log(tau w_v / nu_v)."""

    def logits(self, x: Tensor, grad: Tensor, domain: Domain) -> Tensor:
        """Log of the probability of each move over that of staying; 0 for the move that stays."""
        stays = domain.distances(x) == 0
        gains = domain.gains(x, grad).masked_fill_(stays, -inf)
        log_z = softplus(_over_moves(gains, domain))
        log_nu = gains - log_z
        log_flow = log_z - (gains / 2 if self.balancing == "sqrt" else softplus(gains))
        moved, stayed = self.shares(log_flow.add_(by_chain(logarithm(self.time), gains)))
        stay = torch.logaddexp(_over_moves(log_nu + stayed, domain), -log_z)
        return log_nu.add_(moved).sub_(stay).masked_fill_(stays, 0.0)


@dataclass(frozen=True)
class DLMC(_Jumps):
    """Every site follows its jump process for `time`. On every domain."""

    def shares(self, log_flow: Tensor) -> tuple[Tensor, Tensor]:
        stayed = log_flow.exp_().neg_()
        return stayed.expm1().neg_().log_(), stayed


@dataclass(frozen=True)
class DLMCf(_Jumps):
    """Every site takes an Euler step of length `time`. On every domain."""

    def shares(self, log_flow: Tensor) -> tuple[Tensor, Tensor]:
        moved = log_flow.clamp_(max=0)
        return moved, moved.expm1().neg_().log_()


def _over_moves(logits: Tensor, domain: Domain) -> Tensor:
    """Logsumexp over the moves of each site; a binary site has one move, the flip."""
    return logits if domain.moves == 1 else logits.logsumexp(-1, keepdim=True)
