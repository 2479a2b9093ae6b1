"""Definitions of reference targets: how a model is built from arrays, and moments of its states."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from latticework.models.base import EnergyModel

Arrays = Mapping[str, NDArray[Any]]  # the parameters of a target, by name
# A function of states [n, *domain.shape] and the arrays: n numbers, whose mean is known.
Moment = Callable[[Tensor, Arrays], Tensor]


@dataclass(frozen=True)
class Definition:
    """A target. Its card has the means of `moments`, by these names."""

    build: Callable[[Arrays], EnergyModel]
    moments: Mapping[str, Moment] = field(default_factory=dict)


def spin_product(one: int, other: int) -> Moment:
    """The product of two spins s = 2 x - 1."""

    def moment(x: Tensor, _: Arrays) -> Tensor:
        return (2 * x[:, one] - 1) * (2 * x[:, other] - 1)

    return moment


def product_of_sites(one: int, other: int) -> Moment:
    """The product of two sites: of one-hot sites, whether they have one value."""

    def moment(x: Tensor, _: Arrays) -> Tensor:
        both = x[:, one] * x[:, other]
        return both if x.ndim == 2 else both.sum(-1)

    return moment


def sum_of_sites(x: Tensor, _: Arrays) -> Tensor:
    return x.sum(-1)
