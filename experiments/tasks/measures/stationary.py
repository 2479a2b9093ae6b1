"""The exact stationary law of a Langevin sampler on a small enumerable target, in float64.

R. Zhang, X. Liu and Q. Liu, "A Langevin-like Sampler for Discrete Distributions", ICML 2022:
Theorems 5.1 and 5.2, with their proofs in Appendices E and F.

    paper             here
    theta             x, a row of `states`
    q_alpha           exp(EnumeratedProposal.log_proposal)
    Z_alpha(theta)    exp(EnumeratedProposal.log_normaliser)
    pi                EnumeratedProposal.target
    pi_alpha          stationary_law(EnumeratedProposal.unadjusted)

This works for any sampler whose state has `logits`, and which proposes all sites independently by
`Domain.move_all`, as DULA and DMALA do.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from latticework.models.abilities import NearQuadratic
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler


def in_double(model: EnergyModel) -> EnergyModel:
    """A copy of the model on the CPU in float64."""
    return copy.deepcopy(model).double().cpu()


@dataclass(frozen=True)
class EnumeratedProposal:
    """A target and a proposal on its `n` states, all in float64."""

    states: Tensor  # [n, *domain.shape]
    log_prob: Tensor  # [n], unnormalised
    log_normaliser: Tensor  # [n], log Z_alpha
    log_proposal: Tensor  # [n, n], log q(y given x) at [x, y]

    @property
    def target(self) -> Tensor:
        return self.log_prob.softmax(0)

    @property
    def unadjusted(self) -> Tensor:
        """Transition matrix without the Metropolis test: DULA."""
        return self.log_proposal.exp()

    @property
    def adjusted(self) -> Tensor:
        """Transition matrix with the Metropolis test, Eq. (3): DMALA."""
        flow = self.log_prob.unsqueeze(-1) + self.log_proposal  # log pi(x) q(y given x)
        moves = (self.log_proposal + (flow.T - flow).clamp(max=0)).exp().fill_diagonal_(0)
        return moves + torch.diag(1 - moves.sum(-1))

    @property
    def closed_form_bias(self) -> Tensor:
        """|pi_alpha - pi|_1 of a log-quadratic target, where pi_alpha ~ Z_alpha pi (Appendix E).

        Accurate to full relative precision even where the bias is tiny: pi_alpha / pi - 1 equals
        (Z_alpha - E) / E, with E the mean of Z_alpha under pi, and is computed from Z_alpha - 1.
        """
        excess = self.log_normaliser.expm1()
        mean = self.target @ excess
        return (self.target * (excess - mean).abs()).sum() / (1 + mean)


@torch.no_grad()
def enumerate_proposal(sampler: Sampler, model: EnergyModel) -> EnumeratedProposal:
    """Every state of `model` (in float64) and the proposal of a Langevin `sampler` between them."""
    domain = model.domain
    states = domain.enumerate().double()
    state, n = sampler.at(states, model), len(states)
    x, logits = (t.repeat_interleave(n, 0) for t in (states, state.logits))
    y = states.repeat(n, *[1] * (states.ndim - 1))
    log_weight = domain.log_weight(x, y, logits).view(n, n)
    log_normaliser = domain.log_normaliser(state.logits)
    log_proposal = log_weight - log_normaliser.unsqueeze(-1)
    return EnumeratedProposal(states, model.log_prob(states), log_normaliser, log_proposal)


def stationary_law(transition: Tensor) -> Tensor:
    """The stationary law `[n]` of an irreducible transition matrix `[n, n]`.

    Gaussian elimination without subtractions (W. Grassmann, M. Taksar and D. Heyman, "Regenerative
    Analysis and Steady State Distributions for Markov Chains", 1985). It uses only the off-diagonal
    entries, so each probability is accurate even if they are tiny.
    """
    matrix = transition.clone()
    for last in range(len(matrix) - 1, 0, -1):
        matrix[:last, last] /= matrix[last, :last].sum()
        matrix[:last, :last] += torch.outer(matrix[:last, last], matrix[last, :last])
    law = torch.ones(1, dtype=matrix.dtype)
    for state in range(1, len(matrix)):
        law = torch.cat((law, (law @ matrix[:state, state]).view(1)))
    return law / law.sum()


def l1_distance(one: Tensor, other: Tensor) -> Tensor:
    return (one - other).abs().sum(-1)


@dataclass(frozen=True)
class Bounds:
    """Upper bounds on |pi_alpha - pi|_1 for a model with a `log_quadratic()`.

    Theorem 5.2, with V(x) = x'Wx + b'x and pi' ~ exp V. Theorem 5.1 is the case U = V:

        |pi_alpha - pi|_1 <= 2 (exp(2 sup |U - V|) - 1) + Z' exp(-1 / (2 alpha) - lambda_min / 2)

    The first term is the proof's bound on |pi' - pi|_1, with its constant computed from the states.
    The proof has another term, for |pi_alpha - pi'_alpha|_1. It is zero if both gradients agree on
    the states, as they do for `models.quadratic`. Eq. (6) asks for close gradients on the states
    only, and there the gradients of `Sine` agree for every epsilon. The proof, however, needs close
    gradients between the states as well.

    As stated, the bound can fail for two reasons. Adding a constant to V changes Z' but not the
    bias. And the bound assumes that the nearest two states have squared distance 1, as on {0, 1};
    on {-1, 1} it is 4, and the bias decays faster. `repaired` corrects both. Since pi'_alpha / pi'
    is Z_alpha up to a constant,

        |pi'_alpha - pi'|_1 <= 2 E[Z_alpha - 1]
                            <= 2 (S^2 / Z' - 1) exp(-D^2 (1 / alpha + lambda_min) / 2)

    with S = sum_x exp(V(x) / 2). D^2 is the squared distance between the nearest two states, or
    between the farthest if 1 / alpha + lambda_min < 0. This bound does not depend on the
    coordinates.
    """

    deviation: float  # 2 (exp(2 sup |U - V|) - 1)
    log_z: float  # log Z'
    log_overlap: float  # log 2 ((sum exp(V / 2))^2 / Z' - 1)
    smallest_eigenvalue: float  # lambda_min of W
    nearest: float  # D^2
    farthest: float

    def theorem(self, step_size: float) -> float:
        return self.deviation + _exp(self.log_z - (1 / step_size + self.smallest_eigenvalue) / 2)

    def repaired(self, step_size: float) -> float:
        rate = (1 / step_size + self.smallest_eigenvalue) / 2
        distance = self.nearest if rate > 0 else self.farthest
        return self.deviation + _exp(self.log_overlap - distance * rate)


def _exp(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float64).exp())


@torch.no_grad()
def bias_bounds(model: EnergyModel) -> Bounds:
    """The bounds for a float64 model with `log_quadratic()`, by enumerating its states.

    Raises ValueError for a model without it.
    """
    if not isinstance(model, NearQuadratic):
        raise ValueError(
            "the bounds of Theorems 5.1 and 5.2 need a model with log_quadratic(), such as "
            f"model=quadratic_ising or model=sine, got {type(model).__name__}"
        )
    near = in_double(model.log_quadratic())
    states = model.domain.enumerate().double()
    value = near.log_prob(states)
    log_z = value.logsumexp(0)
    deviation = 2 * (2 * (model.log_prob(states) - value).abs().max()).expm1()
    overlap = (2 * (value / 2).logsumexp(0) - log_z).expm1()
    apart = torch.cdist(states, states).square()
    return Bounds(
        deviation=float(deviation),
        log_z=float(log_z),
        log_overlap=float((2 * overlap).log()),
        smallest_eigenvalue=float(torch.linalg.eigvalsh(near.weight)[0]),
        nearest=float(apart[apart > 0].min()),
        farthest=float(apart.max()),
    )
