"""Proposals that move all sites at once and independently: the kernel shared by DMALA and DLMC.

Site i chooses a move with probability softmax(logits_i), and a Metropolis-Hastings step corrects
the joint proposal. The samplers differ in their logits. The state keeps the logits and the terms of
the acceptance ratio at the current position, so a step costs one evaluation of the model.
"""

from abc import abstractmethod
from typing import NamedTuple

from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.domains import Domain
from latticework.samplers.base import Info, Sampler, metropolis, reject_impossible


class AdjustedState(NamedTuple):
    """A position, the logits of the proposal from it, and its term of the acceptance ratio."""

    x: Tensor  # [chains, *domain.shape]
    logits: Tensor  # [chains, *moves]
    balance: Tensor  # [chains], log pi(x) - log normaliser; without log pi(x) if it cancels


class AllSites(Sampler):
    """Draws a move of every site by `logits`, and accepts or rejects them together."""

    uses_gradient = True

    @abstractmethod
    def logits(self, x: Tensor, grad: Tensor, domain: Domain) -> Tensor:
        """Logits of the moves of each site, `[chains, *moves]`, as `Domain.move_all` reads them."""

    def cancels(self, model: EnergyModel) -> bool:
        """Whether log pi(y) - log pi(x) cancels against the logits of the moves between x and y."""
        return False

    def at(self, x: Tensor, model: EnergyModel) -> AdjustedState:
        if self.cancels(model):
            logits = self.logits(x, model.gradient(x), model.domain)
            return AdjustedState(x, logits, model.domain.log_normaliser(logits).neg_())
        log_prob, grad = model.log_prob_and_grad(x)
        logits = self.logits(x, grad, model.domain)
        balance = log_prob - model.domain.log_normaliser(logits)
        return AdjustedState(x, logits, reject_impossible(balance, log_prob))

    def log_prob(self, state: AdjustedState, model: EnergyModel) -> Tensor:
        """The balance plus the normaliser, up to their rounding; evaluated if log pi cancels."""
        if self.cancels(model):
            return model.log_prob(state.x)
        return state.balance + model.domain.log_normaliser(state.logits)

    def step(
        self, state: AdjustedState, model: EnergyModel, rng: Generator
    ) -> tuple[AdjustedState, Info]:
        x, y = state.x, model.domain.move_all(state.x, state.logits, rng)
        proposed = self.at(y, model)
        # log [ pi(y) q(x given y) ] - log [ pi(x) q(y given x) ]
        log_ratio = proposed.balance - state.balance
        if not self.cancels(model):
            log_ratio += model.domain.log_weight_ratio(x, y, state.logits, proposed.logits)
            log_ratio = reject_impossible(log_ratio, proposed.balance)
        return metropolis(state, proposed, log_ratio, rng)
