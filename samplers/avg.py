"""AVG: auxiliary-variable Gibbs sampling with gradients.

B. Rhodes and M. U. Gutmann, "Enhanced gradient-based MCMC in discrete spaces", TMLR 2022.

    paper       here
    z           k x + noise, k = sqrt(2 / step_size)
    epsilon     step_size

A step draws z ~ N(k x, I). Given z, a first-order expansion of log pi makes all sites independent:
q(y given x, z) is proportional to exp(grad(x)'y) N(z; k y, I). On {0, 1} site i becomes 1 with
probability sigmoid(grad_i + k z_i - 1 / epsilon). The move is corrected on the joint law of x and
z. z is drawn afresh in each step, so the kernel acts on x alone and is reversible.
"""

from dataclasses import dataclass

from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.distributions import normal_like
from latticework.samplers.auxiliary import (
    log_noise_ratio,
    log_proposal_ratio,
    logits,
)
from latticework.samplers.base import Info, Sampler, State, evaluate, metropolis, require_positive
from latticework.samplers.scale import by_chain, root


@dataclass(frozen=True)
class AVG(Sampler):
    """Every site moves, driven by the gradient and Gaussian noise. On every domain.

    A step costs one evaluation with gradient.
    """

    scale = "step_size"
    scale_by_chain = True
    uses_gradient = True
    step_size: float = 1.0  # epsilon, in squared units of the domain's values

    def __post_init__(self) -> None:
        require_positive(step_size=self.step_size)

    def at(self, x: Tensor, model: EnergyModel) -> State:
        return evaluate(model, x)

    def step(self, state: State, model: EnergyModel, rng: Generator) -> tuple[State, Info]:
        x, domain = state.x, model.domain
        k, price = by_chain(root(2 / self.step_size), x), 1 / self.step_size
        noise = normal_like(x, rng)
        there = logits(x, state.grad + k * noise, price, domain)
        y = domain.move_all(x, there, rng)
        proposed = self.at(y, model)
        shift = k * (y - x)
        back = logits(y, proposed.grad + k * (noise - shift), price, domain)
        log_ratio = proposed.log_prob - state.log_prob + log_noise_ratio(noise, shift)
        log_ratio += log_proposal_ratio(x, y, there, back, domain)
        return metropolis(state, proposed, log_ratio, rng)
