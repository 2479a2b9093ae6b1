"""Task: learn an energy-based model by persistent contrastive divergence, with any sampler.

Each update follows the gradient of mean log pi(data) - mean log pi(negatives). The negatives are
chains that go on from update to update: as many as a batch, or a replay buffer of more, of which
a batch is drawn, moved `steps` steps under the present model and put back. T. Tieleman, ICML 2008;
Y. Du and I. Mordatch, NeurIPS 2019; settings of Zhang et al. (2022), Section 7.3 and App. I.4.

A record holds, besides the metrics:

    model.safetensors        the parameters at the end
    ema.safetensors          their running average, where one is kept
    ema_005000.safetensors   what one would use (the average, or else the parameters) after so many
                             updates, for task=ais to choose among
    samples_005000.npz       x: chains of the buffer then, at most 100
    buffer.npz               x: all chains at the end
    last.npz                 x: at most 100 of them, for figures
    diverged.pt              only where learning diverged: all of the memory before that update
"""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from data.base import Dataset
from experiments import writing
from experiments.chain import block_of, capture
from experiments.checkpoint import captured
from experiments.clock import Clock
from experiments.context import Run
from experiments.evaluations import Evaluation
from experiments.metrics import Acceptance
from experiments.truth import Reference
from experiments.validity import Validity, watch
from models.base import EnergyModel
from samplers.base import Sampler

log = logging.getLogger(__name__)
SHOWN = 100  # chains that are stored on the way
TIMED = (3, 10)  # updates after which the time of the whole is estimated: from, to


class DivergedError(RuntimeError):
    """The loss or its gradient is beyond all bounds; the state before is in the record."""


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
    """Learn in `iterations` updates, reading `evaluations` every `every` of them.

    `buffer` chains, not fewer than `batch`, begin at `start`. The sum of all |parameters| is
    penalised by `l1`, gradients of a larger norm than `largest_gradient` are shortened to it, and
    `ema` is the decay of the running average that is evaluated. `snapshots` says how often the
    model is stored. `examples` makes the data where no data set is named. Seconds are those of the
    updates alone. Raises DivergedError where the loss or its gradient is not finite, or the loss
    larger than `largest_loss` in size; ValueError for a buffer smaller than a batch.
    """
    if examples is not None:
        data = examples(run=run)
    if data is None:
        raise ValueError("learning needs a data set; give one, such as data=static_mnist")
    if buffer < batch:
        raise ValueError(f"buffer must hold a batch of {batch} at least, got {buffer}")
    model.start_from_data(data.mean.to(run.device))
    learner = Learner(
        model,
        sampler,
        data,
        run,
        steps=steps,
        batch=batch,
        l1=l1,
        largest_gradient=largest_gradient,
        largest_loss=largest_loss,
        stepper=optimiser(model.parameters()),
        schedule=schedule,
        ema=ema,
        chains=start(model, buffer, run.rng("start"), data),
    )
    memory, clock = learner.memory, learner.memory["clock"]
    said = False
    for iteration in run.resumable(memory, "learning", total=iterations, first=0):
        if iteration:
            learner.update(iteration)
            if learner.made == TIMED[0]:
                began = clock.seconds
            if learner.made == TIMED[1] and not said:
                each, said = (clock.seconds - began) / (TIMED[1] - TIMED[0]), True
                announce(run, each, iteration, iterations)
        if iteration % every == 0 or iteration == iterations:
            log_reading(learner, iteration, evaluations)
        if iteration and (iteration % snapshots == 0 or iteration == iterations):
            run.save_tensors(f"ema_{iteration:06}", learner.best().state_dict())
            run.save(f"samples_{iteration:06}", x=memory["buffer"][:SHOWN])
    run.save_tensors("model", model.state_dict())
    if ema is not None:
        run.save_tensors("ema", learner.best().state_dict())
    run.save("buffer", x=memory["buffer"])
    run.save("last", x=memory["buffer"][:SHOWN])


class Learner:
    """The moving parts of learning, all of them in `memory`, and one update of them."""

    def __init__(
        self,
        model: EnergyModel,
        sampler: Sampler,
        data: Dataset,
        run: Run,
        *,
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
        self.model, self.sampler, self.data, self.run = model, sampler, data, run
        self.batch, self.l1 = batch, l1
        self.largest_gradient, self.largest_loss = largest_gradient, largest_loss
        self.made = 0  # updates of this process
        model.requires_grad_(False)
        self.metrics = (Acceptance(), Validity())
        with torch.no_grad():
            state = sampler.init(chains[:batch], model)
            carries = self.fresh(state)
        rng = run.rng("negatives")
        self.memory: dict[str, Any] = {
            "model": model,
            "stepper": stepper,
            "schedule": schedule and schedule(stepper),
            "ema": ema and AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(ema)),
            "rng": rng,
            "shuffle": run.rng("batches", device="cpu"),
            "order": torch.empty(0, dtype=torch.long),
            "buffer": chains,
            "state": state,
            "carries": carries,
            "loss": math.nan,
            "norm": math.nan,
            "clock": Clock(run.device),
        }
        self.block = block_of(sampler, model, rng, steps, self.metrics)
        self.graphed = False

    def update(self, iteration: int) -> None:
        """Draw a batch and negatives, and step."""
        with self.memory["clock"]:
            positive = self.positive()
            with torch.no_grad():
                negative = self.negative()
            loss, norm = self.gradient(positive, negative)
            # One chain that runs away to inf has been at 1e11 for a while: hence the bound.
            finite = math.isfinite(loss) and math.isfinite(norm)
            if not finite or abs(loss) > self.largest_loss:
                self._diverged(iteration, loss, norm)
            self.step()
            self.memory["loss"], self.memory["norm"] = loss, norm
        self.made += 1

    def fresh(self, state: Any) -> list[Any]:
        """The metrics' carries from here on."""
        return [metric.init(self.model, state, Reference()) for metric in self.metrics]

    def best(self) -> EnergyModel:
        """What one would use: the running average of the parameters, or else they themselves."""
        average = self.memory["ema"]
        return self.model if average is None else average.module

    def positive(self) -> Tensor:
        """The next batch of data."""
        memory, shuffle = self.memory, self.memory["shuffle"]
        order = memory["order"]
        if len(order) < self.batch:  # a new pass, in a new order
            order = torch.randperm(len(self.data.train), generator=shuffle)
        rows, memory["order"] = order[: self.batch], order[self.batch :]
        return self.data.batch(rows, shuffle).to(self.run.device)

    def negative(self) -> Tensor:
        """A batch of the buffer after `steps` steps, which is put back."""
        memory, chains = self.memory, self.memory["buffer"]
        if len(chains) == self.batch:
            rows: Tensor | slice = slice(None)
            state = self.sampler.refresh(memory["state"], self.model)
        else:
            rng = memory["rng"]
            rows = torch.randperm(len(chains), generator=rng, device=rng.device)[: self.batch]
            state = self.sampler.moved_to(chains[rows], memory["state"], self.model)
        if state.x.is_cuda and not self.graphed:
            self.block = capture(self.block, state, memory["carries"], memory["rng"])
            self.graphed = True
        memory["state"], memory["carries"] = self.block(state, memory["carries"])
        chains[rows] = memory["state"].x
        return memory["state"].x

    def gradient(self, positive: Tensor, negative: Tensor) -> tuple[float, float]:
        """The loss, mean log pi(negatives) - mean log pi(data), and the norm of its gradient."""
        model, stepper = self.model, self.memory["stepper"]
        stepper.zero_grad(set_to_none=True)
        loss = model.contrast(positive, negative)
        parameters = [p for p in model.parameters() if p.grad is not None]
        for parameter in parameters if self.l1 else []:
            assert parameter.grad is not None
            parameter.grad.add_(parameter.sign(), alpha=self.l1)
        norm = clip_grad_norm_(parameters, self.largest_gradient)
        loss, norm = torch.stack((loss.detach().float(), norm.float())).tolist()
        return loss, norm

    def step(self) -> None:
        """Follow the gradient."""
        memory = self.memory
        memory["stepper"].step()
        self.model.project()
        if memory["schedule"] is not None:
            memory["schedule"].step()
        if memory["ema"] is not None:
            memory["ema"].update_parameters(self.model)

    def _diverged(self, iteration: int, loss: float, norm: float) -> None:
        file = self.run.path / "diverged.pt"
        writing.write(file, writing.checkpoint(captured(self.memory)))
        raise DivergedError(
            f"at update {iteration} the loss is {loss} and the norm of its gradient {norm}; the "
            f"state before it is in {file}. Try a smaller learning rate, more sampling steps, "
            "or task.largest_gradient"
        )


def announce(run: Run, each: float, iteration: int, iterations: int) -> None:
    """Say how long the rest takes, from measured updates."""
    minutes = each * (iterations - iteration) / 60
    log.info("%.3g s an update: about %.3g minutes for those that are left", each, minutes)
    run.note(seconds_per_update=each)


def log_reading(learner: Learner, iteration: int, evaluations: Sequence[Evaluation]) -> None:
    memory, model, data = learner.memory, learner.best(), learner.data
    with torch.no_grad():
        negatives = memory["state"].x
        readings = [evaluation(model, data, negatives) for evaluation in evaluations]
        accepted, tally = memory["carries"]
        acceptance = learner.metrics[0].read(accepted)
        if learner.made:
            watch(learner.run, tally, iteration)
        memory["carries"] = learner.fresh(memory["state"])
    learner.run.log(
        iteration,
        seconds=memory["clock"].seconds,
        loss=memory["loss"],
        gradient=memory["norm"],
        **acceptance,
        **{name: value for reading in readings for name, value in reading.items()},
    )
