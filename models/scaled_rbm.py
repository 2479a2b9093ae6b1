"""The path of targets from independent visible units to an RBM, which is an RBM at every beta.

R. Salakhutdinov and I. Murray, "On the quantitative analysis of deep belief networks", ICML 2008,
Section 4.1: weights beta W, hidden biases beta c, visible biases beta b + (1 - beta) b0.
"""

from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.functional import softplus

from latticework.models.annealed import base_field, expand_rows, pick_rows, same_rows
from latticework.models.base import AnnealedModel, Cache, EnergyModel
from latticework.models.distributions import bernoulli, softplus_sum
from latticework.models.rbm import RBM


class ScaledRBM(RBM, AnnealedModel):
    """From independent visible units with `log_odds` b0 `[visible]` to the RBM `model`.

    All parameters depend on beta, so the methods of an RBM work at every beta, also at one for each
    chain. `know` returns W'x + c and (b - b0)'x of the model. Raises ValueError unless `model` is
    an RBM.
    """

    model: RBM
    beta: Tensor
    start_bias: Tensor
    weight: Any  # tensors, and no parameters as those of an RBM
    visible_bias: Any
    hidden_bias: Any

    def __init__(self, model: EnergyModel, log_odds: Tensor | None = None) -> None:
        EnergyModel.__init__(self)
        if not isinstance(model, RBM):
            raise ValueError(f"ScaledRBM anneals an RBM, got {type(model).__name__}")
        self.model, self.domain, self.offset = model, model.domain, model.offset
        start = base_field(model, log_odds)[0].to(model.visible_bias)
        self.register_buffer("beta", torch.zeros_like(start[0]))
        self.register_buffer("start_bias", start)  # b0
        self.register_buffer("weight", torch.zeros_like(model.weight))
        self.register_buffer("visible_bias", start.clone())
        self.register_buffer("hidden_bias", torch.zeros_like(model.hidden_bias))
        self._here: tuple[Tensor, Cache] | None = None
        self._attempts: list[tuple[Tensor, Tensor]] = []  # x and W'x + c, if chains differ in beta

    def draw(self, chains: int, rng: Generator) -> Tensor:
        return bernoulli(self.start_bias.expand(chains, -1), rng)

    def log_z_start(self) -> Tensor:
        """Log normaliser of the visible units, plus log 2 for each hidden unit."""
        hidden = softplus(torch.zeros_like(self.hidden_bias, dtype=torch.float64))
        return softplus(self.start_bias.double()).sum() + hidden.sum()

    def move_to(self, beta: Tensor, x: Tensor | None = None, known: Cache = ()) -> None:
        if beta.ndim:  # W and c are those of the model, and multiplied where they are used
            self.beta, rbm = beta.to(self.start_bias), self.model
            self.weight, self.hidden_bias = rbm.weight.data, rbm.hidden_bias.data
            column = self.beta.unsqueeze(-1)
            self.visible_bias = torch.lerp(self.start_bias, rbm.visible_bias, column)
        else:
            if self.beta.ndim:
                self.beta, self.visible_bias = torch.zeros_like(beta), self.start_bias.clone()
                self.weight = torch.zeros_like(self.weight)
                self.hidden_bias = torch.zeros_like(self.hidden_bias)
            self.beta.copy_(beta)
            torch.mul(self.model.weight, self.beta, out=self.weight)
            torch.mul(self.model.hidden_bias, self.beta, out=self.hidden_bias)
            torch.lerp(self.start_bias, self.model.visible_bias, self.beta, out=self.visible_bias)
        self.forget()
        self._here = None if x is None else (x, known)

    def forget(self) -> None:
        self._here, self._attempts = None, []

    def know(self, x: Tensor) -> Cache:
        linear = x @ (self.model.visible_bias - self.start_bias) + self.offset
        if not self.beta.ndim or self._here is None or len(self._attempts) != 1:
            return self.model.path_inputs(x), linear
        ((new, inputs),) = self._attempts  # a proposal, which chains took or not
        return pick_rows(same_rows(x, new), inputs, self._here[1][0]), linear

    def log_ratio(self, known: Cache, beta: Tensor) -> Tensor:
        inputs, linear = known
        then = beta.to(inputs).unsqueeze(-1)
        change = softplus(inputs * then).sub_(softplus(inputs * self.beta.unsqueeze(-1)))
        return change.sum(-1, dtype=torch.float64) + (beta.double() - self.beta) * linear

    def target_log_prob(self, x: Tensor, known: Cache) -> Tensor:
        return softplus_sum(known[0]) + known[1] + x @ self.start_bias

    def hidden_inputs(self, x: Tensor) -> Tensor:
        if self._here is not None and self._here[0] is x:
            return self._here[1][0] * self.beta.unsqueeze(-1)
        if not self.beta.ndim:
            return super().hidden_inputs(x)
        inputs = self.model.path_inputs(x)
        self._attempts = [*self._attempts[-1:], (x.clone(), inputs)]
        return self.scale_changes(inputs)

    def visible_inputs(self, h: Tensor) -> Tensor:
        if not self.beta.ndim:
            return super().visible_inputs(h)
        return self.scale_changes(h @ self.weight.T).add_(self.visible_bias)

    def linear(self, x: Tensor, sites: Tensor | None = None) -> Tensor:
        if not self.beta.ndim:
            return super().linear(x, sites)
        bias = self.visible_bias if sites is None else self.biases(sites)
        return (x * expand_rows(bias, x)).sum(-1)

    def scale_changes(self, change: Tensor) -> Tensor:
        return change * expand_rows(self.beta, change) if self.beta.ndim else change

    def constant(self) -> Tensor | float:
        return self.offset * self.beta if self.offset else 0.0

    def biases(self, sites: Tensor) -> Tensor:
        return self.visible_bias.index_select(-1, sites)
