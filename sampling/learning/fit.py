"""A model learned from rows in one call: `latticework.fit`.

The updates are those of the tasks that train RBMs and learn networks (`sampling.learning.updates`).
"""

import copy
import time
from collections.abc import Callable
from typing import Any, get_args

import torch
from torch import Generator, Tensor
from torch.optim import Adam, Optimizer

from latticework.models.base import EnergyModel
from latticework.models.domains import Binary
from latticework.samplers.base import Sampler, require_count, require_positive
from latticework.sampling.devices import on_threads
from latticework.sampling.learning.fit_result import FitReading, FitResult
from latticework.sampling.learning.held_out import Score, score_by
from latticework.sampling.learning.negatives import Negatives
from latticework.sampling.learning.rows import require_possible, split_rows
from latticework.sampling.learning.sources import choose_negatives_sampler, source_of
from latticework.sampling.learning.updates import DivergedError, Updates, set_rates, start_updates
from latticework.sampling.loop_state import to_checkpoint
from latticework.sampling.messages import nearest
from latticework.sampling.progress import ProgressLine
from latticework.sampling.sample_arguments import sampler_of, seed_generator
from latticework.sampling.seeds import derive_seed
from latticework.sampling.watch import Watch, shows_progress


def fit(
    model: EnergyModel,
    data: Any,
    negatives: str | Negatives = "pcd",
    *,
    sampler: Sampler | str | None = None,
    steps: int | None = None,
    epochs: int = 20,
    batch: int = 100,
    learning_rate: float = 1e-3,
    optimiser: Callable[..., Optimizer] = Adam,
    linear_decay: bool = False,
    particles: int = 100,
    held_out: Any = 0.1,
    stop: str | None = "pseudolikelihood",
    patience: int = 5,
    seed: int = 0,
    device: torch.device | str = "cpu",
    threads: int = 1,
    progress: bool | None = None,
) -> FitResult:
    """Learn the parameters of `model` from `data`; the same arguments give the same parameters.

    Updates follow the gradient of mean log p(data) - mean log p(negatives). The given model stays
    as it is, and the result has a copy. A model that is `untrained` first takes what it can from
    the frequencies of the data, such as the visible biases of an RBM. Ctrl-C ends learning after
    the update under way and returns what was learned; a second one raises KeyboardInterrupt.

    Args:
        model: a model with parameters: an RBM, `Graph`, `DenseIsing`, `ResNet` or one of your own.
        data: states `[rows, *model.domain.shape]`, as a tensor, array or table; images of binary
            sites may have their own shape. A `Dataset` of this library has its own held-out rows.
        negatives: where negative samples come from: `"pcd"`, persistent chains (of models other
            than an RBM a replay buffer, of which a batch moves); `"cd"`, from the batch of data;
            `"fpcd"`, persistent chains with fast weights; `"herding"`, of an RBM; or a source of
            `sampling.learning.negatives` with its own settings.
        sampler: moves the negative samples: a sampler or a name, as in `latticework.sample`. By
            default block Gibbs of an RBM, a Gibbs sweep where sites have classes, else DMALA.
        steps: its steps in an update; by default 1 if it draws all sites in one, else 10.
        epochs: passes over the training rows, at most.
        batch: rows of an update.
        learning_rate: of the optimiser.
        optimiser: a class of `torch.optim`, or a function of parameters and `lr`.
        linear_decay: whether the learning rate decays to 0 at the last epoch.
        particles: the number of persistent chains.
        held_out: the share of rows that are drawn to be scored and not trained on, rows of their
            own, or None.
        stop: what scores the held-out rows after each epoch: `"pseudolikelihood"`, the sum over
            sites of log p(site given the rest); or `"ais"`, the log-likelihood, whose log Z
            annealed importance sampling estimates. None learns for all epochs and scores nothing.
        patience: epochs without a better score after which learning ends.
        seed: seeds the batches and the negatives.
        device: cpu, cuda, cuda:1 ...; auto takes a GPU if there is one.
        threads: of the processor that PyTorch may use. More than one pays for large networks.
        progress: whether to show how far learning is; by default on a terminal and in a notebook.

    Raises:
        ValueError: if the model has no parameters or known values, if rows are no states of the
            model, or for an argument that is not valid. The message says what was expected and
            what was given.
        UnsupportedModelError: if the sampler does not support the model.
        DivergedError: if the loss is no longer finite.
    """
    began = time.perf_counter()
    _require_learnable(model)
    require_count(epochs=epochs, batch=batch, particles=particles, patience=patience)
    require_count(threads=threads)
    require_positive(learning_rate=learning_rate)
    if stop is not None and stop not in get_args(Score):
        raise ValueError(f"stop {stop!r} is not known: {nearest(str(stop), get_args(Score))}")
    place, _ = seed_generator(device, seed)

    def stream(purpose: str, place: torch.device | str = place) -> Generator:
        """The random numbers of a task's run with this model seed."""
        return Generator(place).manual_seed(derive_seed(seed, f"shared/{purpose}"))

    model = copy.deepcopy(model).to(place)
    training, held = split_rows(
        data, None if stop is None else held_out, model, stream("held out", "cpu")
    )
    if stop is not None and held is None:
        raise ValueError(
            f"stop={stop!r} scores held-out rows: give held_out, a share or rows, or stop=None"
        )
    kernel = choose_negatives_sampler(model) if sampler is None else sampler_of(sampler)
    per_epoch = max(1, round(training.epoch_size / batch))
    with on_threads(threads):
        require_possible(training, model, stream("rows", "cpu"), place)
        score = None
        if stop is not None and held is not None:
            score_seed = derive_seed(seed, "score")
            score = score_by(stop, held.to(place), training, model, kernel, score_seed)
        if model.untrained and isinstance(model.domain, Binary):
            model.start_from_data(training.mean.to(place))
        model.untrained = False
        source = source_of(
            negatives, kernel, steps, model, training,
            batch=batch, particles=particles, rng=stream("start"),
        )  # fmt: skip
        updates = start_updates(
            source, model, training, batch, updates=epochs * per_epoch,
            learning_rate=learning_rate, optimiser=optimiser, linear_decay=linear_decay,
            rng=stream("training"), shuffle=stream("batches", "cpu"),
        )  # fmt: skip
        run = FitRun(updates, per_epoch, score, patience)
        line = None
        if shows_progress(progress):
            line = ProgressLine(epochs * per_epoch, type(model).__name__, unit="updates")
        with Watch(began=began, line=line) as watch:
            stopped = run.learn(epochs * per_epoch, watch)
        set_rates(model, training, stream("rates", "cpu"), place)
    name = negatives if isinstance(negatives, str) else repr(negatives)
    if isinstance(negatives, str) and negatives != "herding":
        name = f"{negatives} with {kernel}"
    return FitResult(
        model=model,
        history=tuple(run.history),
        negatives=name,
        stop=stop,
        updates=run.steps,
        seconds=time.perf_counter() - began,
        seed=seed,
        stopped=stopped,
    )


class FitRun:
    """Updates until their end or that of patience, with the best parameters so far."""

    def __init__(
        self,
        updates: Updates,
        per_epoch: int,
        score: Callable[[EnergyModel], float] | None,
        patience: int,
    ) -> None:
        self.updates, self.per_epoch = updates, per_epoch
        self.score, self.patience = score, patience
        self.steps, self.evaluations = 0, 0.0  # as a watch reads them; evaluations are not counted
        self.loss: Tensor | None = None
        self.history: list[FitReading] = []
        self.best_state: dict[str, Tensor] = {}
        self.best_place = 0  # in `history`

    def learn(self, total: int, watch: Watch) -> str:
        """Make `total` updates, or fewer. Returns why there were fewer, else ""."""
        self.read()
        stopped = ""
        while self.steps < total and not stopped:
            self.loss = self.updates.update()
            self.steps += 1
            if not self.loss.isfinite():
                raise DivergedError(
                    f"at update {self.steps} the loss is {float(self.loss)}; take a smaller "
                    "learning_rate, or more steps of the negatives' sampler"
                )
            if self.steps % self.per_epoch == 0:
                self.read()
                stopped = self.describe_patience()
            if watch.look(self):
                stopped = f"{watch.stopped} after {self.steps:,} updates"
        if self.history[-1].update != self.steps:
            self.read()
        if self.best_state:
            self.updates.model.load_state_dict(self.best_state)
        return stopped

    def read(self) -> None:
        """Score the model, and keep its parameters if the score is the best so far."""
        score = None if self.score is None else self.score(self.updates.model)
        loss = None if self.loss is None else float(self.loss)
        self.history.append(FitReading(self.steps / self.per_epoch, self.steps, loss, score))
        if score is None:
            return
        best = self.history[self.best_place].score
        if len(self.history) == 1 or (best is not None and score > best):
            self.best_place = len(self.history) - 1
            self.best_state = to_checkpoint(self.updates.model.state_dict())

    def describe_patience(self) -> str:
        """Why learning ends: no better score for too many readings; else ""."""
        waited = len(self.history) - 1 - self.best_place
        if self.score is None or waited < self.patience:
            return ""
        best = self.history[self.best_place]
        return f"stopped: no better score for {waited} epochs after epoch {best.epoch:.3g}"

    def describe_progress(self) -> str:
        """A note beside the updates of the progress line."""
        reading = self.history[-1]
        if reading.score is not None:
            return f"held-out rows {reading.score:.4g}"
        return "" if self.loss is None else f"loss {float(self.loss):.3g}"


def _require_learnable(model: EnergyModel) -> None:
    """Raise unless the model has parameters to learn, for all sites."""
    if not isinstance(model, EnergyModel):
        raise TypeError(f"the model must be an EnergyModel, got {type(model).__name__}")
    if model.is_conditioned:
        raise ValueError(
            "a model with known values is not learned: learn the whole model, then condition_on"
        )
    if next(model.parameters(), None) is None:
        raise ValueError(
            f"{type(model).__name__} has no parameters to learn; Graph, DenseIsing, RBM and ResNet "
            "have some"
        )
    for tensor in model.parameters():
        if tensor.dtype != torch.float32:
            raise ValueError(
                f"learning computes in single precision, got {tensor.dtype}; take model.float()"
            )
