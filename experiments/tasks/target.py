"""The target of a task: a model that may need training, its true moments, and its energies.

`task.pretrain` turns a newly built model into the target (conf/pretrain): it is trained or loaded,
or keeps its random weights. A model that needs training and gets none of these is refused. A model
is trained by the gradient of mean log p(data) - mean log p(negatives). The source of the negatives
makes it contrastive divergence, SML, FPCD or herding (`tasks.learning.negatives`).

`task.truth` is a function of the model and the run that returns a Reference, with which metrics
compare: exact moments of small models, or long chains of a trusted sampler. Sampled references are
shared artifacts, computed once and used by every run.

A proposal of log-probability -inf is impossible, and rejected as any other. If a model returns NaN
or +infinity, an acceptance test rejects the move too. A sampler without a test leaves the site or
the chain unchanged (`samplers`), or its state becomes NaN and stays so. `watch` warns of NaN and
+infinity, and stops a run when no chain can move.
"""

import logging
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args
from zipfile import BadZipFile

import numpy as np
import torch
from hydra.core.hydra_config import HydraConfig
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Generator, Tensor
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LinearLR

from latticework.data.base import Dataset
from latticework.experiments.runs.configuration import command_words
from latticework.experiments.runs.errors import ConfigurationError
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.storage import artifact_spec, hash_model, load_or_make_artifact
from latticework.experiments.tasks.learning.negatives import (
    Contrastive,
    Negatives,
    Updates,
    require_data,
)
from latticework.models.abilities import CarriesRates
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.samplers.sums import SumRequest
from latticework.sampling.chain import run_chain
from latticework.sampling.exact import exact as exact_moments
from latticework.sampling.metrics import Metric, Reference, Steps

log = logging.getLogger(__name__)
DATA_BY_SITES = {
    256: "usps",
    784: "mnist",
    1000: "reviews",
}  # a data set for models of so many sites
RECIPES = {  # what trains a model, by its class
    "RBM": "pretrain=cd",
    "RatedRBM": "pretrain=fpcd",
    "ResNet": "experiment=ebm_learning",
    "LearnedIsing": "experiment=ising_learning",
}
DROPPED_OVERRIDES = ("model=", "task=", "task.", "experiment=", "pretrain=")  # by an experiment
VisibleBias = Literal["zero", "data"]
ROWS = 1000  # training rows evaluated at once
UNREADABLE = (SafetensorError, BadZipFile, EOFError, ValueError, KeyError, OSError, RuntimeError)
INVALID_STEPS_KEY = "invalid_steps"  # in run.json, of all chains together


def ensure_trained(
    model: EnergyModel,
    data: Dataset | None,
    run: Run,
    pretrain: Callable[..., EnergyModel] | None,
) -> EnergyModel:
    """The result of `pretrain`, or `model` itself if it needs no training.

    Raises ConfigurationError if the model would be used with random weights that the user did not
    ask for; the message has the command that trains it. Also raises it if data and model differ in
    their number of sites.
    """
    if pretrain is None:
        if model.untrained:
            raise ConfigurationError(_refusal(model, data))
        return model
    sites = model.domain.dim
    if data is not None and data.mean.numel() != sites:
        raise ConfigurationError(
            f"training needs data with as many sites as the model: {type(model).__name__} has "
            f"{sites}, the data have {data.mean.numel()}"
        )
    return pretrain(model=model, data=data, run=run)


def random(*, model: EnergyModel, data: Dataset | None, run: Run) -> EnergyModel:
    """The model with its random initial weights; the record notes `untrained`."""
    run.note(untrained=model.untrained)
    return model


def stored(*, model: EnergyModel, data: Dataset | None, run: Run, file: str) -> EnergyModel:
    """The model with the state in `file`: a safetensors or npz file from the record of a training.

    The record notes the fingerprint of the loaded model. Raises ConfigurationError if the file does
    not exist, cannot be read, or holds the state of another model.
    """
    path = Path(file)
    if not path.is_file():
        raise ConfigurationError(f"task.pretrain.file must be an existing file, got {file}")
    if path.suffix not in (".npz", ".safetensors") or not path.stat().st_size:
        what = "an empty file" if not path.stat().st_size else f"a file that ends in {path.suffix}"
        raise ConfigurationError(
            "task.pretrain.file must be a state that ends in .safetensors or .npz, got "
            f"{what}, {file}; safetensors.torch.save_file(model.state_dict(), 'model.safetensors') "
            "writes one, and other formats of PyTorch may run code when they are read"
        )
    try:
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                state = {name: torch.from_numpy(arrays[name]) for name in arrays}
        else:
            state = load_file(path)
        model.load_state_dict(state)
    except UNREADABLE as error:
        raise ConfigurationError(
            f"{file} does not hold the state of this {type(model).__name__} "
            f"({' '.join(str(error).split())[:300]}); use the model settings of its record"
        ) from error
    run.note(loaded=hash_model(model))
    return model.requires_grad_(False)


def _refusal(model: EnergyModel, data: Dataset | None) -> str:
    """The error message for random weights, with the command that trains them."""
    name = type(model).__name__
    recipe = next((RECIPES[c.__name__] for c in type(model).__mro__ if c.__name__ in RECIPES), "")
    if not HydraConfig.initialized():
        return (
            f"this {name} has random weights and is meant to be trained: load a state into it "
            "(load_state_dict)" + f"; on the command line {recipe} trains it" * bool(recipe)
        )

    def line(*words: str) -> str:
        return shlex.join(["python", "run.py", *words])

    words = command_words(HydraConfig.get())
    loads = "pretrain=stored task.pretrain.file=<record>/model.safetensors"
    if not recipe:
        how = f"load a trained state by {loads}"
    elif recipe.startswith("experiment="):
        words = [word for word in words if not word.startswith(DROPPED_OVERRIDES)]
        how = f"train one by `{line(recipe, *words)}` and load it by {loads}"
    else:
        words = [word for word in words if not word.startswith("pretrain=")] + [recipe]
        if data is None:
            words.append(f"data={DATA_BY_SITES.get(model.domain.dim, '<data set>')}")
        how = f"train it by `{line(*words)}`, or load it by {loads}"
    return (
        f"this {name} has random weights and is meant to be trained: {how}; "
        "pretrain=random takes the random weights"
    )


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
    data = require_data(data)
    if negatives is None and sampler is None:
        raise ValueError("training needs negatives, or a sampler for contrastive divergence")
    updates = max(1, round(epochs * data.epoch_size / batch))
    spec: dict[str, Any] = {
        "model": hash_model(model),
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

    model.load_state_dict(load_or_make_artifact(run, "rbm", spec, make))
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


# Ground truth for metrics.


def exact(model: EnergyModel, run: Run) -> Reference:
    """Exact means, for models that can be summed exactly (see sampling.exact)."""
    return Reference(mean=exact_moments(model).mean.float().to(run.device))


def symmetric(model: EnergyModel, run: Run) -> Reference:
    """The means of a target that is symmetric in the values of each site: their average.

    Examples are Ising and Potts models without a field. A chain that stays in one of several equal
    modes has other means. Raises ConfigurationError if exchanging the values of random states
    changes the log-probability.
    """
    values, x = model.domain.values(), model.domain.uniform(8, Generator().manual_seed(0))
    other = x.roll(1, -1) if x.ndim == 3 else values.sum() - x
    change = model.log_prob(x.to(run.device)) - model.log_prob(other.to(run.device))
    if float(change.abs().max()) > 1e-5 * model.domain.dim:  # rounding is below
        raise ConfigurationError(
            "the known means are those of a target that is symmetric in the values of a site, and "
            f"exchanging them changes its log-probability by {float(change.abs().max()):.3g}: "
            "leave out the field (model.bias), or choose another target.truth"
        )
    mean = values.mean(0)
    return Reference(mean=mean.expand(model.domain.shape).to(run.device))


def averaged(
    model: EnergyModel, run: Run, *, sampler: Sampler, chains: int, steps: int
) -> Reference:
    """Means over the second half of long chains of a trusted sampler, which start uniformly."""

    def make() -> dict[str, Tensor]:
        total = torch.zeros(model.domain.shape, dtype=torch.float64, device=run.device)
        rng = run.shared_rng("averaged truth")
        readings = run_chain(
            sampler, model, model.domain.uniform(chains, rng), rng, steps=steps, every=1
        )
        for reading in run.progress(readings, "reference means", steps, -1):
            if reading.step > steps // 2:
                total += reading.state.x.mean(0)
        return {"mean": (total / (steps - steps // 2)).float()}

    spec = artifact_spec(sampler, model, run, chains=chains, steps=steps)
    return Reference(mean=load_or_make_artifact(run, "averages", spec, make)["mean"])


def sampled(
    model: EnergyModel, run: Run, *, sampler: Sampler, samples: int, floor: int, steps: int
) -> Reference:
    """The final states of `samples + floor` independent chains after `steps` steps of `sampler`.

    Chains start at uniform states. The first `samples` states are the reference; the others show
    how close exact samples come to it.
    """

    def make() -> dict[str, Tensor]:
        rng = run.shared_rng("truth")
        x = model.domain.uniform(samples + floor, rng)
        readings = run_chain(sampler, model, x, rng, steps=steps, every=1)
        for reading in run.progress(readings, "ground-truth samples", steps, -1):
            x = reading.state.x  # the last; a list of the readings would hold all states
        return {"x": x}

    spec = artifact_spec(sampler, model, run, samples=samples, floor=floor, steps=steps)
    x = load_or_make_artifact(run, "truth", spec, make)["x"]
    return Reference(samples=x[:samples], floor=x[samples:])


# Log-probabilities that are NaN or +infinity.


class StuckError(RuntimeError):
    """No chain can move, because all log-probabilities or gradients are NaN or +infinite."""


class ValidityCounts(NamedTuple):
    invalid: Tensor  # [], int64: invalid steps of all chains since the last call of `watch`
    valid: Tensor  # [chains], int64: valid steps of each chain since then


@dataclass(frozen=True)
class Validity(Metric):
    """Counts steps with a log-probability of NaN or +infinity. `watch` reads the counts."""

    wanted = SumRequest(invalid=True)

    def init(self, model: EnergyModel, state: Any, reference: Reference) -> ValidityCounts:
        zeros = torch.zeros(len(state.x), dtype=torch.long, device=state.x.device)
        return ValidityCounts(zeros.new_zeros(()), zeros)

    def update(self, carry: ValidityCounts, state: Any, sums: Steps, steps: int) -> ValidityCounts:
        invalid = sums.invalid.long()
        return ValidityCounts(carry.invalid.add_(invalid.sum()), carry.valid.add_(steps - invalid))

    def read(self, carry: ValidityCounts) -> dict[str, Tensor]:
        return {}


def warn_of_invalid_steps(run: Run, tally: ValidityCounts, step: int) -> None:
    """Warn of invalid steps since the last call, and note their total in the record.

    Moves the counts to the host and resets them. Raises StuckError if steps were invalid and no
    chain made a valid one.
    """
    if invalid := int(tally.invalid):
        total = run.notes.get(INVALID_STEPS_KEY, 0) + invalid
        run.note(**{INVALID_STEPS_KEY: total})
        log.warning(
            "up to step %d, %d steps of chains were rejected because the log-probability or its "
            "gradient was NaN or +inf; %d of them since the last reading",
            *(step, total, invalid),
        )
        if not tally.valid.any():
            raise StuckError(
                f"all {len(tally.valid)} chains are stuck at step {step}: since the last reading "
                "every log-probability or gradient was NaN or +inf. Look at the model's "
                "parameters (did its training "
                "diverge?) and at where the chains start"
            )
    tally.invalid.zero_()
    tally.valid.zero_()
