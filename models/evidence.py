"""Known values at some sites of a model."""

from collections.abc import Hashable, Iterable, Mapping
from difflib import get_close_matches
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from latticework.models.domains import Categorical, Domain, one_hot

# Values by site or name, or a tensor with NaN at free sites, of all chains or a row for each.
Known = Mapping[Any, Any] | Tensor


class Evidence(nn.Module):
    """The free sites, and the values of the others: the same for all chains, or each chain's."""

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
        known = _by_site(domain, values, names)
        is_known = torch.zeros(domain.dim, dtype=torch.bool)
        is_known[list(known)] = True
        several = isinstance(values, Tensor) and values.ndim == 2
        earlier = None if before is None else before.chains
        self.chains: int | None = len(values) if several else earlier
        if is_known.all():
            raise ValueError(f"all {domain.dim} sites are known; leave one free at least")
        rows = len(values) if several else 1
        state = domain.uniform(rows, Generator().manual_seed(0))
        if known:
            numbers = torch.stack(list(known.values()), -1).expand(rows, -1)  # [rows, known]
            if isinstance(domain, Categorical):
                whole = numbers.long()
                if (whole != numbers).any() or whole.min() < 0 or whole.max() >= domain.num_values:
                    raise ValueError(
                        f"known values must be from 0 to {domain.num_values - 1}, got "
                        f"{numbers.tolist()}"
                    )
                state[:, list(known)] = one_hot(whole, domain.num_values).to(state.dtype)
            else:
                state[:, list(known)] = numbers.to(state.dtype)
        free = (~is_known).nonzero().squeeze(1)
        self.whole = domain  # the domain of all sites
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

    def require_possible(
        self,
        tables: Iterable[tuple[tuple[int, ...], NDArray[np.bool_]]],
        names: tuple[Hashable, ...] | None,
    ) -> None:
        """Raise ValueError if the known values alone have probability 0, by a table of a model."""
        known = set(self.known.tolist())
        tables = [table for table in tables if known.issuperset(table[0])]
        if not tables:
            return
        codes = value_numbers(self.state, self.whole).cpu().numpy()  # [1 or chains, sites]
        for scope, allowed in tables:
            for values in codes[:, scope]:
                if not allowed[tuple(values)]:
                    sites = scope if names is None else [names[site] for site in scope]
                    kind = "sites " if names is None else ""
                    raise ValueError(
                        f"the known values of {kind}{' and '.join(map(repr, sites))} are "
                        f"impossible: a table gives {' and '.join(map(str, values))} probability 0"
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
    value_by_site: dict[Any, Tensor] = {}
    for key, value in values.items():
        if (site := index.get(key, key)) in value_by_site:
            raise ValueError(f"site {site} is known twice, the second time as {key!r}")
        if not isinstance(site, Integral) or int(site) not in range(domain.dim):
            kinds = "a name or " if names else ""
            near = get_close_matches(str(site), map(str, names or ()), 1)
            raise ValueError(
                f"a known site must be {kinds}a number from 0 to {domain.dim - 1}, got {site!r}"
                + (f"; did you mean {near[0]!r}?" if near else "")
            )
        try:
            value_by_site[site] = torch.tensor(float(value), dtype=torch.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"the known value of {key!r} must be a number, got {value!r}; the values of this "
                "model have no labels"
            ) from error
    return value_by_site
