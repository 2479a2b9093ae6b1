"""The path of tempering that suits a model."""

from functools import lru_cache

import torch
from torch import Tensor

from latticework.models.annealed import GeometricPath, SoftenedPath
from latticework.models.base import EnergyModel
from latticework.models.rbm import RBM
from latticework.models.scaled_rbm import ScaledRBM


def path_of(
    model: EnergyModel, log_odds: Tensor | None = None, *, powers: bool = False
) -> GeometricPath | ScaledRBM:
    """The path of tempering to `model`: of RBMs to an RBM, else the geometric one.

    Zeros that the model knows of are softened.

    It begins at independent sites with `log_odds` `[dim]`, or uniform ones. `powers`: from no
    proper law, so that log pi_beta is beta log f.
    """
    if isinstance(model, RBM):
        return ScaledRBM(model, log_odds)
    if (softened := model.soften()) is not None:
        return SoftenedPath(model, softened, log_odds, powers=powers)
    return GeometricPath(model, log_odds, powers=powers)


@lru_cache(maxsize=2)
def cached_path(
    model: EnergyModel,
    powers: bool,
    log_odds: tuple[float, ...] | None,
    dtype: torch.dtype,
    device: torch.device,
) -> GeometricPath | ScaledRBM:
    """`path_of` with numbers of this type, made once for a sampler that asks at each step."""
    path = path_of(model, None if log_odds is None else torch.tensor(log_odds), powers=powers)
    for name, buffer in path.named_buffers(recurse=False):  # not those of the model
        setattr(path, name, buffer.to(device, dtype))
    return path
