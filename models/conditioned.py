"""Conditioning: some sites have known values, and the law of the others is a model of its own.

    pi(x_free given x_known)  is proportional to  pi(x) as a function of x_free

So the conditioned model is the model restricted to the free sites, and every sampler and check
serves it. A model of pairs or an RBM becomes a smaller one of its kind (`EnergyModel.restrict`);
any other model is evaluated at the completed states.
"""

from torch import Tensor

from latticework.models.base import Cache, EnergyModel
from latticework.models.domains import Binary, Categorical, Subset
from latticework.models.evidence import Evidence, pad_values


class WithOnes(EnergyModel):
    """`model` where the number of ones is known: the same function, on fewer states."""

    def __init__(self, model: EnergyModel, ones: int) -> None:
        super().__init__()
        if not isinstance(model.domain, Binary):
            raise ValueError(f"with_ones needs a model of two values a site, got {model.domain}")
        self.domain = Subset(model.domain.dim, ones, model.domain.low, model.domain.high)
        self.model, self.names, self.labels = model, model.names, model.labels
        self.chains = model.chains
        if (evidence := model._evidence()) is not None:
            self.evidence = evidence

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)

    def log_prob(self, x: Tensor) -> Tensor:
        return self.model.log_prob(x)

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.model.log_prob_and_grad(x)


class Conditioned(EnergyModel):
    """`model` as a function of its free sites: all methods look at completed states."""

    evidence: Evidence

    def __init__(self, model: EnergyModel, evidence: Evidence) -> None:
        super().__init__()
        self.model, self.evidence, self.domain = model, evidence, evidence.domain
        self.quadratic = model.quadratic
        self.closed_differences = model.closed_differences

    def forward(self, x: Tensor) -> Tensor:
        return self.model(self.evidence.fill_in(x))

    def log_prob(self, x: Tensor) -> Tensor:
        return self.model.log_prob(self.evidence.fill_in(x))

    def soften(self) -> EnergyModel | None:
        inner = self.model.soften()
        return None if inner is None else Conditioned(inner, self.evidence)

    def _of_free(self, grad: Tensor) -> Tensor:
        return self._drop_values(grad.index_select(1, self.evidence.free))

    def _drop_values(self, values: Tensor) -> Tensor:
        """Numbers by value, `[..., values]`, of the values that free sites may have."""
        if isinstance(self.domain, Categorical):
            return values[..., : self.domain.num_values]
        return values

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        log_prob, grad = self.model.log_prob_and_grad(self.evidence.fill_in(x))
        return log_prob, self._of_free(grad)

    def gradient(self, x: Tensor) -> Tensor:
        return self._of_free(self.model.gradient(self.evidence.fill_in(x)))

    def colours(self) -> Tensor | None:
        colours = self.model.colours()
        if colours is None:
            return None
        return colours.index_select(0, self.evidence.free).unique(return_inverse=True)[1]

    def cache(self, x: Tensor) -> Cache:
        return self.model.cache(self.evidence.fill_in(x))

    def update_cache(self, cache: Cache, x: Tensor, sites: Tensor, new: Tensor) -> Cache:
        new = pad_values(new, self.evidence.state)
        return self.model.update_cache(cache, self.evidence.fill_in(x), self._sites(sites), new)

    def evaluate_with_cache(self, x: Tensor) -> tuple[Tensor, Tensor, Cache]:
        log_prob, grad, cache = self.model.evaluate_with_cache(self.evidence.fill_in(x))
        return log_prob, self._of_free(grad), cache

    def evaluate_flipped(
        self, cache: Cache, x: Tensor, y: Tensor, index: Tensor
    ) -> tuple[Tensor, Tensor, Cache]:
        if isinstance(self.domain, Subset):  # its moves have other numbers among all sites
            return self.evaluate_with_cache(y)
        moves = self.domain.moves
        site = index.div(moves, rounding_mode="floor")
        index = self.evidence.free[site] * self.model.domain.moves + index.remainder(moves)
        x, y = self.evidence.fill_in(x), self.evidence.fill_in(y)
        log_prob, grad, cache = self.model.evaluate_flipped(cache, x, y, index)
        return log_prob, self._of_free(grad), cache

    def _sites(self, sites: Tensor) -> Tensor:
        return self.evidence.free.index_select(0, sites)

    def differences(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        if isinstance(self.domain, Subset):
            return super().differences(x, cache, sites)
        inside = self.evidence.fill_in(x)
        return self._drop_values(self.model.differences(inside, cache, self._sites(sites)))

    def log_odds(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        return self.model.log_odds(self.evidence.fill_in(x), cache, self._sites(sites))

    def conditional(self, x: Tensor, cache: Cache, sites: Tensor) -> tuple[Tensor, Cache]:
        return self.model.conditional(self.evidence.fill_in(x), cache, self._sites(sites))

    def block_log_probs(self, x: Tensor, cache: Cache, sites: Tensor, patterns: Tensor) -> Tensor:
        inside, patterns = self.evidence.fill_in(x), pad_values(patterns, self.evidence.state)
        return self.model.block_log_probs(inside, cache, self._sites(sites), patterns)

    def site_log_probs(self, x: Tensor, cache: Cache, site: Tensor) -> Tensor:
        inside = self.evidence.fill_in(x)
        return self._drop_values(self.model.site_log_probs(inside, cache, self._sites(site)))


EnergyModel._conditioned, EnergyModel._with_ones = Conditioned, WithOnes
