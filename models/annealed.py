"""Geometric paths of targets for annealed importance sampling and tempering.

    log pi_beta(x) = beta log f(x) + (1 - beta) log p0(x)       any model f

R. M. Neal, "Annealed importance sampling", Statistics and Computing 2001. Sites are independent
under p0: with given log-odds on a binary domain (0 is uniform), else uniform.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor
from torch.nn.functional import softplus

from latticework.models.base import ZERO_PRICE, AnnealedModel, Cache, EnergyModel
from latticework.models.distributions import bernoulli
from latticework.models.domains import Binary, Categorical
from latticework.models.forms import IMPOSSIBLE
from latticework.moved import offer_moved_names

MAX_PRICE = 1e5  # nats of a zero at b = 1, where exp(-MAX_PRICE) is 0 in double precision


class GeometricPath(AnnealedModel):
    """The geometric mean of `model` and of independent sites with `log_odds` `[dim]`.

    log pi_beta is a weighted mean of log f and a linear function, and so are its gradient and local
    structure. `know` returns x, log f(x) - log p0(x) and, if they were computed on the way, the
    gradient of log f and the model's cache. Raises ValueError for log-odds that do not fit the
    domain, or a domain without a uniform distribution.
    """

    beta: Tensor
    field: Tensor
    constant: Tensor

    def __init__(
        self, model: EnergyModel, log_odds: Tensor | None = None, *, powers: bool = False
    ) -> None:
        super().__init__()
        self.model, self.domain = model, model.domain
        zeros = torch.zeros(model.domain.shape), torch.zeros(())
        field, constant = zeros if powers else base_field(model, log_odds)
        self.register_buffer("beta", torch.zeros(()))
        self.register_buffer("field", field)  # the gradient of log p0, [*shape]
        self.register_buffer("constant", constant)
        self._log_odds = log_odds
        self._here: tuple[Tensor, Cache] | None = None
        self._evaluations: list[Cache] = []

    # The path.

    def draw(self, chains: int, rng: Generator) -> Tensor:
        if self._log_odds is None:
            return self.domain.uniform(chains, rng).to(self.field)
        assert isinstance(self.domain, Binary)
        log_odds = self._log_odds.to(rng.device).expand(chains, -1)
        return self.domain.from_bits(bernoulli(log_odds, rng))

    def log_z_start(self) -> Tensor:
        return self.constant.new_zeros((), dtype=torch.float64)  # p0 is normalised

    def move_to(self, beta: Tensor, x: Tensor | None = None, known: Cache = ()) -> None:
        if beta.shape == self.beta.shape:
            self.beta.copy_(beta)
        else:
            self.beta = beta.to(self.beta)
        self.forget()
        self._here = None if x is None else (x, known)

    def with_soft_zeros(self) -> "GeometricPath":
        softened = self.model.soften() if type(self) is GeometricPath else None
        return self if softened is None else SoftenedPath(self.model, softened, self._log_odds)

    def forget(self) -> None:
        self._here, self._evaluations = None, []

    def know(self, x: Tensor) -> Cache:
        """Values from the one evaluation since `move_to`, else from a new one.

        A row of `x` that is neither the point of that evaluation nor the one before it gets NaN.
        """
        if len(self._evaluations) != 1:
            return x.clone(), self._difference(x, self.model.log_prob(x))
        (new,) = self._evaluations
        old = new if self._here is None else self._here[1]
        moved, stayed = same_rows(x, new[0]), same_rows(x, old[0])
        difference = torch.where(moved, new[1], old[1].where(moved | stayed, torch.nan))
        others_known = (pick_rows(moved, a, b) for a, b in zip(new[2:], old[2:], strict=False))
        return x.clone(), difference, *others_known

    def know_like(self, x: Tensor, known: Cache) -> Cache:
        self._evaluations.clear()
        if len(known) > 3:
            self.evaluate_with_cache(x)
        elif len(known) == 3:
            self.log_prob_and_grad(x)
        return self.know(x)

    def log_ratio(self, known: Cache, beta: Tensor) -> Tensor:
        return (beta.double() - self.beta) * known[1]

    def target_log_prob(self, x: Tensor, known: Cache) -> Tensor:
        return known[1] + self.base_log_prob(x)

    # Evaluations.

    def _beta_for(self, values: Tensor) -> Tensor:
        """beta, in the shape and type that multiply the rows of `values`."""
        beta = self.beta.to(values.dtype)
        return beta.view(-1, *[1] * (values.ndim - 1)) if beta.ndim else beta

    def base_log_prob(self, x: Tensor) -> Tensor:
        """Log p0, `[rows]`."""
        return x.flatten(1) @ self.field.flatten() + self.constant

    def _difference(self, x: Tensor, log_prob: Tensor) -> Tensor:
        return log_prob - self.base_log_prob(x)

    def _interpolate_evaluation(
        self, x: Tensor, evaluate: Callable[[], tuple[Tensor, Tensor, Cache]]
    ) -> tuple[Tensor, Tensor, Cache]:
        """Value, gradient and cache at `x`: from known values, or from `evaluate`."""
        known = self._known_at(x)
        if len(known) < 3:
            log_prob, grad, cache = evaluate()
            known = (x.clone(), self._difference(x, log_prob), grad, *cache)
            self._remember(known)
        # Kernels may overwrite x and what is returned, so known values are copies of both.
        value = self._value(x, known)
        grad = torch.lerp(self.field, known[2], self._beta_for(known[2]))
        return value, grad, tuple(part.clone() for part in known[3:])

    def _remember(self, known: Cache) -> None:
        """Keep this evaluation; at most two, as `know` uses one only if it is alone."""
        self._evaluations = [*self._evaluations[-1:], known]

    def _known_at(self, x: Tensor) -> Cache:
        return self._here[1] if self._here is not None and self._here[0] is x else ()

    def forward(self, x: Tensor) -> Tensor:
        known = self._known_at(x)
        if not known:
            known = x.clone(), self._difference(x, self.model.log_prob(x))
            self._remember(known)
        return self._value(x, known)

    def _value(self, x: Tensor, known: Cache) -> Tensor:
        base = self.base_log_prob(x)
        value = torch.addcmul(base, self.beta, known[1])
        # 0 times -inf is NaN; a NaN of the target stays, so that checks find it.
        return torch.where((self.beta > 0) | known[1].isnan(), value, base)

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._interpolate_evaluation(x, lambda: (*self.model.log_prob_and_grad(x), ()))[:2]

    def evaluate_with_cache(self, x: Tensor) -> tuple[Tensor, Tensor, Cache]:
        return self._interpolate_evaluation(x, lambda: self.model.evaluate_with_cache(x))

    def evaluate_flipped(
        self, cache: Cache, x: Tensor, y: Tensor, index: Tensor
    ) -> tuple[Tensor, Tensor, Cache]:
        return self._interpolate_evaluation(
            y, lambda: self.model.evaluate_flipped(cache, x, y, index)
        )

    # Local structure: that of the model, whose cache does not depend on beta.

    def colours(self) -> Tensor | None:
        return self.model.colours()

    def scopes(self, sites: int) -> Tensor | None:
        return self.model.scopes(sites)

    def cache(self, x: Tensor) -> Cache:
        return self.model.cache(x)

    def update_cache(self, cache: Cache, x: Tensor, sites: Tensor, new: Tensor) -> Cache:
        return self.model.update_cache(cache, x, sites, new)

    def differences(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        gains = self.domain.gains(x, self.field.expand_as(x)).index_select(1, sites)
        differences = self.model.differences(x, cache, sites)
        return _interpolate(gains, differences, self._beta_for(differences))

    def log_odds(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        return self._interpolate_odds(self.model.log_odds(x, cache, sites), sites)

    def conditional(self, x: Tensor, cache: Cache, sites: Tensor) -> tuple[Tensor, Cache]:
        log_odds, cache = self.model.conditional(x, cache, sites)
        return self._interpolate_odds(log_odds, sites), cache

    def _interpolate_odds(self, log_odds: Tensor, sites: Tensor) -> Tensor:
        assert isinstance(self.domain, Binary)
        base = self.field.index_select(0, sites) * (self.domain.high - self.domain.low)
        return _interpolate(base.to(log_odds.dtype), log_odds, self._beta_for(log_odds))

    def block_log_probs(self, x: Tensor, cache: Cache, sites: Tensor, patterns: Tensor) -> Tensor:
        field = self.field.index_select(0, sites).flatten()
        base = patterns.to(x).flatten(2) @ field
        log_probs = self.model.block_log_probs(x, cache, sites, patterns)
        return _interpolate(base, log_probs, self._beta_for(log_probs))

    def site_log_probs(self, x: Tensor, cache: Cache, site: Tensor) -> Tensor:
        if isinstance(self.domain, Categorical):  # where p0 is uniform
            log_probs = self.model.site_log_probs(x, cache, site)
            return log_probs * self._beta_for(log_probs)
        return super().site_log_probs(x, cache, site)


class SoftenedPath(GeometricPath):
    """The geometric path to terms with zeros, on which a zero has a finite price below b = 1.

    Terms are entries of tables, or couplings and biases. A state that meets k zeros has
    log pi_b = (1 - b) log p0 + b g - k b / (1 - b), where g is the sum of its other terms. At b = 1
    its probability is 0. So replicas cross states that are impossible for the target, and find
    possible ones. `softened` is the model with a finite number for a zero (`model.soften()`).
    `know` returns x, g - log p0 and k.
    """

    def __init__(
        self,
        model: EnergyModel,
        softened: EnergyModel,
        log_odds: Tensor | None = None,
        *,
        powers: bool = False,
    ) -> None:
        super().__init__(model, log_odds, powers=powers)
        self.soft = softened

    def know(self, x: Tensor) -> Cache:
        if len(self._evaluations) != 1:
            return x.clone(), *self._parts(x)
        return super().know(x)

    def know_like(self, x: Tensor, known: Cache) -> Cache:
        self._evaluations.clear()
        return self.know(x)

    def log_ratio(self, known: Cache, beta: Tensor) -> Tensor:
        now, then = self.beta.double(), beta.double()
        price = then * _price(then) - now * _price(now)
        price = torch.where((then == 1) & (now < 1) & (known[2] > 0), math.inf, price)
        return (then - now) * known[1] - torch.where(known[2] > 0, price * known[2], 0)

    def target_log_prob(self, x: Tensor, known: Cache) -> Tensor:
        return super().target_log_prob(x, known).masked_fill(known[2] > 0, -math.inf)

    def forward(self, x: Tensor) -> Tensor:
        known = self._known_at(x)
        if not known:
            known = x.clone(), *self._parts(x)
            self._remember(known)
        change = known[1] - _price(self.beta) * known[2]
        return torch.addcmul(self.base_log_prob(x), self.beta, change)

    def with_prices(self, bias: Tensor) -> Tensor:
        """Biases of a Potts model `[sites, values]`, with prices at b for -inf, `[rows, ...]`."""
        return torch.where(bias > IMPOSSIBLE, bias, -_price(self.beta).view(-1, 1, 1))

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of the terms that are not 0, less log p0, and the number of zeros, `[rows]`."""
        finite, zeros = _without_zeros(self.soft.log_prob(x.double()))
        return self._difference(x, finite).to(x), zeros.to(x)

    def _add_price(self, values: Tensor, x: Tensor) -> Tensor:
        """Values of the softened model, with the price of a zero at b."""
        finite, zeros = _without_zeros(values)
        return (finite - _price(self._beta_for(values)) * zeros).to(x)

    def differences(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        gains = self.domain.gains(x, self.field.expand_as(x)).index_select(1, sites)
        changes = self._add_price(self.soft.differences(x.double(), cache, sites), x)
        return torch.lerp(gains, changes, self._beta_for(changes))

    def log_odds(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        return self._interpolate_odds(
            self._add_price(self.soft.log_odds(x.double(), cache, sites), x), sites
        )

    def conditional(self, x: Tensor, cache: Cache, sites: Tensor) -> tuple[Tensor, Cache]:
        return self.log_odds(x, cache, sites), cache

    def block_log_probs(self, x: Tensor, cache: Cache, sites: Tensor, patterns: Tensor) -> Tensor:
        base = patterns.to(x).flatten(2) @ self.field.index_select(0, sites).flatten()
        values = self.soft.block_log_probs(x.double(), cache, sites, patterns)
        log_probs = self._add_price(values, x)
        return torch.lerp(base, log_probs, self._beta_for(log_probs))

    def site_log_probs(self, x: Tensor, cache: Cache, site: Tensor) -> Tensor:
        if isinstance(self.domain, Categorical):  # where p0 is uniform
            log_probs = self._add_price(self.soft.site_log_probs(x.double(), cache, site), x)
            return log_probs * self._beta_for(log_probs)
        return super().site_log_probs(x, cache, site)


def base_field(model: EnergyModel, log_odds: Tensor | None) -> tuple[Tensor, Tensor]:
    """`field` `[*shape]` and `constant` (scalar) of log p0(x) = field'x + constant."""
    domain = model.domain
    if log_odds is None:
        count = math.log(domain.count())  # raises where there are infinitely many
        return torch.zeros(domain.shape), torch.tensor(-count, dtype=torch.get_default_dtype())
    if not isinstance(domain, Binary) or log_odds.shape != domain.shape:
        raise ValueError(
            f"log_odds need a binary domain and one number a site, got {list(log_odds.shape)} "
            f"for {domain}"
        )
    if not log_odds.isfinite().all():
        raise ValueError(
            "log_odds must be finite; frequencies of 0 and 1 give infinite ones, so move them "
            "inside"
        )
    field = log_odds / (domain.high - domain.low)
    exact = log_odds.double()
    total = softplus(exact).sum() + domain.low * exact.sum() / (domain.high - domain.low)
    return field, -total.to(field.dtype)


def _interpolate(base: Tensor, values: Tensor, weight: Tensor) -> Tensor:
    """`torch.lerp`, also where values are infinite."""
    return torch.where(values.isinf(), values, torch.lerp(base, values, weight))


def _price(beta: Tensor) -> Tensor:
    """1 / (1 - beta), at most `MAX_PRICE`."""
    return (1 / (1 - beta)).clamp(max=MAX_PRICE)


def _without_zeros(values: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of terms of a softened model without the zeros, and the number of these."""
    zeros = (values / -ZERO_PRICE).round()
    return values + ZERO_PRICE * zeros, zeros


def expand_rows(values: Tensor, like: Tensor) -> Tensor:
    """`values` `[rows]` or `[rows, units]`, to multiply `like` `[rows, ..., units]`."""
    if values.ndim == 1:
        return values.view(-1, *[1] * (like.ndim - 1))
    return values.view(len(values), *[1] * (like.ndim - 2), -1)


def same_rows(x: Tensor, y: Tensor) -> Tensor:
    return (x == y).flatten(1).all(-1)


def pick_rows(chosen: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(chosen.view(-1, *[1] * (new.ndim - 1)), new, old)


if not TYPE_CHECKING:  # else type checkers would accept any name
    __getattr__ = offer_moved_names(__name__)
