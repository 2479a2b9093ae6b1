"""The target of a task: a model that may need training.

`task.pretrain` turns a newly built model into the target (conf/pretrain): it is trained or loaded,
or keeps its random weights. A model that needs training and gets none of these is refused. A model
is trained by the gradient of mean log p(data) - mean log p(negatives). The source of the negatives
makes it contrastive divergence, SML, FPCD or herding (`sampling.learning.negatives`).
"""

import logging
import shlex
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, get_args

from hydra.core.hydra_config import HydraConfig
from torch import Tensor
from torch.optim import Adam, Optimizer

from latticework.data.base import Dataset
from latticework.experiments.runs.configuration import command_words
from latticework.experiments.runs.errors import ConfigurationError
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.storage import hash_model, load_or_make_artifact
from latticework.experiments.tasks.learning.data import require_data
from latticework.models.base import EnergyModel
from latticework.moved import offer_moved_names
from latticework.samplers.base import Sampler
from latticework.sampling.learning import updates as learning
from latticework.sampling.learning.negatives import Contrastive, Negatives

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
    training = learning.start_updates(
        negatives, model, data, batch, updates=updates, learning_rate=learning_rate,
        optimiser=optimiser, linear_decay=linear_decay, rng=run.shared_rng("training"),
        shuffle=run.shared_rng("batches", device="cpu"),
    )  # fmt: skip
    for update in run.resumable(training, "training", total=updates):
        training.update()
        yield update


def set_rates(model: EnergyModel, data: Dataset, run: Run) -> None:
    """Give a model that carries rates those of the training data."""
    learning.set_rates(model, data, run.shared_rng("rates", device="cpu"), run.device)


if not TYPE_CHECKING:  # else type checkers would accept any name
    __getattr__ = offer_moved_names(__name__)
