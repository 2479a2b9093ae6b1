"""Conditioning: some sites have known values, and the law of the others is a model of its own.

    pi(x_free given x_known)  is proportional to  pi(x) as a function of x_free

So the conditioned model is the model restricted to the free sites, and every sampler and check
serves it. A model of pairs or an RBM becomes a smaller one of its kind (`EnergyModel.restrict`);
any other model is evaluated at the completed states.
"""

from collections.abc import Hashable, Mapping
from difflib import get_close_matches
from numbers import Integral
from typing import Any

import torch
from torch import Generator, Tensor, nn

from latticework.models.base import Cache, EnergyModel
from latticework.models.domains import Binary, Categorical, Domain, Subset, one_hot

# Values by site or name, or a tensor with NaN at free sites, of all chains or a row for each.
Known = Mapping[Any, Any] | Tensor


class Evidence(nn.Module):
    """Which sites are free, and the values of the others, of all chains or of each."""

    free: Tensor
    known: Tensor
    state: Tensor

    def __init__(
        self,
        domain: Domain,
        values: Known,
        names: tuple[Hashable, ...] | None,
        before: "Evidence | None",
    ) -> None:
        super().__init__()
        found = _by_site(domain, values, names)
        is_known = torch.zeros(domain.dim, dtype=torch.bool)
        is_known[list(found)] = True
        several = isinstance(values, Tensor) and values.ndim == 2
        earlier = None if before is None else before.chains
        self.chains: int | None = len(values) if several else earlier
        if is_known.all():
            raise ValueError(f"all {domain.dim} sites are known; leave one free at least")
        rows = len(values) if several else 1
        state = domain.uniform(rows, Generator().manual_seed(0))
        if found:
            numbers = torch.stack(list(found.values()), -1).expand(rows, -1)  # [rows, known]
            if isinstance(domain, Categorical):
                whole = numbers.long()
                if (whole != numbers).any() or whole.min() < 0 or whole.max() >= domain.num_values:
                    raise ValueError(
                        f"known values must be from 0 to {domain.num_values - 1}, got "
                        f"{numbers.tolist()}"
                    )
                state[:, list(found)] = one_hot(whole, domain.num_values).to(state.dtype)
            else:
                state[:, list(found)] = numbers.to(state.dtype)
        free = (~is_known).nonzero().squeeze(1)
        self.domain = domain.of_sites(free.tolist(), state[:, is_known])
        uniform = self.domain.uniform(rows, Generator().manual_seed(0)).to(state)
        state[:, free] = pad_values(uniform, state)
        domain.check(state)
        self.before = before
        for name, value in {
            "free": free,  # [free]
            "known": is_known.nonzero().squeeze(1),  # [known]
            "state": state,  # [1 or chains, *shape], with arbitrary values at the free sites
        }.items():
            self.register_buffer(name, value, persistent=False)

    @property
    def values(self) -> Tensor:
        """The values of the known sites, `[known, ...]`, where all chains have the same."""
        return self.state[0].index_select(0, self.known)

    def fill_in(self, x: Tensor) -> Tensor:
        """The states of the model that was conditioned, `[chains, *shape]`."""
        if len(self.state) not in (1, len(x)):
            raise ValueError(
                f"the known values are those of {len(self.state)} chains, got {len(x)} states; "
                "sample with as many chains, and with samplers that hold one state a chain"
            )
        return self._insert(x)

    def _insert(self, x: Tensor) -> Tensor:
        state = self.state.to(x).unsqueeze(1)
        state = state.expand(-1, len(x) // len(state), *state.shape[2:]).flatten(0, 1)
        return state.index_copy(1, self.free, pad_values(x, self.state))

    def complete(self, x: Tensor) -> Tensor:
        """The states of the model before all conditioning, `[n, *shape]`.

        With known values of each chain, the rows of `x` are those of chain 0, then of chain 1, ..,
        equally many of each, as in `draws.flatten(0, 1)`.
        """
        x = self._insert(x)
        return x if self.before is None else self.before.complete(x)


def require_possible(model: EnergyModel, evidence: Evidence) -> None:
    """Raise ValueError if known values alone have probability 0, by a table of the model."""
    known, domain = set(evidence.known.tolist()), model.domain
    tables = [pair for pair in model.support_tables() or () if known.issuperset(pair[0])]
    if not tables:
        return
    codes = value_numbers(evidence.state, domain).cpu().numpy()  # [1 or chains, sites]
    for scope, allowed in tables:
        for values in codes[:, scope]:
            if not allowed[tuple(values)]:
                names = scope if model.names is None else [model.names[site] for site in scope]
                kind = "sites " if model.names is None else ""
                raise ValueError(
                    f"the known values of {kind}{' and '.join(map(repr, names))} are impossible: "
                    f"a table gives {' and '.join(map(str, values))} probability 0"
                )


def value_numbers(x: Tensor, domain: Domain) -> Tensor:
    """The numbers of the sites' values, from 0, `[chains, sites]`."""
    if isinstance(domain, Categorical):
        return x.argmax(-1)
    return (x == x.new_tensor(float(domain.values()[1]))).long()


def pad_values(x: Tensor, like: Tensor) -> Tensor:
    """One-hot values with zeros for those that only the sites of the states `like` have."""
    if like.ndim < 3 or x.shape[-1] == like.shape[-1]:
        return x
    return torch.nn.functional.pad(x, (0, like.shape[-1] - x.shape[-1]))


def _by_site(
    domain: Domain, values: Known, names: tuple[Hashable, ...] | None
) -> dict[int, Tensor]:
    """The value of each known site, a scalar or `[chains]`."""
    if isinstance(values, Tensor):
        if values.shape[-1:] != (domain.dim,) or values.ndim > 2 or not len(values):
            raise ValueError(
                f"known values must be a tensor [{domain.dim}], or [chains, {domain.dim}], a "
                f"number a site and NaN at free sites, got {list(values.shape)}"
            )
        is_known = ~values.isnan().view(-1, domain.dim)
        if (differ := (is_known != is_known[0]).any(0)).any():
            raise ValueError(
                "the free sites must be the same for all chains, got known values of site "
                f"{int(differ.nonzero()[0])} for some chains only; condition and sample once for "
                "each set of free sites"
            )
        places = is_known[0].nonzero().squeeze(1).tolist()
        return {site: values[..., site].double().cpu() for site in places}
    index: dict[Any, Any] = {} if names is None else {name: i for i, name in enumerate(names)}
    found: dict[Any, Tensor] = {}
    for key, value in values.items():
        if (site := index.get(key, key)) in found:
            raise ValueError(f"site {site} is known twice, the second time as {key!r}")
        if not isinstance(site, Integral) or int(site) not in range(domain.dim):
            kinds = "a name or " if names else ""
            near = get_close_matches(str(site), map(str, names or ()), 1)
            raise ValueError(
                f"a known site must be {kinds}a number from 0 to {domain.dim - 1}, got {site!r}"
                + (f"; did you mean {near[0]!r}?" if near else "")
            )
        try:
            found[site] = torch.tensor(float(value), dtype=torch.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"the known value of {key!r} must be a number, got {value!r}; the values of this "
                "model have no labels"
            ) from error
    return found


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
