"""Task: train a restricted Boltzmann machine; `pretrained` makes one as a shared artifact.

Each update follows the gradient of mean log p(data) - mean log p(negatives). The source of the
negatives makes it contrastive divergence, SML, FPCD or herding (`tasks.learning.negatives`).
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LinearLR

from latticework.data.base import Dataset, some
from latticework.experiments.records.numbers import KeyNumber, readings
from latticework.experiments.records.record import Record
from latticework.experiments.runs.artifacts import artifact, fingerprint
from latticework.experiments.runs.draws import consecutive
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.learning.negatives import (
    Contrastive,
    Negatives,
    Updates,
    required,
)
from latticework.experiments.tasks.measures import sampling_likelihood as isl
from latticework.models.base import CarriesRates, EnergyModel
from latticework.samplers.base import Sampler
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
    data = required(data)
    if negatives is None and sampler is None:
        raise ValueError("training needs negatives, or a sampler for contrastive divergence")
    updates = max(1, round(epochs * data.epoch_size / batch))
    spec: dict[str, Any] = {
        "model": fingerprint(model),
        "data": data.fingerprint,
        "updates": updates,
        "batch": batch,
        "learning_rate": learning_rate,
        "seed": run.model_seed,
    }
    if negatives is None:
        assert sampler is not None
        negatives, spec["sampler"] = Contrastive(sampler), repr(sampler)
    else:
        spec["negatives"] = repr(negatives)
    # These settings came later. Their first values add no key, so old artifacts are found.
    later = {"optimiser": optimiser, "linear_decay": linear_decay, "visible_bias": visible_bias}
    first = {"optimiser": Adam, "linear_decay": False, "visible_bias": "data"}
    spec |= {k: v if k != "optimiser" else str(v) for k, v in later.items() if v != first[k]}

    def make() -> dict[str, Tensor]:
        for _ in train(
            model, data, run, negatives, updates=updates, batch=batch,
            learning_rate=learning_rate, optimiser=optimiser, linear_decay=linear_decay,
            visible_bias=visible_bias,
        ):  # fmt: skip
            pass
        set_rates(model, data, run)
        return model.state_dict()

    model.load_state_dict(artifact(run, "rbm", spec, make))
    return model


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
    if visible_bias == "data":
        model.start_from_data(data.mean.to(run.device))
    stepper = optimiser(model.parameters(), lr=learning_rate)
    training = Updates(
        negatives,
        model,
        data,
        batch,
        stepper=stepper,
        schedule=LinearLR(stepper, 1.0, 0.0, total_iters=updates) if linear_decay else None,
        rng=run.shared_rng("training"),
        shuffle=run.shared_rng("batches", device="cpu"),
    )
    for update in run.resumable(training, "training", total=updates):
        positive = training.positive()
        training.gradient(positive, training.negative(positive))
        training.step()
        yield update


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
    data = required(data)
    per_epoch = max(1, round(data.epoch_size / batch))
    valid = some(data.valid, points).to(run.device)
    training = train(
        model, data, run, negatives, updates=epochs * per_epoch, batch=batch,
        learning_rate=learning_rate, optimiser=optimiser, linear_decay=linear_decay,
        visible_bias=visible_bias,
    )  # fmt: skip
    for update in training:
        if update % per_epoch or (update // per_epoch % every and update != epochs * per_epoch):
            continue
        set_rates(model, data, run)
        rng = run.rng(f"epoch {update // per_epoch}")
        drawn = consecutive(sampler, model, data_mean(model, 1, rng, data), rng, samples)
        counted = isl.histograms(drawn, valid)
        beta = isl.best_beta(counted)
        found: dict[str, Any] = {"isl": isl.score(counted, beta), "beta": beta}
        if known := model.log_z_and_mean():
            found["log_likelihood"] = model(valid.float()).double().mean() - known[0]
        run.log(update // per_epoch, **found)
    run.save("model", **model.state_dict())


def headline(record: Record) -> list[KeyNumber]:
    """The last validation ISL, and the exact log-likelihood if the model has one."""
    return readings(record, {"isl": "higher", "log_likelihood": "higher"})
