"""Posterior of a factorial hidden Markov model: binary chains that are observed through their sum.

    p(x_1k = 1) = first,   p(x_tk = x_(t-1)k) = keep,   y_t given x ~ N(offset + w'x_t, sigma^2)
    log pi(x) = log p(x) - sum_t r_t^2 / (2 sigma^2),   r_t = y_t - offset - w'x_t

x in {0, 1}^(length * factors), site t * factors + k. Z. Ghahramani and M. Jordan, "Factorial hidden
Markov models", 1997; as a benchmark of samplers: W. Grathwohl et al., "Oops I took a gradient",
2021. log pi is a quadratic polynomial of x, so with the gradient g and the constant Hessian H,

    log pi(x + d) - log pi(x) = g'd + d'H d / 2

H couples the factors of one time, -w_k w_l / sigma^2, and neighbouring times of one factor,
2 log(keep / (1 - keep)).
"""

import math

import torch
from torch import Generator, Tensor
from torch.linalg import vecdot

from latticework.models.base import Cache, EnergyModel
from latticework.models.domains import Binary

MAX_FACTORS = 12  # factors whose joint states the exact recursion lists


class FactorialHMM(EnergyModel):
    """The posterior of the hidden chains given `observed` `[length]`; `weight` is `[factors]`.

    Raises ValueError unless `sigma` is positive and `first` and `keep` are inside (0, 1).
    """

    weight: Tensor
    observed: Tensor
    closed_differences = True
    quadratic = True

    def __init__(
        self,
        weight: Tensor,
        offset: float,
        observed: Tensor,
        sigma: float,
        first: float,
        keep: float,
    ) -> None:
        super().__init__()
        _require(sigma, first, keep)
        self.length, self.factors = len(observed), len(weight)
        self.offset, self.sigma, self.first, self.keep = offset, sigma, first, keep
        self.domain = Binary(self.length * self.factors)
        self.register_buffer("weight", weight.clone())
        self.register_buffer("observed", observed.clone())
        self.start, self.stay = _log_odds(first), _log_odds(keep)

    def _residual(self, x: Tensor) -> Tensor:
        """r, `[chains, length]`."""
        return self.observed - self.offset - x.unflatten(-1, (self.length, -1)) @ self.weight

    def _value_and_grad(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        chains = x.unflatten(-1, (self.length, -1))
        spins = 2 * chains - 1
        before, after = chains[:, :-1], chains[:, 1:]
        switched = before + after - 2 * before * after
        log_prob = self.start * chains[:, 0].sum(-1) - self.stay * switched.sum((-2, -1))
        log_prob += chains.shape[2] * self._constant()
        log_prob -= residual.square().sum(-1) / (2 * self.sigma**2)
        grad = (residual / self.sigma**2).unsqueeze(-1) * self.weight
        grad[:, 0] += self.start
        grad[:, 1:] += self.stay * spins[:, :-1]
        grad[:, :-1] += self.stay * spins[:, 1:]
        return log_prob, grad.flatten(1)

    def _constant(self) -> float:
        """Log p of a factor that is 0 all the time."""
        return math.log1p(-self.first) + (self.length - 1) * math.log(self.keep)

    def forward(self, x: Tensor) -> Tensor:
        return self._value_and_grad(x, self._residual(x))[0]

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._value_and_grad(x, self._residual(x))

    def evaluate_with_cache(self, x: Tensor) -> tuple[Tensor, Tensor, Cache]:
        residual = self._residual(x)
        return *self._value_and_grad(x, residual), (residual.double(),)

    def cache(self, x: Tensor) -> Cache:
        """The residuals r, `[chains, length]`, in double precision: changes do not drift."""
        return (self._residual(x).double(),)

    def update_cache(self, cache: Cache, x: Tensor, sites: Tensor, new: Tensor) -> Cache:
        change = (new - x.index_select(1, sites)) * self.weight[sites % self.factors]
        return (cache[0].index_add_(1, sites // self.factors, change.double(), alpha=-1),)

    def _gradient_at(self, x: Tensor, residual: Tensor, sites: Tensor) -> Tensor:
        """The gradient at `sites`, `[chains, n]`."""
        time = sites // self.factors
        earlier, later = time > 0, time < self.length - 1
        weight = self.weight[sites % self.factors] / self.sigma**2
        grad = residual.index_select(1, time).to(x.dtype) * weight + self.start * (~earlier).to(x)
        for there, step in ((earlier, -self.factors), (later, self.factors)):
            near = x.index_select(1, torch.where(there, sites + step, sites))
            grad += (2 * near - 1) * (self.stay * there.to(x))
        return grad

    def _hessian(self, sites: Tensor) -> Tensor:
        """H between `sites`, `[n, n]`."""
        time, factor = sites // self.factors, sites % self.factors
        apart = time.unsqueeze(-1) - time
        weight = self.weight[factor]
        together = (apart == 0) * torch.outer(weight, weight) / -(self.sigma**2)
        linked = (apart.abs() == 1) & (factor.unsqueeze(-1) == factor)
        return together + 2 * self.stay * linked.to(weight)

    def differences(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        change = 1 - 2 * x.index_select(1, sites)
        curve = self.weight[sites % self.factors].square() / (-2 * self.sigma**2)
        return self._gradient_at(x, cache[0], sites) * change + curve

    def block_log_probs(self, x: Tensor, cache: Cache, sites: Tensor, patterns: Tensor) -> Tensor:
        change = patterns.to(x) - x.index_select(1, sites).unsqueeze(1)  # [chains, patterns, n]
        grad = self._gradient_at(x, cache[0], sites).unsqueeze(1)
        return vecdot(change, grad + change @ self._hessian(sites) / 2)

    def log_z_and_mean(self) -> tuple[Tensor, Tensor] | None:
        """The forward-backward recursion over the joint states of up to MAX_FACTORS factors."""
        if self.factors > MAX_FACTORS:
            return None
        states = Binary(self.factors).enumerate().double().to(self.weight.device)
        means = states @ self.weight.double() + self.offset
        misfit = (self.observed.double().unsqueeze(-1) - means).square() / (2 * self.sigma**2)
        start = (states * self.start).sum(-1) + self.factors * math.log1p(-self.first)
        ahead, log_z = [(start - misfit[0]).softmax(0)], (start - misfit[0]).logsumexp(0)
        for t in range(1, self.length):
            log_weight = self._apply_transition(ahead[-1]).log() - misfit[t]
            log_z = log_z + log_weight.logsumexp(0)
            ahead.append(log_weight.softmax(0))
        behind = torch.ones_like(ahead[-1])
        mean = [ahead[-1] @ states]
        for t in range(self.length - 1, 0, -1):
            behind = self._apply_transition(behind * (misfit[t].min() - misfit[t]).exp())
            behind = behind / behind.max()
            both = ahead[t - 1] * behind
            mean.append(both / both.sum() @ states)
        return log_z, torch.stack(mean[::-1]).flatten()

    def _apply_transition(self, law: Tensor) -> Tensor:
        """`law` `[2 ** factors]` times the transition matrix, which is a product over factors."""
        law = law.view([2] * self.factors)
        for factor in range(self.factors):
            law = self.keep * law + (1 - self.keep) * law.flip(factor)
        return law.flatten()


def synthetic_fhmm(
    length: int, factors: int, sigma: float, first: float, keep: float, seed: int = 0
) -> FactorialHMM:
    """A model with w and offset from N(0, 1), given observations that are drawn from it."""
    if length < 1 or factors < 1:
        raise ValueError(f"length and factors must be 1 or more, got {length} and {factors}")
    _require(sigma, first, keep)
    rng = Generator().manual_seed(seed)
    weight, offset = torch.randn(factors, generator=rng), float(torch.randn((), generator=rng))
    begins = (torch.rand(factors, generator=rng) < first).long()
    switches = (torch.rand(length - 1, factors, generator=rng) > keep).long()
    hidden = torch.cat((begins.unsqueeze(0), switches)).cumsum(0) % 2
    observed = hidden.float() @ weight + offset + sigma * torch.randn(length, generator=rng)
    return FactorialHMM(weight, offset, observed, sigma, first, keep)


def _require(sigma: float, first: float, keep: float) -> None:
    if not (sigma > 0 and 0 < first < 1 and 0 < keep < 1):
        raise ValueError(
            "sigma must be positive, first and keep between 0 and 1, "
            f"got {sigma}, {first} and {keep}"
        )


def _log_odds(probability: float) -> float:
    return math.log(probability / (1 - probability))
