"""Task: train a restricted Boltzmann machine, and log how good its samples are on the way."""

from collections.abc import Callable
from typing import Any

from torch.optim import Adam, Optimizer

from latticework.data.base import Dataset, fixed_subset
from latticework.experiments.records.estimates import KeyNumber, fact_number, last_readings
from latticework.experiments.records.record import Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.learning.data import require_data
from latticework.experiments.tasks.measures import sampling_likelihood as isl
from latticework.experiments.tasks.measures.sampling_likelihood import draw_consecutive
from latticework.experiments.tasks.measures.training_quality import TrainingQuality
from latticework.experiments.tasks.target import VisibleBias, set_rates, train
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.learning.negatives import Negatives
from latticework.sampling.starts import data_mean


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
    quality: TrainingQuality | None = None,
) -> None:
    """Train for `epochs` epochs; log the validation ISL every `every` epochs and after the last.

    Other settings are those of `pretrained`. The ISL is that of `samples` consecutive samples of
    one chain of `sampler`, started at the data mean, on `points` validation rows, at its best beta.
    The exact log-likelihood is logged if the hidden layer can be summed over. `quality` measures
    the trained model, and the record notes its numbers. The trained model is stored as `model`.
    Raises ValueError without data.
    """
    data = require_data(data)
    per_epoch = max(1, round(data.epoch_size / batch))
    valid = fixed_subset(data.valid, points).to(run.device)
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
        drawn = draw_consecutive(sampler, model, data_mean(model, 1, rng, data), rng, samples)
        counted = isl.histograms(drawn, valid)
        beta = isl.best_beta(counted)
        reading: dict[str, Any] = {"isl": isl.score(counted, beta), "beta": beta}
        if known := model.log_z_and_mean():
            reading["log_likelihood"] = model(valid.float()).double().mean() - known[0]
        run.log(update // per_epoch, **reading)
    run.save("model", **model.state_dict())
    if quality is not None:
        run.note(**quality.measure(model, data, points, run.rng("quality")))


def headline(record: Record) -> list[KeyNumber]:
    """The last validation ISL, the log-likelihood, and what the model's own samples are like."""
    numbers = last_readings(record, {"isl": "higher", "log_likelihood": "higher"})
    if "ais_back" in record.document:
        numbers.append(fact_number(record, "ais_forward", better="higher"))
        numbers.append(fact_number(record, "ais_back", better="higher"))
        numbers.append(fact_number(record, "commonest_share"))
        numbers.append(fact_number(record, "pixel_error"))
    return numbers
