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
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from latticework.data.base import Dataset, fixed_subset
from latticework.experiments.records.estimates import KeyNumber, last_readings
from latticework.experiments.records.record import Record
from latticework.experiments.runs import storage
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.storage import artifact_spec, load_or_make_artifact
from latticework.experiments.tasks.learning.negatives import Replay, Updates, require_data
from latticework.experiments.tasks.target import Validity, warn_of_invalid_steps
from latticework.models.base import EnergyModel
from latticework.models.domains import Binary
from latticework.samplers.base import Sampler
from latticework.sampling.chain import run_chain
from latticework.sampling.clock import Clock
from latticework.sampling.loop_state import to_checkpoint
from latticework.sampling.metrics import Acceptance

log = logging.getLogger(__name__)
STORED_CHAINS = 100  # chains in each stored sample
ROWS = 500  # of the data evaluated at once
CHUNK = 100  # chains at once that make data: a sweep's memory stays in the processor's cache


class Evaluation(ABC):
    """Scalars by name about a model while it is learned. A frozen dataclass of settings.

    It is called with the model (its exponential moving average, if learning keeps one), the data,
    and the negative samples of the last update, with gradients off. It may move data to the host.
    """

    @abstractmethod
    def __call__(
        self, model: EnergyModel, data: Dataset, negatives: Tensor
    ) -> dict[str, Tensor]: ...


@dataclass(frozen=True)
class CouplingError(Evaluation):
    """Natural log of the RMSE of the learned J against that of `truth`, over all entries.

    Both models must have a `matrix`. Zhang et al. (2022), Figure 5.
    """

    truth: EnergyModel

    def __call__(self, model: Any, data: Dataset, negatives: Tensor) -> dict[str, Tensor]:
        truth: Any = self.truth
        found = model.matrix()
        error = (found + found.T) / 2 - truth.matrix().to(found)
        return {"log_rmse": error.square().mean().sqrt().log()}


@dataclass(frozen=True)
class Gap(Evaluation):
    """Mean log pi of validation rows minus that of training rows, and minus that of negatives.

    The first falls when the model overfits. The second is near 0 while the chains follow the model,
    and far from 0 when learning diverges.
    """

    rows: int = 1000

    def __call__(self, model: EnergyModel, data: Dataset, negatives: Tensor) -> dict[str, Tensor]:
        rng = torch.Generator().manual_seed(0)
        train = data.batch(fixed_subset(torch.arange(len(data.train)), self.rows), rng)
        valid = mean_log_prob(model, fixed_subset(data.valid, self.rows), negatives.device)
        return {
            "above_train": valid - mean_log_prob(model, train, negatives.device),
            "above_negatives": valid - mean_log_prob(model, negatives, negatives.device),
        }


def mean_log_prob(model: EnergyModel, rows: Tensor, device: torch.device) -> Tensor:
    """Mean of log pi over `rows` `[n, dim]`, unnormalised."""
    values = [model(chunk.to(device).float()).double() for chunk in rows.split(ROWS)]
    return torch.cat(values).mean()


class DivergedError(RuntimeError):
    """The loss or its gradient is not finite or too large; diverged.pt holds the state before."""


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


@dataclass(init=False, eq=False)
class Learning(Updates):
    """Updates with a replay buffer (`negatives.buffer`), timed, averaged and checked."""

    ema: AveragedModel | None
    clock: Clock  # seconds spent in updates
    loss: float  # of the last update, NaN before the first
    norm: float  # of its gradient

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
        """An update. Raises DivergedError."""
        with self.clock:
            positive = self.positive()
            value = self.gradient(positive, self.negative(positive))
            loss, norm = torch.stack((value.float(), self.clip_gradient().float())).tolist()
            # A chain on its way to infinity passes 1e11 long before: hence the bound on the loss.
            finite = math.isfinite(loss) and math.isfinite(norm)
            if not finite or abs(loss) > self.largest_loss:
                self._diverged(iteration, loss, norm)
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
        found = [each(self.averaged_model(), self.data, chains.state.x) for each in evaluations]
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
            **{name: value for reading in found for name, value in reading.items()},
        )

    def _diverged(self, iteration: int, loss: float, norm: float) -> None:
        file = self.run.path / "diverged.pt"
        storage.write_atomically(file, storage.serialise_checkpoint(to_checkpoint(self)))
        raise DivergedError(
            f"at update {iteration} the loss is {loss} and the norm of its gradient {norm}; the "
            f"state before it is in {file}. Try a smaller learning rate, more sampling steps, "
            "or task.largest_gradient"
        )


def examples(*, run: Run, model: EnergyModel, sampler: Sampler, chains: int, steps: int) -> Dataset:
    """The final states of `chains` chains after `steps` steps of `sampler`, started uniformly.

    All rows are training rows. They depend on the model seed, not on the run's seed. Raises
    ValueError unless the model's domain is {0, 1}^dim, as a data set has rows of 0 and 1.
    """
    if not (isinstance(model.domain, Binary) and model.domain.is_unit):
        raise ValueError(
            "examples for a data set are rows of 0 and 1, and need a model on {0, 1}^dim, got "
            f"{type(model).__name__} on {model.domain}; choose another model"
        )
    model = model.to(run.device)

    def make() -> dict[str, Tensor]:
        rng, rows = run.shared_rng("examples"), []
        starts = range(0, chains, CHUNK)
        for start in run.progress(starts, "examples", len(starts)):
            x = model.domain.uniform(min(CHUNK, chains - start), rng)
            *_, last = run_chain(sampler, model, x, rng, steps=steps, every=max(steps, 1))
            rows.append(last.state.x.byte())
        return {"x": torch.cat(rows)}

    spec = artifact_spec(sampler, model, run, chains=chains, steps=steps, chunk=CHUNK)
    x = load_or_make_artifact(run, "examples", spec, make)["x"].cpu()
    none = x[:0]
    return Dataset(x, none, none, (x.shape[1],), f"{chains} chains of {type(model).__name__}")
