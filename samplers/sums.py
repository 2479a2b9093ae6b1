"""Sums over the steps of one call, which compiled kernels keep and metrics read."""

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor
from torch.utils import _pytree as pytree

from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler


class SumRequest(NamedTuple):
    """Which sums a caller needs besides the cheap ones, which are always kept."""

    total: bool = False  # the sum of the states
    draws: int = 0  # the states of the last steps, at most this many
    traced: int = 0  # for so many chains
    changed: bool = False  # how many sites changed, and
    invalid: bool = False  # which steps were invalid; compiled kernels always keep these two

    def with_those_of(self, other: "SumRequest") -> "SumRequest":
        """The sums that either of the two wants."""
        return SumRequest(*map(max, self, other))  # type: ignore[arg-type]


NOTHING = SumRequest()


class Sums(NamedTuple):
    """Sums over the steps of one call. Arrays that are not wanted are empty."""

    total: NDArray[np.float32]  # [chains, size], the sum of the states after each step
    trace: NDArray[np.int8]  # [draws, traced, size], the states after the last steps
    accept: NDArray[np.float64]  # [chains], the sum of the acceptance probabilities
    changed: NDArray[np.int64]  # [chains], how many sites changed
    invalid: NDArray[np.int64]  # [chains], steps that met NaN or +inf
    unsettled: NDArray[np.int64]  # [chains], steps whose inner loop ended at its bound; or empty


class MultiStepSampler(Sampler):
    """A sampler that makes many steps in one call and returns sums over them."""

    engine = "compiled"  # `sampling.engine`
    loops = False  # whether a step has an inner loop that may end at a bound

    @abstractmethod
    def advance(
        self,
        state: Any,
        model: EnergyModel,
        rng: Generator,
        steps: int,
        wanted: SumRequest = NOTHING,
    ) -> tuple[Any, Sums]:
        """The state after `steps` steps. It does not depend on how steps are divided into calls."""

    def evaluate_states(self, states: Tensor, model: EnergyModel) -> Tensor | None:
        """The numbers of `model.log_prob` for int8 states `[n, *domain.shape]`, in less time.

        None if the model itself takes no longer.
        """
        return None


def empty_sums(x: Tensor, steps: int, wanted: SumRequest, loops: bool = False) -> Sums:
    """Sums before the first of `steps` steps, for states like `x` `[chains, ...]`.

    `loops` says whether the kernel has an inner loop that may end at a bound.
    """
    chains, size = len(x), x[0].numel()
    draws = min(steps, wanted.draws)
    traced = min(wanted.traced, chains) if draws else 0
    counts = np.zeros((3, chains), np.int64)
    return Sums(
        total=np.zeros((chains if wanted.total else 0, size), np.float32),
        trace=np.zeros((draws, traced, size), np.int8),
        accept=np.zeros(chains),
        changed=counts[0],
        invalid=counts[1],
        unsettled=counts[2] if loops else counts[2, :0],
    )


def has_no_nan(state: Any) -> Tensor:
    """Whether each chain's state is free of NaN, bool `[chains]`."""
    finite = torch.ones(len(state.x), dtype=torch.bool, device=state.x.device)
    for leaf in pytree.tree_leaves(state):
        if leaf.is_floating_point() and leaf.ndim and len(leaf) == len(finite):
            finite &= ~leaf.isnan().reshape(len(finite), -1).any(1)
    return finite
