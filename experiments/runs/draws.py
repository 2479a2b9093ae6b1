"""Run chains and keep every state, for estimators that need all samples."""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from latticework.experiments.runs.run import Run
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.chain import Chain
from latticework.sampling.memory import Memory
from latticework.sampling.metrics import Trace, Unsettled

BLOCK = 100  # steps at most between two readings
METRICS = (Unsettled(),)  # besides the trace


@dataclass(eq=False)
class Drawing(Memory):
    """The chains, and the states drawn so far."""

    chain: Chain
    drawn: Tensor  # [steps, chains, dim], uint8


def consecutive(
    sampler: Sampler,
    model: EnergyModel,
    x: Tensor,
    rng: Generator,
    steps: int,
    run: Run | None = None,
) -> Tensor:
    """The states after each step from `x` `[chains, dim]`, uint8 `[steps * chains, dim]`.

    States are in the order of the steps; the start is not included. With a `run`, the loop shows
    its progress and can be resumed. If the sampler has an inner loop, the record then notes
    `unsettled`, the fraction of steps at which that loop reached its bound. Raises ValueError for
    states other than 0 and 1.
    """
    every = next(block for block in range(min(BLOCK, steps), 0, -1) if steps % block == 0)
    trace = Trace(draws=every, chains=len(x))
    chain = Chain(sampler, model, x, rng, every=every, metrics=METRICS + (trace,))
    memory = Drawing(chain, torch.empty(steps, *x.shape, dtype=torch.uint8, device=x.device))
    total = steps // every
    blocks = (
        run.resumable(memory, "sampling", total=total, each=every) if run else range(1, total + 1)
    )
    for block in blocks:
        chain.advance()
        states = trace.arrays(chain.carries[-1])["trace"]
        memory.drawn[(block - 1) * every : block * every] = states
        if block in (1, total):  # at once, before the other steps are spent, and at the end
            _check(chain.state.x)
    if run is not None and not math.isnan(share := float(chain.reading(steps).values["unsettled"])):
        run.note(unsettled=share)
    return memory.drawn.flatten(0, 1)


def _check(x: Tensor) -> None:
    if x.isnan().any():
        raise ValueError("a chain became NaN; look at the model: did its training diverge?")
    if not ((x == 0) | (x == 1)).all():
        raise ValueError("samples must be 0 or 1 here; set sampler.emit=sample")
