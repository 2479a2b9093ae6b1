"""Categories whose numbers of values differ from site to site."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Generator, Tensor

from latticework.models.domains.base import Domain, one_hot
from latticework.models.domains.categorical import Categorical


@dataclass(frozen=True)
class Mixed(Categorical):
    """Categories, site i with `sizes[i]` of them: `Mixed([2, 4, 3])`.

    States are one-hot `[chains, dim, num_values]`, with the largest size unless `num_values` is
    given. The values that a site does not have are 0 in every state. No proposal leads to them, and
    no model is evaluated there.
    """

    dim: int = field(init=False, repr=False)
    num_values: int = field(default=0, kw_only=True)
    sizes: Sequence[int]

    def __post_init__(self) -> None:
        sizes = tuple(int(size) for size in self.sizes)
        if not sizes or min(sizes) < 2:
            raise ValueError(
                "Mixed needs the number of values of each site, two or more, got "
                f"{self.sizes}; leave out sites of one value"
            )
        if 0 < self.num_values < max(sizes):
            raise ValueError(f"num_values must be {max(sizes)} or more, got {self.num_values}")
        fields = {"sizes": sizes, "dim": len(sizes), "num_values": self.num_values or max(sizes)}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def of_sites(self, sites: Sequence[int], others: Tensor | None = None) -> Domain:
        return Mixed(tuple(self.sizes[site] for site in sites))

    def _sizes(self) -> tuple[int, ...]:
        return tuple(self.sizes)

    def size_of(self, sites: Tensor) -> Tensor:
        """The number of values of each of `sites`, in their shape."""
        return _as_tensor(self._sizes(), sites.device)[sites]

    def allowed_values(self, sites: Tensor) -> Tensor:
        values = torch.arange(self.num_values, device=sites.device)
        return values < self.size_of(sites).unsqueeze(-1)

    def _index(self, chains: int, rng: Generator) -> Tensor:
        sizes = _as_tensor(self._sizes(), rng.device)
        drawn = torch.rand(chains, self.dim, generator=rng, device=rng.device).double() * sizes
        return drawn.long()

    def check(self, x: Tensor) -> None:
        super().check(x)
        if (wrong := x.masked_fill(self._every(x), 0).sum((0, 2)) > 0).any():
            site = int(wrong.nonzero()[0])
            raise ValueError(f"site {site} has {self.sizes[site]} values, got a larger one")

    def _every(self, x: Tensor) -> Tensor:
        return self.allowed_values(torch.arange(self.dim, device=x.device))

    def gains(self, x: Tensor, grad: Tensor) -> Tensor:
        """Values that a site does not have are -inf."""
        return super().gains(x, grad).masked_fill(~self._every(x), -torch.inf)

    def leaving_logits(self, x: Tensor, logits: Tensor) -> Tensor:
        """Values that a site does not have are -inf, whatever their logits."""
        return super().leaving_logits(x, logits.masked_fill(~self._every(x), -torch.inf))

    def apply(self, x: Tensor, move: Tensor) -> Tensor:
        """A value that a site does not have, of probability 0, is read as its last one."""
        return super().apply(x, move.minimum(_as_tensor(self._sizes(), x.device) - 1))

    def block(self, x: Tensor, sites: Tensor) -> tuple[Tensor, Tensor | None]:
        index = self.patterns(len(sites), x.device).argmax(-1)
        size = self.size_of(sites)
        return (
            one_hot(index.minimum(size - 1), self.num_values).to(x.dtype).unsqueeze(0),
            (index >= size).any(-1).unsqueeze(0),
        )


@lru_cache(maxsize=32)
def _as_tensor(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(sizes, device=device)
