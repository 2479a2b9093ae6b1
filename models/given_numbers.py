"""Numbers as users hand them over: tensors, arrays, lists and tables."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def read_numbers(given: Any, name: str) -> Tensor:
    """The numbers of a tensor, an array, lists or a pandas table, in their own shape and type.

    Columns of several types become floating-point. Raises ValueError for anything that is no
    number, with `name` as what was given.
    """
    try:
        if not isinstance(given, Tensor) and hasattr(given, "to_numpy"):
            given = given.to_numpy()
        if isinstance(given, np.ndarray) and given.dtype == object:
            given = given.astype(float)
        if isinstance(given, np.ndarray) and not given.flags.writeable:  # PyTorch warns
            given = given.copy()
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name} must be numbers, a tensor, an array or a table, got {type(given).__name__} "
            f"({error})"
        ) from error
