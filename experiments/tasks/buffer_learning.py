"""Updates of a model by persistent contrastive divergence with a replay buffer."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from latticework.data.base import Dataset
from latticework.experiments.runs import storage
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures.learning_progress import Evaluation
from latticework.experiments.tasks.measures.validity import Validity, warn_of_invalid_steps
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.clock import Clock
from latticework.sampling.learning.negatives import Replay
from latticework.sampling.learning.updates import DivergedError, Updates
from latticework.sampling.loop_state import to_checkpoint
from latticework.sampling.metrics import Acceptance

log = logging.getLogger(__name__)


@dataclass(init=False, eq=False)
class Learning(Updates):
    """Updates with a replay buffer (`negatives.buffer`), timed, averaged and checked."""

    ema: AveragedModel | None
    clock: Clock  # seconds spent in updates
    loss: float  # loss of the last update, NaN before the first
    norm: float  # norm of its gradient

    def __init__(
        self,
        model: EnergyModel,
        sampler: Sampler,
        data: Dataset,
        run: Run,
        *,
        iterations: int,
        steps: int,
        batch: int,
        l1: float,
        largest_gradient: float,
        largest_loss: float,
        stepper: Optimizer,
        schedule: Callable[..., LRScheduler] | None,
        ema: float | None,
        chains: Tensor,
    ) -> None:
        if len(chains) > batch and not sampler.stationary_start:
            log.warning(
                "%s starts part of its state anew at each update, because a batch is drawn from a "
                "larger buffer; the negatives are approximate. task.buffer=%d avoids this",
                *(sampler, batch),
            )
        metrics = (Acceptance(), Validity())
        kernel = run.select_kernel(
            sampler, model, metrics, chains[:batch], iterations * steps, steps
        )
        self.replay = Replay(kernel, chains, steps, batch, metrics)
        self.rows = data
        super().__init__(
            self.replay,
            model,
            data,
            batch,
            stepper=stepper,
            schedule=schedule(stepper) if schedule else None,
            rng=run.rng("negatives"),
            shuffle=run.rng("batches", device="cpu"),
        )
        self.run, self.l1 = run, l1
        self.largest_gradient, self.largest_loss = largest_gradient, largest_loss
        self.ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(ema)) if ema else None
        self.clock, self.loss, self.norm = Clock(run.device), math.nan, math.nan
        self.updated = False  # since this process began

    def learn(self, iteration: int) -> None:
        """Make an update. Raises DivergedError; diverged.pt then holds the state before it."""
        with self.clock:
            positive = self.positive()
            value = self.gradient(positive, self.negative(positive))
            loss, norm = torch.stack((value.float(), self.clip_gradient().float())).tolist()
            # A chain on its way to infinity passes 1e11 long before: hence the bound on the loss.
            finite = math.isfinite(loss) and math.isfinite(norm)
            if not finite or abs(loss) > self.largest_loss:
                self._raise_diverged(iteration, loss, norm)
            self.step()
            if self.ema is not None:
                self.ema.update_parameters(self.model)
            self.loss, self.norm = loss, norm
        self.updated = True

    def clip_gradient(self) -> Tensor:
        """Add the gradient of the penalty, then clip. Returns the norm before that, a scalar."""
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        for parameter in parameters if self.l1 else []:
            assert parameter.grad is not None
            parameter.grad.add_(parameter.sign(), alpha=self.l1)
        return clip_grad_norm_(parameters, self.largest_gradient)

    def averaged_model(self) -> EnergyModel:
        """The model with the averaged parameters if there are any, else the model itself."""
        return self.model if self.ema is None else cast(EnergyModel, self.ema.module)

    @torch.no_grad()
    def log(self, iteration: int, evaluations: Sequence[Evaluation]) -> None:
        """A row of metrics.csv; acceptance is over the updates since the last row."""
        chains = self.negatives
        readings = [each(self.averaged_model(), self.rows, chains.state.x) for each in evaluations]
        accepted, tally = chains.carries
        acceptance = self.replay.metrics[0].read(accepted)
        if self.updated:
            warn_of_invalid_steps(self.run, tally, iteration)
        chains.carries = self.replay.fresh(self.model, chains.state)
        self.run.log(
            iteration,
            seconds=self.clock.seconds,
            loss=self.loss,
            gradient=self.norm,
            **acceptance,
            **{name: value for reading in readings for name, value in reading.items()},
        )

    def _raise_diverged(self, iteration: int, loss: float, norm: float) -> None:
        file = self.run.path / "diverged.pt"
        storage.write_atomically(file, storage.serialise_checkpoint(to_checkpoint(self)))
        raise DivergedError(
            f"at update {iteration} the loss is {loss} and the norm of its gradient {norm}; the "
            f"state before it is in {file}. Try a smaller learning rate, more sampling steps, "
            "or task.largest_gradient"
        )
