"""Every state that chains pass through, kept: what an estimator made of samples needs."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Generator, Tensor

from experiments.chain import run_chain
from models.base import EnergyModel
from samplers.base import Sampler


def consecutive(
    sampler: Sampler,
    model: EnergyModel,
    x: Tensor,
    rng: Generator,
    steps: int,
    show: Callable[[Iterable[Any]], Iterable[Any]] = lambda readings: readings,
) -> Tensor:
    """The states after each step from `x` `[chains, dim]`, uint8 `[steps * chains, dim]`.

    In the order of the steps, the start left out. `show` wraps the loop to show its progress.
    Raises ValueError unless states are of zeros and ones.
    """
    drawn = torch.empty(steps, *x.shape, dtype=torch.uint8, device=x.device)
    for reading in show(run_chain(sampler, model, x, rng, steps=steps, every=1)):
        if reading.step:
            drawn[reading.step - 1] = reading.state.x
    last = reading.state.x
    if not ((last == 0) | (last == 1)).all():
        raise ValueError("samples must be of zeros and ones here; set sampler.emit=sample")
    return drawn.flatten(0, 1)
