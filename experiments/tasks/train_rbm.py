"""Task: train a restricted Boltzmann machine; `pretrained` makes one as a shared artifact.

Each update follows the gradient of mean log p(data) - mean log p(negatives). The source of the
negatives makes it contrastive divergence, SML, FPCD or herding (`tasks.learning.negatives`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Generator, Tensor
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LinearLR, LRScheduler

from latticework.data.base import Dataset, some
from latticework.experiments.records.headline import KeyNumber, readings
from latticework.experiments.records.record import Record
from latticework.experiments.runs.artifacts import artifact, fingerprint
from latticework.experiments.runs.draws import consecutive
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.learning.negatives import Contrastive, Negatives
from latticework.experiments.tasks.measures import sampling_likelihood as isl
from latticework.models.base import CarriesRates, EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.memory import Memory
from latticework.sampling.starts import data_mean

VisibleBias = Literal["zero", "data"]
ROWS = 1000  # training rows evaluated at once


def pretrained(
    *,
    model: EnergyModel,
    data: Dataset | None,
    run: Run,
    epochs: float,
    batch: int,
    learning_rate: float,
    sampler: Sampler | None = None,
    negatives: Negatives | None = None,
    optimiser: Callable[..., Optimizer] = Adam,
    linear_decay: bool = False,
    visible_bias: VisibleBias = "zero",
) -> EnergyModel:
    """`model` trained on `data` for `epochs` epochs, loaded if it was trained before.

    `negatives` makes the negative samples; `sampler` alone is short for Contrastive(sampler), so
    BlockGibbs(steps=k) is CD-k. `linear_decay` lowers the learning rate to 0 at the last update.
    The size of the requested data set sets the updates of an epoch, also with substitute data.
    `visible_bias` initialises the visible biases: "zero", or the log-odds of the "data" as in the
    released scripts of Zhang et al. (2022). A model that carries rates gets those of the training
    data. Raises ValueError without data, and without negatives and sampler.
    """
    data = _required(data)
    source, named = _source(sampler, negatives)
    updates = max(1, round(epochs * data.epoch_size / batch))
    spec = {
        "model": fingerprint(model),
        "data": data.fingerprint,
        "updates": updates,
        "batch": batch,
        "learning_rate": learning_rate,
        "seed": run.model_seed,
        **named,
        **_choices(optimiser, linear_decay, visible_bias),
    }

    def make() -> dict[str, Tensor]:
        training = train(
            model,
            data,
            run,
            source,
            updates=updates,
            batch=batch,
            learning_rate=learning_rate,
            optimiser=optimiser,
            linear_decay=linear_decay,
            visible_bias=visible_bias,
        )
        for _ in training:
            pass
        set_rates(model, data, run)
        return model.state_dict()

    model.load_state_dict(artifact(run, "rbm", spec, make))
    return model


def _source(
    sampler: Sampler | None, negatives: Negatives | None
) -> tuple[Negatives, dict[str, str]]:
    """The source of the negatives, and its part in the artifact's name."""
    if negatives is not None:
        return negatives, {"negatives": repr(negatives)}
    if sampler is None:
        raise ValueError("training needs negatives, or a sampler for contrastive divergence")
    return Contrastive(sampler), {"sampler": repr(sampler)}


def _choices(
    optimiser: Callable[..., Optimizer],
    linear_decay: bool,
    visible_bias: VisibleBias,
) -> dict[str, Any]:
    """Other settings in the name of the artifact. Defaults add no key, so old ones are found."""
    spec: dict[str, Any] = {}
    if optimiser is not Adam:
        spec["optimiser"] = str(optimiser)
    if linear_decay:
        spec["linear_decay"] = True
    if visible_bias != "data":  # the first artifacts were trained with the data's
        spec["visible_bias"] = visible_bias
    return spec


@dataclass(eq=False)
class Training(Memory):
    """All that an update changes."""

    model: EnergyModel
    stepper: Optimizer
    schedule: LRScheduler | None
    rng: Generator  # of the negatives
    shuffle: Generator  # of the batches
    order: Tensor  # rows of the data that are left of this pass
    negatives: Any  # the memory of a Negatives


def train(
    model: EnergyModel,
    data: Dataset,
    run: Run,
    negatives: Negatives,
    *,
    updates: int,
    batch: int,
    learning_rate: float,
    optimiser: Callable[..., Optimizer] = Adam,
    linear_decay: bool = False,
    visible_bias: VisibleBias = "zero",
) -> Iterator[int]:
    """Train in place and yield the number of updates after each of them; resumable.

    `visible_bias` is as in `pretrained`; "zero" leaves the biases as they are. Raises ValueError
    for another word.
    """
    if visible_bias not in get_args(VisibleBias):
        raise ValueError(
            f"visible_bias must be one of {get_args(VisibleBias)}, got {visible_bias!r}"
        )
    rng, shuffle = run.shared_rng("training"), run.shared_rng("batches", device="cpu")
    if visible_bias == "data":
        model.start_from_data(data.mean.to(run.device))
    stepper = optimiser(model.parameters(), lr=learning_rate)
    memory = Training(
        model.requires_grad_(False),
        stepper,
        LinearLR(stepper, 1.0, 0.0, total_iters=updates) if linear_decay else None,
        rng,
        shuffle,
        order=torch.empty(0, dtype=torch.long),
        negatives=negatives.start(model, rng),
    )
    for update in run.resumable(memory, "training", total=updates):
        if len(memory.order) < batch:  # a new pass, in a new order
            memory.order = torch.randperm(len(data.train), generator=shuffle)
        rows, memory.order = memory.order[:batch], memory.order[batch:]
        _update(memory, negatives, data.batch(rows, shuffle).to(run.device))
        yield update


def _update(memory: Training, negatives: Negatives, positive: Tensor) -> None:
    """Draw negatives, and follow the gradient of mean log p(positive) - mean log p(negative)."""
    model = memory.model
    with torch.no_grad():
        negative, own = negatives.draw(memory.negatives, model, positive, memory.rng)
    model.requires_grad_(True)
    loss = negatives.value(model, negative).mean() - negatives.value(model, positive).mean()
    memory.stepper.zero_grad(set_to_none=True)
    loss.backward()
    with torch.no_grad():
        memory.negatives = negatives.learn(own, model)
    memory.stepper.step()
    if memory.schedule is not None:
        memory.schedule.step()
    model.requires_grad_(False)


def set_rates(model: EnergyModel, data: Dataset, run: Run) -> None:
    """Give a model that carries rates (`models.rated_rbm`) those of the training data."""
    if not isinstance(model, CarriesRates):
        return
    rng = run.shared_rng("rates", device="cpu")
    rows = torch.arange(len(data.train)).split(ROWS)
    model.set_rates(data.batch(chunk, rng).to(run.device) for chunk in rows)


def train_rbm(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    negatives: Negatives,
    epochs: int,
    batch: int,
    learning_rate: float,
    optimiser: Callable[..., Optimizer] = Adam,
    linear_decay: bool = False,
    visible_bias: VisibleBias = "zero",
    samples: int = 1000,
    points: int = 1000,
    every: int = 1,
) -> None:
    """Train for `epochs` epochs; log the validation ISL every `every` epochs and after the last.

    Other settings are those of `pretrained`. The ISL is that of `samples` consecutive samples of
    one chain of `sampler`, started at the data mean, on `points` validation rows, at its best beta.
    The exact log-likelihood is logged if the hidden layer can be summed over. The trained model is
    stored as `model`. Raises ValueError without data.
    """
    data = _required(data)
    per_epoch = max(1, round(data.epoch_size / batch))
    valid = some(data.valid, points).to(run.device)
    training = train(
        model,
        data,
        run,
        negatives,
        updates=epochs * per_epoch,
        batch=batch,
        learning_rate=learning_rate,
        optimiser=optimiser,
        linear_decay=linear_decay,
        visible_bias=visible_bias,
    )
    for update in training:
        if update % per_epoch or (update // per_epoch % every and update != epochs * per_epoch):
            continue
        set_rates(model, data, run)
        rng = run.rng(f"epoch {update // per_epoch}")
        drawn = consecutive(sampler, model, data_mean(model, 1, rng, data), rng, samples)
        counted = isl.histograms(drawn, valid)
        beta = isl.best_beta(counted)
        score = isl.score(counted, beta)
        run.log(update // per_epoch, isl=score, beta=beta, **_exact(model, valid))
    run.save("model", **model.state_dict())


def headline(record: Record) -> list[KeyNumber]:
    """The last validation ISL, and the exact log-likelihood if the model has one."""
    return readings(record, {"isl": "higher", "log_likelihood": "higher"})


def _exact(model: EnergyModel, rows: Tensor) -> dict[str, Tensor]:
    """Mean exact log-likelihood of `rows`, if the model can sum over its states cheaply."""
    known = model.log_z_and_mean()
    if known is None:
        return {}
    return {"log_likelihood": model(rows.float()).double().mean() - known[0]}


def _required(data: Dataset | None) -> Dataset:
    if data is None:
        raise ValueError("training needs a data set; give one, such as data=mnist")
    return data
