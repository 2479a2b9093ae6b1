"""Tables over a few variables: the factors of `Factors`, and their sizes."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    pass


class Factor(NamedTuple):
    """The logarithm of a table over the variables of a scope; log 0 is -inf."""

    scope: tuple[int, ...]
    log: NDArray[np.float64]  # an axis a variable


def kind_of(factor: Factor) -> tuple[int, tuple[int, ...]]:
    """Factors of one kind are evaluated together."""
    return len(factor.scope), factor.log.shape


def variable_sizes(factors: list[Factor], sites: int | Sequence[int] | None) -> tuple[int, ...]:
    """The number of values of each variable. Raises ValueError unless the tables fit them."""
    every = [site for scope, _ in factors for site in scope]
    declared, count = None, max(every, default=-1) + 1
    if isinstance(sites, Sequence):
        declared = tuple(map(int, sites))
    elif sites is not None:
        count = sites
    count = count if declared is None else len(declared)
    if (not every and declared is None) or any(not 0 <= site < count for site in every):
        raise ValueError(
            f"scopes must hold variables from 0 to {count - 1}, got {sorted(set(every))[:9]}"
        )
    for factor in factors:
        _require_table(factor)
    sizes = _sizes_in_tables(factors, dict(enumerate(declared or ())))
    free = [site for site in range(count) if site not in sizes]
    if free and len(set(sizes.values())) > 1:
        raise ValueError(
            f"no table tells the number of values of variable {free[0]}; give sites=[2, 3, ..], "
            "those of all variables"
        )
    return tuple(sizes.get(site, next(iter(sizes.values()))) for site in range(count))


def _require_table(factor: Factor) -> None:
    """Raise ValueError unless the table fits its scope and holds logarithms."""
    scope, log = factor
    if len(set(scope)) != len(scope) or log.ndim != len(scope):
        raise ValueError(
            f"a table must have an axis for each variable of its scope, each once, got the "
            f"scope {scope} and the shape {log.shape}"
        )
    if np.isnan(log).any() or (log == math.inf).any():
        raise ValueError(f"logarithms of tables must be finite or -inf, got others for {scope}")


def _sizes_in_tables(factors: list[Factor], sizes: dict[int, int]) -> dict[int, int]:
    """`sizes` with those of the tables. Raises ValueError where these differ."""
    for scope, log in factors:
        for site, size in zip(scope, log.shape, strict=True):
            if sizes.setdefault(site, size) != size or size < 2:
                raise ValueError(
                    f"variable {site} has {sizes[site]} values, got a table of {size} for it; all "
                    "its tables must have the same number, two or more"
                )
    return sizes
