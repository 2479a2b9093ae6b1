"""DULA with stochastic gradients: each step draws one minibatch and uses it throughout.

R. Zhang, X. Liu and Q. Liu, "A Langevin-like Sampler for Discrete Distributions", ICML 2022,
Section 6: the proposal of Eq. (2) with an unbiased estimate of the gradient. Theorem 6.1 bounds
its distance from the proposal with the full gradient.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Generator, Tensor

from latticework.models.abilities import DataModel
from latticework.models.base import EnergyModel
from latticework.models.distributions import uniform
from latticework.samplers.base import Info, Sampler, UnsupportedModelError, require_count
from latticework.samplers.langevin import DULA


class StochasticState(NamedTuple):
    x: Tensor  # [chains, *domain.shape]; the next minibatch is not drawn yet


@dataclass(frozen=True)
class StochasticDULA(Sampler):
    """DULA on `batch` distinct rows of the data, drawn at each step and shared by all chains.

    The target must be a sum over rows (models.abilities.DataModel). `batch=None` takes all rows and
    is DULA.
    """

    exact = False
    uses_gradient = True
    step_size: float = 0.1  # alpha, in squared units of the domain's values
    batch: int | None = 10

    def __post_init__(self) -> None:
        if self.batch is not None:
            require_count(batch=self.batch)
        DULA(self.step_size)  # checks it

    def at(self, x: Tensor, model: EnergyModel) -> StochasticState:
        if not isinstance(model, DataModel):
            raise UnsupportedModelError(self, model, "a model of data, with rows to choose from")
        if self.batch is not None and self.batch > model.rows:
            raise ValueError(f"batch must be at most the {model.rows} rows, got {self.batch}")
        return StochasticState(x)

    def step(
        self, state: StochasticState, model: EnergyModel, rng: Generator
    ) -> tuple[StochasticState, Info]:
        assert isinstance(model, DataModel)
        target: EnergyModel = model
        if self.batch is not None:
            order = uniform((model.rows,), rng)
            target = model.minibatch(order.topk(self.batch).indices)
        estimate = DULA(self.step_size).at(state.x, target)
        y = model.domain.move_all(state.x, estimate.logits, rng)
        return StochasticState(y), Info(y.new_ones(len(y)))
