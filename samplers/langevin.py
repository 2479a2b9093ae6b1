"""Discrete Langevin samplers: DULA and DMALA.

R. Zhang, X. Liu and Q. Liu, "A Langevin-like Sampler for Discrete Distributions", ICML 2022.
Equation numbers are the paper's.

    paper                 here
    theta, theta'         x, y
    U(theta)              model.log_prob(x)
    alpha                 step_size

All sites move at once and independently. The state keeps the proposal's logits at the current
position, so a step costs one evaluation of the model. `samplers.all_sites` corrects DMALA.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.domains import Domain
from latticework.samplers.all_sites import AllSites
from latticework.samplers.base import Info, Sampler, on_device, require_positive
from latticework.samplers.scale import by_chain


class LangevinState(NamedTuple):
    """A position and the logits of the proposal from it."""

    x: Tensor  # [chains, *domain.shape]
    logits: Tensor  # [chains, *moves], those of Eq. (2)


@dataclass(frozen=True)
class _Langevin(Sampler):
    """The proposal of Eq. (2), which DULA and DMALA share.

    `preconditioner` scales the step size site by site (Section 6, Appendix H): a list of `dim`
    positive numbers g_i, read as 2 alpha g_i (`preconditioner_power=1`, Section 6) or as
    2 alpha g_i^2 (`preconditioner_power=2`, Appendix H's derivation). An infinite step size drops
    the distance term and gives the proposal of Appendix D.
    """

    uses_gradient = True
    step_size: float  # alpha, in squared units of the domain's values
    preconditioner: list[float] | None = None
    preconditioner_power: Literal[1, 2] = 1

    def __post_init__(self) -> None:
        require_positive(step_size=self.step_size)
        if self.preconditioner is not None and not all(g > 0 for g in self.preconditioner):
            raise ValueError(f"preconditioner must be positive, got {self.preconditioner}")
        if self.preconditioner_power not in (1, 2):
            raise ValueError(
                f"preconditioner_power must be 1 or 2, got {self.preconditioner_power}"
            )

    def logits(self, x: Tensor, grad: Tensor, domain: Domain) -> Tensor:
        """Logits of Eq. (2): grad_i (y_i - x_i) / 2 - (y_i - x_i)^2 / (2 alpha)."""
        logits, distances = domain.gains(x, grad).mul_(0.5), domain.distances(x)
        price = 0.5 / self.step_size
        if isinstance(price, Tensor):  # a step size for each chain
            distances, price = distances * by_chain(price, logits), 1.0
        if self.preconditioner is None:
            return logits.sub_(distances, alpha=price)
        scale = on_device(tuple(self.preconditioner), x.device, x.dtype)
        if len(scale) != x.shape[1]:
            raise ValueError(f"preconditioner must have {x.shape[1]} entries, got {len(scale)}")
        scale = scale.pow(self.preconditioner_power).view(-1, *[1] * (logits.ndim - 2))
        return logits.sub_(distances / scale, alpha=price)


@dataclass(frozen=True)
class DULA(_Langevin):
    """Discrete unadjusted Langevin algorithm: every draw from Eq. (2) is accepted.

    Its stationary distribution is biased. On log-quadratic targets the bias vanishes as the step
    size goes to 0 (Theorem 5.1). `samplers.stochastic_dula` uses minibatch gradients (Section 6).
    """

    exact = False
    step_size: float = 0.1

    def at(self, x: Tensor, model: EnergyModel) -> LangevinState:
        return LangevinState(x, self.logits(x, model.gradient(x), model.domain))

    def step(
        self, state: LangevinState, model: EnergyModel, rng: Generator
    ) -> tuple[LangevinState, Info]:
        y = model.domain.move_all(state.x, state.logits, rng)
        return self.at(y, model), Info(y.new_ones(len(y)))


@dataclass(frozen=True)
class DMALA(_Langevin, AllSites):
    """Discrete Metropolis-adjusted Langevin algorithm: Eq. (2), corrected by Eq. (3).

    If log pi is quadratic, log pi(y) - log pi(x) = (grad(x) + grad(y))'(y - x) / 2. This cancels
    against the logits of the moves, and Eq. (3) becomes a ratio of the two normalisers.
    """

    scale = "step_size"
    scale_by_chain = True
    step_size: float = 0.2

    def cancels(self, model: EnergyModel) -> bool:
        return model.quadratic
