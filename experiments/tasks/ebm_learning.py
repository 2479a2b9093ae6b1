"""Task: learn an energy-based model by persistent contrastive divergence, with any sampler.

The negatives are persistent chains: one batch of them, or a larger replay buffer. T. Tieleman,
ICML 2008; Y. Du and I. Mordatch, NeurIPS 2019; settings of Zhang et al. (2022), Section 7.3.

Besides the metrics, a record holds:

    model.safetensors        the final parameters
    ema.safetensors          their running average, if one is kept
    ema_005000.safetensors   the parameters after so many updates (the average if one is kept);
                             task=ais chooses among these files
    samples_005000.npz       x: at most 100 chains of the buffer after so many updates
    buffer.npz               x: all chains at the end
    last.npz                 x: at most 100 of them, for figures
    diverged.pt              only if learning diverged: all of `Learning` before that update
"""

import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from latticework.data.base import Dataset
from latticework.experiments.records.estimates import KeyNumber, last_readings
from latticework.experiments.records.record import Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.buffer_learning import Learning
from latticework.experiments.tasks.learning.data import require_data
from latticework.experiments.tasks.measures.learning_progress import Evaluation
from latticework.models.base import EnergyModel
from latticework.moved import offer_moved_names
from latticework.samplers.base import Sampler

log = logging.getLogger(__name__)
STORED_CHAINS = 100  # chains in each stored sample


def ebm_learning(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    iterations: int,
    every: int,
    snapshots: int,
    steps: int,
    batch: int,
    buffer: int,
    start: Callable[..., Tensor],
    optimiser: Callable[..., Optimizer],
    schedule: Callable[..., LRScheduler] | None = None,
    ema: float | None = None,
    l1: float = 0.0,
    largest_gradient: float = math.inf,
    largest_loss: float = math.inf,
    examples: Callable[..., Dataset] | None = None,
    evaluations: Sequence[Evaluation] = (),
) -> None:
    """Learn in `iterations` updates and read `evaluations` every `every` of them.

    `buffer` chains, at least `batch`, begin at `start`. `l1` times the sum of |parameters| is added
    to the loss, gradients are clipped to the norm `largest_gradient`, and `ema` is the decay of the
    running average of the parameters, which is then evaluated in their place. The model is stored
    every `snapshots` updates. `examples` makes the data. Seconds count the updates only.

    Raises DivergedError if the loss or its gradient is not finite or |loss| exceeds `largest_loss`;
    ValueError without data and if the buffer is smaller than a batch.
    """
    data = require_data(examples(run=run) if examples is not None else data)
    if buffer < batch:
        raise ValueError(f"buffer must hold a batch of {batch} at least, got {buffer}")
    model.start_from_data(data.mean.to(run.device))
    learning = Learning(
        model, sampler, data, run, iterations=iterations, steps=steps, batch=batch, l1=l1,
        largest_gradient=largest_gradient, largest_loss=largest_loss,
        stepper=optimiser(model.parameters()), schedule=schedule, ema=ema,
        chains=start(model, buffer, run.rng("start"), data),
    )  # fmt: skip
    for iteration in run.resumable(learning, "learning", total=iterations, first=0):
        if iteration:
            learning.learn(iteration)
        if iteration % every == 0 or iteration == iterations:
            learning.log(iteration, evaluations)
        if iteration and (iteration % snapshots == 0 or iteration == iterations):
            run.save_tensors(f"ema_{iteration:06}", learning.averaged_model().state_dict())
            run.save(f"samples_{iteration:06}", x=learning.negatives.buffer[:STORED_CHAINS])
    run.note(cpu_share=learning.clock.share)
    run.save_tensors("model", model.state_dict())
    if learning.ema is not None:
        run.save_tensors("ema", learning.averaged_model().state_dict())
    run.save("buffer", x=learning.negatives.buffer)
    run.save("last", x=learning.negatives.buffer[:STORED_CHAINS])


def headline(record: Record) -> list[KeyNumber]:
    """The last readings of the evaluations, and the acceptance of the negatives' chains."""
    costs = ("step", "seconds", "loss", "gradient", "acceptance")
    evaluations = [name for name in record.metrics if name not in costs]
    lower = ("log_rmse",)
    numbers = (*evaluations, "acceptance")
    return last_readings(record, {name: "lower" if name in lower else None for name in numbers})


if not TYPE_CHECKING:  # else type checkers would accept any name
    __getattr__ = offer_moved_names(__name__)
