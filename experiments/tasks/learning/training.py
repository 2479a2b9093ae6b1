"""Train or load models that need it before they are used; raise an error if neither is asked for.

`task.pretrain` turns a newly built model into the target; conf/pretrain has the choices.
"""

import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from hydra.core.hydra_config import HydraConfig
from safetensors import SafetensorError
from safetensors.torch import load_file

from latticework.data.base import Dataset
from latticework.experiments.runs.artifacts import fingerprint
from latticework.experiments.runs.errors import ConfigurationError
from latticework.experiments.runs.run import Run
from latticework.models.base import EnergyModel

DATA = {256: "usps", 784: "mnist", 1000: "reviews"}  # a data set for models of so many sites
RECIPES = {  # what trains a model, by its class
    "RBM": "pretrain=cd",
    "RatedRBM": "pretrain=fpcd",
    "ResNet": "experiment=ebm_learning",
    "LearnedIsing": "experiment=ising_learning",
}
REPLACED = ("model=", "task=", "task.", "experiment=", "pretrain=")  # by an experiment


def trained(
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
    try:
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                state = {name: torch.from_numpy(arrays[name]) for name in arrays}
        else:
            state = load_file(path)
        model.load_state_dict(state)
    except (SafetensorError, ValueError, KeyError, OSError, RuntimeError) as error:
        raise ConfigurationError(
            f"{file} does not hold the state of this {type(model).__name__} "
            f"({' '.join(str(error).split())[:300]}); use the model settings of its record"
        ) from error
    run.note(loaded=fingerprint(model))
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

    words = list(HydraConfig.get().overrides.task)
    loads = "pretrain=stored task.pretrain.file=<record>/model.safetensors"
    if not recipe:
        how = f"load a trained state by {loads}"
    elif recipe.startswith("experiment="):
        words = [word for word in words if not word.startswith(REPLACED)]
        how = f"train one by `{line(recipe, *words)}` and load it by {loads}"
    else:
        words = [word for word in words if not word.startswith("pretrain=")] + [recipe]
        if data is None:
            words.append(f"data={DATA.get(model.domain.dim, '<data set>')}")
        how = f"train it by `{line(*words)}`, or load it by {loads}"
    return (
        f"this {name} has random weights and is meant to be trained: {how}; "
        "pretrain=random takes the random weights"
    )
