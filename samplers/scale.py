"""The scale of a proposal: one number for all chains, or one for each; driven by the acceptance."""

import copy
from math import log, sqrt
from typing import TypeVar

from torch import Tensor

from latticework.samplers.base import Sampler

GAIN, DECAY = 2.0, 0.6  # steps n^-DECAY of stochastic approximation
RANGE = 100.0  # a scale stays within this factor of the sampler's own

Number = TypeVar("Number", float, Tensor)


def change_of_log(number: int, acceptance: Number, goal: float) -> Number:
    """Change of the log of a scale by update n = `number` >= 1: 2 n^-0.6 (acceptance - goal).

    It drives the acceptance to `goal` (Robbins and Monro 1951).
    """
    return GAIN * number**-DECAY * (acceptance - goal)


def with_scales(sampler: Sampler, scales: Tensor) -> Sampler:
    """`sampler` with a scale of its own for each chain, `scales` `[chains]`."""
    assert sampler.scale is not None
    assert sampler.scale_by_chain
    changed = copy.copy(sampler)
    object.__setattr__(changed, sampler.scale, scales)
    return changed


def by_chain(numbers: Number, x: Tensor) -> Number:
    """`numbers` `[chains]` with dimensions of size 1 appended, to broadcast with `x`."""
    return numbers.view(-1, *[1] * (x.ndim - 1)) if isinstance(numbers, Tensor) else numbers


def root(numbers: Number) -> Number:
    """The square root of one scale or of the scales `[chains]`."""
    return numbers.sqrt() if isinstance(numbers, Tensor) else sqrt(numbers)


def logarithm(numbers: Number) -> Number:
    """The natural logarithm of one scale or of the scales `[chains]`."""
    return numbers.log() if isinstance(numbers, Tensor) else log(numbers)
