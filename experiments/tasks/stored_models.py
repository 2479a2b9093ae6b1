"""A model with the state of a file, as `task.pretrain`."""

from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from latticework.data.base import Dataset
from latticework.experiments.runs.errors import ConfigurationError
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.storage import hash_model
from latticework.models.base import EnergyModel

UNREADABLE = (SafetensorError, BadZipFile, EOFError, ValueError, KeyError, OSError, RuntimeError)


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
